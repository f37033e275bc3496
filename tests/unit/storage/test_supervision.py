"""A bug in what keeps the store in step: it is counted, it goes on, and meanwhile the others do."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from apiserver.storage import bootstrap, lineage, upkeep, writes
from apiserver.storage.operations import rights
from apiserver.storage.operations.embedded import Embedded
from apiserver.storage.pipeline import Connection, Failed
from apiserver.storage.primaries.connector import next_pause
from apiserver.storage.store import Store, Write
from apiserver.watchcache import hub
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.failing import fail_once, failures
from tests.fixtures.valkey import Open, Server, eventually, install, value


async def create(store: Store, name: str) -> Revision:
    return (await store.commit(Write(Key(name), value(name), Revision(0), "u"), dry_run=False)).revision


@pytest.mark.parametrize(
    ("task", "owner", "step"),
    [
        ("filling", bootstrap, "fill"),
        ("guard", Connection, "owes_since"),
        ("upkeep", upkeep.Upkeep, "monitor"),
        ("upkeep", upkeep.Upkeep, "check"),
        ("watches", hub.Hub, "tick"),
        ("writes in doubt", writes.Writer, "sweep"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_a_task_that_fails_is_begun_again_in_the_same_session(
    shared_server: Server,
    resource: str,
    opening: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    task: str,
    owner: Any,
    step: str,
) -> None:
    await install(shared_server, resource)
    fault, before = fail_once(monkeypatch, owner, step), failures(task)

    stores = await opening(shared_server, resource, monitor_seconds=0.1, check_seconds=0.1)
    await create(stores[resource], "a")
    await eventually(lambda: fault.calls >= 2)
    await create(stores[resource], "b")

    assert failures(task) == before + 1
    assert stores.store_state() is None
    assert "store not available" not in caplog.text


async def test_a_search_for_writes_in_doubt_that_fails_is_begun_again(
    shared_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource))[resource]
    fault, before = fail_once(monkeypatch, writes.Writer, "_resolve"), failures("outcomes")
    submit = Connection.submit

    def unclear(self: Connection, command: bytes, answered: Any) -> None:
        if b"sl1_put" not in command:
            submit(self, command, answered)
            return
        monkeypatch.setattr(Connection, "submit", submit)
        answered(Failed("ERR something in the middle of the function"))

    monkeypatch.setattr(Connection, "submit", unclear)
    await create(store, "a")

    assert (fault.calls, failures("outcomes")) == (2, before + 1)


async def test_store_is_followed_again_after_any_end_of_a_session(
    shared_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource))[resource]
    fail_once(monkeypatch, type(store._replica), "feed")
    before = failures("store")

    write = store.commit(Write(Key("a"), value("a"), Revision(0), "u"), dry_run=False)

    assert (await write).key == "a"
    assert failures("store") == before + 1


async def test_store_that_was_silent_twice_is_followed_again(own_server: Server, resource: str, opening: Open) -> None:
    """First a session ends, then an attempt to connect takes too long."""
    await install(own_server, resource)
    stores = await opening(own_server, resource, reply_seconds=0.2, connect_seconds=0.2)
    own_server.signal(signal.SIGSTOP)
    try:
        await eventually(lambda: "no connection to the store within 0.2 s" in (stores.store_state() or ""))
    finally:
        own_server.signal(signal.SIGCONT)
    await eventually(lambda: stores.store_state() is None)


async def test_sessions_that_do_not_last_are_opened_at_ever_longer_intervals(
    own_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may do all that opening takes, and not read the log."""
    await install(own_server, resource)
    own_server("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split())
    url = f"unix://{own_server.socket}?username={rights.SERVING_USER}&password=pw"
    store = (await opening(url, resource, backoff_seconds=0.4))[resource]
    opened: list[float] = []
    open_session = lineage.open_session

    async def noted(*args: Any, **options: Any) -> lineage.Session:
        session = await open_session(*args, **options)
        opened.append(asyncio.get_running_loop().time())
        return session

    monkeypatch.setattr(lineage, "open_session", noted)
    own_server("ACL", "SETUSER", rights.SERVING_USER, "-xread")
    await eventually(lambda: len(opened) >= 7)
    own_server("ACL", "SETUSER", rights.SERVING_USER, "+xread")

    assert opened[6] - opened[5] >= 0.5 * 0.4
    await eventually(lambda: store.store_state() is None)


def test_a_pause_doubles_up_to_its_bound_until_a_session_has_lasted() -> None:
    pauses, pause = [], 0.0
    for lasted in (0.0, 0.0, 1.9, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0):
        pause = next_pause(pause, lasted=lasted, longest=1.0)
        pauses.append(pause)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.05, 0.1]


async def test_the_keeper_of_the_embedded_store_outlives_a_failed_start(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Embedded(tmp_path_factory.mktemp("e") / "data")
    await server.start()
    try:
        before = failures("embedded store")
        fail_once(monkeypatch, Embedded, "_launch")
        first = server.process
        assert first is not None
        first.kill()
        await eventually(lambda: server.process is not first)
        assert failures("embedded store") == before + 1
    finally:
        await server.stop()
