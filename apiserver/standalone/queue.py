"""A work queue: each item waits once, one worker at a time handles it, and a failed item is tried again later.

Upstream: kubernetes/client-go `util/workqueue`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from apiserver.apimachinery.errors import StatusError
from apiserver.runtime import tasks
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 60.0
"""Seconds before a failed item is tried again, doubled with each failure."""

Item = TypeVar("Item", bound=Hashable)


class Queue(Generic[Item]):
    """`look` raises StatusError or StorageError for an item that must be tried again."""

    def __init__(self, look: Callable[[Item], Awaitable[None]], *, name: str, workers: int) -> None:
        self._look = look
        self._name = name
        self._workers = workers
        self._waiting: dict[Item, None] = {}
        self._busy: dict[Item, bool] = {}
        """Items under way, and whether each was added again meanwhile."""
        self._failures: dict[Item, int] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def add(self, item: Item) -> None:
        if item in self._busy:
            self._busy[item] = True
        elif item not in self._waiting:
            self._waiting[item] = None
            self._some.set()

    async def run(self) -> None:
        """Work until cancelled."""
        await tasks.together(self._work() for _ in range(self._workers))

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._some.clear()
                await self._some.wait()
            item = next(iter(self._waiting))
            del self._waiting[item]
            self._busy[item] = False
            try:
                await self._look(item)
            except (StatusError, StorageError) as e:
                self._again(item, e)
            else:
                self._failures.pop(item, None)
            finally:
                if self._busy.pop(item):
                    self.add(item)

    def _again(self, item: Item, error: Exception) -> None:
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        pause = min(FIRST_PAUSE * 2 ** min(failures - 1, 16), LONGEST_PAUSE)
        about = {
            "controller": self._name,
            "object": str(item)[:512],
            "error": str(error)[:1024],
            "pause_seconds": pause,
        }
        logger.warning("a controller failed and tries again later", extra=about)
        asyncio.get_running_loop().call_later(pause, self.add, item)
