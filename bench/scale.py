"""`python -m bench.scale`: a large cluster on one server: 5,000 nodes with a watcher each, 100,000 slices of 4 KB, mass health events.

Each watcher selects its node by `spec.nodeName`; some see all nodes, as schedulers do. Prints a table of memory, CPU, delays and times, and
writes it to bench/results/scale.json. Watchers live in processes of their own. CPU is that of server and store, from their clocks.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench import accounting, client, forms
from bench.client import Connection, Reader, Target
from bench.results import FOLDER, machine, versions
from bench.workloads import SLICES, slice_body
from tests.fixtures import storm
from tests.fixtures.server import DevServer

GROUP = "resource.sluice.dev"
DEVICES = 13
"""They make a slice of 4 KB."""
WRITERS = 16
AT_ONCE = 50
"""Watchers of a process that open at the same time."""
EACH_PROCESS = 2500
REST_SECONDS = 10.0
QUIET_SECONDS = 2.0
LISTS = (
    ("all, JSON", forms.WHOLE, False, ""),
    ("all, JSON with gzip", forms.WHOLE, True, ""),
    ("all, protobuf", forms.MESSAGES, False, ""),
    ("all, metadata", forms.METADATA, False, ""),
    ("of one node, JSON", forms.WHOLE, False, "?fieldSelector=spec.nodeName%3Dnode-00007"),
    ("first 500, JSON", forms.WHOLE, False, "?limit=500"),
)
_STAMP = re.compile(rb'"stamp":"(\d+)"')


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    what: str
    value: float
    unit: str

    def line(self) -> str:
        text = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        return f"| {self.what} | {text} {self.unit} |"


@dataclass
class Chosen:
    objects: int
    nodes: int
    watchers: int
    everything: int
    rate: float
    seconds: float
    burst: int

    def node(self, name: str) -> str:
        """The node of a slice: they are dealt out in turn."""
        return f"node-{int(name.partition('-')[2]) % self.nodes:05d}"

    def name(self, node: int, number: int) -> str:
        """The slice with this number of a node."""
        return f"slice-{node + number * self.nodes:05d}"

    @property
    def slices(self) -> int:
        """How many slices each node has."""
        return self.objects // self.nodes

    def value(self, name: str) -> bytes:
        """As it is stored."""
        document = json.loads(slice_body(GROUP, name, self.node(name), devices=DEVICES))
        number = int(name.partition("-")[2])
        document["metadata"] |= {
            "uid": f"00000000-0000-4000-8000-{number:012x}",
            "creationTimestamp": "2026-06-01T12:00:00Z",
            "generation": 1,
        }
        del document["kind"], document["apiVersion"]
        return json.dumps(document, separators=(",", ":")).encode()


class Costs:
    """CPU and memory of the server and of its store."""

    def __init__(self, server: DevServer) -> None:
        self.server = [server.pid]
        self.store = [pid for pid in accounting.children(server.pid) if pid != server.pid]

    def cpu(self) -> tuple[float, float]:
        return accounting.cpu_seconds(self.server), accounting.cpu_seconds(self.store)

    def memory(self) -> tuple[float, float]:
        return accounting.resident_mb(self.server), accounting.resident_mb(self.store)


class Watchers:
    """Watchers in processes of their own."""

    def __init__(self, server: DevServer, chosen: Chosen) -> None:
        self._processes = []
        for first in range(0, chosen.watchers, EACH_PROCESS):
            count = min(EACH_PROCESS, chosen.watchers - first)
            words = ["--watch", str(server.kubeconfig), "--first", str(first), "--count", str(count)]
            words += ["--nodes", str(chosen.nodes), "--everything", str(chosen.everything if not first else 0)]
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.scale", *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )

    def _lines(self) -> list[str]:
        lines = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"a process of watchers ended with {process.wait()}")
            lines.append(line)
        return lines

    def ready(self) -> None:
        """Wait until all watch."""
        self._lines()

    def delays(self) -> list[float]:
        """Seconds from the start of each write to each of its events, since the last call."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [delay for line in self._lines() for delay in json.loads(line)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


class Scale:
    """The measurements, one after the other. `rows` are their results."""

    def __init__(self, server: DevServer, chosen: Chosen) -> None:
        self.rows: list[Row] = []
        self._server, self._chosen = server, chosen
        self._target = Target.of(server.kubeconfig, GROUP)
        self.costs = Costs(server)
        self._collection = self._target.base + SLICES

    def note(self, what: str, value: float, unit: str) -> None:
        row = Row(what, value, unit)
        self.rows.append(row)
        print(row.line(), flush=True)

    async def lists(self) -> None:
        """Each twice: the first one makes what the next ones find."""
        for name, form, gzip, query in LISTS:
            reader = await Reader(self._target).open()
            for which in ("first", "again"):
                before = sum(self.costs.cpu())
                answer = await reader.get(self._collection + query, form.accept, gzip=gzip)
                if answer.status != 200:
                    raise RuntimeError(f"list {name} answered {answer.status}")
                cpu = sum(self.costs.cpu()) - before
                self.note(f"list {name}, {which}: CPU", 1000 * cpu, "ms")
                self.note(f"list {name}, {which}: whole answer", 1000 * answer.whole, "ms")
            self.note(f"list {name}: body", answer.size / 1e6, "MB")
            reader.close()

    async def writes(self, label: str, names: Sequence[str], rate: float | None, watchers: Watchers | None) -> None:
        """PUTs of whole slices, at a rate or as fast as they go; CPU of a write, and the delays of its events."""
        tickets, latencies = iter(range(len(names))), list[float]()
        began, before = time.perf_counter(), self.costs.cpu()

        async def writer() -> None:
            connection = await Connection(self._target).open()
            for ticket in tickets:
                if rate is not None:
                    await asyncio.sleep(max(0.0, began + ticket / rate - time.perf_counter()))
                start, name = time.perf_counter(), names[ticket]
                body = slice_body(GROUP, name, self._chosen.node(name), f"{time.monotonic_ns()}", devices=DEVICES)
                status, answer = await connection.fetch("PUT", f"{self._collection}/{name}", body)
                if status != 200:
                    raise RuntimeError(f"PUT {name}: {status} {answer[:300]!r}")
                latencies.append(time.perf_counter() - start)
            connection.close()

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        wall = time.perf_counter() - began
        await asyncio.sleep(QUIET_SECONDS)
        after = self.costs.cpu()
        self.note(f"{label}: writes", len(names), f"in {wall:.1f} s")
        for who, used in (("server", after[0] - before[0]), ("store", after[1] - before[1])):
            self.note(f"{label}: CPU of a write, {who}", 1000 * used / len(names), "ms")
        self._spread(f"{label}: PUT", latencies)
        if watchers is not None:
            delays = await asyncio.to_thread(watchers.delays)
            due = len(names) * (1 + self._chosen.everything)
            if len(delays) != due:
                raise RuntimeError(f"{len(delays)} events came, not {due}")
            self.note(f"{label}: events", len(delays), "")
            self._spread(f"{label}: from a write's start to its event", delays)

    def _spread(self, what: str, seconds: list[float]) -> None:
        for share in (0.5, 0.99):
            self.note(f"{what}, p{100 * share:.0f}", 1000 * accounting.percentile(seconds, share), "ms")

    async def run(self) -> None:
        chosen, costs = self._chosen, self.costs
        steady = [chosen.name(node, 0) for node in range(int(chosen.rate * chosen.seconds))]
        burst = [chosen.name(node, number) for node in range(chosen.burst) for number in range(chosen.slices)]
        server, store = costs.memory()
        self.note(f"memory with {chosen.objects} slices, server", server, "MB")
        self.note(f"memory with {chosen.objects} slices, store", store, "MB")
        await self.lists()
        self.note("memory after the lists, server", costs.memory()[0], "MB")
        await self.writes("no watchers", steady, chosen.rate, None)
        before, cpu, began = costs.memory()[0], sum(costs.cpu()), time.perf_counter()
        watchers = Watchers(self._server, chosen)
        try:
            await asyncio.to_thread(watchers.ready)
            self.note("all watch after", time.perf_counter() - began, "s")
            self.note(
                "CPU of the start of a watch, TLS included", 1000 * (sum(costs.cpu()) - cpu) / chosen.watchers, "ms"
            )
            self.note("memory of a watch", 1000 * (costs.memory()[0] - before) / chosen.watchers, "kB")
            rested, began = sum(costs.cpu()), time.perf_counter()
            await asyncio.sleep(REST_SECONDS)
            share = (sum(costs.cpu()) - rested) / (time.perf_counter() - began)
            self.note(f"CPU of {chosen.watchers} idle watches", 100 * share, "% of a core")
            await self.writes(f"{chosen.watchers} watchers", steady, chosen.rate, watchers)
            await self.writes(f"all slices of {chosen.burst} nodes at once", burst, None, watchers)
        finally:
            await asyncio.to_thread(watchers.close)
        self.note("memory at the end, server", costs.memory()[0], "MB")
        self.note("memory at the end, store", costs.memory()[1], "MB")


def fill(data: Path, chosen: Chosen) -> None:
    """Make a store with the slices in an empty folder. One that has a store is used as it is."""
    if (data / "store").exists():
        return
    data.mkdir(mode=0o700)
    began = time.perf_counter()
    uvloop.run(storm.fill(data / "store", chosen.objects, value=chosen.value))
    size = len(chosen.value("slice-00000"))
    print(f"{chosen.objects} slices of {size} bytes, filled in {time.perf_counter() - began:.0f} s", flush=True)
    with DevServer(data, "--no-samples"):
        pass  # makes certificates and the stores of all kinds, which a later start has


def measure(data: Path, chosen: Chosen) -> None:
    server, began = DevServer(data, "--no-samples"), time.perf_counter()
    with server:
        start = time.perf_counter() - began
        scale = Scale(server, chosen)
        scale.note(f"start with {chosen.objects} slices", start, "s")
        scale.note("the same, CPU of server and store", sum(scale.costs.cpu()), "s")
        uvloop.run(scale.run())
    FOLDER.mkdir(exist_ok=True)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "chosen": asdict(chosen),
        "rows": [asdict(row) for row in scale.rows],
    }
    (FOLDER / "scale.json").write_text(json.dumps(found, indent=1) + "\n")


async def watch(kubeconfig: Path, numbers: range, nodes: int, everything: int) -> None:
    """Be some of the watchers: say when all watch, then answer each line of standard input with the delays since the last one."""
    target, gate, delays = Target.of(kubeconfig, GROUP), asyncio.Semaphore(AT_ONCE), list[float]()

    def line(event: bytes) -> None:
        now = time.monotonic_ns()
        if event.startswith(b'{"type":"MODIFIED"') and (found := _STAMP.search(event)):
            delays.append((now - int(found[1])) / 1e9)

    async def one(selector: str) -> client.Lines:
        async with gate:
            query = f"{selector}watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600"
            stream = await client.lines(target, f"{target.base}{SLICES}?{query}", line)
            if stream.status.result() != 200:
                raise RuntimeError(f"watch {query} answered {stream.status.result()}")
            return stream

    selectors = [f"fieldSelector=spec.nodeName%3Dnode-{number % nodes:05d}&" for number in numbers]
    streams = await asyncio.gather(*map(one, itertools.chain(selectors, [""] * everything)))
    print(flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        if any(stream.ended.done() for stream in streams):
            raise RuntimeError("a watch has ended")
        print(json.dumps(delays), flush=True)
        delays.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000, help="slices of 4 KB (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=5_000, help="(default: %(default)s)")
    parser.add_argument("--watchers", type=int, default=5_000, help="with one node each (default: %(default)s)")
    parser.add_argument("--everything", type=int, default=3, help="watchers of all nodes (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=200, help="writes in a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="for these writes (default: %(default)s)")
    parser.add_argument(
        "--burst",
        type=int,
        default=250,
        help="nodes whose slices all change as fast as they can (default: %(default)s)",
    )
    parser.add_argument("--data", type=Path, help="keep the store in this folder; the next run finds its slices there")
    parser.add_argument("--fill", action="store_true", help="only fill the store of --data")
    for name in ("--watch", "--first", "--count"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.watch:
        first, count = int(given.first), int(given.count)
        uvloop.run(watch(Path(given.watch), range(first, first + count), given.nodes, given.everything))
        return
    chosen = Chosen(
        given.objects, given.nodes, given.watchers, given.everything, given.rate, given.seconds, given.burst
    )
    if min(chosen.watchers, chosen.nodes) < max(chosen.rate * chosen.seconds, chosen.burst):
        parser.error("every node that changes needs a watcher: more --watchers and --nodes, or fewer writes")
    with tempfile.TemporaryDirectory(prefix="sluice-scale-") as folder:
        data = given.data or Path(folder, "data")
        fill(data, chosen)
        if not given.fill:
            measure(data, chosen)


if __name__ == "__main__":
    main()
