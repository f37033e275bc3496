"""Two servers on a store of three primaries: all clients see one history while slots move and a primary dies."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator

import pytest

from tests.faults.test_two_replicas import scenario
from tests.fixtures.clusters import Cluster, slot_of_resource

CLAIMS, SLICES = (slot_of_resource(f"resource.sluice.dev/{name}") for name in ("resourceclaims", "resourceslices"))
SEED = 5


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("c"))
    made.start()
    yield made
    made.stop()


async def test_clients_of_a_cluster_see_one_history_while_slots_move_and_a_primary_dies(
    tmp_path: pathlib.Path, cluster: Cluster
) -> None:
    load = {"objects": 80, "watching": 12, "chunk": 50, "pause": 0.02}
    async with scenario(tmp_path, cluster, flags=[["--store-durability=primary"]] * 2, seed=SEED, **load) as (
        running,
        _,
    ):
        await running.written(50)
        for target in (cluster.members[0], cluster.members[1]):
            await asyncio.to_thread(cluster.move, [CLAIMS], target)
            await running.written(30)
        for target in (cluster.members[2], cluster.members[1]):
            await asyncio.to_thread(cluster.move_key_by_key, SLICES, target, pause=0.1)
            await running.written(30)
        dying = cluster.owner(SLICES)
        await asyncio.to_thread(dying.kill)
        await asyncio.to_thread(dying.start)
        await running.written(50)
        await running.end()
        assert running.clients.counts["lists"] > 10
        assert running.clients.counts["events"] > 100
