"""How soon a `sluice dev` that was killed is ready again, alone and while all its watchers come back: `python -m bench.restart`.

From the start of the process, that of its store included, to the line that says it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from pathlib import Path

from bench import accounting
from tests.fixtures import storm as storms
from tests.fixtures.server import DevServer


async def main(objects: int, watchers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        folder = Path(directory) / "data"
        folder.mkdir(mode=0o700)
        after = await storms.fill(folder / "store", objects)
        server = DevServer(folder, "--no-samples")
        try:
            await started(server, f"{objects} slices, nobody there")
            storm = storms.Storm(server, watchers, after)
            await storm.until(lambda: len(storm.watching) == watchers)
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            began = time.perf_counter()
            await started(server, f"{objects} slices, {watchers} watchers coming back")
            refused = storm.refused
            await storm.until(lambda: len(storm.watching) == watchers)
            print(f"all watch again after {time.perf_counter() - began:.1f} s; {refused} refusals before it was ready")
            await storm.end()
        finally:
            await asyncio.to_thread(server.stop)


async def started(server: DevServer, label: str) -> None:
    began = time.perf_counter()
    await asyncio.to_thread(server.start)
    wall, own = time.perf_counter() - began, storms.cpu_seconds(server)
    everything = accounting.cpu_seconds(accounting.children(server.pid))
    print(f"{label}: ready after {wall:.2f} s; CPU {own:.2f} s, with the store {everything:.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=500)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.objects, arguments.watchers))
