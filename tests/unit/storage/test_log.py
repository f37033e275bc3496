"""Entries as they come from the stream."""

from __future__ import annotations

import asyncio
import re
import time
from unittest import mock

import pytest

from apiserver import metrics
from apiserver.storage import functions, log
from apiserver.storage.errors import Initializing
from apiserver.storage.store import Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.proxy import Passage, Proxy
from tests.fixtures.valkey import Open, Server, eventually, install, value


def entry(*fields: bytes, id_: bytes = b"7-3") -> log.RawEntry:
    return id_, list(fields)


HEAD = (b"k", b"ns/a", b"t", b"1", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1")


def test_an_update_has_both_values() -> None:
    record = log.decode(entry(*HEAD, b"v", b"new", b"o", b"old"))
    assert record == log.Record(b"7-3", log.UPDATE, record.key, b"7-1", b"7-2", b"boot.1", b"new", b"old")
    assert (record.key, record.revision, record.cut) == ("ns/a", keys.revision("7-3"), False)


def test_an_update_without_its_old_value_is_cut() -> None:
    assert log.decode(entry(*HEAD, b"v", b"new")).cut


def test_a_create_is_never_cut() -> None:
    record = log.decode(entry(b"k", b"a", b"t", b"0", b"m", b"-", b"p", b"7-2", b"w", b"boot.1", b"v", b"new"))
    assert (record.kind, record.value, record.cut) == (log.CREATE, b"new", False)


def test_a_deletion_has_the_old_value_alone() -> None:
    record = log.decode(entry(b"k", b"a", b"t", b"2", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1", b"o", b"old"))
    assert (record.kind, record.value, record.old) == (log.DELETE, None, b"old")


def test_a_fence_has_no_value() -> None:
    record = log.decode(entry(b"k", b"", b"t", b"9", b"m", b"-", b"p", b"6-5", b"w", b"run", id_=b"7-0"))
    assert (record.kind, record.value, record.cut) == (log.FENCE, None, False)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"k", b"a"),
        (b"x", *HEAD[1:], b"v", b"new"),
        HEAD,  # an update without a value
        (b"k", b"a", b"t", b"2", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1", b"v", b"new"),  # a deletion with one
        (b"k", b"\xff", *HEAD[2:], b"v", b"new"),
    ],
)
def test_what_is_no_entry_of_ours_is_malformed(fields: tuple[bytes, ...]) -> None:
    with pytest.raises(log.Malformed):
        log.decode(entry(*fields))


def later() -> float:
    return time.monotonic() + 1000


def waits_for_entries(server: Server) -> bool:
    clients = server("CLIENT", "LIST").splitlines()
    return any(b"name=sluice-tail" in client and b"flags=b" in client for client in clients)


async def test_an_answer_that_came_while_this_process_stood_still_is_read(
    own_server: Server, resource: str, opening: Open
) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    reconnects = metrics.TAIL_RECONNECTS.labels(metrics.resource_label(resource))
    before = reconnects.value
    await eventually(lambda: waits_for_entries(own_server))
    while waits_for_entries(own_server):
        time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still while the answer comes
    with mock.patch.object(asyncio.get_running_loop(), "time", later):
        await eventually(lambda: waits_for_entries(own_server))
        assert (reconnects.value, store.store_state()) == (before, None)


async def test_a_log_that_does_not_answer_is_told_with_how_long_it_was_waited_for(
    proxy: Proxy, shared_server: Server, resource: str, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await install(shared_server, resource)
    await opening(proxy.url, resource, reply_seconds=2.0)

    async def swallow(passage: Passage, piece: bytes) -> bool:
        # A connection that is made anew, for another reason on a slow machine, is greeted: the log alone is silent.
        return passage.name != "sluice-tail" or piece.startswith((b"+", b"%"))

    proxy.replies = swallow
    told = re.compile("the log's connection has not answered for [0-9.]+ s")
    await eventually(lambda: any(told.match(getattr(record, "reason", "")) for record in caplog.records))


async def test_what_is_gone_from_the_end_of_the_log_is_missed_without_a_further_entry(
    proxy: Proxy, shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    follows = (await opening(proxy.url, resource))[resource]
    writes = (await opening(shared_server, resource))[resource]
    gaps = metrics.REBUILDS.labels(metrics.resource_label(resource), "gap")
    held, go_on, before = asyncio.Event(), asyncio.Event(), gaps.value

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-tail" and b"XREAD" in piece:
            held.set()
            await go_on.wait()
        return True

    proxy.requests = hold
    await held.wait()
    written = await writes.commit(Write(Key("a"), value("a"), Revision(0), "u"), dry_run=False)
    shared_server("XDEL", functions.Commands(resource).keys.log, keys.stream_id(written.revision))
    go_on.set()
    await eventually(lambda: gaps.value == before + 1)
    with pytest.raises(Initializing, match="nothing comes after"):
        follows.view()


async def test_a_log_that_is_read_seconds_after_the_session_began_has_no_gap(
    proxy: Proxy, shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    writes = (await opening(shared_server, resource))[resource]
    follows = (await opening(proxy.url, resource, monitor_seconds=0.1))[resource]
    lag = metrics.TAIL_LAG_SECONDS.labels(metrics.resource_label(resource))
    gaps = metrics.REBUILDS.labels(metrics.resource_label(resource), "gap")
    held, go_on, before = asyncio.Event(), asyncio.Event(), gaps.value

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-tail":
            held.set()
            await go_on.wait()
        return True

    proxy.requests = hold
    await held.wait()
    written = await writes.commit(Write(Key("a"), value("a"), Revision(0), "u"), dry_run=False)
    await eventually(lambda: lag.value > 3)
    go_on.set()
    await follows.reach(written.revision, seconds=60)
    assert (gaps.value, lag.value) == (before, 0)
