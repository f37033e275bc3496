"""Run a minute of `make faults`, from a fixed seed."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.faults.campaign import Load, campaign

SEED = 35
LOAD = Load(watchers=50)


@pytest.mark.parametrize(("topology", "faults"), [("one", 20), ("sentinel", 14)])
async def test_clients_see_what_survived_whatever_fault_happens(
    tmp_path_factory: pytest.TempPathFactory, topology: str, faults: int
) -> None:
    await clients_see_what_survived(tmp_path_factory, topology, faults)


async def clients_see_what_survived(tmp_path_factory: pytest.TempPathFactory, topology: str, faults: int) -> None:
    folder: pathlib.Path = await asyncio.to_thread(tmp_path_factory.mktemp, "f")
    async with campaign(folder, topology, seed=SEED, load=LOAD) as running:
        await running.round(faults)
    assert not running.report.findings, str(running.report)
    assert running.report.injected >= faults
    assert running.report.counts["acknowledged writes"] > 30
    assert running.report.counts["events"] > 100
