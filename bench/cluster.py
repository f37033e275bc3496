"""`python -m bench.cluster`: creates on one server and on three primaries, with one to three kinds busy.

Each busy kind has a process of its own, with 16 writers through the store's interface, without HTTP. In the cluster each kind lies on
another primary. CPU is that of the processes, from the kernel. Every node syncs each commit to disk.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from apiserver.storage.errors import Unavailable
from apiserver.storage.operations import administration
from apiserver.storage.store import StoreOptions, Write, open_stores
from apiserver.watchcache.entry import Key, Revision
from bench import accounting
from bench.store import slice_value
from tests.fixtures.clusters import Cluster, resources_of
from tests.fixtures.processes import free_port
from tests.fixtures.valkey import PASSWORD, Server, index_func

WRITERS = 16
BACKOFF_SECONDS = 0.005
KINDS = [resources_of(*Cluster.share(number), names="bench.example.com")[0] for number in range(3)]


async def _write(url: str, resource: str, seconds: float, durability: str) -> None:
    """Create objects for some seconds, and print how many, with this process's CPU. The parent's line on stdin starts it."""
    stores = await open_stores(StoreOptions(url=url, durability=durability), {resource: index_func})
    await stores.ready()
    store, run = stores[resource], time.time_ns()
    numbers, written = itertools.count(), 0

    async def write() -> None:
        """Create an object, once enough replicas are in step."""
        nonlocal written
        name = f"o{run}-{next(numbers)}"
        try:
            await store.commit(Write(Key(name), slice_value(name, written), Revision(0), name), dry_run=False)
            written += 1
        except Unavailable:
            await asyncio.sleep(BACKOFF_SECONDS)

    while not written:
        await write()
    print(flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    first, until, began = written, time.monotonic() + seconds, time.process_time()

    async def writer() -> None:
        while time.monotonic() < until:
            await write()

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    print(json.dumps([written - first, time.process_time() - began]))
    await stores.close()


def measure(
    label: str, url: str, servers: Sequence[int], *, busy: int, seconds: float, durability: str = "primary"
) -> float:
    """Run the writers of some kinds, print what they and the servers needed, and return writes per second."""
    words = [sys.executable, "-m", "bench.cluster", "--url", url, "--seconds", str(seconds)]
    words += ["--durability", durability, "--resource"]
    writers = [
        subprocess.Popen([*words, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for kind in KINDS[:busy]
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    before, began = [accounting.cpu_seconds([pid]) for pid in servers], time.perf_counter()
    told = _together(writers)
    wall = time.perf_counter() - began
    used = [accounting.cpu_seconds([pid]) - start for pid, start in zip(servers, before, strict=True)]
    count = sum(done for done, _ in told)
    print(
        f"{label:22} {busy} busy {count / wall:8.0f} writes/s  client {1e6 * sum(cpu for _, cpu in told) / count:6.1f} µs  "
        f"servers {1e6 * sum(used) / count:6.1f} µs a write  busiest server {max(used) / wall:6.1%} of a core, "
        f"{count / max(used):7.0f} writes per second of its CPU",
        flush=True,
    )
    return count / wall


def _together(writers: Sequence[subprocess.Popen[str]]) -> list[list[float]]:
    """Let all writers begin, and return what they print."""
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    return [json.loads(writer.communicate()[0]) for writer in writers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--resource", help=argparse.SUPPRESS)
    parser.add_argument("--durability", default="primary", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.url:
        uvloop.run(_write(given.url, given.resource, given.seconds, given.durability))
        return
    with tempfile.TemporaryDirectory() as folder:
        one = Server(Path(folder, "one"), port=str(free_port()), bind="127.0.0.1")
        cluster = Cluster(Path(folder, "cluster"))
        try:
            one.start()
            cluster.start()
            plain = f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{one.settings['port']}"
            for url in (plain, cluster.url):
                asyncio.run(initialise(url))
            nodes = [member.process.pid for member in cluster.members if member.process is not None]
            assert one.process is not None
            for _, busy in itertools.product(range(given.rounds), (1, 2, 3)):
                measure("one server", plain, [one.process.pid], busy=busy, seconds=given.seconds)
                measure("3 primaries", cluster.url, nodes, busy=busy, seconds=given.seconds)
        finally:
            one.stop()
            cluster.stop()


async def initialise(url: str) -> None:
    """Create the kinds' logs in a new store."""
    await administration.init(StoreOptions(url=url), KINDS)


if __name__ == "__main__":
    main()
