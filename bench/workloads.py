"""The workloads, each measured with the same client against whatever server the kubeconfig names."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bench import accounting, client

SLICES = "/resourceslices"
DEVICES, MOST_DEVICES = 8, 128
STANDING = b"999999"
STAMP = 16
"""Bytes of what tells writes apart for a watcher, at most."""
_STEPS = 'sluice_event_loop_step_seconds_bucket{le="'
_LOOKUPS = "sluice_encodings_total"
_HELD = "sluice_encoding_bytes"
WRITES = {
    "APPLY": ("PATCH", "application/apply-patch+yaml", "force=true"),
    "PUT": ("PUT", client.JSON, ""),
    "MERGE PATCH": ("PATCH", "application/merge-patch+json", ""),
}
"""Method, media type and query of what changes a slice."""


def slice_body(group: str, name: str, node: str, stamp: str = "", *, devices: int = DEVICES) -> bytes:
    """A ResourceSlice as a driver publishes it for one node: of 8 devices about 2.6 KB."""
    published = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "uuid": {"string": f"GPU-{i:08x}-1111-2222-3333-444455556666"},
                "model": {"string": "Accel X200 80GB"},
                "architecture": {"string": "Meridian"},
                "index": {"int": i},
                "driverVersion": {"version": "580.65.6"},
                "healthy": {"bool": True},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(devices)
    ]
    spec = {
        "driver": "accel.example.com",
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "nodeName": node,
        "devices": published,
    }
    metadata = {"name": name, "labels": {"bench": "slice"}} | ({"annotations": {"stamp": stamp}} if stamp else {})
    return json.dumps(
        {"kind": "ResourceSlice", "apiVersion": f"{group}/v1", "metadata": metadata, "spec": spec},
        separators=(",", ":"),
    ).encode()


def share_of(process: str) -> str:
    """The figure that has the CPU of one process among several."""
    return f"cpu_ms of {process}"


@dataclass
class Result:
    """The cost of a workload, in seconds; CPU is that of server and store."""

    operations: int
    wall: float
    cpu: float
    latencies: list[float] = field(default_factory=list)
    note: str = ""
    net: float | None = None
    """CPU seconds without what the same would cost anyway."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of each process, net as well: they add up to the cost."""
    figures: dict[str, float] = field(default_factory=dict)
    """Other measured figures."""

    @property
    def cost(self) -> float:
        """CPU of one operation, of a fan-out without that of its writes."""
        return (self.net if self.net is not None else self.cpu) / self.operations * 1000

    def latency(self, share: float) -> float:
        return accounting.percentile(self.latencies, share) * 1000

    def all(self) -> dict[str, float]:
        """Every figure, as the file of results has them."""
        found = {"operations": float(self.operations), "rate": self.operations / self.wall, "cpu_ms": self.cost}
        if self.latencies:
            found |= {"p50_ms": self.latency(0.5), "p99_ms": self.latency(0.99)}
        if len(self.shares) > 1:
            found |= {share_of(name): cpu / self.operations * 1000 for name, cpu in self.shares.items()}
        return found | self.figures

    def line(self) -> str:
        text = f"{self.operations / self.wall:>10.1f}/s"
        if self.latencies:
            text += f"  p50 {self.latency(0.5):8.2f}  p99 {self.latency(0.99):8.2f} ms"
        text += f"  CPU {self.cost:8.4f} ms/op  {self.note}"
        if "peak_mb" in self.figures:
            text += f"  peak +{self.figures['peak_mb']:.0f} MB"
        if "hit_ratio" in self.figures:
            text += f"  hits {self.figures['hit_ratio']:.0%}"
        if "longest_step_ms" in self.figures:
            text += f"  steps <= {self.figures['longest_step_ms']:g} ms"
        return text

    def ratio(self, other: Result) -> str:
        """This one's figures in times of the other's."""
        text = f"CPU {self.cost / other.cost:.1f}x"
        if self.latencies:
            text += "".join(
                f"  p{share * 100:.0f} {self.latency(share) / other.latency(share):.1f}x" for share in (0.5, 0.99)
            )
        return text


class Bench:
    """A server under measurement: where it is, which processes are counted."""

    def __init__(
        self, target: client.Target, processes: accounting.Processes, *, restart: Callable[[], None] | None = None
    ) -> None:
        """`restart` is there for a server of ours: starts it again on its folder, and changes target and processes here."""
        self.target = target
        self.processes = processes
        self.ours = restart is not None
        self._restart = restart

    @property
    def pids(self) -> list[int]:
        return [pid for pids in self.processes.values() for pid in pids]

    @property
    def collection(self) -> str:
        """The path of all objects."""
        return self.target.base + SLICES

    def body(self, number: int, stamp: str = "", *, devices: int = DEVICES) -> bytes:
        """Return the JSON of the object with this number."""
        return slice_body(self.target.group, f"s{number:06}", f"node-{number:06}", stamp, devices=devices)

    def restart(self) -> None:
        if self._restart is None:
            raise RuntimeError("this server is not one that we start again")
        self._restart()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[client.Connection]:
        connection = await client.Connection(self.target).open()
        try:
            yield connection
        finally:
            connection.close()

    needs_version = False
    """Whether a PUT names the resourceVersion that it replaces: it must for custom resources."""

    # Metrics of Sluice

    async def samples(self) -> dict[str, float]:
        """Its metrics, by name with labels. Nothing of another server's."""
        if not self.ours:
            return {}
        async with self.connection() as connection:
            status, body = await connection.fetch("GET", "/metrics", accept="text/plain")
        if status != 200:
            raise RuntimeError(f"/metrics answered {status}")
        lines = (line.rpartition(" ") for line in body.decode().splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """The longest step of its loop since its metrics were `before` (the bound of the bucket that it fell into), and how often what
        a list needs was there already."""
        now = await self.samples()
        if not now:
            return {}
        more = {name: value - before.get(name, 0.0) for name, value in now.items()}
        buckets = sorted(
            (float(name[len(_STEPS) : -2]), value) for name, value in more.items() if name.startswith(_STEPS)
        )
        found = {"longest_step_ms": 1000 * next(most for most, count in buckets if count == buckets[-1][1])}
        asked = {name: count for name, count in more.items() if name.startswith(_LOOKUPS)}
        if sum(asked.values()):
            found["hit_ratio"] = sum(n for name, n in asked.items() if 'outcome="found"' in name) / sum(asked.values())
        return found

    async def held(self) -> dict[str, float]:
        """Bytes of cached encodings, as the server's metrics report them."""
        found = await self.samples()
        return {"remembered_mb": found[_HELD] / 1e6} if _HELD in found else {}

    # Workloads

    def _mark(self) -> str:
        """A text that no earlier workload has written into a slice, not even another run on the same folder. A write that
        changes nothing is no write."""
        return f"{time.time_ns() // 10**7 % 16**9:x}"

    async def closed_loop(
        self, *, clients: int, operations: int, step: Callable[[client.Connection, int], Awaitable[None]]
    ) -> Result:
        """Each client sends its next request when the last one is answered."""
        connections = [await client.Connection(self.target).open() for _ in range(clients)]
        latencies: list[float] = []
        numbers = iter(range(operations))

        async def run(connection: client.Connection) -> None:
            for i in numbers:
                began = time.perf_counter()
                await step(connection, i)
                latencies.append(time.perf_counter() - began)

        meter = accounting.Meter(self.processes)
        meter.start()
        await asyncio.gather(*map(run, connections))
        meter.stop()
        for connection in connections:
            connection.close()
        return Result(operations, meter.wall, meter.cpu, latencies, shares=meter.shares)

    async def create(self, *, first: int, count: int, clients: int, devices: int = DEVICES) -> Result:
        base = self.collection

        async def step(connection: client.Connection, i: int) -> None:
            n = first + i
            body = self.body(n, devices=devices)
            status, _ = await connection.request("POST", base, body)
            if status != 201:
                raise RuntimeError(f"create answered {status}")

        return await self.closed_loop(clients=clients, operations=count, step=step)

    async def write(
        self, how: str, *, clients: int, operations: int, first: int = 0, objects: int = 1000, devices: int = DEVICES
    ) -> Result:
        """Change an annotation of so many slices, one after the other, by one manager. An apply creates missing slices."""
        method, kind, query = WRITES[how]
        mark = self._mark()
        versions: dict[int, bytes] = {}
        if how == "PUT" and self.needs_version:
            async with self.connection() as reading:
                for n in range(first, first + min(objects, operations)):
                    _, answer = await reading.fetch("GET", f"{self.collection}/s{n:06}")
                    versions[n] = _version(answer)

        async def step(connection: client.Connection, i: int) -> None:
            n = first + i % objects
            stamp = f"{mark}-{i}"
            body = self.body(n, stamp, devices=devices)
            if how == "MERGE PATCH":
                body = json.dumps({"metadata": {"annotations": {"stamp": stamp}}}).encode()
            if n in versions:
                body = body.replace(b'"metadata":{', b'"metadata":{"resourceVersion":"%b",' % versions[n], 1)
            path = f"{self.collection}/s{n:06}?fieldManager=bench&{query}"
            status, answer = await connection.fetch(method, path, body, kind=kind, keep=n in versions)
            if status not in (200, 201):
                raise RuntimeError(f"{how} answered {status}")
            if n in versions:
                versions[n] = _version(answer)

        return await self.closed_loop(clients=clients, operations=operations, step=step)

    async def create_from_protobuf(self, *, first: int, count: int, clients: int) -> Result:
        """The same objects as messages. One that was created before is asked for, and its message sent under other names."""
        base = self.collection
        template = await self._message()

        async def step(connection: client.Connection, i: int) -> None:
            body = template.replace(STANDING, f"{first + i:06}".encode())
            status, _ = await connection.request("POST", base, body, kind=client.PROTOBUF, accept=client.PROTOBUF)
            if status != 201:
                raise RuntimeError(f"create answered {status}")

        return await self.closed_loop(clients=clients, operations=count, step=step)

    async def _message(self) -> bytes:
        """The protobuf answer to a dry run of a create. The slice's number is written in it as STANDING."""
        connection = await client.Connection(self.target).open()
        number = STANDING.decode()
        body = slice_body(self.target.group, f"s{number}", f"node-{number}")
        path = f"{self.target.base}{SLICES}?dryRun=All"
        status, message = await connection.fetch("POST", path, body, accept=client.PROTOBUF)
        connection.close()
        if status != 201:
            raise RuntimeError(f"create answered {status}")
        return message

    async def get(
        self, *, operations: int, clients: int, query: str = "", accept: str = client.JSON, objects: int = 1000
    ) -> Result:
        base = self.collection

        async def step(connection: client.Connection, i: int) -> None:
            status, _ = await connection.request("GET", f"{base}/s{i % objects:06}{query}", accept=accept)
            if status != 200:
                raise RuntimeError(f"get answered {status}")

        return await self.closed_loop(clients=clients, operations=operations, step=step)

    async def update(self, connection: client.Connection, n: int, stamp: str) -> None:
        body = json.dumps({"metadata": {"annotations": {"stamp": stamp}}}).encode()
        path = f"{self.collection}/s{n:06}"
        status, _ = await connection.fetch("PATCH", path, body, kind="application/merge-patch+json")
        if status != 200:
            raise RuntimeError(f"patch answered {status}")

    async def propagation(self, *, writes: int, rate: float) -> Result:
        """From the start of a write to its event at one watcher, writes at a fixed rate."""
        sent: dict[bytes, float] = {}
        came: list[float] = []
        mark = self._mark()

        def seen(tail: bytes, data: bytes) -> None:
            now = time.perf_counter()
            data = tail + data
            at = data.find(b'"stamp":"')
            while at >= 0:
                stamp, whole, _ = data[at + 9 : at + 9 + STAMP].partition(b'"')
                if whole and stamp in sent:
                    came.append(now - sent.pop(stamp))
                at = data.find(b'"stamp":"', at + 9)

        protocol = await client.watcher(
            self.target, "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", seen
        )
        connection = await client.Connection(self.target).open()
        meter = accounting.Meter(self.processes)
        meter.start()
        began = time.perf_counter()
        for i in range(writes):
            await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
            stamp = f"{mark}-{i}"
            sent[stamp.encode()] = time.perf_counter()
            await self.update(connection, i % 1000, stamp)
        await until(lambda: len(came) >= writes)
        meter.stop()
        protocol.transport.close()
        connection.close()
        return Result(writes, meter.wall, meter.cpu, came, f"{rate:.0f} writes/s", shares=meter.shares)

    async def writes(self, writes: int, rate: float, mark: str) -> accounting.Meter:
        connection = await client.Connection(self.target).open()
        meter = accounting.Meter(self.processes)
        meter.start()
        began = time.perf_counter()
        for i in range(writes):
            await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
            await self.update(connection, i % 1000, f"{mark}{i}{time.monotonic()}")
        meter.stop()
        connection.close()
        return meter


def _version(answer: bytes) -> bytes:
    """Return the resourceVersion in the JSON of an object."""
    return answer.partition(b'"resourceVersion":"')[2].partition(b'"')[0]


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > end:
            raise TimeoutError
        await asyncio.sleep(0.01)
