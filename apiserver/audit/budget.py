"""How much memory events take, and how many of them may wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from apiserver.apimachinery.request import Deferred, Json, User
from apiserver.audit.event import Event

EVENT_BYTES = 1024
"""What an event takes beside what a client can make long, about."""
LIGHT_BYTES = 8 << 10
"""Of texts that are written down where they are; of more in a thread."""


def texts(event: Event) -> int:
    """Bytes of what has to be written down, about. What is deferred is not light, however little it is."""
    size = EVENT_BYTES + len(event.request_uri) + len(event.user_agent) + sum(map(len, event.annotations.values()))
    size += _named(event.user) + _named(event.acting)
    size += LIGHT_BYTES if isinstance(event.response_object, Deferred) else 0
    return size if event.status is None else size + len(event.status.get("message") or "")


def _named(user: User | None) -> int:
    if user is None:
        return 0
    return sum(map(len, user.groups)) + sum(len(value) for values in user.extra.values() for value in values)


def weight(event: Event) -> int:
    """Bytes that an event keeps, about."""
    return texts(event) + size_of(event.request_object) + size_of(event.response_object)


def weights(events: Sequence[Event]) -> int:
    return sum(map(weight, events))


def size_of(value: Json) -> int:
    return value.size if isinstance(value, Deferred) else sum(map(len, value))


class Room:
    """So many bytes may be inside. Who comes when it is full waits, first come, first served; somebody with more than it holds goes in
    when it is empty. Used on one event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._inside = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def empty(self) -> bool:
        return not self._inside and not self._waiting

    async def enter(self, size: int) -> None:
        """Returns when there is room, which is the caller's until it leaves. Who is cancelled is not inside."""
        if not self._waiting and self._fits(size):
            self._inside += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()
            else:
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        self._inside -= size
        self._let_in()

    def _fits(self, size: int) -> bool:
        return not self._inside or self._inside + size <= self._size

    def _let_in(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            if not turn.done():  # else its owner gave up
                self._inside += size
                turn.set_result(None)
