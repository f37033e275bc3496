"""Random input, judged by us and by a real kube-apiserver of its own: `make fuzz ARGS=cel` compiles CEL expressions, as conditions on
devices; `make fuzz ARGS=policies` evaluates them, as validations of policies; `make fuzz
ARGS=admission` puts whole policies in force on both; `make fuzz ARGS=kinds` writes objects of the four kinds;
`make fuzz ARGS=gates` changes some that use features which are switched off; `make fuzz ARGS=sequences` applies, updates and patches
them one time after the other, and compares who manages which field. `--seed` repeats a run."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pathlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.e2e.controlplane.bed import Bed
from tests.fuzz import admission, gates, objects, policies, selectors, sequences
from tests.fuzz.expressions import DEVICE, Expressions
from tests.fuzz.selectors import Difference
from tests.promises.api.client import Client
from tests.promises.api.target import OLDER, TARGETS, UPSTREAMS, VERSIONS

SHOWN = 20


def _compiled(seed: int, count: int, target: str) -> list[Difference]:
    drawn = list(itertools.islice(Expressions(seed, DEVICE), count))
    with _client(target) as client:
        path = client.claims(client.namespace("fuzz"))
        return list(selectors.differences(client, path, drawn, judge=selectors.selectors(objects.SERVED.release)))


def _evaluated(seed: int, count: int, target: str) -> list[Difference]:
    with _client(target) as client:
        namespace = client.namespace("fuzz")
        drawn = policies.Judge(policies.config_map(namespace)).questions(seed)
        return list(policies.differences(client, namespace, list(itertools.islice(drawn, count))))


def _written(seed: int, count: int, target: str) -> list[objects.Difference]:
    """In every version of them."""
    with _sides() as (theirs, ours):
        return list(objects.differences(theirs, ours, seed=seed, count=count, versions=VERSIONS))


def _written_again(seed: int, count: int, target: str) -> list[sequences.Difference]:
    with _sides() as (theirs, ours):
        return sequences.differences(theirs, ours, seed=seed, count=count, versions=VERSIONS)


def _admitted(seed: int, count: int, target: str) -> list[Difference]:
    return list(admission.differences(seed, count))


@contextlib.contextmanager
def _sides() -> Iterator[tuple[objects.Side, objects.Side]]:
    """Both serve every version."""
    with (
        tempfile.TemporaryDirectory(prefix="s-") as folder,
        Bed(pathlib.Path(folder), flags=[UPSTREAMS], versions=VERSIONS, serve_flags=[OLDER]) as bed,
        objects.sides(bed) as sides,
    ):
        yield sides


def _switched(seed: int, count: int, target: str) -> list[str]:
    return gates.differences(seed=seed, count=count)


@contextlib.contextmanager
def _client(target: str) -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as folder, TARGETS[target](pathlib.Path(folder)) as started:
        client = Client(started)
        yield client
        client.leave()
        client.close()


class Judged(NamedTuple):
    """A sort of input: how it is judged, and how much of it unless somebody says."""

    differences: Callable[[int, int, str], Sequence[object]]
    most: int


JUDGED = {
    "admission": Judged(_admitted, 600),
    "cel": Judged(_compiled, 10_000),
    "gates": Judged(_switched, 300),
    "kinds": Judged(_written, 5_000),
    "policies": Judged(_evaluated, 10_000),
    "sequences": Judged(_written_again, 300),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("what", choices=sorted(JUDGED), help="the kind of input, and how results are judged")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="the seed of the input (default: drawn)"
    )
    parser.add_argument("--count", type=int, help="how many expressions, objects or sequences")
    parser.add_argument(
        "--target", choices=sorted(TARGETS), default="upstream", help="the server that judges expressions beside ours"
    )
    chosen = parser.parse_args()
    judged = JUDGED[chosen.what]
    count = judged.most if chosen.count is None else chosen.count
    print(f"seed {chosen.seed}", flush=True)
    found = judged.differences(chosen.seed, count, chosen.target)
    for difference in found[:SHOWN]:
        print(difference)
    print(f"{len(found)} of {count} are judged differently")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
