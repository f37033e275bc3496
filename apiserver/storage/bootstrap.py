"""Fill a resource's memory from the store: first the objects that last changed before the window, then the window itself.

    floor ──────────────── the window ────────────────► R
    scan: objects not changed since the floor           log: every change above the floor, in order

A scan takes many steps, and objects change between them. The log holds every change after the floor, so the scan takes only
states that are not newer than the floor. Each of them was its object's state at the floor, even if it changed later. R is the end
of the log as the scan's last step reported it. The log from the floor to R brings all objects to R. The same entries make every
revision of the window servable at once. Each value is read once.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from apiserver.runtime.offload import READ_STORED
from apiserver.storage import functions, log, pipeline
from apiserver.storage.functions import Commands, Head, Range
from apiserver.storage.log import Record
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import Entry, Event, EventType, Key, Revision

CHUNK_BYTES = 1 << 20
"""Bytes of one answer: some milliseconds of the server's time. Ours is about the same, unless objects have very many labels."""
STEP_SECONDS = 0.005
"""After this much work, other tasks get a turn."""
SCAN_OBJECTS = 500
RANGE_ENTRIES = 256
RESTARTS = 5

MakeEntry = Callable[[Key, Revision, bytes], Entry]
"""Turns a stored value into an entry: splices the body and reads its attributes."""
Prepare = Callable[[Sequence[bytes]], Awaitable[None]]
"""Does in a thread what would take long while entries are made of these values."""


class Restart(Exception):
    """The log was trimmed past the position that was being read, so those entries are lost."""


class Broken(Exception):
    """The chain of log entries is broken above its floor: another program removed or added entries. Objects may be whole."""


@dataclass(slots=True)
class Filled:
    """The input of `mvcc.Index.load` and `preload`."""

    head: Head
    objects: Blocks
    applied: Revision
    floor: Revision
    since: Revision
    """`events` holds every change after this revision."""
    events: list[Event] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    """Fenced epochs of the window, with their last n."""
    size: int = 0
    """Bytes of the objects' bodies."""
    tokens: list[tuple[bytes, Entry]] = field(default_factory=list)
    """Writes of this process that the window holds."""


async def _unprepared(values: Sequence[bytes]) -> None:
    """Prepare nothing."""


async def fill(
    connection: Connection, commands: Commands, make: MakeEntry, *, prepare: Prepare = _unprepared, boot_id: str
) -> Filled:
    """Read all objects and the window. Large values are passed to `prepare` before `make`.

    Raises what a connection raises, Lost and Broken. Raises Rejected when the log is trimmed faster than it can be read.
    """
    for _ in range(RESTARTS):
        try:
            with collector_paused():
                return await _Filling(connection, commands, make, prepare=prepare, boot_id=boot_id).run()
        except Restart:
            continue
    raise Rejected("the log is trimmed faster than it can be read")


async def give_history_up(connection: Connection, commands: Commands) -> Revision:
    """Raise the floor to the end of a broken log, and return that floor.

    The log can be followed from there on, and memory is filled from the objects alone. Raises what a connection raises, Lost, and
    Foreign when the log must be taken over first.
    """
    head = functions.own_head(await connection.call(commands.head))
    last = head.last
    first = functions.range_(await connection.call(commands.range(b"0-0", count=1, size=1)))
    if not first.entries or await _behind_the_end(connection, commands, last) is not None:
        # A log must hold at least one entry, and every later entry must lie above all that it holds.
        last = functions.fence(await connection.call(commands.fence("mend", head.epoch + 1))).last
    more = True
    while more:
        more = functions.floor(await connection.call(commands.floor(last, least_ms=0, keep=0))).more
    return last


async def _behind_the_end(connection: Connection, commands: Commands, last: Revision) -> bytes | None:
    """Return the ID of a foreign entry above `last`, or None. One answer gives the log's end and its entries at the same moment."""
    chunk = functions.range_(await connection.call(commands.range(keys.stream_id(last).encode(), count=1, size=1)))
    if chunk.entries and keys.revision(chunk.entries[0][0]) > chunk.last:
        return chunk.entries[0][0]
    return None


async def _end(connection: Connection, commands: Commands, last: Revision) -> None:
    """Raise Broken when a foreign entry follows the log's end, because followers would come to it."""
    if (found := await _behind_the_end(connection, commands, last)) is not None:
        raise Broken(f"{found.decode()} lies behind its end")


async def follow_chain(connection: Connection, commands: Commands, head: Head) -> None:
    """Read the log from its floor to its end, in chunks. Raises Broken, and what a connection raises."""
    position, end = keys.stream_id(head.floor).encode(), keys.stream_id(head.last).encode()
    while position != end:
        chunk = functions.range_(await connection.call(commands.range(position, count=RANGE_ENTRIES, size=CHUNK_BYTES)))
        try:
            for record in chained(chunk, position):
                position = record.id
                if position == end:
                    break
        except Restart:
            if chunk.floor >= head.last:
                break
            position = keys.stream_id(chunk.floor).encode()
    await _end(connection, commands, head.last)


def chained(chunk: Range, position: bytes) -> Iterator[Record]:
    """Yield the entries of an answer. The first must follow `position`, and each one the entry before. Raises Restart, Broken.

    An answer gives floor and entries at the same moment, and Sluice raises the floor before it trims. So Sluice never trimmed an
    entry that is missing at or above the floor, however fast it trims.
    """
    if not chunk.entries:
        raise _gap(chunk, position, f"nothing follows {position.decode()}")
    for raw in chunk.entries:
        try:
            record = log.decode(raw)
        except log.Malformed as error:
            raise _gap(chunk, position, str(error)) from None
        if record.predecessor != position:
            said = (
                f"{record.id.decode()} follows {record.predecessor.decode(errors='replace')}, not {position.decode()}"
            )
            raise _gap(chunk, position, said)
        yield record
        position = record.id


def _gap(chunk: Range, position: bytes, said: str) -> Restart | Broken:
    return Restart() if keys.revision(position) < chunk.floor else Broken(said)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a hundred thousand new objects would make it look at all of them thirty times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Filling:
    def __init__(
        self, connection: Connection, commands: Commands, make: MakeEntry, *, prepare: Prepare, boot_id: str
    ) -> None:
        self._connection = connection
        self._commands = commands
        self._make = make
        self._prepare = prepare
        self._mine = boot_id.encode() + b"."
        self._state = Blocks.of(())
        self._size = 0

    async def run(self) -> Filled:
        head = functions.head(await self._connection.call(self._commands.head))
        last = await self._scan(head)
        self._filled = filled = Filled(head, self._state, last, head.floor, since=head.floor)
        await self._read_window(head.floor, last)
        await _end(self._connection, self._commands, last)
        filled.size = self._size
        return filled

    # The objects

    async def _scan(self, head: Head) -> Revision:
        mean = head.size // head.objects if head.objects else 1
        count = max(1, min(SCAN_OBJECTS, CHUNK_BYTES // (mean + 1)))
        asked = self._ask_scan(b"0", count, head.floor)
        while True:
            chunk = functions.scan(await asked)
            if chunk.cursor != b"0":  # the server works on the next step while we work on this one
                asked = self._ask_scan(chunk.cursor, count, head.floor)
                await asyncio.sleep(0)  # lets the command leave
            try:
                await self._take(chunk.rows)
            except BaseException:
                pipeline.abandon(asked)
                raise
            if chunk.cursor == b"0":
                return chunk.last

    def _ask_scan(self, cursor: bytes, count: int, newest: Revision) -> asyncio.Future[Any]:
        return self._connection.call(self._commands.scan(cursor, count=count, newest=newest))

    async def _take(self, rows: Sequence[bytes]) -> None:
        """Take rows of key, ID and value, flattened. An object may come twice, in the same state."""
        make, revision_of = self._make, keys.revision
        parts, began = iter(rows), perf_counter()
        for name, id_, value in zip(parts, parts, parts, strict=True):
            key = Key(name.decode())
            if len(value) > READ_STORED.limit:
                await self._prepare([value])
            self._put(make(key, revision_of(id_), value), self._state.get(key))
            if perf_counter() - began > STEP_SECONDS:
                await asyncio.sleep(0)
                began = perf_counter()

    def _put(self, entry: Entry, before: Entry | None) -> None:
        self._state.put(entry)
        self._size += entry.size - (0 if before is None else before.size)

    # The log

    async def _read_window(self, after: Revision, until: Revision) -> None:
        position, end = keys.stream_id(after).encode(), keys.stream_id(until).encode()
        if after >= until:
            return
        asked = self._ask_range(position)
        try:
            while position != end:
                chunk = functions.range_(await asked)
                self._filled.floor = max(self._filled.floor, chunk.floor)
                newest = chunk.entries[-1][0] if chunk.entries else end
                if keys.revision(newest) < until:
                    asked = self._ask_range(newest)
                    await asyncio.sleep(0)
                position = await self._follow(chunk, position, end)
        finally:
            pipeline.abandon(asked)

    def _ask_range(self, after: bytes) -> asyncio.Future[Any]:
        return self._connection.call(self._commands.range(after, count=RANGE_ENTRIES, size=CHUNK_BYTES))

    async def _follow(self, chunk: Range, position: bytes, end: bytes) -> bytes:
        began = perf_counter()
        for record in chained(chunk, position):
            for value in (record.old, record.value):
                if value is not None and len(value) > READ_STORED.limit:
                    await self._prepare([value])
            self._apply(record)
            position = record.id
            if position == end:
                break
            if perf_counter() - began > STEP_SECONDS:
                await asyncio.sleep(0)
                began = perf_counter()
        return position

    def _apply(self, record: Record) -> None:
        if record.kind == log.FENCE:
            epoch, n = keys.parts(keys.revision(record.predecessor))
            self._filled.ended[epoch] = n
            return
        key, revision = record.key, record.revision
        held = before = self._state.get(key)
        if before is None and record.old is not None:  # the scan came after this change
            before = self._make(key, keys.revision(record.previous), record.old)
        entry: Entry | None = None
        if record.value is not None:
            entry = self._make(key, revision, record.value)
            self._put(entry, held)
        elif before is not None:
            entry = before.at(revision)
        if record.value is None and held is not None:
            self._state.remove(key)
            self._size -= held.size
        if entry is None or (before is None and record.kind != log.CREATE):
            # The old value was too long for the log and is known nowhere else: history begins after this entry.
            self._filled.events.clear()
            self._filled.since = revision
        else:
            self._filled.events.append(Event(revision, EventType(int(record.kind)), entry, before))
        if entry is not None and record.token.startswith(self._mine):
            self._filled.tokens.append((record.token, entry))
