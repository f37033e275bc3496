"""`python -m bench.store`: the store alone, without HTTP: commits, barriers, and filling memory with 100,000 slices.

CPU is that of this process (client) and of the embedded Valkey (server), per operation. The server syncs each commit to disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from apiserver.apigroups import index_func
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.resources import resourceslice
from apiserver.storage import functions
from apiserver.storage.functions import Commands
from apiserver.storage.operations import administration
from apiserver.storage.operations.embedded import Embedded
from apiserver.storage.pipeline import Connection
from apiserver.storage.store import Store, StoreOptions, Stores, Write, open_stores
from apiserver.watchcache.entry import Key, Revision
from bench import accounting

RESOURCE = "resource.sluice.dev/resourceslices"


def slice_value(name: str, number: int) -> bytes:
    """The stored form of a slice of eight devices, about 3.2 KB."""
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {
                "driverVersion": {"version": "1.2.3"},
                "index": {"int": at},
                "model": {"string": "accelerator-9000-sxm"},
                "numa": {"int": at // 4},
                "pcieRoot": {"string": f"pci0000:{at:02x}"},
                "uuid": {"string": f"gpu-{number:08d}-{at:04d}-4b1e-9d2f-3a5c7e9b1d2f"},
            },
            "capacity": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}},
        }
        for at in range(8)
    ]
    metadata = {
        "name": name,
        "uid": f"{number:08x}-1111-4222-8333-444444444444",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"bench": "store", "rack": f"r{number % 40}"},
    }
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": f"node-{number}", "devices": devices}
    return json.dumps({"metadata": metadata, "spec": spec}, separators=(",", ":")).encode()


class Costs:
    """CPU of client and server since it was made."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._client = time.process_time()
        self._store = accounting.cpu_seconds([server])
        self._wall = time.perf_counter()

    def report(self, label: str, count: int, note: str = "") -> None:
        wall = time.perf_counter() - self._wall
        client = time.process_time() - self._client
        store = accounting.cpu_seconds([self._server]) - self._store
        print(
            f"{label:28} {count / wall:9.0f}/s  client {1e6 * client / count:7.1f} µs  server {1e6 * store / count:7.1f} µs"
            f"  wall {wall:6.2f} s  {note}",
            flush=True,
        )


async def in_parallel(clients: int, count: int, one: Callable[[int], Awaitable[object]]) -> list[float]:
    """`count` operations by so many closed loops; the latencies in milliseconds."""
    numbers = iter(range(count))
    latencies: list[float] = []

    async def loop() -> None:
        for number in numbers:
            begun = time.perf_counter()
            await one(number)
            latencies.append(1e3 * (time.perf_counter() - begun))

    await asyncio.gather(*(loop() for _ in range(clients)))
    return latencies


def spread(latencies: list[float]) -> str:
    return f"p50 {accounting.percentile(latencies, 0.5):.2f} ms, p99 {accounting.percentile(latencies, 0.99):.2f} ms"


async def commits(store: Store, server: int, count: int) -> None:
    for clients in (1, 16, 64):
        values = [slice_value(f"c{clients}-{number}", number) for number in range(count)]
        revisions: dict[int, Revision] = {}

        async def create(number: int, clients: int = clients, values: list[bytes] = values) -> None:
            write = Write(Key(f"c{clients}-{number}"), values[number], Revision(0), "uid")
            revisions[number] = (await store.commit(write, dry_run=False)).revision  # noqa: B023

        async def update(number: int, clients: int = clients, values: list[bytes] = values) -> None:
            value = values[number].replace(b'"generation":1', b'"generation":2', 1)
            await store.commit(Write(Key(f"c{clients}-{number}"), value, revisions[number]), dry_run=False)  # noqa: B023

        async def delete(number: int, clients: int = clients) -> None:
            write = Write(Key(f"c{clients}-{number}"), None, store.view().get(f"c{clients}-{number}").revision)  # type: ignore[union-attr]
            await store.commit(write, dry_run=False)

        for label, one in (("create", create), ("update", update), ("delete", delete)):
            costs = Costs(server)
            latencies = await in_parallel(clients, count, one)
            costs.report(f"{label} c{clients}", count, spread(latencies))


async def barriers(store: Store, server: int, count: int) -> None:
    for clients in (1, 16, 64):
        costs = Costs(server)
        latencies = await in_parallel(clients, count, lambda _: store.barrier())
        costs.report(f"barrier c{clients}", count, spread(latencies))


async def opened(options: StoreOptions) -> Stores:
    stores = await open_stores(options, {RESOURCE: index_func(at(NEWEST, (resourceslice.RESOURCE,))[0])})
    await stores.ready()
    return stores


async def filling(embedded: Embedded, options: StoreOptions, count: int) -> None:
    stores = await opened(options)
    store = stores[RESOURCE]
    await in_parallel(256, count, lambda n: store.commit(
        Write(Key(f"slice-{n:06d}"), slice_value(f"slice-{n:06d}", n), Revision(0), "uid"), dry_run=False))  # fmt: skip
    await stores.close()
    begun = time.perf_counter()
    await embedded.stop()
    stopped = time.perf_counter()
    url = await embedded.start()
    started = time.perf_counter()
    print(
        f"{count} objects: Valkey stopped in {stopped - begun:.2f} s, loaded in {started - stopped:.2f} s", flush=True
    )
    await _fill_in_a_process(embedded, url, "fill, all in the window")
    commands = Commands(RESOURCE)
    connection = await Connection.open(options, "bench")
    last = functions.head(await connection.call(commands.head)).last
    while functions.floor(await connection.call(commands.floor(last, least_ms=0, keep=1000))).more:
        pass
    await connection.close()
    await _fill_in_a_process(embedded, url, "fill, 1,000 in the window")


async def _fill_in_a_process(embedded: Embedded, url: str, label: str) -> None:
    """A fresh process, so that its memory is that of a server that has just started."""
    assert embedded.process is not None
    command = (
        sys.executable,
        "-m",
        "bench.store",
        "--fill",
        url,
        "--label",
        label,
        "--server",
        str(embedded.process.pid),
    )
    await (await asyncio.create_subprocess_exec(*command)).wait()


async def fill(url: str, label: str, server: int) -> None:
    costs = Costs(server)
    stores = await opened(StoreOptions(url=url))
    count = len(list(stores[RESOURCE].view().scan()))
    memory = accounting.resident_mb([os.getpid()]), accounting.resident_mb([server])
    costs.report(label, count, f"client {memory[0]:.0f} MB, server {memory[1]:.0f} MB")
    await stores.close()


async def main(count: int, objects: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        embedded = Embedded(Path(folder))
        options = StoreOptions(url=await embedded.start())
        try:
            assert embedded.process is not None
            await administration.init(StoreOptions(url=embedded.admin_url), [RESOURCE])
            print(f"values of {len(slice_value('x', 1))} bytes")
            if count:
                stores = await opened(options)
                await commits(stores[RESOURCE], embedded.process.pid, count)
                await barriers(stores[RESOURCE], embedded.process.pid, count)
                await stores.close()
            if objects:
                await filling(embedded, options, objects)
        finally:
            await embedded.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="operations per measurement")
    parser.add_argument("--objects", type=int, default=100_000, help="objects to fill memory with")
    parser.add_argument("--fill", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--label", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        uvloop.run(fill(arguments.fill, arguments.label, arguments.server))
    else:
        uvloop.run(main(arguments.count, arguments.objects))
