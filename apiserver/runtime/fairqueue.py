"""In which order, and how fast, clients that all come at once are let in. Knows neither sockets nor handshakes."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

FILLING_SECONDS = 0.02
"""Between two who are let in while memory is being filled, so that filling has the first call on the event loop."""


class Turnstile:
    """Lets one through in each turn of the event loop, the newest and the oldest alternately, and hardly any while there is something more
    urgent to do.

    A handshake costs about a millisecond of CPU. When all watchers of a server come back at the same moment, whoever comes last (the
    kubelet with its probe, an administrator) would wait behind all of them; here it waits for one or two. Were it always the newest, who
    came first would wait for as long as others come: clients that open a connection for each request overtake it again and again, until
    its time is over. Nobody who waits can hold up others: a turn is over when it has begun.
    """

    def __init__(self, *, urgent: Callable[[], bool], in_order: bool = False) -> None:
        """`urgent` says whether something else needs the event loop more; `in_order`: who came first goes first, for those who come back
        again and again."""
        self._urgent = urgent
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        oldest, newest = self._waiting.popleft, self._waiting.pop
        self._takes = itertools.repeat(oldest) if in_order else itertools.cycle((newest, oldest))
        self._turning = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def pass_through(self) -> None:
        """Returns when it is the caller's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._turning:
            self._turning = True
            self._next()
        await turn

    def _next(self) -> None:
        while self._waiting:
            turn = next(self._takes)()
            if not turn.done():  # else the client gave up
                turn.set_result(None)
                break
        else:
            self._turning = False
            return
        if self._urgent():
            self._loop.call_later(FILLING_SECONDS, self._next)
        else:
            self._loop.call_soon(self._next)
