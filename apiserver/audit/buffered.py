"""Gather events into batches, so that no request waits for their delivery: the mode `batch`.

Upstream: kubernetes/apiserver `plugin/pkg/audit/buffered/buffered.go`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from apiserver.audit import failures
from apiserver.audit.backend import Backend
from apiserver.audit.budget import memory_of, memory_of_all
from apiserver.audit.event import Event
from apiserver.config.auditing import Batch
from apiserver.runtime import tasks

PLUGIN = "buffered"
BUFFER_BYTES = 64 << 20
"""The byte budget of waiting events and events under way. Upstream counts only events, and one may hold a list of all stored objects."""
BLOCKED = "audit buffer queue blocked"


class Buffered:
    """Passes on at most `concurrent` batches at a time. Events that come when the buffer is full are lost."""

    def __init__(self, delegate: Backend, batch: Batch, *, concurrent: int) -> None:
        self._delegate = delegate
        self._batch = batch
        throttled = batch.throttle_enable and batch.throttle_qps < math.inf
        self._bucket = Bucket(batch.throttle_qps, batch.throttle_burst) if throttled else None
        self._concurrent = concurrent
        self._waiting: deque[Event] = deque()
        self._size = 0
        """Bytes of waiting events and events under way."""
        self._gathering = self._stopping = False
        self._wanted = asyncio.Event()
        """Set when a batch is full, or when waiting for more is pointless."""
        self._sending: dict[asyncio.Task[bool], Sequence[Event]] = {}
        self._sent = asyncio.Event()
        self._held: Sequence[Event] = ()
        """A batch that is not under way yet."""
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._delegate.start()
        self._work = asyncio.create_task(tasks.supervised(self._run, name="audit-batches"))

    async def process(self, events: Sequence[Event]) -> bool:
        for index, event in enumerate(events):
            error = self._refusal(size := memory_of(event))
            if error:
                failures.failed(PLUGIN, error, events[index:])
                break
            self._waiting.append(event)
            self._size += size
        if len(self._waiting) >= self._enough:
            self._wanted.set()
        return True

    async def stop(self) -> None:
        self._stopping = True
        self._wanted.set()
        try:
            if self._work is not None:
                await self._work
            if self._sending:
                await asyncio.wait(self._sending)
        except asyncio.CancelledError:
            self._give_up()
            await _break_off(self._delegate)
            raise
        await self._delegate.stop()

    def _refusal(self, size: int) -> str:
        """Return why an event is not accepted, "" if it is. Upstream's buffer does not count events of the batch that is being gathered."""
        if self._stopping:
            return failures.SHUT_DOWN
        most = self._batch.buffer_size + (self._batch.max_size if self._gathering else 0)
        full = len(self._waiting) >= most or (self._size and self._size + size > BUFFER_BYTES)
        return BLOCKED if full else ""

    @property
    def _enough(self) -> int:
        """The number of events that make a batch without further waiting."""
        return self._batch.max_size if self._batch.max_size > 1 and self._batch.max_wait > 0 else 1

    def _give_up(self) -> None:
        """Count the waiting events as lost. The delegate counts the events under way."""
        if self._work is not None:
            self._work.cancel()
        left = [*self._held, *self._waiting]
        self._held = ()
        self._waiting.clear()
        if left:
            failures.failed(PLUGIN, failures.SHUT_DOWN, left)

    # ------------------------------------------------------------------------------------------------------------ one after the other

    async def _run(self) -> None:
        while self._held or self._waiting or not self._stopping:
            if not self._held:
                self._held = await self._gathered()
            if self._held:
                await self._take_turn()
                sending = asyncio.create_task(self._delegate.process(self._held))
                self._sending[sending], self._held = self._held, ()
                sending.add_done_callback(self._ended)

    async def _gathered(self) -> Sequence[Event]:
        """Return the next batch: a full one, or whatever has come when its time is over."""
        self._gathering = True
        if len(self._waiting) < self._enough and not self._stopping:
            self._wanted.clear()
            try:
                async with asyncio.timeout(self._batch.max_wait if self._enough > 1 else None):
                    await self._wanted.wait()
            except TimeoutError:
                pass
        self._gathering = False
        return [self._waiting.popleft() for _ in range(min(self._batch.max_size, len(self._waiting)))]

    async def _take_turn(self) -> None:
        if self._bucket is not None:
            await asyncio.sleep(self._bucket.take())
        while len(self._sending) >= self._concurrent:
            self._sent.clear()
            await self._sent.wait()

    def _ended(self, sending: asyncio.Task[bool]) -> None:
        events = self._sending.pop(sending)
        self._size -= memory_of_all(events)
        self._sent.set()
        if not sending.cancelled() and (error := sending.exception()) is not None:
            failures.failed(PLUGIN, f"{type(error).__name__}: {error}", events)


async def _break_off(backend: Backend) -> None:
    """Make a backend count the events that it cannot deliver."""
    stopping = asyncio.create_task(backend.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait((stopping,))


class Bucket:
    """A token bucket, full at first. Upstream: kubernetes/client-go `util/flowcontrol/throttle.go`."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst = rate, burst
        self._clock = clock
        self._left, self._at = float(burst), 0.0

    def take(self) -> float:
        """Take a token. Return the seconds to wait before using it."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)
