"""Admission to a byte budget."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from apiserver.apimachinery.request import User
from apiserver.audit.budget import ByteBudget, memory_of
from tests.unit.audit.sinks import event


async def entered(budget: ByteBudget, size: int) -> asyncio.Task[None]:
    coming = asyncio.create_task(budget.acquire(size))
    await asyncio.sleep(0)
    return coming


async def idle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_members_that_a_client_can_make_long_count() -> None:
    light = memory_of(event())
    assert memory_of(event(uri="/" + "x" * 10_000)) > light + 9_000
    assert memory_of(event(request=[b"1" * 100], response=[b"2" * 100, b"3" * 100])) == light + 300
    assert memory_of(event(annotations={"a": "b" * 1000})) == light + 1000
    named = User("jane", groups=("g" * 100,), extra={"scopes": ("s" * 100, "t" * 100)})
    assert memory_of(replace(event(), user=None, acting=named)) == memory_of(replace(event(), user=None)) + 300


async def test_first_waiter_goes_in_first() -> None:
    budget = ByteBudget(10)
    await budget.acquire(6)
    large, small = await entered(budget, 5), await entered(budget, 1)
    assert not large.done()
    assert not small.done()
    budget.release(6)
    await idle()
    assert large.done()
    assert small.done()
    budget.release(5)
    budget.release(1)
    assert budget.unused


async def test_event_larger_than_the_limit_goes_in_alone() -> None:
    budget = ByteBudget(10)
    await budget.acquire(1)
    large = await entered(budget, 1000)
    assert not large.done()
    budget.release(1)
    await large
    after = await entered(budget, 1)
    assert not after.done()
    budget.release(1000)
    await after


@pytest.mark.parametrize("let_in", [False, True])
async def test_cancelled_waiter_blocks_no_other(*, let_in: bool) -> None:
    budget = ByteBudget(10)
    await budget.acquire(10)
    gone, after = await entered(budget, 10), await entered(budget, 5)
    if let_in:
        budget.release(10)
    gone.cancel()
    await asyncio.wait((gone,))
    if not let_in:
        budget.release(10)
    await after
    budget.release(5)
    assert budget.unused
