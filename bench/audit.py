"""Measure the cost of auditing: `python -m bench.audit`. It compares a server without audit with two audit levels, in turn.

CPU of server and store for one GET and one PUT at 16 clients, the median of some rounds, and beside it how many times as much that is as
without audit. `kube-apiserver` with its own log stands beside it with `--upstream`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import accounting, client
from bench.servers import Sluice, plane_processes, rest
from bench.workloads import Bench
from tests.e2e.controlplane.plane import ControlPlane

GROUP = "resource.sluice.dev"
LEVELS = ("Metadata", "RequestResponse")
SLICES, ROUNDS = 1000, 5
GETS, PUTS, CLIENTS = 2000, 500, 16


def flags(folder: Path, level: str, name: str) -> list[str]:
    """Without a level nothing is recorded."""
    if not level:
        return []
    policy = folder / f"{level}.yaml"
    policy.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: {level}}}]\n")
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / name}-{level}.log"]


@contextlib.contextmanager
def servers(folder: Path, *, upstream: bool) -> Iterator[dict[tuple[str, str], Bench]]:
    """By whose they are and what they record."""
    found: dict[tuple[str, str], Bench] = {}
    with contextlib.ExitStack() as stack:
        for level in ("", *LEVELS):
            server = Sluice(folder / f"sluice-{level or 'without'}", GROUP, flags(folder, level, "sluice"))
            stack.callback(server.stop)
            found["sluice", level] = server.bench
        for level in ("", *LEVELS) if upstream else ():
            plane = ControlPlane(folder / f"plane-{level}", durable=True, flags=flags(folder, level, "kube-apiserver"))
            stack.enter_context(plane)
            target = client.Target.of(plane.admin, "resource.k8s.io")
            found["kube-apiserver", level] = Bench(target, plane_processes(plane))
        yield found


async def main(*, upstream: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory,
        servers(Path(directory), upstream=upstream) as all_,
    ):
        for bench in all_.values():
            await bench.create(first=0, count=SLICES, clients=CLIENTS)
        cost: dict[tuple[str, str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for (whose, level), bench in all_.items():
                others = [pid for other in all_.values() if other is not bench for pid in other.pids]
                with accounting.stopped(others):
                    rest(bench.pids)
                    gets = await bench.get(operations=GETS, clients=CLIENTS)
                    puts = await bench.write("PUT", clients=CLIENTS, operations=PUTS)
                cost.setdefault((whose, "GET", level), []).append(gets.cpu / gets.operations * 1e3)
                cost.setdefault((whose, "PUT", level), []).append(puts.cpu / puts.operations * 1e3)
    medians = {key: statistics.median(found) for key, found in cost.items()}
    for (whose, what, level), found in sorted(medians.items()):
        times = found / medians[whose, what, ""]
        print(f"{whose:15} {what}  {level or 'without':16} {found:7.3f} ms of CPU  {times:5.2f} times as much")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", action="store_true", help="measure kube-apiserver as well")
    asyncio.run(main(upstream=parser.parse_args().upstream))
