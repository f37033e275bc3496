"""`python -m bench --aggregated`: the speed that clients meet in a cluster, where each request passes kube-apiserver first.

One cluster serves the same kind twice: kube-apiserver with etcd in `resource.k8s.io`, Sluice with Valkey in a group of its own. Each
workload takes turns: on kube-apiserver's group, on Sluice's through kube-apiserver, and on Sluice asked directly. CPU is that of all four
processes, and each figure is the median of the rounds.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import uvloop

from bench import client, servers
from bench.results import OURS, THEIRS, THROUGH, Figures, Results
from bench.steps import Step
from bench.workloads import Bench, share_of
from tests.e2e.controlplane.bed import DRA_GROUP, OWN_GROUP, Bed

SHARES = ("kube-apiserver", "etcd", "sluice", "valkey")
AUTHORIZERS = "RBAC"
"""That of nodes would watch the slices of one of the two groups, and only of that one."""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Mapping[str, Bench]]:
    """The same cluster, asked in three ways."""
    with Bed(folder, durable=True, authorizers=AUTHORIZERS) as bed:
        processes = servers.bed_processes(bed)
        yield {
            THEIRS: Bench(client.Target.of(bed.admin, DRA_GROUP), processes),
            THROUGH: Bench(client.Target.of(bed.admin, OWN_GROUP), processes),
            OURS: Bench(client.Target.of(bed.straight(bed.admin), OWN_GROUP), processes),
        }


def run(steps: Sequence[Step], found: Results, *, slices: int, rounds: int) -> None:
    """Fill both groups, then measure."""
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as ways:
        for way in (THEIRS, THROUGH):
            uvloop.run(_fill(ways[way], slices))
        uvloop.run(measure(ways, steps, found, rounds=rounds))


async def _fill(bench: Bench, slices: int) -> None:
    await bench.create(first=0, count=slices, clients=16)


async def measure(ways: Mapping[str, Bench], steps: Iterable[Step], found: Results, *, rounds: int) -> None:
    for step in steps:
        taken: dict[str, list[Figures]] = {way: [] for way in ways}
        for turn in range(rounds):
            for way in rotated([*ways], turn):
                taken[way].append((await step.run(ways[way])).all())
        figures = {way: medians(each) for way, each in taken.items()}
        figures[THROUGH] |= compared(figures)
        for way in ways:
            found.add(step.group, step.name, way, figures[way])
            print(f"{way:15} {step.name:20} {line(figures[way])}", flush=True)


def rotated(ways: Sequence[str], turn: int) -> Sequence[str]:
    """Begin each round with another way. Otherwise a collection of garbage in kube-apiserver could fall on the same way in each round."""
    first = turn % len(ways)
    return [*ways[first:], *ways[:first]]


def medians(rounds: Sequence[Figures]) -> Figures:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def compared(figures: Mapping[str, Figures]) -> Figures:
    """How many times as much kube-apiserver's own group costs, and what a request through kube-apiserver costs Sluice itself, in times
    of a direct one."""
    share = share_of("sluice")
    return {
        "times": figures[THEIRS]["cpu_ms"] / figures[THROUGH]["cpu_ms"],
        "of_direct": figures[THROUGH][share] / figures[OURS][share],
    }


def line(figures: Figures) -> str:
    shares = ", ".join(f"{name} {figures[share_of(name)]:.3f}" for name in SHARES)
    text = f"CPU {figures['cpu_ms']:9.3f} ms ({shares})"
    if "p50_ms" in figures:
        text += f"  p50 {figures['p50_ms']:8.2f}  p99 {figures['p99_ms']:8.2f} ms"
    if "times" in figures:
        text += f"  kube-apiserver's group {figures['times']:.2f}x, Sluice {figures['of_direct']:.2f} of direct"
    return text
