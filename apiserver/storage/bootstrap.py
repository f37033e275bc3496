"""Filling a resource's memory from the store: the objects that were last changed before the window, then the window itself.

    floor ──────────────── the window ────────────────► R
    scan: objects not changed since the floor           log: every change above the floor, in order

A scan is not one moment, and need not be. Whatever happened after the floor is in the log, so from the scan only states are taken
that are not newer than the floor: each of them was its object's state at the floor, whether or not it still is. The log from the
floor to R, the end that the last step of the scan reported, brings them all to R (and tells the events that make every revision of
the window servable at once). Each value is read once.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from apiserver.storage import functions, log, pipeline
from apiserver.storage.functions import Commands, Head
from apiserver.storage.log import Record
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import Entry, Event, EventType, Key, Revision

CHUNK_BYTES = 1 << 20
"""Of one answer: a few milliseconds of the server's time, and about as much of ours unless objects have very many labels."""
STEP_SECONDS = 0.005
"""After which others have their turn."""
SCAN_OBJECTS = 500
RANGE_ENTRIES = 256
RESTARTS = 5

MakeEntry = Callable[[Key, Revision, bytes], Entry]
"""A stored value as an entry: spliced, and its attributes read."""


class Restart(Exception):
    """The log was trimmed past the place that was being read: what happened there is not to be had any more."""


@dataclass(slots=True)
class Filled:
    """What `mvcc.Index.load` and `preload` take."""

    head: Head
    objects: Blocks
    applied: Revision
    floor: Revision
    since: Revision
    """`events` is everything after it."""
    events: list[Event] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    """Epochs of the window that were fenced, with their last n."""
    size: int = 0
    """Bytes of the objects' bodies."""
    tokens: list[tuple[bytes, Entry]] = field(default_factory=list)
    """Writes of this process that the window holds."""


async def fill(connection: Connection, commands: Commands, make: MakeEntry, *, boot_id: str) -> Filled:
    """Raises what a connection raises, Lost, and Rejected when the log is trimmed faster than it can be read."""
    for _ in range(RESTARTS):
        try:
            with collector_paused():
                return await _Filling(connection, commands, make, boot_id).run()
        except Restart:
            continue
    raise Rejected("the log is trimmed faster than it can be read")


@contextmanager
def collector_paused() -> Iterator[None]:
    """A hundred thousand new objects would make the garbage collector look at all of them thirty times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Filling:
    def __init__(self, connection: Connection, commands: Commands, make: MakeEntry, boot_id: str) -> None:
        self._connection = connection
        self._commands = commands
        self._make = make
        self._mine = boot_id.encode() + b"."
        self._state = Blocks.of(())
        self._size = 0

    async def run(self) -> Filled:
        head = functions.head(await self._connection.call(self._commands.head))
        last = await self._scan(head)
        self._filled = filled = Filled(head, self._state, last, head.floor, since=head.floor)
        await self._read_window(head.floor, last)
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
                await asyncio.sleep(0)  # let it leave
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
        """Rows are key, ID, value, over and over. An object may be met twice, in the same state."""
        make, revision_of = self._make, keys.revision
        parts, began = iter(rows), perf_counter()
        for name, id_, value in zip(parts, parts, parts, strict=True):
            key = Key(name.decode())
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
                stretch = functions.range_(await asked)
                self._filled.floor = max(self._filled.floor, stretch.floor)
                if not stretch.entries:
                    raise Restart
                newest = stretch.entries[-1][0]
                if keys.revision(newest) < until:
                    asked = self._ask_range(newest)
                    await asyncio.sleep(0)
                position = await self._follow(stretch.entries, position, end)
        finally:
            pipeline.abandon(asked)

    def _ask_range(self, after: bytes) -> asyncio.Future[Any]:
        return self._connection.call(self._commands.range(after, count=RANGE_ENTRIES, size=CHUNK_BYTES))

    async def _follow(self, entries: Sequence[Any], position: bytes, end: bytes) -> bytes:
        began = perf_counter()
        for raw in entries:
            record = log.decode(raw)
            if record.predecessor != position:
                raise Restart
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
        if before is None and record.old is not None:  # the scan came when it was changed already
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
            # The old value was too long for the log and nobody else knows it: history begins behind this entry.
            self._filled.events.clear()
            self._filled.since = revision
        else:
            self._filled.events.append(Event(revision, EventType(int(record.kind)), entry, before))
        if entry is not None and record.token.startswith(self._mine):
            self._filled.tokens.append((record.token, entry))
