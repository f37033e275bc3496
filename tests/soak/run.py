"""One soak: fill, load, sample, restart, and compare every watcher with the log."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.client import Connection
from tests.faults.pair import GROUP
from tests.fixtures.valkey import Server
from tests.soak import clients, samples, system
from tests.soak.clients import Load, Traffic
from tests.soak.judge import Curve, Points, Verdict, judge
from tests.soak.log import Log
from tests.soak.system import Place

RESOURCE = f"{GROUP}/resourceslices"
STEADY, REPLACED, STORE = "steady", "replaced", "store"
CAUGHT_UP_SECONDS = 120.0
AT_ONCE = 50
"""Watchers that begin at the same time."""


@dataclass
class Options:
    """`seconds`: how long the load lasts."""

    seconds: float
    load: Load
    seed: int
    restart_seconds: float = 240.0
    """Between two replacements of one of the servers; the other lives as long as the soak."""
    sample_seconds: float = 5.0
    grace_seconds: float = 10.0
    """Over which a server that is replaced ends its watches: the default of its flag."""


@dataclass
class Result:
    """Everything that a soak has seen."""

    options: Options
    seconds: float = 0.0
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    writes: list[tuple[float, float]] = field(default_factory=list)
    """How many there were until each sample."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def rising(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.rises]

    @property
    def passed(self) -> bool:
        return not self.rising and not self.findings


def curves() -> dict[str, Curve]:
    """Every curve, by the process and its name."""
    parts = {STEADY: samples.SERVER, REPLACED: samples.SERVER, STORE: samples.STORE}
    named = [replace(curve, name=f"{part}: {curve.name}") for part, found in parts.items() for curve in found]
    return {curve.name: curve for curve in named}


class Sampler:
    """Samples of all processes, at even intervals. While a server is replaced, either of its processes may answer."""

    def __init__(self, places: list[Place], store: Server, traffic: Traffic) -> None:
        self.series: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.writes: list[tuple[float, float]] = []
        self._places, self._store, self._traffic = places, store, traffic
        self._began = time.perf_counter()

    async def run(self, every: float) -> None:
        for number in range(1, 1 << 30):
            await asyncio.sleep(max(0.0, self._began + number * every - time.perf_counter()))
            self.writes.append((time.perf_counter() - self._began, self._traffic.counts["writes"]))
            self._note(STORE, await asyncio.to_thread(samples.store, self._store, RESOURCE))
            for place in self._places:
                await self._sample(place)

    async def _sample(self, place: Place) -> None:
        try:
            connection = await Connection(place.target).open()
            try:
                status, text = await connection.fetch("GET", "/metrics", accept="text/plain")
            finally:
                connection.close()
        except (OSError, EOFError) as error:
            self._traffic.found(f"{place.name}: /metrics: {error!r}")
            return
        if status != 200:
            self._traffic.found(f"{place.name}: /metrics answered {status}")
            return
        self._note(place.name, samples.server(place.pid, text.decode()))

    def _note(self, part: str, figures: samples.Figures) -> None:
        at = time.perf_counter() - self._began
        for name, value in figures.items():
            self.series[f"{part}: {name}"].append((round(at, 1), round(value, 3)))


class Soak:
    """The parts of one run."""

    def __init__(self, options: Options, places: list[Place], store: Server, say: Callable[[str], None]) -> None:
        self._options, self._places, self._store, self._say = options, places, store, say
        self._traffic = Traffic(places, options.load, options.seed)
        self._replacement: asyncio.Future[None] | None = None

    async def run(self) -> Result:
        options, traffic = self._options, self._traffic
        objects = clients.slices(traffic)
        log = Log(self._store, RESOURCE)
        following = asyncio.ensure_future(log.follow())
        await clients.fill(traffic, objects)
        self._say(f"{len(objects)} slices")
        watchers = clients.watchers(traffic)
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(_begin(watcher, gate) for watcher in watchers))
        self._say(f"{len(watchers)} watchers, {options.load.writes:g} writes/s for {options.seconds:g} s")
        sampler = Sampler(self._places, self._store, traffic)
        began, before = time.perf_counter(), traffic.counts["writes"]
        watching = [asyncio.ensure_future(watcher.run()) for watcher in watchers]
        helping = [
            asyncio.ensure_future(task)
            for task in (
                self._restart_for_ever(),
                sampler.run(options.sample_seconds),
                clients.list_for_ever(traffic),
            )
        ]
        writing = asyncio.ensure_future(clients.write_for_ever(traffic, objects))
        try:
            await _run_for(options.seconds, [*watching, *helping, writing, following])
            traffic.stopping = True
            await writing
            seconds = time.perf_counter() - began
            await _cancel(helping)
            self._say("the load has ended")
            if self._replacement is not None:
                await self._replacement
            await self._catch_up(log, watchers)
        finally:
            await _cancel([*watching, *helping, writing, following])
        for watcher in watchers:
            if text := watcher.compare(log):
                traffic.found(text)
        traffic.judge_refusals()
        result = self._result(seconds, sampler.series, watchers, traffic.counts["writes"] - before)
        result.writes = sampler.writes
        return result

    def _result(
        self, seconds: float, series: dict[str, list[tuple[float, float]]], watchers: list[clients.Watcher], writes: int
    ) -> Result:
        counts = self._traffic.counts
        counts["writes"] = writes
        counts["watches resumed"] = sum(watcher.resumed for watcher in watchers)
        counts["events"] = sum(len(watcher.seen.versions) for watcher in watchers)
        counts["restarts"] = sum(place.restarts for place in self._places)
        found = Result(self._options, seconds, dict(series), findings=self._traffic.findings, counts=counts)
        found.verdicts = verdicts(series, seconds)
        return found

    async def _restart_for_ever(self) -> None:
        [place] = [place for place in self._places if place.name == REPLACED]
        while True:
            await asyncio.sleep(self._options.restart_seconds)
            began = time.perf_counter()
            self._replacement = asyncio.ensure_future(asyncio.to_thread(place.replace))
            await asyncio.shield(self._replacement)
            self._replacement = None
            self._say(f"replaced a server in {time.perf_counter() - began:.1f} s")

    async def _catch_up(self, log: Log, watchers: list[clients.Watcher]) -> None:
        """Wait until the log is read to its end, and every watcher has come to it."""
        end = time.perf_counter() + CAUGHT_UP_SECONDS
        while await log.read() or not all(watcher.has_all(log) for watcher in watchers):
            if time.perf_counter() > end:
                self._traffic.found(f"watchers are still behind after {CAUGHT_UP_SECONDS:g} s")
                return
            await asyncio.sleep(clients.PAUSE_SECONDS)


def verdicts(series: dict[str, list[tuple[float, float]]], seconds: float) -> dict[str, Verdict]:
    """Judge every curve. Raises Unmeasured for one that was not sampled."""
    nothing: Points = ()
    return {name: judge(curve, series.get(name, nothing), seconds) for name, curve in curves().items()}


async def _begin(watcher: clients.Watcher, gate: asyncio.Semaphore) -> None:
    async with gate:
        await watcher.begin_at_a_list()


async def _run_for(seconds: float, tasks: list[asyncio.Future[Any]]) -> None:
    """Raises what the first of them raises that ends before its time."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
        raise RuntimeError(f"{task!r} has ended")


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def soak(folder: pathlib.Path, options: Options, say: Callable[[str], None] = lambda _: None) -> Result:
    """Start everything in a folder, and run it."""
    with contextlib.ExitStack() as stack:
        store = await asyncio.to_thread(stack.enter_context, system.store(folder))
        places = await asyncio.to_thread(
            stack.enter_context,
            system.places(folder, store, [STEADY, REPLACED], options.grace_seconds),
        )
        running: Coroutine[Any, Any, Result] = Soak(options, places, store, say).run()
        return await running
