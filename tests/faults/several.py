"""Campaigns at the same time, each in a process of its own: they mostly wait for what a store does by the clock."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from apiserver.watchcache.errors import StorageError
from tests.faults import campaign, topologies
from tests.faults.campaign import Load, Report
from tests.fixtures.processes import Died


def say(text: str) -> None:
    print(text, flush=True)


def run(chosen: argparse.Namespace) -> Report:
    """Run all campaigns, some at a time, and add up their reports."""
    total, begin = Report(), time.monotonic()
    jobs = [
        (topology, chosen.seed + number)
        for number in range(chosen.campaigns)
        for topology in chosen.topology or topologies.NAMES
    ]
    with ProcessPoolExecutor(
        chosen.at_once, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as executor:
        for report in executor.map(_one, *zip(*((chosen, *job) for job in jobs), strict=True)):
            total += report
    total.seconds = time.monotonic() - begin
    return total


def _one(chosen: argparse.Namespace, topology: str, seed: int) -> Report:
    """Run a campaign in this process, with the failure of its store or servers as a finding."""
    try:
        return asyncio.run(_play(chosen, topology, seed))
    except (AssertionError, Died, OSError, StorageError) as error:
        say(f"{topology}, seed {seed}: {error!r}")
        return Report(findings=[f"{topology}, seed {seed}: {error!r}"[:2000]])


async def _play(chosen: argparse.Namespace, topology: str, seed: int) -> Report:
    """Run a campaign until its faults are injected, the minutes are over, or something is found."""
    load, name = Load(servers=chosen.servers, watchers=chosen.watchers), f"{topology} {seed}"
    end = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        async with campaign.campaign(
            Path(folder),
            topology,
            seed=seed,
            durability=chosen.durability,
            down_ms=chosen.down_ms,
            load=load,
            flags=chosen.flag,
            only=chosen.only,
            say=say,
        ) as running:
            report = running.report
            while report.injected < chosen.faults and not report.findings and time.monotonic() < end:
                before = time.monotonic()
                await running.round(min(chosen.round, chosen.faults - report.injected))
                say(
                    f"{name}: {report.injected} faults, {len(report.findings)} findings, {time.monotonic() - before:.0f} s"
                )
            say(f"{topology}, seed {seed}, durability {chosen.durability}\n{report}")
            if report.findings and chosen.keep:
                await asyncio.to_thread(_keep, Path(folder), chosen.keep / name.replace(" ", "-"))
            return report


def _keep(folder: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in [*folder.glob("*/*.log"), *folder.glob("*/log")]:
        (to / f"{log.parent.name}-{log.name}").write_bytes(log.read_bytes())
