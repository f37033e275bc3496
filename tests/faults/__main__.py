"""`make faults`: some minutes of faults in a store and its servers, while clients write, read and watch. Then judge all answers.

`--seed` repeats the draws of a campaign; times are the machine's. A campaign goes in rounds: after `--round` faults everything has to
recover and to be as promised. Campaigns mostly wait, so several at once (`--at-once`) inject more in a minute. `--durability` names the
promise that is judged, and is given to the servers. Ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.faults import several, topologies
from tests.faults.several import say


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = topologies.NAMES
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the seed (default: drawn)")
    parser.add_argument("--faults", type=int, default=100, help="how many, for each campaign (default: 100)")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="when a campaign begins no other round (default: 60)"
    )
    parser.add_argument(
        "--campaigns", type=int, default=1, help="how many of each topology, with the next seeds (default: 1)"
    )
    parser.add_argument("--at-once", type=int, default=1, help="how many campaigns at the same time (default: 1)")
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
    total = several.run(chosen)
    say(f"all campaigns, {chosen.at_once} at once, durability {chosen.durability}\n{total}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
