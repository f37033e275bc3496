"""Large work runs in threads, and large objects are freed there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator

import pytest

from apiserver.runtime import offload
from apiserver.runtime.offload import Work, run_sized
from apiserver.runtime.workers import Busy, Workers

_NUMBERS = itertools.count()


@pytest.fixture
def pool() -> Iterator[Workers]:
    found = Workers(f"offload-{next(_NUMBERS)}", threads=1, waiting=0)
    yield found
    found.close()


def thread() -> str:
    return threading.current_thread().name


async def test_call_with_an_input_up_to_the_limit_runs_at_once(pool: Workers) -> None:
    assert await run_sized(Work(10, pool), 10, thread) == thread()


async def test_call_with_an_input_above_the_limit_runs_in_a_thread_of_its_pool(pool: Workers) -> None:
    assert (await run_sized(Work(10, pool), 11, thread)).startswith(pool.name)


@pytest.mark.parametrize("size", [10, 11])
async def test_call_returns_and_raises_the_same_whatever_its_size(pool: Workers, size: int) -> None:
    work = Work(10, pool)
    assert await run_sized(work, size, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_sized(work, size, divmod, 7, 0)


async def test_large_call_is_refused_by_a_full_pool_only_if_its_work_refuses(pool: Workers) -> None:
    go = threading.Event()
    first = asyncio.ensure_future(run_sized(Work(10, pool), 11, go.wait))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await run_sized(Work(10, pool, refuses=True), 11, thread)
    assert await run_sized(Work(10, pool, refuses=True), 10, thread) == thread()
    second = asyncio.ensure_future(run_sized(Work(10, pool), 11, thread))
    go.set()
    assert await first
    assert (await second).startswith(pool.name)


async def test_freed_values_are_freed_in_a_thread() -> None:
    names: list[str] = []
    done = threading.Event()

    class Watched:
        def __del__(self) -> None:
            names.append(thread())
            done.set()

    offload.free([Watched()])
    assert await asyncio.to_thread(done.wait, 10)
    assert names[0].startswith(offload.FREE.pool.name)
