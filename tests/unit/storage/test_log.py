"""Entries as they come from the stream."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from unittest import mock

import pytest

from apiserver import metrics
from apiserver.storage import functions, log
from apiserver.storage.pipeline import Disconnected
from apiserver.storage.store import Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.proxy import Passage, Proxy
from tests.fixtures.valkey import Open, Server, eventually, install, patient, value


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
def test_foreign_entry_is_malformed(fields: tuple[bytes, ...]) -> None:
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


async def test_log_that_does_not_answer_is_reported_with_the_time_waited(
    proxy: Proxy, shared_server: Server, resource: str, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await install(shared_server, resource)
    await opening(proxy.url, resource, reply_seconds=2.0)

    async def swallow(passage: Passage, piece: bytes) -> bool:
        # A connection that is made anew, for another reason on a slow machine, is greeted: the log alone is silent.
        return passage.name != "sluice-tail" or piece.startswith((b"+", b":"))

    proxy.replies = swallow
    told = re.compile("the log's connection has not answered for [0-9.]+ s")
    await eventually(lambda: any(told.match(getattr(record, "reason", "")) for record in caplog.records))


async def test_entries_missing_at_the_end_are_noticed_without_a_further_entry(
    proxy: Proxy, shared_server: Server, resource: str, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await install(shared_server, resource)
    await opening(proxy.url, resource)
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
    # Memory may be filled again by now, so its log says why it was emptied.
    assert any(getattr(record, "detail", "").startswith("nothing comes after") for record in caplog.records)


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


class Reader:
    """A substitute for a replica: the entries it was fed, and the revisions announced without entries."""

    def __init__(self, story: list[str] | None = None) -> None:
        self.last: bytes | None = b"0-0"
        self.announced = Revision(0)
        self.fed: list[int] = []
        self.silent: list[Revision] = []
        self._story = [] if story is None else story

    def position(self) -> bytes | None:
        return self.last

    def unread(self, values: Sequence[bytes]) -> list[bytes]:
        return []

    async def prepare(self, values: Sequence[bytes]) -> None:
        raise AssertionError

    def feed(self, entries: Sequence[log.RawEntry]) -> None:
        self.fed.append(len(entries))
        self.last = entries[-1][0]
        self._story.append("fed")
        asyncio.get_running_loop().call_soon(self._story.append, "others")

    def nothing(self, announced: Revision) -> None:
        self.silent.append(announced)


@asynccontextmanager
async def following(server: Server, readers: Mapping[str, Reader]) -> AsyncIterator[asyncio.Task[None]]:
    """A tail at work. Closed when the test ends, unless it ended by itself."""

    async def idle() -> None: ...

    run = log.Tail(patient(server.url), readers).run(lambda _: None, idle)
    task = asyncio.get_running_loop().create_task(run)
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("seconds", "order"),
    [(60.0, ["fed"] * 3 + ["others"] * 3), (-1.0, ["fed", "others"] * 3)],
    ids=["while that is short", "unless that lasts"],
)
async def test_entries_of_one_answer_are_fed_before_other_work(
    shared_server: Server, resource: str, monkeypatch: pytest.MonkeyPatch, seconds: float, order: list[str]
) -> None:
    monkeypatch.setattr(log, "SLICE_SECONDS", seconds)
    story: list[str] = []
    readers = {f"{resource}/{letter}": Reader(story) for letter in "abc"}
    for name in readers:
        shared_server("XADD", name, "1-1", "k", "v")
        shared_server("XADD", name, "1-2", "k", "v")
    async with following(shared_server, readers):
        await eventually(lambda: len(story) == 6)
        assert story == order
        shared_server("XADD", f"{resource}/b", "1-3", "k", "v")
        await eventually(lambda: len(story) == 8)
        assert [reader.fed for reader in readers.values()] == [[2], [2, 1], [2]]


class ReadsInThreads(Reader):
    """Reads long values before it is fed. `filled` is where it was filled anew meanwhile."""

    filled: bytes | None = None

    def unread(self, values: Sequence[bytes]) -> list[bytes]:
        return [value for value in values if len(value) > 50]

    async def prepare(self, values: Sequence[bytes]) -> None:
        self._story += [value.decode()[:1] for value in values]
        self.last = self.filled or self.last


@pytest.mark.parametrize(("filled", "fed"), [(None, [1, 1]), (b"1-2", [1])], ids=["", "filled anew meanwhile"])
async def test_a_large_value_is_read_before_its_entry_is_fed(
    shared_server: Server, resource: str, monkeypatch: pytest.MonkeyPatch, filled: bytes | None, fed: list[int]
) -> None:
    monkeypatch.setattr(log, "PORTION_BYTES", 1)
    story: list[str] = []
    reader = ReadsInThreads(story)
    reader.filled = filled
    for n, text in enumerate(("x", "y" * 100), 1):
        shared_server("XADD", resource, f"1-{n}", *["k", "a", "t", "0", "m", "-", "p", "-", "w", "-", "v"], text)
    async with following(shared_server, {resource: reader}):
        await eventually(lambda: reader.last == b"1-2")
        assert reader.fed == fed
        assert [step for step in story if step != "others"] == ["fed", "y", "fed"][: len(fed) + 1]


class FilledAnew(Reader):
    """Right after what it was fed first."""

    def feed(self, entries: Sequence[log.RawEntry]) -> None:
        super().feed(entries)
        if len(self.fed) == 1:
            asyncio.get_running_loop().call_soon(setattr, self, "last", b"1-7")


@pytest.mark.parametrize(("kind", "fed"), [(Reader, [3, 3, 2]), (FilledAnew, [3, 1])])
async def test_long_entries_of_a_log_are_fed_a_few_at_a_time(
    shared_server: Server, resource: str, monkeypatch: pytest.MonkeyPatch, kind: type[Reader], fed: list[int]
) -> None:
    """A reader that was filled anew between two of them reads on from where that ended."""
    monkeypatch.setattr(log, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(log, "PORTION_BYTES", 250)
    story: list[str] = []
    reader = kind(story)
    for n in range(1, 9):
        shared_server("XADD", resource, f"1-{n}", "k", "v" * 100)
    async with following(shared_server, {resource: reader}):
        await eventually(lambda: reader.last == b"1-8" and story.count("others") == len(reader.fed))
    assert reader.fed == fed
    assert story == ["fed", "others"] * len(fed)


async def test_reader_of_nothing_learns_the_revision_announced_at_the_read(own_server: Server, resource: str) -> None:
    quiet, busy = Reader(), Reader()
    async with following(own_server, {f"{resource}/quiet": quiet, f"{resource}/busy": busy}):
        await eventually(lambda: waits_for_entries(own_server))
        before = len(quiet.silent)
        quiet.announced = keys.revision("1-7")
        own_server("XADD", f"{resource}/busy", "1-1", "k", "v")
        await eventually(lambda: len(quiet.silent) >= before + 2)
        assert quiet.silent[before : before + 2] == [Revision(0), keys.revision("1-7")]
        assert busy.fed == [1]


async def test_a_log_that_is_not_to_be_read_is_read_when_it_is(shared_server: Server, resource: str) -> None:
    reader = Reader()
    reader.last = None
    shared_server("XADD", resource, "1-1", "k", "v")
    async with following(shared_server, {resource: reader}):
        await eventually(lambda: b"name=sluice-tail" in shared_server("CLIENT", "LIST"))
        assert not reader.fed
        reader.last = b"0-0"
        await eventually(lambda: reader.fed)


async def test_a_log_that_cannot_be_read_ends_the_tail_with_the_servers_words(
    shared_server: Server, resource: str
) -> None:
    shared_server("SET", resource, "no log")
    async with following(shared_server, {resource: Reader()}) as tail:
        with pytest.raises(Disconnected, match="the log cannot be read: WRONGTYPE"):
            await tail


async def test_a_tail_whose_connection_is_killed_ends(own_server: Server, resource: str) -> None:
    async with following(own_server, {resource: Reader()}) as tail:
        await eventually(lambda: waits_for_entries(own_server))
        clients = own_server("CLIENT", "LIST").splitlines()
        (mine,) = (client for client in clients if b"name=sluice-tail" in client)
        own_server("CLIENT", "KILL", "ID", mine.split()[0].removeprefix(b"id="))
        with pytest.raises(Disconnected, match="broke: Connection closed by server"):
            await tail


async def test_a_tail_that_is_cancelled_closes_its_connection(own_server: Server, resource: str) -> None:
    async with following(own_server, {resource: Reader()}):
        await eventually(lambda: waits_for_entries(own_server))
    await eventually(lambda: b"name=sluice-tail" not in own_server("CLIENT", "LIST"))
