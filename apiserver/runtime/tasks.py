"""Work that must go on for as long as the process does: what it raises is logged and counted, and then it is begun again.

A task that goes on after an `asyncio.TaskGroup` with an error stays counted as cancelled (CPython before 3.13). Python 3.11.2, which is
Debian 12's, then ends each later timeout of that task as a cancellation. So a group has a task of its own (`apart`, `together`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from apiserver import metrics

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 15.0
"""Seconds; pauses double between the two."""

Sleep = Callable[[float], Awaitable[object]]
T = TypeVar("T")


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Do work in a task of its own, which ends with the caller's. Return its result."""
    return await asyncio.get_running_loop().create_task(work)


async def together(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Do works at the same time until all have ended or one has failed. Raises ExceptionGroup."""
    await apart(_all_of(works))


async def _all_of(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


async def supervised(
    run: Callable[[], Awaitable[None]],
    *,
    name: str,
    passing: tuple[type[Exception], ...] = (),
    longest_pause: float = LONGEST_PAUSE,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Runs `run` until it returns, is cancelled, or raises one of `passing`, which is the caller's to judge.

    The first failure costs no pause, because its cause may have ended too. Each one after that costs twice as much as the one before,
    and a run that lasted longer than the longest pause counts as a new beginning. `name` is a constant of ours: it labels a metric.
    """
    loop = asyncio.get_running_loop()
    failures = metrics.TASK_FAILURES.labels(name)
    pause = 0.0
    while True:
        began = loop.time()
        try:
            return await run()
        except passing:
            raise
        except Exception as error:
            failures.inc()
            if loop.time() - began > longest_pause:
                pause = 0.0
            about = {"task": name, "error": str(error)[:1024], "pause_seconds": pause}
            logger.exception("a task failed and is begun again", extra=about)
        await sleep(pause)
        pause = min(2 * pause, longest_pause) or FIRST_PAUSE
