"""The workloads, each measured with the same client against whatever server the kubeconfig names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bench import accounting, client

SLICES = "/resourceslices"
DEVICES, MOST_DEVICES = 8, 128
STANDING = b"999999"
FORMS = {client.JSON: "", client.PROTOBUF: " protobuf"}
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


@dataclass
class Result:
    """One line of the report. Times in milliseconds, CPU of server and store per operation."""

    name: str
    operations: int
    wall: float
    cpu: float
    latencies: list[float] = field(default_factory=list)
    note: str = ""
    net: float | None = None
    """CPU seconds without what the same would cost anyway."""

    @property
    def cost(self) -> float:
        """CPU of one operation, of a fan-out without that of its writes."""
        return (self.net if self.net is not None else self.cpu) / self.operations * 1000

    def latency(self, share: float) -> float:
        return accounting.percentile(self.latencies, share) * 1000

    def line(self) -> str:
        text = f"{self.name:34} {self.operations / self.wall:>10.1f}/s"
        if self.latencies:
            text += f"  p50 {self.latency(0.5):8.2f}  p99 {self.latency(0.99):8.2f} ms"
        return f"{text}  CPU {self.cost:8.4f} ms/op  {self.note}"

    def ratio(self, other: Result) -> str:
        """This one's figures in times of the other's."""
        text = f"{self.name:34} CPU {self.cost / other.cost:.1f}x"
        if self.latencies:
            text += "".join(
                f"  p{share * 100:.0f} {self.latency(share) / other.latency(share):.1f}x" for share in (0.5, 0.99)
            )
        return text


class Bench:
    """A server under measurement: where it is, which processes are counted."""

    def __init__(self, target: client.Target, pids: list[int]) -> None:
        self.target = target
        self.pids = pids

    async def closed_loop(
        self, name: str, *, clients: int, operations: int, step: Callable[[client.Connection, int], Awaitable[None]]
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

        meter = accounting.Meter(self.pids)
        meter.start()
        await asyncio.gather(*map(run, connections))
        meter.stop()
        for connection in connections:
            connection.close()
        return Result(name, operations, meter.wall, meter.cpu, latencies)

    async def create(self, *, first: int, count: int, clients: int, name: str = "", devices: int = DEVICES) -> Result:
        base = self.target.base + SLICES

        async def step(connection: client.Connection, i: int) -> None:
            n = first + i
            body = slice_body(self.target.group, f"s{n:06}", f"node-{n:06}", devices=devices)
            status, _ = await connection.request("POST", base, body)
            if status != 201:
                raise RuntimeError(f"create answered {status}")

        return await self.closed_loop(name or f"CREATE c{clients}", clients=clients, operations=count, step=step)

    async def write(
        self, how: str, *, clients: int, operations: int, first: int = 0, objects: int = 1000, devices: int = DEVICES
    ) -> Result:
        """Changes an annotation of so many slices, one after the other, by one manager; an apply makes those that are not there."""
        method, kind, query = WRITES[how]

        async def step(connection: client.Connection, i: int) -> None:
            n = first + i % objects
            stamp = f"{how} {clients} {i}"
            body = slice_body(self.target.group, f"s{n:06}", f"node-{n:06}", stamp, devices=devices)
            if how == "MERGE PATCH":
                body = json.dumps({"metadata": {"annotations": {"stamp": stamp}}}).encode()
            path = f"{self.target.base}{SLICES}/s{n:06}?fieldManager=bench&{query}"
            status, _ = await connection.request(method, path, body, kind=kind)
            if status not in (200, 201):
                raise RuntimeError(f"{how} answered {status}")

        large = f" {devices} devices" if devices != DEVICES else ""
        return await self.closed_loop(f"{how}{large} c{clients}", clients=clients, operations=operations, step=step)

    async def create_from_protobuf(self, *, first: int, count: int, clients: int) -> Result:
        """The same objects as messages. One that was created before is asked for, and its message sent under other names."""
        base = self.target.base + SLICES
        template = await self._message()

        async def step(connection: client.Connection, i: int) -> None:
            body = template.replace(STANDING, f"{first + i:06}".encode())
            status, _ = await connection.request("POST", base, body, kind=client.PROTOBUF, accept=client.PROTOBUF)
            if status != 201:
                raise RuntimeError(f"create answered {status}")

        return await self.closed_loop(f"CREATE protobuf c{clients}", clients=clients, operations=count, step=step)

    async def _message(self) -> bytes:
        """What a server makes of a slice that is only tried out. Its number stands in it as STANDING."""
        connection = await client.Connection(self.target).open()
        number = STANDING.decode()
        body = slice_body(self.target.group, f"s{number}", f"node-{number}")
        path = f"{self.target.base}{SLICES}?dryRun=All"
        status, message = await connection.fetch("POST", path, body, accept=client.PROTOBUF)
        connection.close()
        if status != 201:
            raise RuntimeError(f"create answered {status}")
        return message

    async def get(self, *, operations: int, clients: int, query: str = "", accept: str = client.JSON) -> Result:
        base = self.target.base + SLICES

        async def step(connection: client.Connection, i: int) -> None:
            status, _ = await connection.request("GET", f"{base}/s{i % 1000:06}{query}", accept=accept)
            if status != 200:
                raise RuntimeError(f"get answered {status}")

        label = f"GET{FORMS[accept]} c{clients}{' RV=0' if query else ''}"
        return await self.closed_loop(label, clients=clients, operations=operations, step=step)

    async def list_all(self, *, operations: int, clients: int, gzip: bool, accept: str = client.JSON) -> Result:
        sizes: list[int] = []

        async def step(connection: client.Connection, _: int) -> None:
            status, size = await connection.request("GET", self.target.base + SLICES, gzip=gzip, accept=accept)
            sizes.append(size)
            if status != 200:
                raise RuntimeError(f"list answered {status}")

        label = f"LIST{FORMS[accept]} {'gzip' if gzip else 'identity'} c{clients}"
        result = await self.closed_loop(label, clients=clients, operations=operations, step=step)
        result.note = f"{sizes[-1] / 1e6:.1f} MB"
        return result

    async def update(self, connection: client.Connection, n: int, stamp: str) -> None:
        body = json.dumps({"metadata": {"annotations": {"stamp": stamp}}}).encode()
        path = f"{self.target.base}{SLICES}/s{n:06}"
        status, _ = await connection.fetch("PATCH", path, body, kind="application/merge-patch+json")
        if status != 200:
            raise RuntimeError(f"patch answered {status}")

    async def propagation(self, *, writes: int, rate: float) -> Result:
        """From the start of a write to its event at one watcher, writes at a fixed rate."""
        sent: dict[bytes, float] = {}
        came: list[float] = []

        def seen(data: bytes) -> None:
            now = time.perf_counter()
            at = data.find(b'"stamp":"')
            while at >= 0:
                stamp = data[at + 9 : data.index(b'"', at + 9)]
                if stamp in sent:
                    came.append(now - sent.pop(stamp))
                at = data.find(b'"stamp":"', at + 9)

        protocol = await client.watcher(
            self.target, "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", seen
        )
        connection = await client.Connection(self.target).open()
        meter = accounting.Meter(self.pids)
        meter.start()
        began = time.perf_counter()
        for i in range(writes):
            await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
            stamp = f"p{i}"
            sent[stamp.encode()] = time.perf_counter()
            await self.update(connection, i % 1000, stamp)
        await _until(lambda: len(came) >= writes)
        meter.stop()
        protocol.transport.close()
        connection.close()
        return Result("watch propagation", writes, meter.wall, meter.cpu, came, f"{rate:.0f} writes/s")

    async def fan_out(self, *, watchers: int, writes: int, rate: float) -> Result:
        """Every write goes to every watcher. CPU per delivery is net of what the same writes cost without watchers."""
        alone = await self._writes(writes, rate, "a")
        count = 0

        def seen(data: bytes) -> None:
            nonlocal count
            count += data.count(b'{"type":"MODIFIED"')

        query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        protocols = [await client.watcher(self.target, query, seen) for _ in range(watchers)]
        meter = accounting.Meter(self.pids)
        meter.start()
        await self._writes(writes, rate, "b")
        await _until(lambda: count >= writes * watchers or any(p.lost for p in protocols))
        meter.stop()
        memory = accounting.resident_mb(self.pids)
        lost = sum(p.lost for p in protocols)
        for p in protocols:
            p.transport.close()
        note = f"{lost} watchers lost, {memory:.0f} MB"
        return Result(f"fan-out to {watchers}", count, meter.wall, meter.cpu, note=note, net=meter.cpu - alone.cpu)

    async def _writes(self, writes: int, rate: float, mark: str) -> accounting.Meter:
        connection = await client.Connection(self.target).open()
        meter = accounting.Meter(self.pids)
        meter.start()
        began = time.perf_counter()
        for i in range(writes):
            await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
            await self.update(connection, i % 1000, f"{mark}{i}{time.monotonic()}")
        meter.stop()
        connection.close()
        return meter


async def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > end:
            raise TimeoutError
        await asyncio.sleep(0.01)
