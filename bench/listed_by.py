"""Measure a list by a field, with the lookup and with a look at all objects: `python -m bench.listed_by`.

Each node has a driver of its own. So `spec.nodeName`, which memory looks up, and `spec.driver`, which it does not, select the same slices.
The second part measures in this process what the lookup costs: at the start, for each event, in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision
from apiserver.watchcache.mvcc import Index
from bench import accounting
from bench.client import Connection, Target
from tests.fixtures import storm as storms
from tests.fixtures.server import DevServer

LISTS = {"spec.nodeName": 500, "spec.driver": 25}
"""How many lists of each kind a round has."""
ROUNDS = 5
EVENTS = 20_000
FIRST = Revision(1 << 30)


def node_of(number: int, slices: int) -> str:
    return f"n{number // slices:05d}"


def value(name: str, slices: int) -> bytes:
    node = node_of(int(name.removeprefix("slice-")), slices).encode()
    made = storms.slice_value(name).replace(b'"nodeName":"n"', b'"nodeName":"%b"' % node)
    return made.replace(b'"driver":"gpu.example.com"', b'"driver":"%b.example.com"' % node)


async def of_server(objects: int, slices: int) -> None:
    """Measure both lists of one node on a server, in turns."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        folder = Path(directory) / "data"
        folder.mkdir(mode=0o700)
        await storms.fill(folder / "store", objects, value=lambda name: value(name, slices))
        server = DevServer(folder, "--no-samples")
        await asyncio.to_thread(server.start)
        try:
            connection = await Connection(Target.of(server.kubeconfig, "resource.sluice.dev")).open()
            costs: dict[str, list[float]] = {label: [] for label in LISTS}
            for at in range(ROUNDS):
                node = node_of((at + 1) * objects // (ROUNDS + 2), slices)
                wanted = {"spec.nodeName": node, "spec.driver": f"{node}.example.com"}
                for label, count in LISTS.items():
                    selector = f"{label}%3D{wanted[label]}"
                    costs[label].append(await listed(connection, server.pid, selector, count=count, expected=slices))
            connection.close()
        finally:
            await asyncio.to_thread(server.stop)
    found, scanned = (sorted(costs[label])[ROUNDS // 2] for label in LISTS)
    print(
        f"{objects} slices, {slices} of the node: lookup {found:.3f} ms of CPU, scan {scanned:.3f} ms: {scanned / found:.0f} times"
    )


async def listed(connection: Connection, pid: int, selector: str, *, count: int, expected: int) -> float:
    """Return the server's milliseconds of CPU for one list."""
    path = f"{storms.PATH}?fieldSelector={selector}&resourceVersion=0"
    status, body = await connection.fetch("GET", path)
    assert (status, body.count(b'"uid"')) == (200, expected), body[:500]
    before = accounting.cpu_seconds([pid])
    for _ in range(count):
        assert (await connection.request("GET", path))[0] == 200
    return (accounting.cpu_seconds([pid]) - before) / count * 1e3


def entries(objects: int, slices: int) -> list[Entry]:
    def made(number: int) -> Entry:
        fields = (node_of(number, slices), "gpu.example.com", "pool")
        return Entry(Key(f"slice-{number:06d}"), FIRST, b"{}", NO_LABELS, fields)

    return [made(number) for number in range(objects)]


def filled(objects: int, slices: int, listed_by: tuple[int, ...]) -> tuple[Index, float]:
    """Return an index, and the seconds of its fill behind the store's answers."""
    blocks = Blocks.of(entries(objects, slices))
    gc.collect()
    gc.disable()  # a server collects in a thread
    began = time.thread_time()
    index = Index()
    index.load(blocks, applied=FIRST, floor=FIRST, listed_by=listed_by)
    for _ in index.preload([], since=FIRST):
        pass
    gc.enable()
    return index, time.thread_time() - began


def moved(index: Index, changes: Iterable[int]) -> float:
    """Return the microseconds of an event that moves an object to another node."""
    events = []
    for at, number in enumerate(changes, 1):
        key, revision = Key(f"slice-{number:06d}"), Revision(FIRST + at)
        entry = Entry(key, revision, b"{}", NO_LABELS, (f"other{number % 5000}", "gpu.example.com", "pool"))
        events.append(Event(revision, EventType.UPDATED, entry, None))
    gc.collect()
    gc.disable()
    began = time.thread_time()
    for event in events:
        index.apply(event)
    gc.enable()
    return (time.thread_time() - began) / len(events) * 1e6


def of_index(objects: int, slices: int) -> None:
    """Measure the lookup's own costs."""
    seconds: dict[tuple[int, ...], float] = {}
    events: dict[tuple[int, ...], float] = {}
    for listed_by in ((), (0,)) * 3:
        index, spent = filled(objects, slices, listed_by)
        seconds[listed_by] = min(spent, seconds.get(listed_by, spent))
        spent = moved(index, range(0, objects, max(1, objects // EVENTS)))
        events[listed_by] = min(spent, events.get(listed_by, spent))
    tracemalloc.start()
    memory: dict[tuple[int, ...], int] = {}
    for listed_by in ((), (0,)):
        before = tracemalloc.get_traced_memory()[0]
        kept = filled(objects, slices, listed_by)
        memory[listed_by] = tracemalloc.get_traced_memory()[0] - before
        del kept
    tracemalloc.stop()
    print(f"fill of {objects} objects: {(seconds[0,] - seconds[()]) * 1e3:.0f} ms more")
    print(f"event that moves an object: {events[()]:.1f} µs without, {events[0,]:.1f} µs with the lookup")
    print(f"memory of an object with {slices} on a node: {(memory[0,] - memory[()]) / objects:.0f} bytes more")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--slices", type=int, default=20, help="slices of a node")
    parser.add_argument("--only-index", action="store_true", help="without a server")
    arguments = parser.parse_args()
    of_index(arguments.objects, arguments.slices)
    of_index(arguments.objects, 1)
    if not arguments.only_index:
        asyncio.run(of_server(arguments.objects, arguments.slices))
