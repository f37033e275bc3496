"""Cached answers and their lifetimes; nothing is asked twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from apiserver.cluster import answers
from apiserver.cluster.answers import Answers
from apiserver.cluster.errors import ClusterError
from tests.unit.cluster.plane import Clock, until


class Oracle:
    """A server that answers when the test lets it."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self.asked = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.tasks: list[asyncio.Task[Any]] = []

    async def __call__(self) -> tuple[str, float]:
        self.asked += 1
        number = self.asked
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return f"answer {number}", self.seconds

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


def made(oracle: Oracle, clock: Clock, size: int = 10) -> Answers[str, str]:
    return Answers(oracle.start, size=size, clock=clock)


async def test_an_answer_holds_for_its_seconds(clock: Clock) -> None:
    oracle = Oracle()
    oracle.go.set()
    kept = made(oracle, clock)
    assert kept.get("a") is None
    assert await kept.ask("a", oracle) == "answer 1"
    clock.now += 9.999
    assert kept.get("a") == "answer 1"
    clock.now += 0.001
    assert kept.get("a") is None
    assert len(kept) == 0
    assert await kept.ask("a", oracle) == "answer 2"


async def test_an_answer_that_holds_for_no_time_is_not_kept(clock: Clock) -> None:
    oracle = Oracle(seconds=0)
    oracle.go.set()
    kept = made(oracle, clock)
    await kept.ask("a", oracle)
    assert kept.get("a") is None
    assert len(kept) == 0


async def test_simultaneous_equal_questions_share_one_answer(clock: Clock) -> None:
    oracle = Oracle()
    kept = made(oracle, clock)
    asking = [asyncio.create_task(kept.ask("a", oracle)) for _ in range(50)]
    other = asyncio.create_task(kept.ask("b", oracle))
    await until(lambda: oracle.asked == 2)
    oracle.go.set()
    assert set(await asyncio.gather(*asking)) == {"answer 1"}
    assert await other == "answer 2"


async def test_a_question_does_not_die_with_its_first_caller(clock: Clock) -> None:
    oracle = Oracle()
    kept = made(oracle, clock)
    first, second = (asyncio.create_task(kept.ask("a", oracle)) for _ in range(2))
    await until(lambda: oracle.asked == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    oracle.go.set()
    assert await second == "answer 1"
    assert first.cancelled()


async def test_answer_without_waiters_is_kept(clock: Clock) -> None:
    oracle = Oracle()
    kept = made(oracle, clock)
    only = asyncio.create_task(kept.ask("a", oracle))
    await until(lambda: oracle.asked == 1)
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    oracle.go.set()
    await until(lambda: kept.get("a"))


async def test_error_reaches_all_waiters_and_is_not_kept(clock: Clock) -> None:
    oracle = Oracle()
    oracle.error = ClusterError("away")
    kept = made(oracle, clock)
    asking = [asyncio.create_task(kept.ask("a", oracle)) for _ in range(3)]
    oracle.go.set()
    assert [str(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == ["away"] * 3
    oracle.error = None
    assert await kept.ask("a", oracle) == "answer 2"


async def test_error_without_waiters_is_dropped_quietly(clock: Clock) -> None:
    oracle = Oracle()
    oracle.error = ClusterError("away")
    kept = made(oracle, clock)
    only = asyncio.create_task(kept.ask("a", oracle))
    await until(lambda: oracle.asked == 1)
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    oracle.go.set()
    await until(oracle.tasks[0].done)


async def test_a_lookup_has_a_limit_of_its_own(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers.SHARED_SECONDS == 30
    monkeypatch.setattr(answers, "SHARED_SECONDS", 0.05)
    oracle = Oracle()
    kept = made(oracle, clock)
    with pytest.raises(ClusterError, match=r"no answer within 0\.05 s"):
        await kept.ask("a", oracle)
    oracle.go.set()
    assert await kept.ask("a", oracle) == "answer 2"


async def test_waiter_for_a_cancelled_lookup_gets_an_error(clock: Clock) -> None:
    oracle = Oracle()
    kept = made(oracle, clock)
    asking = asyncio.create_task(kept.ask("a", oracle))
    await until(lambda: oracle.asked == 1)
    oracle.tasks[0].cancel()
    with pytest.raises(ClusterError, match="the client is closed"):
        await asking


async def test_the_answers_used_last_are_kept(clock: Clock) -> None:
    oracle = Oracle()
    oracle.go.set()
    kept = made(oracle, clock, size=3)
    for key in "abc":
        await kept.ask(key, oracle)
    assert kept.get("a")
    await kept.ask("d", oracle)
    assert [key for key in "abcd" if kept.get(key)] == ["a", "c", "d"]
    assert len(kept) == 3


async def test_expired_answers_are_dropped_when_others_come(clock: Clock) -> None:
    oracle = Oracle()
    oracle.go.set()
    kept = made(oracle, clock)
    for key in "abc":
        await kept.ask(key, oracle)
    clock.now += oracle.seconds
    await kept.ask("d", oracle)
    assert len(kept) == 1
