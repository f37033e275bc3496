"""Filling memory from a real server that is written to meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from apiserver.storage import bootstrap, functions, log
from apiserver.storage.bootstrap import Broken, Filled, fill
from apiserver.storage.functions import Commands, Foreign, Lost
from apiserver.storage.functions import Mutation as Write
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, EventType, Key, Revision, splice
from tests.fixtures.valkey import Server, forget, index_func, install, patient, value

LATE = b"99999999999999"
UID = b"0a1b2c3d-1111-4222-8333-444455556666"
"""As long as a real one: rows of few bytes make a hash that is scanned in one step, whatever count is asked for."""


def make(key: Key, revision: Revision, data: bytes) -> Entry:
    labels, fields = index_func.read(data)
    return Entry(key, revision, splice(data, revision), labels, fields)


class Source:
    """A resource that is written past the code under test."""

    def __init__(self, server: Server, connection: Connection, resource: str) -> None:
        self.server = server
        self.connection = connection
        self.commands = Commands(resource)
        self.epoch = b""
        self.count = 0

    async def write(self, key: str, data: bytes | None, *, boot: str = "another-boot-of-it") -> Revision:
        self.count += 1
        change = Write(key.encode(), b"*", f"{boot}.{self.count}".encode(), UID, data)
        answer = await self.connection.call(self.commands.change(self.epoch, LATE, change))
        assert answer[0] == b"OK", answer
        return keys.revision(answer[1])

    async def fence(self) -> Revision:
        self.count += 1
        reply = functions.fence(
            await self.connection.call(self.commands.fence(f"run {self.count}", int(self.epoch) + 1))
        )
        self.epoch = b"%d" % reply.epoch
        return reply.last

    async def raise_floor(self, to: Revision) -> None:
        more = True
        while more:
            more = functions.floor(await self.connection.call(self.commands.floor(to, least_ms=0, keep=0))).more

    async def fill(self) -> Filled:
        return await fill(self.connection, self.commands, make, boot_id="mine")


@pytest_asyncio.fixture
async def source(shared_server: Server, resource: str) -> AsyncIterator[Source]:
    await install(shared_server, resource)
    connection = await Connection.open(patient(shared_server.url), "test")
    made = Source(shared_server, connection, resource)
    made.epoch = b"%d" % functions.head(await connection.call(made.commands.head)).epoch
    yield made
    await connection.close()


def held(filled: bootstrap.Filled) -> dict[Key, Entry]:
    return {entry.key: entry for entry in filled.objects.freeze().scan()}


async def test_an_empty_store_fills_memory_with_nothing(source: Source) -> None:
    filled = await source.fill()
    assert (held(filled), filled.events, filled.applied) == ({}, [], filled.floor)


async def test_objects_and_window_are_filled_and_share_their_states(source: Source) -> None:
    start = (await source.fill()).applied
    a1 = await source.write("a", value("a", "one"))
    b1 = await source.write("b", value("b", "one"))
    a2 = await source.write("a", value("a", "two"))
    gone = await source.write("b", None)
    b2 = await source.write("b", value("b", "again"))
    filled = await source.fill()
    assert {key: entry.revision for key, entry in held(filled).items()} == {"a": a2, "b": b2}
    assert held(filled)[Key("a")].body == splice(value("a", "two"), a2)
    assert (filled.since, filled.floor, filled.applied) == (start, start, b2)
    told = [(event.revision, event.type, event.previous and event.previous.revision) for event in filled.events]
    assert told == [
        (a1, EventType.CREATED, None),
        (b1, EventType.CREATED, None),
        (a2, EventType.UPDATED, a1),
        (gone, EventType.DELETED, b1),
        (b2, EventType.CREATED, None),
    ]
    assert filled.events[2].entry is held(filled)[Key("a")]
    assert filled.events[2].previous is filled.events[0].entry
    assert filled.events[3].entry.body == splice(value("b", "one"), gone)


async def test_old_values_stand_in_for_states_from_before_the_window(source: Source) -> None:
    a1 = await source.write("a", value("a", "one"))
    b1 = await source.write("b", value("b", "one"))
    await source.raise_floor(b1)
    await source.write("a", value("a", "two"))
    gone = await source.write("b", None)
    filled = await source.fill()
    update, deletion = filled.events
    assert (filled.since, filled.floor) == (b1, b1)
    assert update.previous is not None
    assert (update.previous.revision, update.previous.body) == (a1, splice(value("a", "one"), a1))
    assert deletion.entry.body == splice(value("b", "one"), gone)


async def test_history_begins_behind_an_unknown_old_value(source: Source) -> None:
    large = value("a", "x" * (9 << 20))
    await source.write("a", large)
    await source.raise_floor(await source.write("b", value("b")))
    await source.write("c", value("c"))
    cut = await source.write("a", value("a", "small"))
    after = await source.write("d", value("d"))
    filled = await source.fill()
    assert (filled.floor, filled.since) == (cut, cut)
    assert [event.revision for event in filled.events] == [after]


async def test_epochs_of_the_window_are_known_with_their_ends(source: Source) -> None:
    first = await source.write("a", value("a"))
    first_fence = await source.fence()
    second_fence = await source.fence()
    last = await source.write("b", value("b"))
    filled = await source.fill()
    epoch, n = keys.parts(first)
    assert filled.ended == {epoch: n, keys.parts(first_fence)[0]: 0}
    assert keys.parts(second_fence)[0] == keys.parts(last)[0]
    assert filled.applied == last


async def test_own_tokens_are_found_in_the_window(source: Source) -> None:
    await source.write("a", value("a"))
    mine = await source.write("b", value("b"), boot="mine")
    gone = await source.write("b", None, boot="mine")
    filled = await source.fill()
    assert [(token, entry.revision) for token, entry in filled.tokens] == [(b"mine.2", mine), (b"mine.3", gone)]


async def test_many_objects_and_a_window_of_many_steps_are_filled(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "SCAN_OBJECTS", 7)
    monkeypatch.setattr(bootstrap, "RANGE_ENTRIES", 5)
    written = await asyncio.gather(*(source.write(f"ns/k{at}", value(f"k{at}")) for at in range(300)))
    revisions = {f"ns/k{at}": revision for at, revision in enumerate(written)}
    filled = await source.fill()
    assert {key: entry.revision for key, entry in held(filled).items()} == revisions
    assert [event.revision for event in filled.events] == sorted(revisions.values())
    assert all(event.entry is held(filled)[event.entry.key] for event in filled.events)


async def test_writes_during_a_scan_are_part_of_one_consistent_state(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two steps of the filling something is written; the result is the fold of the log at its revision."""
    monkeypatch.setattr(bootstrap, "SCAN_OBJECTS", 10)
    await asyncio.gather(*(source.write(f"k{at}", value(f"k{at}", "0")) for at in range(200)))
    done = asyncio.Event()

    async def churn() -> None:
        at = 0
        while not done.is_set():
            at += 1
            key = f"k{at * 37 % 230}"
            try:
                await source.write(key, None if at % 3 == 0 else value(key, str(at)))
            except AssertionError:  # a deletion of a missing object
                await source.write(key, value(key, str(at)))

    async with asyncio.TaskGroup() as group:
        group.create_task(churn())
        for _ in range(5):
            filled = await source.fill()
            state: dict[str, Revision] = {}
            for raw in source.server("XRANGE", source.commands.keys.log, "-", keys.stream_id(filled.applied)):
                record = log.decode(raw)
                state.pop(record.key, None)
                if record.value is not None:
                    state[record.key] = record.revision
            assert {key: entry.revision for key, entry in held(filled).items()} == state
        done.set()


async def test_a_log_trimmed_under_the_reader_starts_it_again(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RANGE_ENTRIES", 5)
    for at in range(50):
        await source.write(f"k{at}", value(f"k{at}"))
    last = (await source.fill()).applied
    rounds = 0
    really = Commands.range

    def trimming(commands: Commands, after: bytes, *, count: int, size: int) -> bytes:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            source.server("FCALL", "sl1_floor", 5, *commands.keys.all, keys.stream_id(last), 0, 0)
        return really(commands, after, count=count, size=size)

    monkeypatch.setattr(Commands, "range", trimming)
    filled = await source.fill()
    assert (filled.floor, filled.applied, len(filled.objects)) == (last, last, 50)
    assert filled.events == []


async def test_a_log_that_is_always_trimmed_is_given_up(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole all the same: its history is not the reader's to give up."""
    scan, range_, names = Commands.scan, Commands.range, source.commands.keys

    def written(commands: Commands, cursor: bytes, **limits: Any) -> bytes:
        for at in range(4):
            source.count += 1
            words = (source.epoch, LATE, f"k{at}", "*", f"other.{source.count}", UID, value("k"))
            source.server("FCALL", "sl1_put", 5, *names.all, *words)
        return scan(commands, cursor, **limits)

    def trimmed(commands: Commands, after: bytes, **limits: Any) -> bytes:
        source.server("FCALL", "sl1_floor", 5, *names.all, source.server("HGET", names.meta, "last"), 0, 0)
        return range_(commands, after, **limits)

    monkeypatch.setattr(Commands, "scan", written)
    monkeypatch.setattr(Commands, "range", trimmed)
    with pytest.raises(Rejected, match="trimmed"):
        await source.fill()


def missing(source: Source) -> None:
    """Delete the third entry."""
    source.server("XDEL", source.commands.log, entries(source)[2])


def cut_short(source: Source) -> None:
    """Somebody else has trimmed it."""
    source.server("XTRIM", source.commands.log, "MAXLEN", 2)


def emptied(source: Source) -> None:
    source.server("XTRIM", source.commands.log, "MAXLEN", 0)


def entries(source: Source) -> list[bytes]:
    return [id_ for id_, _ in source.server("XRANGE", source.commands.log, "-", "+")]


@pytest.mark.parametrize("harm", [missing, cut_short, emptied], ids=lambda harm: harm.__name__)
async def test_log_cut_by_others_is_broken_until_its_history_is_given_up(
    source: Source, harm: Callable[[Source], None]
) -> None:
    for at in range(6):
        await source.write(f"k{at}", value(f"k{at}"))
    head = functions.head(await source.connection.call(source.commands.head))
    await bootstrap.follow_chain(source.connection, source.commands, head)
    harm(source)
    with pytest.raises(Broken, match="follows"):
        await source.fill()
    with pytest.raises(Broken, match="follows"):
        await bootstrap.follow_chain(source.connection, source.commands, head)

    floor = await bootstrap.give_history_up(source.connection, source.commands)
    filled = await source.fill()

    assert (floor == head.last) is (harm is not emptied)
    assert entries(source) == [keys.stream_id(floor).encode()]
    assert (filled.floor, filled.since, filled.applied, filled.events) == (floor, floor, floor, [])
    assert set(held(filled)) == {f"k{at}" for at in range(6)}


async def test_an_entry_of_another_schema_breaks_the_log(source: Source) -> None:
    await source.write("a", value("a"))
    source.server("XADD", source.commands.log, f"{source.epoch.decode()}-*", "foo", "bar")
    source.server("HSET", source.commands.keys.meta, "last", entries(source)[-1])
    with pytest.raises(Broken, match="no entry of this schema"):
        await source.fill()


async def test_entry_behind_the_end_breaks_the_log_until_a_higher_epoch(source: Source) -> None:
    last = await source.write("a", value("a"))
    source.server("XADD", source.commands.log, f"{source.epoch.decode()}-*", "foo", "bar")
    head = functions.head(await source.connection.call(source.commands.head))
    with pytest.raises(Broken, match="behind its end"):
        await source.fill()
    with pytest.raises(Broken, match="behind its end"):
        await bootstrap.follow_chain(source.connection, source.commands, head)

    fence = await bootstrap.give_history_up(source.connection, source.commands)
    filled = await source.fill()

    assert fence > last
    assert (filled.floor, filled.applied, set(held(filled))) == (fence, fence, {"a"})
    source.epoch = b"%d" % keys.parts(fence)[0]
    await source.write("b", value("b"))
    assert set(held(await source.fill())) == {"a", "b"}


async def test_the_history_of_a_log_that_must_be_taken_over_is_not_touched(source: Source) -> None:
    await source.write("a", value("a"))
    before = entries(source)
    forget(source.server)
    with pytest.raises(Foreign):
        await bootstrap.give_history_up(source.connection, source.commands)
    assert entries(source) == before


async def test_a_chain_that_is_trimmed_while_it_is_followed_is_not_broken(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "RANGE_ENTRIES", 2)
    written = [await source.write(f"k{at}", value(f"k{at}")) for at in range(10)]
    head = functions.head(await source.connection.call(source.commands.head))
    asked = 0
    really = Commands.range

    def trimming(commands: Commands, after: bytes, *, count: int, size: int) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 2:
            source.server("FCALL", "sl1_floor", 5, *commands.keys.all, keys.stream_id(written[7]), 0, 0)
        return really(commands, after, count=count, size=size)

    monkeypatch.setattr(Commands, "range", trimming)
    await bootstrap.follow_chain(source.connection, source.commands, head)
    assert asked == 4  # twice before, once from the new floor, once for what lies behind the end


async def test_missing_resource_is_lost(source: Source) -> None:
    source.server("DEL", source.commands.keys.meta)
    with pytest.raises(Lost):
        await source.fill()


async def test_the_garbage_collector_is_on_again_afterwards(source: Source) -> None:
    assert gc.isenabled()
    await source.fill()
    assert gc.isenabled()
