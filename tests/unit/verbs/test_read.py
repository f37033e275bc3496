"""States of the past, right after a start: the work that is needed before they can be served."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from apiserver.storage.upkeep import Upkeep
from apiserver.watchcache import mvcc, ring
from apiserver.watchcache.mvcc import Index
from tests.fixtures.composed import Composed, composed
from tests.fixtures.valkey import Server

CLASSES = 40


@pytest.fixture(autouse=True)
def short_segments() -> object:
    with (
        mock.patch.multiple(mvcc, CHECKPOINT_EVENTS=4, CHECKPOINT_SHARE=100),
        mock.patch.multiple(ring, LEAST_EVENTS=0, SEGMENT_EVENTS=4),
    ):
        yield


class Steps:
    """Counts what else the loop does while checkpoints are made: `at` is the count at each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[int] = []
        self._others = 0
        backfill = Index.backfill

        def noted(index: Index) -> bool:
            made = backfill(index)
            if made:
                self.at.append(self._others)
            return made

        monkeypatch.setattr(Index, "backfill", noted)

    async def others(self) -> None:
        while True:
            self._others += 1
            await asyncio.sleep(0)


async def _filled_anew(server: Composed) -> None:
    replica = server.stores[f"{server.group}/deviceclasses"]._replica
    replica.rebuild("digest", "as after a start")
    await replica.installed.wait()


@pytest.mark.parametrize("how", ["an exact version", "a continue token"])
async def test_freshly_read_history_is_processed_in_steps_with_turns_between(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(Upkeep, "_care_for", mock.AsyncMock())
    async with composed(shared_server) as server:
        for number in range(CLASSES):
            made = await server.ask("POST", server.classes, {"metadata": {"name": f"c{number:02}"}, "spec": {}})
            assert made.status == 201
            if number == 3:
                early = (await server.ask("GET", f"{server.classes}?limit=2")).json["metadata"]
        await _filled_anew(server)
        steps = Steps(monkeypatch)
        others = asyncio.create_task(steps.others())
        query, names = {
            "an exact version": (f"resourceVersion={early['resourceVersion']}&resourceVersionMatch=Exact", range(4)),
            "a continue token": (f"continue={early['continue']}", range(2, 4)),
        }[how]
        listed = await server.ask("GET", f"{server.classes}?{query}")
        others.cancel()

    assert [item["metadata"]["name"] for item in listed.json["items"]] == [f"c{number:02}" for number in names]
    assert len(steps.at) > 4
    assert steps.at == sorted(set(steps.at))
