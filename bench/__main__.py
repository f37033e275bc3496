"""`python -m bench`: starts `sluice dev` on an empty folder, runs every workload, prints one line each and what was missed.

With `--upstream` a real kube-apiserver with etcd and its own `resource.k8s.io/v1` is measured too, each workload right after ours, because
a machine is not equally fast all the time; then the ratios are printed. While one is measured, the other stands still. With
`--aggregated` clients ask Sluice through kube-apiserver. Every figure goes into a file (`--results`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import tempfile
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from pathlib import Path

import uvloop

from bench import (
    accounting,
    admission,
    aggregated,
    bounds,
    cel,
    picture,
    protobuf,
    reports,
    results,
    servers,
    tables,
    workloads,
)
from bench.results import OURS, THEIRS, Results
from bench.servers import Sluice
from bench.steps import Run, Step
from bench.workloads import Bench, Result


class Report:
    """Prints lines as they come, and keeps the figures."""

    def __init__(self, found: Results) -> None:
        self.found = found

    def add(self, step: Step, server: str, result: Result) -> None:
        self.found.add(step.group, step.name, server, result.all())
        print(f"{server:15} {step.name:34} {result.line()}", flush=True)

    def figure(self, group: str, name: str, server: str, figures: results.Figures) -> None:
        """One that is no operation's."""
        self.found.add(group, name, server, figures)
        told = ", ".join(f"{value:.1f} {key.rpartition('_')[2].replace('mb', 'MB')}" for key, value in figures.items())
        print(f"{server:15} {name:34} {told} (server + store)", flush=True)

    def memory(self, when: str, benches: dict[str, Bench]) -> None:
        for server, bench in benches.items():
            self.figure("memory", f"memory {when}", server, {"memory_mb": accounting.resident_mb(bench.pids)})


@contextlib.contextmanager
def alone(bench: Bench, benches: dict[str, Bench]) -> Iterator[None]:
    """Meanwhile the others stand still."""
    with accounting.stopped([pid for other in benches.values() if other is not bench for pid in other.pids]):
        yield


async def measure(benches: dict[str, Bench], steps: Iterable[Step], report: Report) -> None:
    """Each workload on each server in turn; with two, how many times the first one's figures the second one's are."""
    for step in steps:
        measured = []
        for server, bench in benches.items():
            if step.ours and not bench.ours:
                continue
            with alone(bench, benches):
                measured.append(await step.run(bench))
            report.add(step, server, measured[-1])
        if len(measured) == 2:
            print(f"{'ratio':15} {step.name:34} {measured[1].ratio(measured[0])}", flush=True)


async def filled(bench: Bench, slices: int) -> bool:
    """Whether an earlier run has left the slices there."""
    async with bench.connection() as connection:
        answers = [
            await connection.request("GET", f"{bench.target.base}{workloads.SLICES}/s{number:06}")
            for number in (slices - 1, slices)
        ]
    return [status for status, _ in answers] == [200, 404]


async def fill(bench: Bench, count: int, first: int) -> None:
    await bench.create(first=first, count=count - first, clients=16)


async def large(bench: Bench, first: int, report: Report) -> None:
    """Slices as large as they may be, behind the figures of memory."""
    devices = workloads.MOST_DEVICES
    steps = [
        Step(
            "large",
            f"CREATE {devices} devices c16",
            lambda bench: bench.create(first=first, count=300, clients=16, devices=devices),
        )
    ]
    for clients in (1, 16):

        def applied(bench: Bench, clients: int = clients) -> Awaitable[Result]:
            return bench.write("APPLY", clients=clients, operations=300, first=first, objects=100, devices=devices)

        steps.append(Step("large", f"APPLY {devices} devices c{clients}", applied))
    await measure({OURS: bench}, steps, report)


def served(server: Sluice, wanted: argparse.Namespace, report: Report) -> None:
    """Every workload that is wanted, of ours and of kube-apiserver."""
    run = Run(slices=wanted.slices, quick=wanted.quick)
    only = wanted.only
    with contextlib.ExitStack() as stack:
        benches = {OURS: server.bench}
        if wanted.upstream:
            benches[THEIRS] = stack.enter_context(
                servers.upstream(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            )
        report.memory("empty", benches)
        for name, bench in benches.items():
            if uvloop.run(filled(bench, wanted.slices)):
                print(f"{name:15} has its {wanted.slices} slices already")
                continue
            filling = list(run.filling())
            with alone(bench, benches):
                if any(step.wanted(only) for step in filling):
                    uvloop.run(measure({name: bench}, filling, report))
                else:
                    uvloop.run(fill(bench, wanted.slices, 0))
        report.memory(f"with {wanted.slices} slices", benches)
        uvloop.run(measure(benches, [step for step in run.steps() if step.wanted(only)], report))
        report.memory("after all", benches)


def as_custom_resources(wanted: argparse.Namespace, report: Report) -> None:
    """Policy reports on both servers, each with an empty store, and slices of the same size on ours."""
    run = Run(slices=wanted.slices, quick=wanted.quick)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = [*shlex.split(wanted.flags), "--crds", str(reports.definition())]
        server = stack.enter_context(servers.sluice(folder / "data", wanted.group, flags))
        benches: dict[str, Bench] = {OURS: reports.Reports(server.bench)}
        if wanted.upstream:
            theirs = reports.Reports(stack.enter_context(servers.upstream(folder / "upstream")))
            uvloop.run(reports.install(theirs))
            benches[THEIRS] = theirs
        uvloop.run(measure(benches, run.reports(), report))
        with alone(benches[OURS], benches):
            uvloop.run(measure({OURS: reports.Alike(server.bench)}, run.alike(), report))


def grown(server: Sluice, wanted: argparse.Namespace, report: Report) -> None:
    """More slices than that: what they take in memory, and how long a start takes."""
    have = wanted.slices
    for goal, word in ((wanted.more, "memory"), (wanted.start, "start")):
        if goal > have:
            uvloop.run(fill(server.bench, goal, have))
            have = goal
        if goal and word == "memory":
            report.memory(f"with {have} slices", {OURS: server.bench})
    server.restart()
    memory = accounting.resident_mb(server.bench.pids)
    report.figure("start", f"start with {have} slices", OURS, {"start_s": server.start_seconds, "memory_mb": memory})
    uvloop.run(large(server.bench, have, report))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=10_000)
    parser.add_argument("--more", type=int, default=30_000, help="objects for the second memory figure; 0 skips it")
    parser.add_argument("--start", type=int, default=100_000, help="objects for the start-up figure; 0 skips it")
    parser.add_argument("--group", default="resource.sluice.dev")
    parser.add_argument("--upstream", action="store_true", help="measure kube-apiserver and etcd as well, and compare")
    parser.add_argument(
        "--aggregated", action="store_true", help="measure Sluice through kube-apiserver, and beside it"
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples, nothing that needs more than --slices")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORKLOAD",
        help="a group (reads, lists, cold, writes, watches, reports) or a pattern of names, as in 'LIST gzip*'; may be repeated",
    )
    parser.add_argument("--data", type=Path, help="keep ours in this folder: the next run finds its slices there")
    parser.add_argument("--flags", default="", help="further flags of `sluice dev`")
    parser.add_argument("--results", type=Path, help="the file of results (default: in bench/results)")
    parser.add_argument("--publish", action="store_true", help="show this run on the page of the benchmarks")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    return parser.parse_args()


def through(wanted: argparse.Namespace, run: Run) -> None:
    """Measure Sluice as clients in a cluster meet it."""
    facts = results.facts(upstream=True, slices=wanted.slices, quick=wanted.quick)
    found = Results(facts, file=wanted.results or results.LAST_AGGREGATED)
    steps = [step for step in run.aggregated() if step.wanted(wanted.only)]
    aggregated.run(steps, found, slices=wanted.slices, rounds=run.rounds)
    if wanted.publish:
        tables.publish_aggregated(found)
    judge(found, bounds.AGGREGATED)


def judge(found: Results, of: Sequence[bounds.Bound]) -> None:
    for verdict in bounds.judge(found, of):
        if verdict.measured is not None:
            print(verdict.line())


def main() -> None:
    wanted = arguments()
    run = Run(slices=wanted.slices, quick=wanted.quick)
    if wanted.list:
        served_alone = (*run.filling(), *run.steps(), *run.reports(), *run.alike())
        for step in run.aggregated() if wanted.aggregated else served_alone:
            print(f"{step.group:10} {step.name}")
    elif wanted.aggregated:
        through(wanted, run)
    else:
        direct(wanted, run)


def direct(wanted: argparse.Namespace, run: Run) -> None:
    """Each server asked by its clients, nothing between them."""
    facts = results.facts(upstream=wanted.upstream, slices=wanted.slices, quick=wanted.quick)
    file = wanted.results or results.LAST
    report = Report(Results(facts, file=file))
    if any(step.wanted(wanted.only) for step in (*run.filling(), *run.steps())):
        with tempfile.TemporaryDirectory() as folder:
            data = wanted.data or Path(folder) / "data"
            with servers.sluice(data, wanted.group, shlex.split(wanted.flags)) as server:
                served(server, wanted, report)
                if not (wanted.quick or wanted.only):
                    grown(server, wanted, report)
    if any(step.wanted(wanted.only) for step in (*run.reports(), *run.alike())):
        as_custom_resources(wanted, report)
    if picture.rows(report.found):
        file.with_suffix(".svg").write_text(picture.draw(report.found))
    if wanted.publish:
        picture.publish(report.found)
    judge(report.found, bounds.BOUNDS)
    if not (wanted.quick or wanted.only):
        admission.main()
        cel.main()
        protobuf.main()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main()
