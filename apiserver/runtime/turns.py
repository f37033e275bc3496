"""Let large answers take turns on the event loop, so that a small request waits for one piece of one of them."""

from __future__ import annotations

import asyncio
import weakref

from apiserver.runtime.fairqueue import FairQueue

TURNS = 4
"""Several large answers together get one of so many turns of the event loop. An idle turn takes some 10 µs, a piece up to milliseconds."""
_QUEUES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = weakref.WeakKeyDictionary()


async def next_turn() -> None:
    """Let other tasks run, then wait for this task's turn.

    `asyncio.sleep(0)` lets each of many lists work for a few milliseconds before anything else runs again. A request passes the event loop
    several times, so with thirty lists in progress it would wait for half a second. Here one list works in one of TURNS turns of the loop.
    """
    loop = asyncio.get_running_loop()
    queue = _QUEUES.get(loop)
    if queue is None:
        queue = _QUEUES[loop] = FairQueue(urgent=_never, in_order=True, turns=TURNS)
    await queue.pass_through()


def _never() -> bool:
    return False
