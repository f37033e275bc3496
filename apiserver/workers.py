"""Threads for work that would hold the event loop for too long: few, and apart from those of files, names and compression."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

THREADS = 2
"""Python runs one at a time: a second one lets a small piece pass a large one."""

T = TypeVar("T")


class Workers:
    """A pool of threads. Work that has begun is finished even when nobody waits for it any more."""

    def __init__(self, *, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def run(self, function: Callable[..., T], *args: Any, **more: Any) -> T:
        """What the function returns or raises. It must not touch what belongs to the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(function, *args, **more))

    async def once(self, key: Hashable, function: Callable[[], T]) -> T:
        """The same for all who ask for `key` while it is being made: the first one's function runs, and the others share its result."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self.run(function))
            running.add_done_callback(functools.partial(self._done, key))
        result: T = await asyncio.shield(running)
        return result

    def _done(self, key: Hashable, running: asyncio.Future[Any]) -> None:
        del self._running[key]
        if not running.cancelled():
            running.exception()  # whoever still waits gets it; with nobody there is nothing to say
