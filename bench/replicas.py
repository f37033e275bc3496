"""`python -m bench.replicas`: the CPU of a write in the server that gets it, in a replica that follows the log, and in the store.

Two `sluice serve` share a Valkey. All PUTs of slices of 4 KB go to the first one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from bench import accounting
from bench.client import Connection
from bench.scale import DEVICES, GROUP, QUIET_SECONDS, WRITERS
from bench.servers import rest
from bench.workloads import SLICES, slice_body
from tests.soak.system import Place, places, store

OBJECTS = 1000


async def write(place: Place, method: str, writes: int) -> float:
    """Create or change slices by closed loops; return the wall time."""
    collection, numbers = place.target.base + SLICES, iter(range(writes))

    async def writer() -> None:
        connection = await Connection(place.target).open()
        for number in numbers:
            name = f"s{number % OBJECTS:06}"
            body = slice_body(GROUP, name, "node-1", f"{method}-{number}", devices=DEVICES)
            path = collection if method == "POST" else f"{collection}/{name}"
            status, answer = await connection.fetch(method, path, body)
            if status not in (200, 201):
                raise RuntimeError(f"{method} {name}: {status} {answer[:300]!r}")
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return time.perf_counter() - began


async def measure(first: Place, pids: dict[str, int], writes: int) -> None:
    await write(first, "POST", OBJECTS)
    await asyncio.to_thread(rest, list(pids.values()))
    before = {name: accounting.cpu_seconds([pid]) for name, pid in pids.items()}
    wall = await write(first, "PUT", writes)
    await asyncio.sleep(QUIET_SECONDS)
    print(f"{writes} writes, {writes / wall:.0f} a second")
    for name, pid in pids.items():
        print(f"| {name} | {1000 * (accounting.cpu_seconds([pid]) - before[name]) / writes:.3g} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=5000, help="(default: %(default)s)")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sluice-replicas-") as name,
        store(Path(name)) as server,
        places(Path(name), server, ["first", "second"], 1) as [first, second],
    ):
        assert server.process is not None
        pids = {"the server that gets the write": first.pid, "a replica that follows": second.pid}
        uvloop.run(measure(first, pids | {"the store": server.process.pid}, given.writes))


if __name__ == "__main__":
    main()
