"""`make fuzz ARGS=cel`: random expressions, judged by us and by a real kube-apiserver of its own. `--seed` repeats a run."""

from __future__ import annotations

import argparse
import itertools
import pathlib
import random
import sys
import tempfile

from tests.fuzz import selectors
from tests.fuzz.expressions import DEVICE, Expressions
from tests.promises.api.client import Client
from tests.promises.api.target import TARGETS

SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("what", choices=["cel"], help="cel: selectors of devices")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the input (default: drawn)")
    parser.add_argument("--count", type=int, default=10_000, help="how many expressions")
    parser.add_argument("--target", choices=sorted(TARGETS), default="upstream", help="who judges beside us")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    drawn = list(itertools.islice(Expressions(chosen.seed, DEVICE), chosen.count))
    with tempfile.TemporaryDirectory() as folder, TARGETS[chosen.target](pathlib.Path(folder)) as target:
        client = Client(target)
        path = client.claims(client.namespace("fuzz"))
        found = list(selectors.differences(client, path, drawn, judge=selectors.selectors()))
        client.leave()
        client.close()
    for difference in found[:SHOWN]:
        print(difference)
    print(f"{len(found)} of {len(drawn)} expressions are judged differently")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
