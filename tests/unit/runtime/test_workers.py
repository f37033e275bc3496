"""Workerss of threads: each bounded, none in another's way."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import NoReturn

import pytest

from apiserver import metrics
from apiserver.runtime.workers import Abandoned, Busy, Workers, checkpoint

_NUMBERS = itertools.count()


@pytest.fixture
def pool() -> Iterator[Workers]:
    found = Workers(f"test-{next(_NUMBERS)}", threads=1, waiting=2)
    yield found
    found.close()


@pytest.fixture
def pair() -> Iterator[Workers]:
    found = Workers(f"test-{next(_NUMBERS)}", threads=2, waiting=1000)
    yield found
    found.close()


def refused(pool: Workers) -> float:
    return metrics.THREAD_POOL_REFUSALS.labels(pool.name).value


async def test_a_call_gives_back_what_it_returns_and_raises_what_it_raises(pool: Workers) -> None:
    assert await pool.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 7, 0)


async def test_work_beyond_the_queue_limit_is_refused_and_counted(pool: Workers) -> None:
    go = threading.Event()
    calls = [asyncio.ensure_future(pool.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0)

    assert pool.full
    with pytest.raises(Busy):
        await pool.run(int)
    assert refused(pool) == 1
    go.set()
    assert await asyncio.gather(*calls) == [True] * 3
    assert await pool.run(int) == 0


async def test_a_pool_works_from_the_call_until_its_result_is_there(pool: Workers) -> None:
    go = threading.Event()
    seen = [pool.working]
    call = asyncio.ensure_future(pool.run(go.wait))
    await asyncio.sleep(0)
    seen.append(pool.working)
    go.set()
    await call
    assert [*seen, pool.working] == [False, True, False]


async def test_patient_work_is_never_refused(pool: Workers) -> None:
    go = threading.Event()
    calls = [asyncio.ensure_future(pool.run_patiently(go.wait)) for _ in range(10)]
    await asyncio.sleep(0)
    go.set()

    assert await asyncio.gather(*calls) == [True] * 10


async def test_a_full_pool_keeps_no_other_waiting(pool: Workers) -> None:
    other = Workers(f"test-{next(_NUMBERS)}", threads=1, waiting=0)
    go = threading.Event()
    calls = [asyncio.ensure_future(pool.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0)

    assert await other.run(int) == 0
    go.set()
    await asyncio.gather(*calls)
    other.close()


class Body:
    """Something that can be watched going away."""


async def test_abandoned_work_still_counts_but_holds_nothing(pool: Workers) -> None:
    go = threading.Event()
    first = asyncio.ensure_future(pool.run(go.wait))
    body = Body()
    gone = weakref.ref(body)
    second = asyncio.ensure_future(pool.run(id, body))
    del body
    third = asyncio.ensure_future(pool.run(int))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    del second
    gc.collect()

    assert gone() is None
    assert pool.full
    go.set()
    assert (await first, await third) == (True, 0)
    assert not pool.full


async def test_result_wanted_by_many_at_once_is_made_once(pair: Workers) -> None:
    made: list[int] = []
    go = threading.Event()

    def make() -> int:
        go.wait()
        made.append(1)
        return len(made)

    waiting = [asyncio.ensure_future(pair.once("frame", make)) for _ in range(100)]
    other = asyncio.ensure_future(pair.once("other", lambda: 7))
    assert await other == 7
    go.set()
    assert await asyncio.gather(*waiting) == [1] * 100
    assert await pair.once("frame", make) == 2


async def test_cancelled_waiter_takes_nothing_from_the_others(pair: Workers) -> None:
    go = threading.Event()

    def make() -> str:
        go.wait()
        return "made"

    first, second = (asyncio.ensure_future(pair.once("frame", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await second == "made"
    assert first.cancelled()


async def test_failure_reaches_all_waiters_and_the_next_caller_tries_again(pair: Workers) -> None:
    go = threading.Event()

    def fail() -> NoReturn:
        go.wait()
        raise ValueError("no")

    waiting = [asyncio.ensure_future(pair.once("frame", fail)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(one) for one in found] == ["no"] * 3
    assert await pair.once("frame", lambda: 1) == 1


async def test_work_without_waiters_ends_at_its_next_checkpoint(pool: Workers, pair: Workers) -> None:
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        try:
            checkpoint()
            began.set()
            go.wait()
            checkpoint()
        except Abandoned:
            ended.set()

    task = asyncio.ensure_future(pool.run(work))
    await pair.run(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await pool.run(ended.wait)


def test_outside_a_pool_a_checkpoint_lets_everything_pass() -> None:
    checkpoint()
