"""Work that waits for a controller, and the fate of work that fails."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from apiserver.apimachinery import errors
from apiserver.standalone import queue
from apiserver.standalone.queue import Queue


class Works:
    """Work that is held until the test lets it go, and fails as often as the test says."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.changed = asyncio.Condition()

    async def look(self, item: str) -> None:
        async with self.changed:
            self.begun.append(item)
            self.changed.notify_all()
        await self.gate.wait()
        if self.failures[item]:
            self.failures[item] -= 1
            raise errors.internal("not now")
        async with self.changed:
            self.done[item] += 1
            self.changed.notify_all()

    async def until(self, **done: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: all(self.done[item] >= count for item, count in done.items()))

    async def until_begun(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.begun) >= count)


async def test_item_that_waits_is_looked_at_once_and_never_by_two_workers() -> None:
    works = Works()
    looked_at: Queue[str] = Queue(works.look, name="test", workers=2)
    running = asyncio.ensure_future(looked_at.run())
    looked_at.add("a")
    looked_at.add("a")
    await works.until_begun(1)
    for _ in range(3):
        looked_at.add("a")
    looked_at.add("b")
    await works.until_begun(2)
    assert works.begun == ["a", "b"]

    works.gate.set()
    await works.until(a=2, b=1)

    assert works.begun == ["a", "b", "a"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_item_that_fails_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "FIRST_PAUSE", 0.0)
    works = Works()
    works.failures["a"] = 3
    works.gate.set()
    looked_at: Queue[str] = Queue(works.look, name="test", workers=1)
    running = asyncio.ensure_future(looked_at.run())

    looked_at.add("a")
    await works.until(a=1)

    assert works.begun == ["a"] * 4
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
