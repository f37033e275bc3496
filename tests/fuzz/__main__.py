"""Random CEL expressions, judged by us and by a real kube-apiserver of its own: `make fuzz ARGS=cel` compiles them, as conditions on
devices; `make fuzz ARGS=policies` evaluates them, as validations of policies. `--seed` repeats a run."""

from __future__ import annotations

import argparse
import itertools
import pathlib
import random
import sys
import tempfile
from collections.abc import Iterator

from tests.fuzz import policies, selectors
from tests.fuzz.expressions import DEVICE, Expressions
from tests.fuzz.selectors import Difference
from tests.promises.api.client import Client
from tests.promises.api.target import TARGETS

SHOWN = 20


def _compiled(client: Client, seed: int, count: int) -> Iterator[Difference]:
    drawn = list(itertools.islice(Expressions(seed, DEVICE), count))
    path = client.claims(client.namespace("fuzz"))
    return selectors.differences(client, path, drawn, judge=selectors.selectors())


def _evaluated(client: Client, seed: int, count: int) -> Iterator[Difference]:
    namespace = client.namespace("fuzz")
    drawn = policies.Judge(policies.config_map(namespace)).questions(seed)
    return policies.differences(client, namespace, list(itertools.islice(drawn, count)))


JUDGED = {"cel": _compiled, "policies": _evaluated}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("what", choices=sorted(JUDGED), help="how they are judged")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the input (default: drawn)")
    parser.add_argument("--count", type=int, default=10_000, help="how many expressions")
    parser.add_argument("--target", choices=sorted(TARGETS), default="upstream", help="who judges beside us")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, TARGETS[chosen.target](pathlib.Path(folder)) as target:
        client = Client(target)
        found = list(JUDGED[chosen.what](client, chosen.seed, chosen.count))
        client.leave()
        client.close()
    for difference in found[:SHOWN]:
        print(difference)
    print(f"{len(found)} of {chosen.count} expressions are judged differently")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
