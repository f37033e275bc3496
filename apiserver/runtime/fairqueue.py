"""Admit clients that come at the same time one after another, in a fair order. Knows neither sockets nor handshakes."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

FILLING_SECONDS = 0.02
"""The pause between two admissions while memory is being filled, so that filling has priority on the event loop."""


class FairQueue:
    """Admits one caller in each turn of the event loop, the newest and the oldest alternately; only slowly while other work is urgent.

    A handshake costs about a millisecond of CPU. When all watchers of a server reconnect at the same moment, the last caller (the
    kubelet with its probe, an administrator) would wait behind all of them; here it waits for one or two. If the newest always came
    first, the oldest would starve: clients that open a connection for each request would overtake it until its time is over. A waiting
    caller cannot delay others: a turn is over when it has begun.
    """

    def __init__(self, *, urgent: Callable[[], bool], in_order: bool = False, turns: int = 1) -> None:
        """`urgent` returns whether other work needs the event loop more. `in_order`: first come, first served, for callers that come
        back again and again. `turns`: of how many turns of the event loop a crowd gets one.
        """
        self._urgent = urgent
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        oldest, newest = self._waiting.popleft, self._waiting.pop
        self._takes = itertools.repeat(oldest) if in_order else itertools.cycle((newest, oldest))
        self._turning = False

    def __len__(self) -> int:
        """The number of waiting callers."""
        return len(self._waiting)

    async def pass_through(self) -> None:
        """Wait for the caller's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._turning:
            self._turning = True
            self._next()
        await turn

    def _next(self) -> None:
        while self._waiting:
            turn = next(self._takes)()
            if not turn.done():  # else the client has left
                turn.set_result(None)
                break
        else:
            self._turning = False
            return
        if self._urgent():
            self._loop.call_later(FILLING_SECONDS, self._next)
        else:
            self._later(self._turns if self._waiting else 1)

    def _later(self, turns: int) -> None:
        if turns > 1:
            self._loop.call_soon(self._later, turns - 1)
        else:
            self._loop.call_soon(self._next)
