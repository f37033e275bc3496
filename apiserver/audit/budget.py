"""Estimate the memory of events, and limit the memory of those that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from apiserver.apimachinery.request import Deferred, Json, User
from apiserver.audit.event import Event
from apiserver.runtime.offload import WRITE_EVENTS

EVENT_BYTES = 1024
"""The approximate bytes of an event beside the texts that clients choose."""


def texts(event: Event) -> int:
    """Estimate the bytes to encode. A deferred object never counts as light, because its size is unknown until it is encoded."""
    size = EVENT_BYTES + len(event.request_uri) + len(event.user_agent) + sum(map(len, event.annotations.values()))
    size += _named(event.user) + _named(event.acting)
    size += WRITE_EVENTS.limit if isinstance(event.response_object, Deferred) else 0
    return size if event.status is None else size + len(event.status.get("message") or "")


def _named(user: User | None) -> int:
    if user is None:
        return 0
    return sum(map(len, user.groups)) + sum(len(value) for values in user.extra.values() for value in values)


def memory_of(event: Event) -> int:
    """Estimate the bytes that an event keeps in memory."""
    return texts(event) + size_of(event.request_object) + size_of(event.response_object)


def memory_of_all(events: Sequence[Event]) -> int:
    return sum(map(memory_of, events))


def size_of(value: Json) -> int:
    return value.size if isinstance(value, Deferred) else sum(map(len, value))


class ByteBudget:
    """A limit on bytes that are in use at a time. Used on one event loop.

    When it is used up, callers wait in order. A caller that needs more than the whole budget gets it when nothing else is in use.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def unused(self) -> bool:
        return not self._used and not self._waiting

    async def acquire(self, size: int) -> None:
        """Wait until `size` bytes are free, and take them until `release`. A cancelled caller has taken nothing."""
        if not self._waiting and self._fits(size):
            self._used += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._hand_out()
            else:
                self.release(size)
            raise

    def release(self, size: int) -> None:
        self._used -= size
        self._hand_out()

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._size

    def _hand_out(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            if not turn.done():  # else its owner was cancelled
                self._used += size
                turn.set_result(None)
