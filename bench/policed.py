"""Measure writes behind admission policies on a server: `python -m bench.policed [--against CHECKOUT]`.

CPU is that of the server and its store for one request, memory the largest resident size of the server. With `--against`, another
checkout is measured in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import accounting
from bench.admission import policies
from bench.client import Connection, Target
from tests.fixtures.server import DevServer
from tests.hostile.generator import GROUP

ROUNDS = 5
CLAIMS = f"/apis/{GROUP}/v1/namespaces/default/resourceclaims"
LARGE = {"annotations": {"large": "x" * 200_000}}
HERE = Path(__file__).resolve().parents[1]


def claim(name: str, **metadata: Any) -> bytes:
    request = {"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}}
    metadata = {"name": name, **metadata}
    spec = {"devices": {"requests": [request]}}
    document = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    return json.dumps(document).encode()


def writes() -> Iterator[tuple[str, int, int, Iterator[bytes]]]:
    """Yield each sort of write with its status, how many are sent, and their bodies."""
    yield "not measured", 201, 300, (claim(f"first-{at}") for at in range(300))
    yield "create", 201, 3000, (claim(f"small-{at}") for at in range(3000))
    yield "create of 200 KB", 201, 100, (claim(f"large-{at}", **LARGE) for at in range(100))
    yield "refused create of 200 KB", 422, 300, (claim("N O", **LARGE) for _ in range(300))


async def measured(checkout: Path) -> dict[str, float]:
    """Return milliseconds of CPU for each sort of write, and the server's peak of memory in MB."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        rules = Path(directory) / "policies.json"
        rules.write_text(json.dumps({"items": policies("resourceclaims")}))
        server = DevServer(Path(directory) / "data", "--no-samples", f"--admission={rules}")
        server.cwd = checkout
        await asyncio.to_thread(server.start)
        try:
            connection = await Connection(Target.of(server.kubeconfig, GROUP)).open()
            processes, found = [server.pid, *accounting.children(server.pid)], dict[str, float]()
            for label, expected, count, bodies in writes():
                before = accounting.cpu_seconds(processes)
                for body in bodies:
                    status, _ = await connection.request("POST", CLAIMS, body)
                    assert status == expected, (label, status)
                found[label] = (accounting.cpu_seconds(processes) - before) / count * 1e3
            connection.close()
            del found["not measured"]
            return {**found, "peak MB": accounting.peak_mb([server.pid])}
        finally:
            await asyncio.to_thread(server.stop)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.policed", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout to measure in turn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    checkouts = [HERE] if chosen.against is None else [chosen.against.resolve(), HERE]
    found: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for _ in range(chosen.rounds):
        for checkout in checkouts:
            found[checkout].append(asyncio.run(measured(checkout)))
    for label in found[HERE][0]:
        medians = [sorted(each[label] for each in found[checkout])[chosen.rounds // 2] for checkout in checkouts]
        ratio = f", {medians[-1] / medians[0]:.2f} of the other checkout" if len(medians) > 1 else ""
        print(f"{label}: {', '.join(f'{median:.3g}' for median in medians)}{ratio}")


if __name__ == "__main__":
    main()
