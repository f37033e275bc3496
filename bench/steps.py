"""The table of workloads: what is measured, in which order and how often."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bench import client, deliveries, forms, lists, workloads
from bench.workloads import Bench, Result

QUICK = 3
"""So many times fewer samples are taken with `--quick`."""
WATCHERS = 1000
FEW_WATCHERS = 100
"""Watchers through kube-apiserver, which opens a connection for each."""
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
        self.rounds = 3 if quick else 5
        """Rounds of a run through kube-apiserver."""

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

    def aggregated(self) -> Iterator[Step]:
        """The workloads that are measured through kube-apiserver as well. Creates come last: every list before has as many slices."""
        names = ("GET c16", "GET c16 RV=0", *(f"{how} c16" for how in workloads.WRITES))
        names += ("LIST identity c1", "LIST gzip c1", "LIST Table c1", "watch propagation")
        yield from (step for step in self.steps() if step.name in names)
        yield Step("watches", f"fan-out to {FEW_WATCHERS}", self._fan_out(forms.WHOLE, FEW_WATCHERS))
        count = self._some(2000)
        fresh = itertools.count(self.slices, count)
        yield Step("writes", "CREATE c16", lambda bench: bench.create(first=next(fresh), count=count, clients=16))

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
            yield Step("watches", name, self._fan_out(form, WATCHERS))

    def _fan_out(self, form: forms.Form, watchers: int) -> Callable[[Bench], Awaitable[Result]]:
        writes = self._some(200)
        return lambda bench: deliveries.fan_out(bench, form, watchers=watchers, writes=writes, rate=20)
