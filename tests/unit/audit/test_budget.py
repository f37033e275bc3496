"""Admission to a byte budget."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from apiserver.apimachinery.request import User
from apiserver.audit.room import Room, weight
from tests.unit.audit.sinks import event


async def entered(room: Room, size: int) -> asyncio.Task[None]:
    coming = asyncio.create_task(room.enter(size))
    await asyncio.sleep(0)
    return coming


async def idle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_members_that_a_client_can_make_long_count() -> None:
    light = weight(event())
    assert weight(event(uri="/" + "x" * 10_000)) > light + 9_000
    assert weight(event(request=[b"1" * 100], response=[b"2" * 100, b"3" * 100])) == light + 300
    assert weight(event(annotations={"a": "b" * 1000})) == light + 1000
    named = User("jane", groups=("g" * 100,), extra={"scopes": ("s" * 100, "t" * 100)})
    assert weight(replace(event(), user=None, acting=named)) == weight(replace(event(), user=None)) + 300


async def test_first_waiter_goes_in_first() -> None:
    room = Room(10)
    await room.enter(6)
    large, small = await entered(room, 5), await entered(room, 1)
    assert not large.done()
    assert not small.done()
    room.leave(6)
    await idle()
    assert large.done()
    assert small.done()
    room.leave(5)
    room.leave(1)
    assert room.empty


async def test_event_larger_than_the_limit_goes_in_alone() -> None:
    room = Room(10)
    await room.enter(1)
    large = await entered(room, 1000)
    assert not large.done()
    room.leave(1)
    await large
    after = await entered(room, 1)
    assert not after.done()
    room.leave(1000)
    await after


@pytest.mark.parametrize("let_in", [False, True])
async def test_cancelled_waiter_blocks_no_other(*, let_in: bool) -> None:
    room = Room(10)
    await room.enter(10)
    gone, after = await entered(room, 10), await entered(room, 5)
    if let_in:
        room.leave(10)
    gone.cancel()
    await asyncio.wait((gone,))
    if not let_in:
        room.leave(10)
    await after
    room.leave(5)
    assert room.empty
