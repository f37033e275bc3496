"""`python -m bench.durability`: what `--store-durability` costs: creates by 16 writers through the store's interface, without HTTP.

The store is one node, or three nodes with sentinels. Rounds take turns, so that all forms meet the same machine. Every node syncs each
commit to disk.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.cluster import initialise, measure
from tests.fixtures.processes import free_port
from tests.fixtures.sentinels import Topology
from tests.fixtures.valkey import PASSWORD, Server


class Form(NamedTuple):
    """A store and a durability that are measured together. `pids` are the processes of its nodes."""

    label: str
    url: str
    pids: Sequence[int]
    durability: str


def _pids(servers: Sequence[Server]) -> list[int]:
    return [server.process.pid for server in servers if server.process is not None]


def _forms(one: Server, three: Topology) -> list[Form]:
    alone = f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{one.settings['port']}"
    nodes = [
        Form(f"three nodes, {name}", three.url, _pids(three.servers), name) for name in ("primary", "replica", "all")
    ]
    return [Form("one node, primary", alone, _pids([one]), "primary"), *nodes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one = Server(Path(folder, "one"), port=str(free_port()), bind="127.0.0.1")
        three = Topology(Path(folder, "three"))
        try:
            one.start()
            three.start()
            forms = _forms(one, three)
            for url in {form.url for form in forms}:
                asyncio.run(initialise(url))
            rates: dict[str, list[float]] = {form.label: [] for form in forms}
            for _ in range(given.rounds):
                for label, url, pids, durability in forms:
                    rates[label].append(measure(label, url, pids, busy=1, seconds=given.seconds, durability=durability))
            base = statistics.median(rates[forms[1].label])
            for label, found in rates.items():
                print(
                    f"{label:22} median {statistics.median(found):7.0f} writes/s, {statistics.median(found) / base:5.2f} of `primary`"
                )
        finally:
            one.stop()
            three.stop()


if __name__ == "__main__":
    main()
