"""Write events as lines of a file or of standard output, from one thread.

Events that come during a write wait for the next write. So a slow disk turns many small writes into few large ones, and it never blocks
the event loop. Upstream: kubernetes/apiserver `plugin/pkg/audit/log/backend.go`.
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
from apiserver.audit.budget import ByteBudget, memory_of_all, size_of
from apiserver.audit.event import Event
from apiserver.audit.rotation import FileError, Target, reason

logger = logging.getLogger(__name__)

PLUGIN = "log"
WAITING_BYTES = 16 << 20
"""The byte budget of events that wait for the thread or are being written. Above it, requests wait."""
PIECES = os.sysconf("SC_IOV_MAX")
"""The most pieces of one write."""

Lines = Callable[[Event], Sequence[bytes]]
"""Encodes an event as a line, including its line end."""


def json_line(event: Event) -> Sequence[bytes]:
    return [*event.line(), b"\n"]


def legacy_line(event: Event) -> Sequence[bytes]:
    return [f"{event.legacy()}\n".encode("utf-8", "replace")]


@dataclass(slots=True, eq=False)
class _Batch:
    """The events of one caller; `done` is True if all of them were written."""

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
    """Returns from `process` when the operating system has the lines."""

    def __init__(self, target: Target, lines: Lines) -> None:
        self._writer = _Writer(target, lines)
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._budget = ByteBudget(WAITING_BYTES)
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
        size = memory_of_all(events)
        try:
            await self._budget.acquire(size)
        except asyncio.CancelledError:
            failures.failed(PLUGIN, failures.GIVEN_UP, events)
            raise
        batch = _Batch(events, size, asyncio.get_running_loop().create_future())
        self._given.add(batch)
        self._queue.put(batch)
        return await batch.done  # a caller that leaves does not stop the write

    async def stop(self) -> None:
        self._stopping = True
        if not self._started:
            return
        try:
            if not self._budget.unused:
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
            self._budget.release(batch.size)
            for event, error in batch.lost:
                lost.setdefault(error, []).append(event)
            if not batch.done.done():
                batch.done.set_result(not batch.lost)
        for error, events in lost.items():
            failures.failed(PLUGIN, error, events)
        if self._stopping and self._budget.unused:
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
                del batches  # it may be large, and the next ones may take long to come
            self._writer.close()
            loop.call_soon_threadsafe(self._ended.set)

    def _take(self) -> list[_Batch]:
        """Take all waiting batches, at least one; none at the end."""
        first = self._queue.get()
        taken: list[_Batch] = []
        with contextlib.suppress(queue.Empty):
            while first is not None:
                taken.append(first)
                first = self._queue.get_nowait()
        return taken


class _Writer:
    """Writes batches, and notes in each the lost events and the reason."""

    def __init__(self, target: Target, lines: Lines) -> None:
        self._target = target
        self._lines = lines
        self._torn = False
        """The last line has no end, because the disk was full. The next event begins a new line."""

    def write(self, batches: Sequence[_Batch]) -> None:
        try:
            self._write(batches)
        except Exception as error:
            logger.exception("the audit log failed")  # a bug: callers must not wait for ever
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
                    fd = self._target.descriptor(line.size)
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
        """Return whether this many bytes end within a line."""
        for line in lines:
            if written < line.size:
                return written > 0
            written -= line.size
        return False


def _write_all(fd: int, pieces: list[bytes]) -> tuple[int, str]:
    """Return how many bytes were written, and the error that stopped the write."""
    total, at = 0, 0
    left: list[bytes | memoryview] = list(pieces)
    while at < len(left):
        try:
            count = os.writev(fd, left[at : at + PIECES])
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()  # another owner of this pipe has made it non-blocking
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
