"""`make faults`: some minutes of faults in a store and its servers, while clients write, read and watch. Then judge all answers.

`--seed` repeats the draws of a campaign; times are the machine's. A campaign goes in rounds: after `--round` faults everything has to
recover and to be as promised. `--durability` names the promise that is judged, and is given to the servers. Ends with 1 if anything was
found.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import campaign, topologies
from tests.faults.campaign import Load


def say(text: str) -> None:
    print(text, flush=True)


async def play(chosen: argparse.Namespace, topology: str) -> int:
    load = Load(servers=chosen.servers, watchers=chosen.watchers)
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        async with campaign.campaign(
            Path(folder),
            topology,
            seed=chosen.seed,
            durability=chosen.durability,
            down_ms=chosen.down_ms,
            load=load,
            flags=chosen.flag,
            only=chosen.only,
            say=say,
        ) as running:
            while running.report.injected < chosen.faults and not running.report.findings:
                before = time.monotonic()
                await running.round(min(chosen.round, chosen.faults - running.report.injected))
                found = f"{len(running.report.findings)} findings"
                say(f"{topology}: {running.report.injected} faults, {found}, {time.monotonic() - before:.0f} s")
            say(f"{topology}, seed {chosen.seed}, durability {chosen.durability}\n{running.report}")
            if running.report.findings and chosen.keep:
                await asyncio.to_thread(_keep, Path(folder), chosen.keep)
            return len(running.report.findings)


def _keep(folder: Path, to: Path) -> None:
    for log in [*folder.glob("*/*.log"), *folder.glob("*/log")]:
        (to / f"{log.parent.name}-{log.name}").write_bytes(log.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = topologies.NAMES
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the seed (default: drawn)")
    parser.add_argument("--faults", type=int, default=100, help="how many, for each topology (default: 100)")
    parser.add_argument("--round", type=int, default=50, help="faults between two judgements (default: 50)")
    parser.add_argument("--topology", choices=names, action="append", help="the store's form (default: each)")
    parser.add_argument("--durability", choices=["primary", "replica", "all"], default="primary")
    parser.add_argument(
        "--down-ms", type=int, default=1000, help="down-after-milliseconds, or cluster-node-timeout (default: 1000)"
    )
    parser.add_argument("--servers", type=int, default=2, help="servers of ours (default: 2)")
    parser.add_argument("--watchers", type=int, default=50, help="watches at a time (default: 50)")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="only this fault; may be repeated")
    parser.add_argument("--flag", action="append", default=[], help="a flag for the servers; may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for the logs of a campaign that found something")
    chosen = parser.parse_args()
    say(f"seed {chosen.seed}")
    found = [asyncio.run(play(chosen, topology)) for topology in chosen.topology or names]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
