"""How soon a `sluice dev` that was killed is ready again, alone and while its clients come back: `python -m bench.restart`.

From the start of the process, that of its store included, to the line that says it serves, and to the end of the first list. The storm:
`--pause 0 --writes 70` lets watchers try again without a pause, and a client write all the time. With `--socket` the listening socket
outlives the server, as with a service manager.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench import accounting
from bench.client import Connection, Target
from tests.fixtures import storm as storms
from tests.fixtures.server import DevServer

GROUP = "resource.sluice.dev"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Chosen:
    """The size of the storm."""

    objects: int
    watchers: int
    pause: float
    writes: float
    rounds: int
    socket: bool


async def main(chosen: Chosen) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        folder = Path(directory) / "data"
        folder.mkdir(mode=0o700)
        after = await storms.fill(folder / "store", chosen.objects)
        sock = socket.create_server(("127.0.0.1", 0), backlog=4096) if chosen.socket else None
        server = DevServer(folder, "--no-samples", sock=sock)
        try:
            await started(server, f"{chosen.objects} slices, no clients")
            target = Target.of(server.kubeconfig, GROUP)
            storm = storms.Storm(server, chosen.watchers, after, pause=chosen.pause)
            async with writing(target, chosen):
                for _ in range(chosen.rounds):
                    await storm.until(lambda: len(storm.watching) == chosen.watchers)
                    await restarted(server, target, storm, chosen)
            await storm.end()
        finally:
            await asyncio.to_thread(server.stop)
            if sock is not None:
                sock.close()


async def restarted(server: DevServer, target: Target, storm: storms.Storm, chosen: Chosen) -> None:
    """Kill the server, and start it again while everybody comes back."""
    await asyncio.to_thread(server.stop, signal.SIGKILL)
    began, refused = time.perf_counter(), storm.refused
    listing = asyncio.ensure_future(first_list(target, chosen.objects))
    await started(
        server, f"{chosen.objects} slices, {chosen.watchers} watchers coming back, {chosen.writes:g} writes/s"
    )
    print(f"  {storm.refused - refused} refusals before it was ready", flush=True)
    await listing
    print(f"  first list after {time.perf_counter() - began:.2f} s", flush=True)
    await storm.until(lambda: len(storm.watching) == chosen.watchers)
    print(f"  all watch again after {time.perf_counter() - began:.2f} s", flush=True)


async def started(server: DevServer, label: str) -> None:
    began = time.perf_counter()
    await asyncio.to_thread(server.start)
    wall, own = time.perf_counter() - began, storms.cpu_seconds(server)
    everything = accounting.cpu_seconds(accounting.children(server.pid))
    print(f"{label}: ready after {wall:.2f} s; CPU {own:.2f} s, with the store {everything:.2f} s", flush=True)


async def first_list(target: Target, objects: int) -> None:
    """List everything, as often as it takes."""
    while True:
        with contextlib.suppress(OSError, EOFError, ssl.SSLError):
            async with connected(target) as connection:
                status, body = await connection.fetch("GET", storms.PATH, gzip=False)
                if status == 200:
                    assert body.count(b'"creationTimestamp"') == objects
                    return
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Connection]:
    connection = await Connection(target).open()
    try:
        yield connection
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def writing(target: Target, chosen: Chosen) -> AsyncIterator[None]:
    """Meanwhile one client writes at a rate, and connects again whenever it must."""
    task = asyncio.ensure_future(write(target, chosen)) if chosen.writes else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def write(target: Target, chosen: Chosen) -> None:
    number = 0
    while True:
        with contextlib.suppress(OSError, EOFError, ssl.SSLError):
            async with connected(target) as connection:
                while not connection.last:
                    number += 1
                    path = f"{storms.PATH}/slice-{number * 7919 % chosen.objects:05d}"
                    body = b'{"metadata":{"labels":{"n":"%d"}}}' % number
                    await connection.request("PATCH", path, body, kind=MERGE_PATCH)
                    await asyncio.sleep(1 / chosen.writes)
        await asyncio.sleep(1 / chosen.writes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0.035, help="mean seconds between two attempts of a watcher")
    parser.add_argument("--writes", type=float, default=0.0, help="writes a second")
    parser.add_argument("--rounds", type=int, default=1, help="how often the server is killed")
    parser.add_argument("--socket", action="store_true", help="the listening socket outlives the server")
    asyncio.run(main(Chosen(**vars(parser.parse_args()))))
