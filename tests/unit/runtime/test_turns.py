"""Many large answers leave the event loop to small requests."""

from __future__ import annotations

import asyncio

from apiserver.runtime import turns


async def test_small_work_waits_for_one_piece_of_many_large_answers() -> None:
    pieces = 0

    async def large() -> None:
        nonlocal pieces
        for _ in range(10):
            await turns.next_turn()
            pieces += 1

    answers = [asyncio.ensure_future(large()) for _ in range(50)]
    await asyncio.sleep(0)
    for passed in range(40):
        await asyncio.sleep(0)
        assert pieces <= passed // turns.TURNS + 2
    await asyncio.gather(*answers)
    assert pieces == 500


async def test_answers_advance_in_turn() -> None:
    pieces = dict.fromkeys(range(20), 0)

    async def large(name: int) -> None:
        for _ in range(10):
            await turns.next_turn()
            pieces[name] += 1
            assert pieces[name] - min(pieces.values()) <= 2

    await asyncio.gather(*map(large, pieces))


async def test_answer_whose_client_left_takes_no_turn() -> None:
    leaving = asyncio.ensure_future(turns.next_turn())
    staying = asyncio.ensure_future(turns.next_turn())
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    assert leaving.cancelled() or leaving.done()
