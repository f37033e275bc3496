"""The order of admission when all come at once."""

from __future__ import annotations

import asyncio

from apiserver.runtime.fairqueue import FairQueue


class Crowd:
    """Callers of a fair queue, and the order in which they passed."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.through: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, *names: int) -> None:
        self.tasks += [asyncio.ensure_future(self._one(name)) for name in names]

    async def _one(self, name: int) -> None:
        await self.queue.pass_through()
        self.through.append(name)


async def test_single_caller_does_not_wait() -> None:
    queue = FairQueue(urgent=lambda: True)
    passing = queue.pass_through()
    await asyncio.wait_for(passing, 10)


async def test_longest_waiter_passes_although_others_keep_coming() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(50))
    for newcomer in range(1000, 1200):
        crowd.come(newcomer)
        await asyncio.sleep(0)
    assert {*range(50)} <= {*crowd.through}
    await asyncio.gather(*crowd.tasks)


async def test_newest_of_a_crowd_goes_first_and_no_waiter_starves() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(100))
    await asyncio.sleep(0)
    crowd.come(1000)
    await asyncio.gather(*crowd.tasks)
    assert crowd.through.index(1000) < 4
    assert sorted(crowd.through) == [*range(100), 1000]


async def test_first_waiter_goes_first_in_an_ordered_queue() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False, in_order=True))
    crowd.come(*range(100))
    await asyncio.gather(*crowd.tasks)
    assert crowd.through == [*range(100)]


async def test_other_work_gets_its_turn_between_two_callers() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(50))
    turns = 0
    while len(crowd.through) < 50:
        before = len(crowd.through)
        await asyncio.sleep(0)
        turns += 1
        assert len(crowd.through) - before <= 2
    assert turns >= 25


async def test_cancelled_waiter_takes_no_turn() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(10))
    await asyncio.sleep(0)
    for task in crowd.tasks[:9]:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    await crowd.queue.pass_through()
    assert len(crowd.queue) == 0


async def test_while_something_is_urgent_few_pass_and_afterwards_all() -> None:
    urgent = True
    crowd = Crowd(FairQueue(urgent=lambda: urgent))
    crowd.come(*range(200))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(crowd.through) < 100
    urgent = False
    await asyncio.gather(*crowd.tasks)
    assert len(crowd.through) == 200
