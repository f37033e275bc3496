"""Drop the objects of events that are too large, and divide batches that are too large.

Upstream: kubernetes/apiserver `plugin/pkg/audit/truncate/truncate.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.apimachinery.request import Level
from apiserver.audit import failures
from apiserver.audit.backend import Backend
from apiserver.audit.budget import size_of, texts
from apiserver.audit.event import Event
from apiserver.config.auditing import Truncate
from apiserver.runtime.offload import WRITE_EVENTS, run_sized

PLUGIN = "truncate"
TOO_LARGE = "event is too large even after truncating"


class Truncating:
    """An event that is too large even without its objects is lost. Its request is not refused."""

    def __init__(self, delegate: Backend, truncate: Truncate) -> None:
        self._delegate = delegate
        self._event_size, self._batch_size = truncate.max_event_size, truncate.max_batch_size

    async def process(self, events: Sequence[Event]) -> bool:
        batch: list[Event] = []
        lost: list[Event] = []
        size, done = 0, True
        for event in events:
            one = await _size(event)
            if one > self._event_size and event.level >= Level.REQUEST:
                event = event.truncated()
                one = await _size(event)
            if one > self._event_size:
                lost.append(event)
                continue
            if batch and size + one > self._batch_size:
                done = await self._delegate.process(batch) and done
                batch, size = [], 0
            batch.append(event)
            size += one
        if batch:
            done = await self._delegate.process(batch) and done
        if lost:
            failures.failed(PLUGIN, TOO_LARGE, lost)
        return done

    def start(self) -> None:
        self._delegate.start()

    async def stop(self) -> None:
        await self._delegate.stop()


async def _size(event: Event) -> int:
    """Return the bytes of its line."""
    return size_of(await run_sized(WRITE_EVENTS, texts(event), event.line)) + 1
