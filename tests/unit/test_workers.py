from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from apiserver.workers import Workers


async def test_work_runs_beside_the_loop_and_its_result_or_error_comes_back() -> None:
    workers = Workers()
    assert await workers.run(threading.get_ident) != threading.get_ident()
    assert await workers.run("{}-{n}".format, 1, n=2) == "1-2"
    with pytest.raises(ZeroDivisionError):
        await workers.run(lambda: 1 / 0)


async def test_what_many_want_at_once_is_made_once() -> None:
    workers, made, go = Workers(), [], threading.Event()

    def make() -> int:
        go.wait()
        made.append(1)
        return len(made)

    waiting = [asyncio.ensure_future(workers.once("frame", make)) for _ in range(100)]
    other = asyncio.ensure_future(workers.once("other", lambda: 7))
    assert await other == 7
    go.set()
    assert await asyncio.gather(*waiting) == [1] * 100
    assert await workers.once("frame", make) == 2


async def test_one_who_stops_waiting_takes_nothing_from_the_others() -> None:
    workers, go = Workers(), threading.Event()

    def make() -> str:
        go.wait()
        return "made"

    first, second = (asyncio.ensure_future(workers.once("frame", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await second == "made"
    assert first.cancelled()


async def test_a_failure_reaches_all_who_wait_and_is_tried_again_by_the_next() -> None:
    workers, go = Workers(), threading.Event()

    def fail() -> NoReturn:
        go.wait()
        raise ValueError("no")

    waiting = [asyncio.ensure_future(workers.once("frame", fail)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(one) for one in found] == ["no"] * 3
    assert await workers.once("frame", lambda: 1) == 1
