"""The store under faults: nothing acknowledged is lost, nothing happens twice, and what was lost is said, never invented."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from apiserver import metrics
from apiserver.storage import functions, log
from apiserver.storage.errors import Initializing, KeyExists, Moved, OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.store import Store, Stores, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Event, EventType, Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Bookmark, Dropped, Wake
from apiserver.watchcache.scope import Scope
from tests.fixtures.proxy import Passage, Proxy
from tests.fixtures.valkey import Open, Server, eventually, install, value

THINGS = "g.example.com/things"
SECONDS = 60.0
T = TypeVar("T")


def records(server: Server, resource: str = THINGS, after: str = "-") -> list[log.Record]:
    """The log as it is, read past the code under test but for the field names."""
    return [log.decode(entry) for entry in server("XRANGE", Commands(resource).keys.log, after, "+")]


def fold(entries: list[log.Record]) -> dict[str, tuple[Revision, bytes]]:
    """The state that a log, read from its beginning, leads to. Its chain must be unbroken."""
    state: dict[str, tuple[Revision, bytes]] = {}
    before = entries[0].predecessor
    for record in entries:
        assert record.predecessor == before, f"{record.id!r} follows {record.predecessor!r}, not {before!r}"
        before = record.id
        if record.kind == log.FENCE:
            continue
        held = state.pop(record.key, None)
        assert (held is None) is (record.kind == log.CREATE)
        assert record.previous == (keys.stream_id(held[0]).encode() if held else b"-")
        assert record.old in (None, held[1] if held else None)
        if record.value is not None:
            state[record.key] = (record.revision, record.value)
    return state


def stored(server: Server, resource: str = THINGS) -> dict[str, tuple[Revision, bytes]]:
    """Objects that the hashes hold."""
    names = Commands(resource).keys
    flat = server("HGETALL", names.objects)
    values = dict(zip(flat[::2], flat[1::2], strict=True))
    flat = server("HGETALL", names.revisions)
    rows = dict(zip(flat[::2], flat[1::2], strict=True))
    assert values.keys() == rows.keys()
    return {key.decode(): (keys.revision(rows[key].split()[0]), values[key]) for key in values}


def remembered(store: Store) -> dict[str, Revision]:
    return {entry.key: entry.revision for entry in store.view().scan()}


def assert_agreement(server: Server, *stores: Store) -> None:
    """Invariant 13: log, hashes and every memory say the same."""
    state = fold(records(server))
    assert stored(server) == state
    for store in stores:
        assert remembered(store) == {key: revision for key, (revision, _) in state.items()}


class Watch:
    """A client that watches for ever: it resumes at the last revision it received, and fails on a 410."""

    def __init__(self, store: Store, *, after: Revision | None = None) -> None:
        self.store = store
        self.position = store.applied if after is None else after
        self.told: list[tuple[Revision, EventType, str]] = []
        self.resumed = 0
        self.task = asyncio.create_task(self._run())

    def event(self, event: Event) -> bool:
        assert event.revision > self.position
        self.told.append((event.revision, event.type, event.entry.key))
        self.position = event.revision
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True

    async def _run(self) -> None:
        while True:
            try:
                watcher = self.store.watch(after=self.position, scope=Scope(), sink=self)
            except Initializing:
                await asyncio.sleep(0.01)
                continue
            with contextlib.suppress(Dropped):
                await self._follow(watcher)
            watcher.close()
            self.resumed += 1

    async def _follow(self, watcher: Any) -> None:
        while True:
            while events := watcher.pull():
                for event in events:
                    self.event(event)
            if watcher.join() and await watcher.wait() is not Wake.BEHIND:
                return

    async def stop(self) -> None:
        if self.task.done():
            self.task.result()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def create(store: Store, name: str, text: str = "") -> Revision:
    write = Write(Key(name), value(name, text), Revision(0), "uid")
    return (await store.commit(write, dry_run=False)).revision


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Wait for an answer of the store without a limit: it may be down, and its memory being filled."""
    while True:
        try:
            return await ask()
        except (Unavailable, Initializing):
            await asyncio.sleep(0.01)


async def create_patiently(store: Store, name: str) -> tuple[Revision, int]:
    """As a client does: repeat what was refused; what it is not told about may exist at the next attempt."""
    unknown = 0
    while True:
        try:
            return await create(store, name), unknown
        except Unavailable:
            await asyncio.sleep(0.01)
        except OutcomeUnknown:
            unknown += 1
        except KeyExists as exists:
            assert unknown, f"{name} exists although nothing was sent"
            return exists.entry.revision, unknown


async def load(store: Store, count: int, *, clients: int = 16, prefix: str = "k") -> dict[str, Revision]:
    """`count` creates by so many clients; each sees its own revisions rise."""
    numbers = iter(range(count))
    acknowledged: dict[str, Revision] = {}

    async def client() -> None:
        newest = Revision(0)
        for number in numbers:
            name = f"{prefix}{number}"
            revision, unknown = await create_patiently(store, name)
            assert revision > newest or unknown
            newest = max(newest, revision)
            acknowledged[name] = revision

    await asyncio.gather(*(client() for _ in range(clients)))
    return acknowledged


def is_up(store: Store) -> bool:
    return store.store_state() is None


async def barrier_patiently(store: Store) -> Revision:
    return await patiently(store.barrier)


def holds(store: Store, count: int) -> bool:
    return store.view().count() >= count


def was_told(watch: Watch, count: int) -> bool:
    return len(watch.told) >= count


def restarted(server: Server) -> None:
    server.kill()
    server.start()


# -------------------------------------------------------------------------------------------------------- kill -9 of the server


async def test_kill_9_during_a_thousand_writes_loses_and_doubles_none(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    one = (await opening(own_server, THINGS))[THINGS]
    two = (await opening(own_server, THINGS))[THINGS]
    watches = [Watch(one), Watch(two)]
    loads = [asyncio.create_task(load(one, 500, prefix="a")), asyncio.create_task(load(two, 500, prefix="b"))]
    for enough in (200, 500, 800):
        await eventually(partial(holds, one, enough))
        await asyncio.to_thread(restarted, own_server)
    acknowledged = (await loads[0]) | (await loads[1])
    await asyncio.gather(barrier_patiently(one), barrier_patiently(two))

    written = records(own_server)
    creates = [(record.key, record.revision) for record in written if record.kind == log.CREATE]
    assert dict(creates) == acknowledged
    assert len(creates) == 1000
    assert len({record.token for record in written if record.kind != log.FENCE}) == 1000
    assert_agreement(own_server, one, two)
    for watch in watches:
        await eventually(partial(was_told, watch, 1000))
        await watch.stop()
        assert [(key, revision) for revision, _, key in watch.told] == creates
        assert watch.resumed == 0, "a restart that loses nothing ends no watch"


async def test_revisions_of_the_window_are_served_after_a_restart_of_everything(
    own_server: Server, opening: Open
) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    store = stores[THINGS]
    before = {store.applied: remembered(store)}
    for at in range(20):
        revision, _ = await create_patiently(store, f"k{at}")
        before[revision] = remembered(store)
        if at % 5 == 4:
            await asyncio.to_thread(restarted, own_server)
            await eventually(lambda: stores.store_state() is None)
    floor = store.floor
    await stores.close()
    await asyncio.to_thread(restarted, own_server)
    store = (await opening(own_server, THINGS))[THINGS]
    assert store.floor == floor
    for revision, state in before.items():
        assert {entry.key: entry.revision for entry in store.view_at(revision).scan()} == state
    epochs = {keys.parts(revision)[0] for revision in before}
    assert len(epochs) == 4 + (store.floor not in before)
    for revision in before:
        with pytest.raises(Compacted):  # a write of that epoch that never was
            store.view_at(Revision(revision + 1000))


async def test_writes_fail_at_once_while_the_store_is_down_and_reads_go_on(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    # A call that waited for an answer would wait for longer than this test may take.
    stores = await opening(own_server, THINGS, barrier_seconds=1000.0, deadline_seconds=1000.0, outcome_seconds=1000.0)
    store = stores[THINGS]
    revision = await create(store, "a")
    watch = Watch(store)
    own_server.kill()
    await eventually(lambda: stores.store_state() is not None)
    for dry_run in (False, True):
        with pytest.raises(Unavailable):
            await store.commit(Write(Key("b"), value("b"), Revision(0)), dry_run=dry_run)
    with pytest.raises(Unavailable):
        await store.barrier()
    assert store.view().get("a") is not None
    assert store.view_at(revision).get("a") is not None
    assert stores.why_not_ready() is None
    own_server.start()
    await create_patiently(store, "b")
    await eventually(lambda: len(watch.told) == 1)
    await watch.stop()
    assert watch.resumed == 0


# ------------------------------------------------------------------------------------------------------- lost replies, half-way


async def broken_at(proxy: Proxy, moment: str, rng: random.Random) -> None:
    """Arrange that some of what the writing connections send or get meets `moment`."""

    async def hook(passage: Passage, piece: bytes) -> bool:
        if passage.name != "sluice-writes" or (b"FCALL" not in piece and moment == "before") or rng.random() > 0.1:
            return True
        passage.cut()
        return False

    if moment == "before":
        proxy.requests = hook
    else:
        proxy.replies = hook


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_connection_that_breaks_around_a_write_applies_it_once(
    own_server: Server, proxy: Proxy, opening: Open, moment: str
) -> None:
    await install(own_server, THINGS)
    store = (await opening(proxy.url, THINGS))[THINGS]
    watch = Watch(store)
    await broken_at(proxy, moment, random.Random(7))
    acknowledged = await load(store, 300, clients=8)
    proxy.requests = proxy.replies = None
    await barrier_patiently(store)
    written = [record for record in records(own_server) if record.kind != log.FENCE]
    assert {record.key: record.revision for record in written} == acknowledged
    assert len({record.token for record in written}) == len(written) == 300
    assert_agreement(own_server, store)
    await eventually(lambda: len(watch.told) >= 300)
    await watch.stop()
    assert len(watch.told) == 300


async def test_a_write_whose_reply_is_swallowed_succeeds_once_the_log_shows_it(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    """Replies and log are cut off at first, so that nothing but the search for the token can tell."""
    await install(own_server, THINGS)
    store = (await opening(proxy.url, THINGS, reply_seconds=0.3))[THINGS]
    sent, swallowed = asyncio.Event(), asyncio.Event()

    async def see(passage: Passage, piece: bytes) -> bool:
        if b"sl1_put" in piece:
            sent.set()
        return True

    async def swallow(passage: Passage, piece: bytes) -> bool:
        if not sent.is_set() or passage.name not in ("sluice-writes", "sluice-tail"):
            return True
        if passage.name == "sluice-writes":
            swallowed.set()
        return False

    proxy.requests, proxy.replies = see, swallow
    write = asyncio.create_task(create_patiently(store, "a"))
    await swallowed.wait()
    await eventually(lambda: store.store_state() is not None)
    proxy.requests = proxy.replies = None
    revision, unknown = await write
    assert not unknown
    assert [(record.key, record.revision) for record in records(own_server)[1:] if record.kind != log.FENCE] == [
        ("a", revision)
    ]


async def test_a_write_that_is_held_up_on_the_way_is_not_executed_late(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    """It arrives when it was long given up, sent again, answered, and its object deleted: it must not come back to life."""
    await install(own_server, THINGS)
    store = (await opening(proxy.url, THINGS, reply_seconds=0.3))[THINGS]
    released, arrived = asyncio.Event(), asyncio.Event()
    held: list[bytes] = []

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-writes" and b"sl1_put" in piece and not held:
            held.append(piece)
            try:
                await released.wait()
                passage.to_server.write(piece)
            finally:  # or the server has closed the connection long ago
                arrived.set()
            return False
        return True

    proxy.lingers = True
    proxy.requests = hold
    revision, _ = await create_patiently(store, "a")
    gone = await patiently(partial(store.commit, Write(Key("a"), None, revision), dry_run=False))
    released.set()
    await arrived.wait()
    proxy.lingers = False
    await create_patiently(store, "b")
    await barrier_patiently(store)
    assert [(record.key, record.kind) for record in records(own_server) if record.kind != log.FENCE] == [
        ("a", log.CREATE),
        ("a", log.DELETE),
        ("b", log.CREATE),
    ]
    assert gone.revision == revision + 1


async def test_a_write_in_doubt_that_cannot_be_looked_up_is_unknown(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, reply_seconds=0.3, outcome_seconds=0.6)
    store = stores[THINGS]
    own_server.signal(signal.SIGSTOP)
    write = asyncio.create_task(create(store, "a"))
    with pytest.raises(OutcomeUnknown):
        await write
    own_server.signal(signal.SIGCONT)
    await eventually(lambda: stores.store_state() is None)
    await barrier_patiently(store)
    assert [record.key for record in records(own_server) if record.kind == log.CREATE] in ([], ["a"])
    assert_agreement(own_server, store)


async def test_a_server_that_freezes_for_a_while_loses_and_doubles_nothing(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, reply_seconds=0.3, deadline_seconds=0.3)
    store = stores[THINGS]
    writes = asyncio.create_task(load(store, 300))
    for enough in (50, 150):
        await eventually(partial(holds, store, enough))
        own_server.signal(signal.SIGSTOP)
        await eventually(lambda: stores.store_state() is not None)
        own_server.signal(signal.SIGCONT)
        await eventually(lambda: stores.store_state() is None)
    acknowledged = await writes
    await barrier_patiently(store)
    assert {record.key: record.revision for record in records(own_server) if record.kind == log.CREATE} == acknowledged
    assert_agreement(own_server, store)


async def test_a_barrier_on_a_frozen_server_gives_up_after_its_time(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    store = (await opening(own_server, THINGS, barrier_seconds=0.2))[THINGS]
    own_server.signal(signal.SIGSTOP)
    with pytest.raises(Unavailable, match=r"0\.2 s"):
        await store.barrier()
    own_server.signal(signal.SIGCONT)
    assert await barrier_patiently(store) == store.applied


async def test_connections_that_are_killed_all_the_time_lose_and_double_nothing(
    own_server: Server, opening: Open
) -> None:
    await install(own_server, THINGS)
    store = (await opening(own_server, THINGS, backoff_seconds=0.1))[THINGS]
    watch = Watch(store)
    writes = asyncio.create_task(load(store, 500))
    rng = random.Random(11)
    while not writes.done():
        lines = [line.split() for line in own_server("CLIENT", "LIST").decode().splitlines()]
        ours = [
            words[0].removeprefix("id=") for words in lines if any(word.startswith("name=sluice-") for word in words)
        ]
        if ours:
            own_server("CLIENT", "KILL", "ID", rng.choice(ours))
        await asyncio.sleep(0.02)
    acknowledged = await writes
    await eventually(lambda: store.store_state() is None)
    await barrier_patiently(store)
    assert {record.key: record.revision for record in records(own_server) if record.kind == log.CREATE} == acknowledged
    assert_agreement(own_server, store)
    await eventually(lambda: len(watch.told) >= 500)
    await watch.stop()
    # Memory that hears nothing for a while, because its connection is killed again and again, is filled anew, and the watch resumes.
    assert len(watch.told) == 500


# --------------------------------------------------------------------------------------------------------------- lost, not deleted


def breaking(name: str) -> Callable[[Server], object]:
    names = Commands(THINGS).keys
    return {
        "everything": lambda server: server("FLUSHALL"),
        "log": lambda server: server("DEL", names.log),
        "objects": lambda server: server("DEL", names.objects),
        "revisions": lambda server: server("DEL", names.revisions),
        "meta": lambda server: server("DEL", names.meta),
    }[name]


@pytest.mark.parametrize("what", ["everything", "log", "objects", "revisions", "meta"])
async def test_lost_data_looks_lost_and_never_deleted(own_server: Server, opening: Open, what: str) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    store = stores[THINGS]
    await load(store, 10)
    watch = Watch(store)
    breaking(what)(own_server)
    with pytest.raises(Unavailable):
        await store.barrier()
    await eventually(lambda: "lost" in (store.store_state() or ""))
    for dry_run in (False, True):
        with pytest.raises(Unavailable):
            await store.commit(Write(Key("new"), value("new"), Revision(0)), dry_run=dry_run)
    assert store.view().count() == 10
    assert stores.why_not_ready() is None
    assert own_server("EXISTS", *Commands(THINGS).keys.all) < 5, "nothing was made anew"
    await watch.stop()
    assert (watch.told, watch.resumed) == ([], 0)


async def test_a_replica_that_starts_on_lost_data_serves_nothing(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    await load(stores[THINGS], 5)
    await stores.close()
    own_server("FLUSHALL")
    stores = await opening(own_server, THINGS, wait=False)
    await eventually(lambda: "is not there" in (stores.why_not_ready() or ""))
    with pytest.raises(Initializing):
        stores[THINGS].view()


async def test_another_database_is_not_an_empty_store(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(f"{own_server.url}&db=3", THINGS, wait=False)
    await eventually(lambda: "is not there" in (stores.why_not_ready() or ""))


async def test_reinstalled_store_ends_watches_and_names_no_old_state(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    store = stores[THINGS]
    revision = max((await load(store, 5)).values())
    watch = Watch(store)
    own_server("FLUSHALL")
    await eventually(lambda: store.store_state() is not None)
    await install(own_server, THINGS)
    await eventually(lambda: stores.store_state() is None)
    assert store.view().count() == 0
    with pytest.raises(Compacted):
        store.view_at(revision)
    with pytest.raises(Compacted):
        await watch.task
    assert watch.told == []
    assert (await create_patiently(store, "new"))[0] > revision


def append_only_file(server: Server) -> Path:
    return next(Path(server.folder, "appendonlydir").glob("*.incr.aof"))


async def test_lost_writes_are_counted_and_their_revisions_never_come_again(own_server: Server, opening: Open) -> None:
    """The end of the append-only file is missing (a disk that lied): the log ends earlier than what was acknowledged."""
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    store = stores[THINGS]
    kept = await create(store, "kept")
    file = append_only_file(own_server)
    size = len(file.read_bytes())
    lost = [await create(store, f"lost{at}") for at in range(5)]
    counter = metrics.LOST_WRITES.labels("things.g.example.com")
    before = counter.value
    watch = Watch(store)
    own_server.kill()
    file.write_bytes(file.read_bytes()[:size])
    own_server.start()
    await eventually(lambda: counter.value > before and stores.store_state() is None)
    assert counter.value - before == 5
    assert remembered(store) == {"kept": kept}
    for revision in lost:
        with pytest.raises(Compacted):
            store.view_at(revision)
        with pytest.raises(Compacted):
            store.watch(after=revision, scope=Scope(), sink=watch)
    assert store.view_at(kept).get("kept") is not None
    assert (await create_patiently(store, "lost0"))[0] > max(lost)
    with pytest.raises(Compacted):
        await watch.task
    assert_agreement(own_server, store)


# ------------------------------------------------------------------------------------------------------- a server that refuses


async def test_a_full_server_takes_deletions_alone(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    store = (await opening(own_server, THINGS))[THINGS]
    made = await load(store, 20)
    own_server("CONFIG", "SET", "maxmemory", "1")
    deletions = [
        store.commit(Write(Key(key), None, revision), dry_run=False) for key, revision in list(made.items())[:10]
    ]
    creates = [create(store, f"new{at}") for at in range(10)]
    results = await asyncio.gather(*deletions, *creates, return_exceptions=True)
    assert all(not isinstance(result, BaseException) for result in results[:10])
    assert all(isinstance(result, Unavailable) and "OOM" in str(result) for result in results[10:])
    own_server("CONFIG", "SET", "maxmemory", "0")
    await create(store, "new")
    assert store.view().count() == 11
    assert_agreement(own_server, store)


async def test_server_that_becomes_a_replica_is_left_until_it_is_primary_again(
    own_server: Server, opening: Open
) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, monitor_seconds=0.1)
    store = stores[THINGS]
    await create(store, "a")
    own_server("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await create(store, "b")
    await eventually(lambda: "not a primary" in (store.store_state() or ""))
    assert store.view().count() == 1
    own_server("REPLICAOF", "NO", "ONE")
    await create_patiently(store, "c")
    assert_agreement(own_server, store)


@pytest.mark.parametrize(
    ("setting", "wrong", "right", "reason"),
    [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "allkeys-lru"),
        ("appendonly", "no", "yes", "append-only"),
    ],
)
async def test_a_dangerous_setting_stops_writes_and_nothing_else(
    own_server: Server, opening: Open, setting: str, wrong: str, right: str, reason: str
) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, monitor_seconds=0.1)
    store = stores[THINGS]
    await create(store, "a")
    own_server("CONFIG", "SET", setting, wrong)
    await eventually(lambda: reason in (store.store_state() or ""))
    with pytest.raises(Unavailable, match=reason):
        await create(store, "b")
    assert await store.barrier() == store.applied
    assert stores.why_not_ready() is None
    late = await opening(own_server, THINGS, wait=False)
    await eventually(lambda: reason in (late.why_not_ready() or ""))
    own_server("CONFIG", "SET", setting, right)
    await create_patiently(store, "b")
    await late.ready()


async def test_missing_library_stops_writes_until_it_is_loaded_again(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, monitor_seconds=0.1)
    store = stores[THINGS]
    await create(store, "a")
    own_server("FUNCTION", "FLUSH")
    with pytest.raises(Unavailable):
        await create(store, "b")
    with pytest.raises(Unavailable):
        await store.barrier()
    assert store.view().count() == 1
    await install(own_server, THINGS)
    await create_patiently(store, "b")
    assert_agreement(own_server, store)


async def test_another_version_of_the_library_is_refused(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    own_server("FUNCTION", "LOAD", "REPLACE", functions.CODE.replace(b"TRIM_STEP = ", b"TRIM_STEP = 1 + "))
    stores = await opening(own_server, THINGS, wait=False)
    await eventually(lambda: "function library is" in (stores.why_not_ready() or ""))
    await install(own_server, THINGS)
    await stores.ready()


async def test_running_server_reads_on_under_another_version_of_the_library(own_server: Server, opening: Open) -> None:
    """An upgrade that changes the library leaves servers of the old version readable until they are replaced (docs/upgrade.md)."""
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, monitor_seconds=0.1)
    store = stores[THINGS]
    await create(store, "a")
    own_server("FUNCTION", "LOAD", "REPLACE", functions.CODE.replace(b"TRIM_STEP = ", b"TRIM_STEP = 1 + "))
    await eventually(lambda: "function library is" in (store.store_state() or ""))
    with pytest.raises(Unavailable, match="function library is"):
        await create(store, "b")
    assert await store.barrier() == store.applied
    assert store.view().count() == 1
    assert stores.why_not_ready() is None
    await install(own_server, THINGS)
    await create_patiently(store, "b")
    assert_agreement(own_server, store)


async def test_slow_script_of_another_client_costs_only_time(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, reply_seconds=0.5, deadline_seconds=0.4)
    store = stores[THINGS]
    own_server("CONFIG", "SET", "busy-reply-threshold", "50")
    slow = "local t = redis.call('TIME')[1] + 2 while tonumber(redis.call('TIME')[1]) < t do end"
    script = asyncio.create_task(asyncio.to_thread(own_server, "EVAL", slow, "0"))
    acknowledged = await load(store, 100)
    await script
    await eventually(lambda: stores.store_state() is None)
    await barrier_patiently(store)
    assert remembered(store) == acknowledged
    assert_agreement(own_server, store)


# --------------------------------------------------------------------------------------------------------- gaps and compaction


async def raise_floor(store: Store, server: Server, back: int = 0) -> Revision:
    """Trim everything but the newest `back` entries, whatever any replica wants."""
    names = Commands(store.resource).keys
    last = server("HGET", names.meta, "last").decode()
    epoch, _, n = last.partition("-")
    wanted = f"{epoch}-{max(0, int(n) - back)}"
    server("FCALL", "sl1_floor", 5, *names.all, wanted, 0, 0)
    return keys.revision(wanted)


@contextlib.asynccontextmanager
async def tail_held_up(proxy: Proxy) -> AsyncIterator[None]:
    gate = asyncio.Event()

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-tail":
            await gate.wait()
        return True

    proxy.replies = hold
    yield
    gate.set()
    proxy.replies = None


async def test_log_trimmed_past_the_reader_is_noticed_and_memory_rebuilt(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    writer = (await opening(own_server, THINGS))[THINGS]
    slow = (await opening(proxy.url, THINGS))[THINGS]
    await load(writer, 5, prefix="before")
    await slow.reach(writer.applied, seconds=SECONDS)
    watcher = slow.watch(after=slow.applied, scope=Scope(), sink=Watch(writer))
    watcher.join()
    rebuilds = metrics.REBUILDS.labels("things.g.example.com", "gap")
    before = rebuilds.value
    async with tail_held_up(proxy):
        await load(writer, 50, prefix="after")
        await raise_floor(writer, own_server, 10)
        for key in ("after0", "after1"):
            held = writer.view().get(key)
            assert held is not None
            await writer.commit(Write(Key(key), None, held.revision), dry_run=False)
        await raise_floor(writer, own_server, 1)
        passage = proxy.named("sluice-tail")[0]
        passage.cut()
    assert await watcher.wait() is Wake.ENDED
    await eventually(lambda: slow.store_state() is None)
    await slow.reach(writer.applied, seconds=SECONDS)
    assert rebuilds.value - before == 1
    assert remembered(slow) == remembered(writer)
    await eventually(lambda: writer.floor == slow.floor)


@pytest.mark.parametrize("left", [0, 5])
async def test_replica_that_starts_on_a_trimmed_log_serves_all_and_answers_410(
    own_server: Server, opening: Open, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    store = stores[THINGS]
    made = await load(store, 30)
    watch = Watch(store)
    rebuilds = metrics.REBUILDS.labels("things.g.example.com", "broken")
    before = rebuilds.value
    own_server("XTRIM", Commands(THINGS).keys.log, "MAXLEN", left)

    late = (await opening(own_server, THINGS))[THINGS]

    assert remembered(late) == made
    with pytest.raises(Compacted):
        late.view_at(made["k0"])
    assert rebuilds.value == before + 1
    assert "somebody else changed the log" in caplog.text
    await create_patiently(late, "new")
    # A follower of the log goes on with what it has.
    await eventually(lambda: len(watch.told) == 1)
    assert watch.resumed == 0
    await watch.stop()
    assert remembered(store) == remembered(late)


@pytest.mark.parametrize("written", [False, True])
async def test_foreign_entry_costs_only_the_history_of_its_resource(
    own_server: Server, opening: Open, written: bool
) -> None:
    await install(own_server, THINGS, "g.example.com/others")
    # The history that would tell of the write itself is given up with the rest: its answer comes after this time.
    stores = await opening(own_server, THINGS, "g.example.com/others", lag_seconds=0.2)
    things, others = stores[THINGS], stores["g.example.com/others"]
    made = await load(things, 10)
    watch = Watch(others)
    broken = metrics.REBUILDS.labels("things.g.example.com", "broken")
    before = broken.value
    epoch = own_server("HGET", Commands(THINGS).keys.meta, "epoch").decode()
    own_server("XADD", Commands(THINGS).keys.log, f"{epoch}-*", "foo", "bar")

    if written:
        made["new"], _ = await create_patiently(things, "new")
    await create_patiently(others, "new")
    await eventually(lambda: broken.value > before)
    await eventually(lambda: stores.store_state() is None and remembered(things) == made)
    late = await opening(own_server, THINGS, "g.example.com/others")

    assert remembered(late[THINGS]) == made
    await eventually(lambda: len(watch.told) == 1)
    assert watch.resumed == 0
    await watch.stop()
    rebuilt = broken.value
    await create_patiently(things, "newer")
    assert broken.value == rebuilt


async def test_memory_that_is_spoiled_at_once_is_not_filled_all_the_time(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS, backoff_seconds=0.2)
    store = stores[THINGS]
    await load(store, 3)
    fillings = metrics.REBUILDS.labels("things.g.example.com", "gap")
    before, began = fillings.value, asyncio.get_running_loop().time()
    replica = store._replica
    while fillings.value - before < 5:
        await eventually(lambda: replica.filled)
        replica.rebuild("gap", "a test")
    assert asyncio.get_running_loop().time() - began > 3 * 0.2
    await eventually(lambda: store.store_state() is None)


async def test_memory_is_filled_while_the_log_is_written_and_trimmed(own_server: Server, opening: Open) -> None:
    """Fault 16: bootstraps under load with an aggressive floor; every one of them ends with the state of the log."""
    await install(own_server, THINGS)
    writer = (await opening(own_server, THINGS))[THINGS]
    await load(writer, 300)
    stop = asyncio.Event()
    rng = random.Random(3)

    async def change(key: str, text: str) -> None:
        held = writer.view().get(key)
        if held is None:
            await create(writer, key)
        else:
            new = None if rng.random() < 0.3 else value(key, text)
            await writer.commit(Write(Key(key), new, held.revision), dry_run=False)

    async def churn(client: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(Moved, KeyExists):
                # A reader that the trimming overtakes has its memory filled anew.
                await patiently(partial(change, f"k{rng.randrange(300)}", f"{client} {rng.random()}"))

    async def trim() -> None:
        while not stop.is_set():
            await raise_floor(writer, own_server, 200)
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(churn(at)) for at in range(6)] + [asyncio.create_task(trim())]
    replicas: list[Stores] = []
    for _ in range(12):
        replicas.append(await opening(own_server, THINGS))
        await barrier_patiently(replicas[-1][THINGS])
    stop.set()
    await asyncio.gather(*tasks)
    for store in (writer, *(stores[THINGS] for stores in replicas)):
        await barrier_patiently(store)
    for stores in replicas:
        assert remembered(stores[THINGS]) == remembered(writer)
    assert stored(own_server).keys() == remembered(writer).keys()


async def test_two_replicas_that_fence_at_the_same_time_agree_on_one_epoch(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    replicas = [(await opening(own_server, THINGS))[THINGS] for _ in range(4)]
    for _ in range(3):
        await asyncio.to_thread(restarted, own_server)
        await asyncio.gather(*(eventually(partial(is_up, store)) for store in replicas))
        await asyncio.gather(*(create_patiently(store, f"k{id(store)}") for store in replicas), return_exceptions=True)
    fences = [record for record in records(own_server) if record.kind == log.FENCE]
    assert len(fences) == 4, "one of init, one of each restart"
    for store in replicas:
        await barrier_patiently(store)
    assert_agreement(own_server, *replicas)
