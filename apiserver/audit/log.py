"""Events as lines of a file or of standard output, written by one thread.

While it writes, what comes waits, and goes with the next write: a slow disk makes few large writes of many small ones, and never holds
up the event loop. Upstream: kubernetes/apiserver `plugin/pkg/audit/log/backend.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from apiserver.audit import failures
from apiserver.audit.event import Event
from apiserver.audit.room import Room, size_of, weights
from apiserver.audit.rotation import FileError, Target, reason

logger = logging.getLogger(__name__)

PLUGIN = "log"
WAITING_BYTES = 16 << 20
"""Of events that wait for the thread, or are written. Who comes when there are so many waits to be let in."""
PIECES = os.sysconf("SC_IOV_MAX")
"""Of one write, at most."""

Lines = Callable[[Event], Sequence[bytes]]
"""An event as it stands in the file, its line end included."""


def json_line(event: Event) -> Sequence[bytes]:
    return [*event.line(), b"\n"]


def legacy_line(event: Event) -> Sequence[bytes]:
    return [f"{event.legacy()}\n".encode("utf-8", "replace")]


@dataclass(slots=True, eq=False)
class _Batch:
    """What one caller waits for; `done` is whether all of it was written."""

    events: Sequence[Event]
    size: int
    done: asyncio.Future[bool]
    lost: list[tuple[Event, str]] = field(default_factory=list)


class _Line(NamedTuple):
    event: Event
    batch: _Batch
    pieces: Sequence[bytes]
    size: int


class Log:
    """Returns from `process` when the lines are with the operating system."""

    def __init__(self, target: Target, lines: Lines) -> None:
        self._writer = _Writer(target, lines)
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._room = Room(WAITING_BYTES)
        self._given: set[_Batch] = set()
        self._started = self._stopping = False
        self._drained = asyncio.Event()
        self._ended = asyncio.Event()

    def start(self) -> None:
        self._started = True
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(loop,), name="audit-log", daemon=True).start()

    async def process(self, events: Sequence[Event]) -> bool:
        if self._stopping:
            failures.failed(PLUGIN, failures.SHUT_DOWN, events)
            return False
        size = weights(events)
        try:
            await self._room.enter(size)
        except asyncio.CancelledError:
            failures.failed(PLUGIN, failures.GIVEN_UP, events)
            raise
        batch = _Batch(events, size, asyncio.get_running_loop().create_future())
        self._given.add(batch)
        self._queue.put(batch)
        return await batch.done  # if nobody waits for it any more, it is written all the same

    async def stop(self) -> None:
        self._stopping = True
        if not self._started:
            return
        try:
            if not self._room.empty:
                await self._drained.wait()
            self._queue.put(None)
            await self._ended.wait()
        except asyncio.CancelledError:
            if left := [event for batch in self._given for event in batch.events]:
                failures.failed(PLUGIN, failures.SHUT_DOWN, left)
            raise

    def _written(self, batches: Sequence[_Batch]) -> None:
        lost: dict[str, list[Event]] = {}
        for batch in batches:
            self._given.discard(batch)
            self._room.leave(batch.size)
            for event, error in batch.lost:
                lost.setdefault(error, []).append(event)
            if not batch.done.done():
                batch.done.set_result(not batch.lost)
        for error, events in lost.items():
            failures.failed(PLUGIN, error, events)
        if self._stopping and self._room.empty:
            self._drained.set()

    # ------------------------------------------------------------------------------------------------------------ in the thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            while True:
                batches = self._take()
                if not batches:
                    break
                self._writer.write(batches)
                loop.call_soon_threadsafe(self._written, batches)
                del batches  # it may be large, and the next ones may be long in coming
            self._writer.close()
            loop.call_soon_threadsafe(self._ended.set)

    def _take(self) -> list[_Batch]:
        """All that waits, at least one; nothing at the end."""
        first = self._queue.get()
        taken: list[_Batch] = []
        with contextlib.suppress(queue.Empty):
            while first is not None:
                taken.append(first)
                first = self._queue.get_nowait()
        return taken


class _Writer:
    """Writes what it gets, and notes in each batch what of it is lost and why."""

    def __init__(self, target: Target, lines: Lines) -> None:
        self._target = target
        self._lines = lines
        self._torn = False
        """The last line has no end: the disk was full. The next one begins on a line of its own."""

    def write(self, batches: Sequence[_Batch]) -> None:
        try:
            self._write(batches)
        except Exception as error:
            logger.exception("the audit log failed")  # a bug: whoever waits must not wait for ever
            for batch in batches:
                batch.lost = [(event, f"{type(error).__name__}: {error}") for event in batch.events]

    def _write(self, batches: Sequence[_Batch]) -> None:
        group: list[_Line] = []
        fd, size = -1, 0
        for line in self._written_down(batches):
            if group and size + line.size > self._target.left():
                self._flush(fd, group)
                group, size = [], 0
            if not group:
                try:
                    fd = self._target.make_room(line.size)
                except FileError as error:
                    line.batch.lost.append((line.event, str(error)))
                    continue
            group.append(line)
            size += line.size
        if group:
            self._flush(fd, group)

    def close(self) -> None:
        self._target.close()

    def _written_down(self, batches: Sequence[_Batch]) -> Iterator[_Line]:
        for batch in batches:
            for event in batch.events:
                try:
                    pieces = self._lines(event)
                except Exception as error:  # noqa: BLE001 - one event that cannot be written down must not stop the others
                    batch.lost.append((event, f"{type(error).__name__}: {error}"))
                else:
                    yield _Line(event, batch, pieces, size_of(pieces))

    def _flush(self, fd: int, lines: Sequence[_Line]) -> None:
        pieces = [piece for line in lines for piece in line.pieces if piece]
        begun = 1 if self._torn and not self._target.fresh else 0
        if begun:
            pieces.insert(0, b"\n")
        written, error = _write_all(fd, pieces)
        self._target.wrote(written)
        end = begun
        for line in lines:
            end += line.size
            if end > written:
                line.batch.lost.append((line.event, f"write {self._target.name}: {error}"))
        self._torn = self._is_torn(written - begun, lines) if written >= begun else self._torn

    @staticmethod
    def _is_torn(written: int, lines: Sequence[_Line]) -> bool:
        """Whether so many bytes end within a line."""
        for line in lines:
            if written < line.size:
                return written > 0
            written -= line.size
        return False


def _write_all(fd: int, pieces: list[bytes]) -> tuple[int, str]:
    """How many bytes were written, and why no more."""
    total, at = 0, 0
    left: list[bytes | memoryview] = list(pieces)
    while at < len(left):
        try:
            count = os.writev(fd, left[at : at + PIECES])
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()  # somebody else, who has this pipe too, made it one that does not wait
            continue
        except OSError as error:
            return total, reason(error)
        total += count
        while at < len(left) and count >= len(left[at]):
            count -= len(left[at])
            at += 1
        if count:
            left[at] = memoryview(left[at])[count:]
    return total, ""
