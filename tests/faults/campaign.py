"""A campaign: servers on a store, clients of them, and one fault after the other, in rounds that end with a judgement."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apiserver import apigroups
from apiserver.config import config
from apiserver.storage.operations import administration
from tests.faults import injection, topologies, truth
from tests.faults.history import Broken
from tests.faults.injection import LONG, Bed, Fault, Window
from tests.faults.judge import Judge
from tests.faults.load import SELECTIONS
from tests.faults.network import Network
from tests.faults.pair import Authorities, Replica
from tests.faults.records import Clients, Kind, Lister, Operation, Watcher, Writer, kinds, watchers
from tests.faults.topologies import Topology
from tests.fixtures.valkey import patient

INSTALLED = apigroups.storage_names(config.parse(["dev"], {}).serving, alone=True)
QUICK = ["--shutdown-delay-duration=200ms", "--shutdown-watch-termination-grace-period=1s"]
STORE = "store"
"""The name of the chain of faults of which each waits until the store is healthy again."""
UNWANTED = 4.0
"""Seconds that a failover takes which only a busy machine brings about, besides those without an answer."""
LEAVE = 5.0
"""Seconds within which servers leave a primary after the sentinels have named another, on a busy machine; 0.5 on an idle one."""


@dataclass(frozen=True)
class Load:
    """Numbers of clients. `pause`: the mean time between two requests of a writer, in seconds."""

    servers: int = 2
    watchers: int = 50
    writers: int = 6
    listers: int = 3
    objects: int = 24
    pause: float = 0.03


@dataclass
class Report:
    """The counts and findings of rounds."""

    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    outages: dict[str, list[float]] = field(default_factory=dict)
    """Per fault, how long no write was acknowledged."""
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __iadd__(self, other: Report) -> Report:
        """Add the report of another campaign. `seconds` are those of all of them together."""
        self.faults += other.faults
        self.counts += other.counts
        for name, times in other.outages.items():
            self.outages.setdefault(name, []).extend(times)
        self.findings += other.findings
        self.seconds += other.seconds
        return self

    @property
    def injected(self) -> int:
        return sum(self.faults.values())

    def __str__(self) -> str:
        lines = [
            f"{self.injected} faults in {self.seconds:.0f} s ({60 * self.injected / max(self.seconds, 1):.0f} a minute)"
        ]
        lines += [
            f"  {count:6} {name}{_spread(self.outages.get(name, []))}" for name, count in sorted(self.faults.items())
        ]
        lines += [f"  {count:6} {name}" for name, count in sorted(self.counts.items())]
        lines += [f"{len(self.findings)} findings", *self.findings[:40]]
        return "\n".join(lines)


def _spread(times: Sequence[float]) -> str:
    if not times:
        return ""
    ordered = sorted(times)
    return f", no write for {ordered[len(ordered) // 2]:.1f} s (median), {ordered[-1]:.1f} s (longest)"


class Campaign:
    """Rounds on one store. Every draw comes from the seed; times do not."""

    def __init__(
        self,
        bed: Bed,
        authorities: Authorities,
        *,
        seed: int,
        durability: str,
        load: Load,
        only: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._bed, self._authorities, self._load, self._say = bed, authorities, load, say
        self._seed, self._durability, self._only = seed, durability, only
        self._draw = random.Random(seed)
        self.report = Report()
        self._numbers = itertools.count()
        self._looking = asyncio.Lock()
        self._known: Mapping[str, object] = {}
        self._doubtful: Sequence[Operation] = ()
        """Writes of the last round that were in doubt."""

    # A round

    async def round(self, count: int) -> None:
        """Inject so many faults, let everything recover, and judge."""
        bed, begin = self._bed, time.monotonic()
        resources = kinds(self._load.objects)
        await bed.healthy()
        starts = {
            kind.plural: await asyncio.to_thread(truth.begin, (await bed.primary(kind.resource)).server, kind)
            for kind in resources
        }
        bed.windows, bed.down, bed.started = [], {}, {}
        clients = Clients(self._authorities, bed.servers, f"{self._seed}-{next(self._numbers)}")
        bed.acknowledged = clients.acknowledged
        watching = watchers(clients, resources, self._load.watchers)
        following = [asyncio.create_task(watcher.run()) for watcher in watching]
        runs = [Writer(clients, number, resources, self._load.pause).run() for number in range(self._load.writers)]
        runs += [Lister(clients, number, resources).run() for number in range(self._load.listers)]
        working = [asyncio.create_task(run) for run in runs]
        try:
            await bed.written(30)
            await self._faults(count, [*following, *working])
            clients.stopping = True
            await asyncio.wait_for(asyncio.gather(*working), LONG)
            for server in bed.servers:
                await bed.until(server.follows, f"{server.name}, and the store that it follows")
            await self._last(clients, resources, watching)
            for task in following:
                if task.done():
                    task.result()
            await self._judge(clients, resources, watching, starts)
        except (Broken, AssertionError, TimeoutError) as error:
            self.report.findings.append(f"{type(error).__name__}: {error}")
        except ExceptionGroup as errors:
            self.report.findings += [f"{type(error).__name__}: {error}" for error in errors.exceptions]
        finally:
            for task in (*following, *working):
                task.cancel()
            await asyncio.gather(*following, *working, return_exceptions=True)
            await clients.close()
        self.report.seconds += time.monotonic() - begin

    async def _faults(self, count: int, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Three chains of faults at the same time: of the store, each on a healthy one, of our servers, and of their connections."""
        self._left, self._of_store, self._moves = count, list[Window](), list[tuple[float, frozenset[str]]]()
        self._known = await asyncio.to_thread(self._bed.topology.generations)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._generations())
            chains = [
                group.create_task(self._chain(injection.of_store(self._bed.topology), STORE, pause=0.3)),
                group.create_task(self._chain(injection.SERVER_FAULTS, "server", pause=1.0)),
                group.create_task(self._chain(injection.of_connections(self._bed.topology), "network", pause=0.5)),
            ]
            while not all(chain.done() for chain in chains):
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.1)
            watch.cancel()

    async def _generations(self) -> None:
        """Note when another node becomes the primary, and failovers that no fault wanted."""
        while True:
            await asyncio.sleep(0.05)
            with contextlib.suppress(OSError, RuntimeError):
                await self._look()

    async def _look(self) -> None:
        """Note which resources have another primary than before. Raises OSError, RuntimeError."""
        async with self._looking:
            topology, before = self._bed.topology, time.monotonic()
            known, self._known = self._known, await asyncio.to_thread(topology.generations)
            now = time.monotonic()
            moved = frozenset(name for name, generation in self._known.items() if generation != known[name])
            if moved:
                self._moves.append((now, moved))
                if not any(window.begin <= now and before <= window.end for window in self._of_store):
                    self._unwanted(before - topology.down_ms / 1000 - UNWANTED, now, moved)

    def _unwanted(self, begin: float, end: float, moved: frozenset[str]) -> None:
        self._bed.windows.append(Window(injection.unwanted(self._bed.topology), begin, end, moved))
        self.report.counts["failovers that no fault wanted"] += 1

    async def _chain(self, faults: Sequence[Fault], name: str, *, pause: float) -> None:
        draw = random.Random(f"{self._seed}-{name}-{next(self._numbers)}")
        chosen = [fault for fault in faults if not self._only or fault.name in self._only]
        while chosen and self._left > 0:
            self._left -= 1
            await self._inject(injection.draw_from(chosen, draw), draw, of_store=name == STORE)
            await asyncio.sleep(draw.uniform(0, 2 * pause))

    async def _inject(self, fault: Fault, draw: random.Random, *, of_store: bool) -> None:
        bed = self._bed
        if of_store:
            await self._look()
        window = Window(fault, time.monotonic())
        bed.windows.append(window)
        if of_store:
            self._of_store.append(window)
        try:
            await fault.inject(bed, draw)
            if of_store:
                await bed.recovered(draw)
                await self._look()
            window.end = time.monotonic()
            moves = [(at, moved) for at, moved in self._moves if at >= window.begin] if of_store else []
            window.moved = frozenset().union(*(moved for _, moved in moves))
            if moves and not fault.blind:
                window.left = moves[-1][0] + LEAVE
            if len(moves) > fault.failovers:
                self._unwanted(window.begin, window.end, frozenset(topologies.RESOURCES))
            await bed.written(5)
        except (AssertionError, OSError, RuntimeError) as error:
            raise Broken(f"{fault.name}: {error}") from error
        self.report.faults[fault.name] += 1
        times = bed.acknowledged[bisect.bisect_left(bed.acknowledged, window.begin) - 1 :]
        longest = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        self.report.outages.setdefault(fault.name, []).append(longest)

    # Its end

    async def _last(self, clients: Clients, resources: Sequence[Kind], watching: Sequence[Watcher]) -> None:
        """Make changes that each selection receives, after all others, and wait until every watcher has them."""
        writer = Writer(clients, 1000, list(resources), 0)
        for kind in resources:
            for chosen in SELECTIONS[kind.plural]:
                name = chosen.name or next(
                    name
                    for name in kind.names
                    if not chosen.node or kind.make(("", name), color="", mark="")["spec"]["nodeName"] == chosen.node
                )
                key = (chosen.namespace or "a") if kind.namespaced else "", name
                await self._put(writer, kind, key, chosen.color or "green")
        for watcher in watching:
            await self._reaches(watcher)

    async def _put(self, writer: Writer, kind: Kind, key: tuple[str, str], color: str) -> int:
        """Delete an object, then create it: a selection receives at least the second. Return that version."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            gone = await writer.one(kind, key, "delete")
            if gone is not None and gone.answer.status in (200, 404):
                made = await writer.create(kind, key, color)
                if made.acknowledged:
                    return made.version
            await asyncio.sleep(0.1)
        raise Broken(f"{kind.plural}: nothing can be written after all faults")

    async def _reaches(self, watcher: Watcher) -> None:
        goal, end = self._goals(watcher), time.monotonic() + LONG
        while watcher.position < goal or not watcher.segments:
            if time.monotonic() > end:
                raise Broken(f"{watcher.name} stays at {watcher.position}, and should reach {goal}")
            await asyncio.sleep(0.02)

    def _goals(self, watcher: Watcher) -> int:
        """The version of the last event that a watcher has to receive."""
        made = [
            operation
            for operation in watcher.clients.records.operations
            if operation.verb == "create"
            and operation.acknowledged
            and operation.kind.plural == watcher.kind.plural
            and watcher.chosen.selects(operation.obj)
        ]
        return made[-1].version

    async def _judge(
        self,
        clients: Clients,
        resources: Sequence[Kind],
        watching: Sequence[Watcher],
        starts: dict[str, truth.Start],
    ) -> None:
        bed = self._bed
        lister = Lister(clients, 1000, list(resources))
        for kind in resources:
            await lister.whole(kind)
        truths = {
            kind.plural: await asyncio.to_thread(
                truth.read, (await bed.primary(kind.resource)).server, kind, starts[kind.plural]
            )
            for kind in resources
        }
        judge = Judge(
            self._durability,
            lasting=bed.topology.name == "one",
            down_ms=bed.topology.down_ms,
            windows=bed.windows,
            truths=truths,
        )
        await asyncio.to_thread(judge.round, clients.records, watching, bed.down, bed.started, before=self._doubtful)
        self._doubtful = [operation for operation in clients.records.operations if operation.doubtful]
        self.report.counts += judge.counts
        self.report.findings += judge.findings
        self.report.findings += [
            f"{server.name} has an internal error: {server.log}" for server in bed.servers if _failed(server)
        ]


def _failed(server: Replica) -> bool:
    text = server.log.read_text(errors="replace")
    return '"internal error"' in text or "Traceback" in text


async def _install_with(code: Path, url: str, network: Network) -> None:
    """Install the function library and all kinds as another copy of the program does."""
    environ = {**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1", "SLUICE_REDIS_URL": url}
    command = [sys.executable, "-m", "apiserver", "store", "init"]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.DEVNULL)
    network.add("installer", lambda: process.pid)
    assert await process.wait() == 0


@contextlib.asynccontextmanager
async def campaign(
    folder: Path,
    name: str,
    *,
    seed: int,
    durability: str = "primary",
    down_ms: int = 1000,
    load: Load = Load(),
    flags: Sequence[str] = (),
    only: Sequence[str] = (),
    code: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> AsyncIterator[Campaign]:
    """Start a store of this topology and servers on it. `only`: names of faults. `code`: the folder of another copy of the server."""
    network = Network()
    network.add("test", os.getpid)
    topology: Topology = topologies.make(name, folder, network, down_ms=down_ms, draw=random.Random(seed))
    servers: list[Replica] = []
    try:
        await topology.start()
        if code is None:
            await administration.init(patient(topology.url()), INSTALLED)
        else:
            await _install_with(code, topology.url(), network)
        authorities = Authorities(folder / "authorities")
        promise = [] if name == "one" else [f"--store-durability={durability}"]
        for number in range(load.servers):
            server = Replica(f"server-{number}", authorities, topology.url(), [*QUICK, *promise, *flags], code=code)
            network.add(server.name, lambda server=server: server.pid)  # type: ignore[misc]
            server.launch()
            servers.append(server)
        for server in servers:
            await asyncio.to_thread(server.until_ready)
        confirming = {"primary": 0, "replica": min(1, topology.replicas), "all": topology.replicas}[durability]
        bed = Bed(topology, network, servers, confirming)
        yield Campaign(bed, authorities, seed=seed, durability=durability, load=load, only=only, say=say)
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                await asyncio.to_thread(server.stop, signal.SIGKILL)
        await topology.stop()
        await network.close()
