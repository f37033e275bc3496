"""`python -m bench`: starts `sluice dev` on an empty folder, runs every workload, prints one line each and what was missed.

With `--upstream` a real kube-apiserver with etcd and its own `resource.k8s.io/v1` is measured too, each workload right after ours, because
a machine is not equally fast all the time; then the ratios are printed. While one is measured, the other stands still. Every figure goes
into a file (`--results`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import uvloop

from bench import (
    accounting,
    admission,
    bounds,
    cel,
    client,
    deliveries,
    forms,
    lists,
    picture,
    protobuf,
    reports,
    results,
    servers,
    workloads,
)
from bench.results import OURS, THEIRS, Results
from bench.servers import Sluice
from bench.workloads import Bench, Result

QUICK = 3
"""So many times fewer samples are taken with `--quick`."""
WATCHERS = 1000
UPSTREAM_LISTS = 3
"""kube-apiserver, whose lists take twenty times as long, gets so many times fewer of them."""


@dataclass(frozen=True)
class Step:
    """A workload. `ours`: kube-apiserver has nothing to compare, or the same whether warm or cold."""

    group: str
    name: str
    run: Callable[[Bench], Awaitable[Result]]
    ours: bool = False

    def wanted(self, only: Sequence[str]) -> bool:
        return not only or any(pattern == self.group or fnmatchcase(self.name, pattern) for pattern in only)


class Run:
    """The steps that the command line asks for."""

    def __init__(self, *, slices: int, quick: bool) -> None:
        self.slices = slices
        self._parts = QUICK if quick else 1
        self._samples = 1 if quick else 3

    def _some(self, operations: int) -> int:
        return max(1, operations // self._parts)

    def filling(self) -> Iterator[Step]:
        """Create the slices that all other steps use."""
        slices = self.slices
        yield Step("writes", "CREATE c1", lambda bench: bench.create(first=0, count=1000, clients=1))
        yield Step("writes", "CREATE c16", lambda bench: bench.create(first=1000, count=slices - 2000, clients=16))
        yield Step(
            "writes",
            "CREATE protobuf c16",
            lambda bench: bench.create_from_protobuf(first=slices - 1000, count=1000, clients=16),
        )

    def steps(self) -> Iterator[Step]:
        yield from self._reads()
        yield from self._lists()
        yield from self._cold()
        yield from self._writes()
        yield from self._watches()

    def _reads(self) -> Iterator[Step]:
        count = self._some(5000)
        yield Step("reads", "GET c16", lambda bench: bench.get(operations=count, clients=16))
        yield Step(
            "reads", "GET c16 RV=0", lambda bench: bench.get(operations=count, clients=16, query="?resourceVersion=0")
        )
        yield Step(
            "reads",
            "GET protobuf c16",
            lambda bench: bench.get(operations=count, clients=16, accept=client.PROTOBUF),
        )

    def _lists(self) -> Iterator[Step]:
        for listing in lists.LISTINGS:
            for clients, count in ((1, 24), (8, 32)):
                yield Step("lists", f"{listing.name} c{clients}", self._list(listing, clients, self._some(count)))
        yield Step(
            "lists",
            "LIST gzip under 50 writes/s",
            lambda bench: lists.under_writes(
                bench, lists.GZIP, objects=self.slices, lists=self._some(30), rate=50, every=0.2
            ),
        )
        for gzip in (False, True):
            yield Step("lists", f"walk by {lists.PAGE}{' gzip' if gzip else ''}", self._walk(gzip=gzip))
        for form in forms.FORMS:
            yield Step("lists", f"watch-list{'' if form is forms.WHOLE else f' {form.name}'}", self._watch_list(form))

    def _list(self, listing: lists.Listing, clients: int, count: int) -> Callable[[Bench], Awaitable[Result]]:
        def run(bench: Bench) -> Awaitable[Result]:
            operations = max(clients, count if bench.ours else count // UPSTREAM_LISTS)
            return lists.warm(bench, listing, objects=self.slices, clients=clients, operations=operations)

        return run

    def _walk(self, *, gzip: bool) -> Callable[[Bench], Awaitable[Result]]:
        count = self._some(12)
        return lambda bench: lists.walk(
            bench, objects=self.slices, gzip=gzip, operations=count if bench.ours else max(1, count // UPSTREAM_LISTS)
        )

    def _watch_list(self, form: forms.Form) -> Callable[[Bench], Awaitable[Result]]:
        count = self._some(12)
        return lambda bench: lists.watch_list(
            bench, form, objects=self.slices, operations=count if bench.ours else max(1, count // UPSTREAM_LISTS)
        )

    def _cold(self) -> Iterator[Step]:
        for listing in lists.LISTINGS:
            for clients, samples in ((1, self._samples), (8, 1))[: 1 if self._parts > 1 else 2]:
                name = f"{listing.name}{f' c{clients}' if clients > 1 else ''} cold"
                yield Step("cold", name, self._first(listing, clients, samples), ours=True)
        yield Step(
            "cold", "all forms of a list", lambda bench: lists.memory_of_all(bench, objects=self.slices), ours=True
        )

    def _first(self, listing: lists.Listing, clients: int, samples: int) -> Callable[[Bench], Awaitable[Result]]:
        return lambda bench: lists.cold(bench, listing, objects=self.slices, samples=samples, clients=clients)

    def reports(self) -> Iterator[Step]:
        """Policy reports as custom resources. The first step creates them."""
        count = self.slices
        yield Step("reports", "report CREATE c16", lambda bench: bench.create(first=0, count=count, clients=16))
        for listing in lists.LISTINGS:
            if listing.form in (forms.WHOLE, forms.TABLE, forms.METADATA):
                yield Step("reports", f"report {listing.name} c1", self._list(listing, 1, self._some(24)))
        for gzip in (False, True):
            # kube-apiserver writes the token of custom resources behind their items, where the client does not look.
            name = f"report walk by {lists.PAGE}{' gzip' if gzip else ''}"
            yield Step("reports", name, self._walk(gzip=gzip), ours=True)
        for form in (forms.WHOLE, forms.TABLE, forms.METADATA):
            name = f"report watch-list{'' if form is forms.WHOLE else f' {form.name}'}"
            yield Step("reports", name, self._watch_list(form))
        yield from self._objects("report")

    def alike(self) -> Iterator[Step]:
        """Slices as large as a policy report."""
        count = self._some(3000)
        yield Step(
            "reports", "slice of 4 KB CREATE c16", lambda b: b.create(first=0, count=count, clients=16), ours=True
        )
        yield from self._objects("slice of 4 KB", ours=True)

    def _objects(self, noun: str, *, ours: bool = False) -> Iterator[Step]:
        reads, count = self._some(5000), self._some(2000)
        objects = min(1000, self.slices, self._some(3000))
        yield Step(
            "reports",
            f"{noun} GET c16",
            lambda bench: bench.get(operations=reads, clients=16, objects=objects),
            ours=ours,
        )
        for how in workloads.WRITES:
            run = functools.partial(Bench.write, how=how, operations=count, clients=16, objects=objects)
            yield Step("reports", f"{noun} {how} c16", run, ours=ours)

    def _writes(self) -> Iterator[Step]:
        count = self._some(2000)
        for how in workloads.WRITES:
            for clients in (1, 16):
                yield Step("writes", f"{how} c{clients}", self._write(how, clients, count))

    def _write(self, how: str, clients: int, count: int) -> Callable[[Bench], Awaitable[Result]]:
        return lambda bench: bench.write(how, operations=count, clients=clients)

    def _watches(self) -> Iterator[Step]:
        yield Step(
            "watches",
            "watch propagation",
            lambda bench: deliveries.propagation(bench, writes=self._some(1000), rate=100),
        )
        for form in (forms.WHOLE, forms.TABLE, forms.MESSAGES):
            name = f"fan-out{'' if form is forms.WHOLE else f' {form.name}'} to {WATCHERS}"
            yield Step("watches", name, self._fan_out(form))

    def _fan_out(self, form: forms.Form) -> Callable[[Bench], Awaitable[Result]]:
        writes = self._some(200)
        return lambda bench: deliveries.fan_out(bench, form, watchers=WATCHERS, writes=writes, rate=20)


class Report:
    """Prints lines as they come, and keeps the figures: in the file as well, so that a run that is stopped has not been for nothing."""

    def __init__(self, found: Results, file: Path) -> None:
        self.found = found
        self._file = file

    def add(self, step: Step, server: str, result: Result) -> None:
        self._keep(step.group, step.name, server, result.all())
        print(f"{server:15} {step.name:34} {result.line()}", flush=True)

    def figure(self, group: str, name: str, server: str, figures: results.Figures) -> None:
        """One that is no operation's."""
        self._keep(group, name, server, figures)
        told = ", ".join(f"{value:.1f} {key.rpartition('_')[2].replace('mb', 'MB')}" for key, value in figures.items())
        print(f"{server:15} {name:34} {told} (server + store)", flush=True)

    def _keep(self, group: str, name: str, server: str, figures: results.Figures) -> None:
        self.found.add(group, name, server, figures)
        self.found.write(self._file)

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
    parser.add_argument("--results", type=Path, default=results.LAST, help="the file of results (default: %(default)s)")
    parser.add_argument("--publish", action="store_true", help="show this run in README.md and bench/lists.svg")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    run = Run(slices=wanted.slices, quick=wanted.quick)
    if wanted.list:
        for step in (*run.filling(), *run.steps(), *run.reports(), *run.alike()):
            print(f"{step.group:10} {step.name}")
        return
    facts = results.facts(upstream=wanted.upstream, slices=wanted.slices, quick=wanted.quick)
    report = Report(Results(facts), wanted.results)
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
        wanted.results.with_suffix(".svg").write_text(picture.draw(report.found))
    if wanted.publish:
        picture.publish(report.found)
    for verdict in bounds.judge(report.found):
        if verdict.measured is not None:
            print(verdict.line())
    if not (wanted.quick or wanted.only):
        admission.main()
        cel.main()
        protobuf.main()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main()
