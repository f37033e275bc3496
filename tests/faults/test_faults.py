"""Run a minute of `make faults`, from a fixed seed."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.faults.campaign import Load, campaign

SEED = 35
LOAD = Load(watchers=50)
ROUNDS = 3


@pytest.mark.parametrize(("topology", "faults"), [("one", 20), ("sentinel", 14)])
async def test_clients_see_what_survived_whatever_fault_happens(
    tmp_path_factory: pytest.TempPathFactory, topology: str, faults: int
) -> None:
    await clients_see_what_survived(tmp_path_factory, topology, faults)


async def clients_see_what_survived(tmp_path_factory: pytest.TempPathFactory, topology: str, faults: int) -> None:
    """Repeat a round that has findings, twice at most, if a failover happened that no fault wanted: the machine stood still then."""
    for _ in range(ROUNDS):
        folder: pathlib.Path = await asyncio.to_thread(tmp_path_factory.mktemp, "f")
        async with campaign(folder, topology, seed=SEED, load=LOAD) as running:
            await running.round(faults)
        report = running.report
        if not report.findings or not report.counts["failovers that no fault wanted"]:
            break
    assert not report.findings, str(report)
    assert report.injected >= faults
    assert report.counts["acknowledged writes"] > 30
    assert report.counts["events"] > 100
