"""Who is let in when all come at once."""

from __future__ import annotations

import asyncio

from apiserver.runtime.fairqueue import FairQueue


class Crowd:
    """People before a turnstile, and the order in which they came through."""

    def __init__(self, turnstile: FairQueue) -> None:
        self.turnstile = turnstile
        self.through: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, *names: int) -> None:
        self.tasks += [asyncio.ensure_future(self._one(name)) for name in names]

    async def _one(self, name: int) -> None:
        await self.turnstile.pass_through()
        self.through.append(name)


async def test_one_who_comes_alone_does_not_wait() -> None:
    turnstile = FairQueue(urgent=lambda: True)
    passing = turnstile.pass_through()
    await asyncio.wait_for(passing, 10)


async def test_who_has_waited_longest_passes_although_others_keep_coming() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(50))
    for newcomer in range(1000, 1200):
        crowd.come(newcomer)
        await asyncio.sleep(0)
    assert {*range(50)} <= {*crowd.through}
    await asyncio.gather(*crowd.tasks)


async def test_of_a_crowd_the_newest_goes_first_and_nobody_is_forgotten() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(100))
    await asyncio.sleep(0)
    crowd.come(1000)
    await asyncio.gather(*crowd.tasks)
    assert crowd.through.index(1000) < 4
    assert sorted(crowd.through) == [*range(100), 1000]


async def test_who_came_first_goes_first_where_that_is_the_order() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False, in_order=True))
    crowd.come(*range(100))
    await asyncio.gather(*crowd.tasks)
    assert crowd.through == [*range(100)]


async def test_other_work_gets_its_turn_between_two_who_pass() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(50))
    turns = 0
    while len(crowd.through) < 50:
        before = len(crowd.through)
        await asyncio.sleep(0)
        turns += 1
        assert len(crowd.through) - before <= 2
    assert turns >= 25


async def test_who_gave_up_takes_no_turn() -> None:
    crowd = Crowd(FairQueue(urgent=lambda: False))
    crowd.come(*range(10))
    await asyncio.sleep(0)
    for task in crowd.tasks[:9]:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    await crowd.turnstile.pass_through()
    assert len(crowd.turnstile) == 0


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
