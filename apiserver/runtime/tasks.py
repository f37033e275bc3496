"""Work that must go on for as long as the process does: what it raises is logged and counted, and then it is begun again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from apiserver import metrics

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 15.0
"""Seconds; pauses double between the two."""

Sleep = Callable[[float], Awaitable[object]]


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
