"""`make differential`: starts a cluster with Sluice behind its kube-apiserver, plays the corpus, and says what differs.

With `--oracle` the real kube-apiserver's own resource.k8s.io/v1 is played against the recording instead: what differs there is the
corpus's, or the moment's, and nobody's fault.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time

from tests.e2e.corpus import comparison, ways
from tests.e2e.corpus.comparison import Outcome
from tests.e2e.corpus.known import FLOOR
from tests.promises.api import target


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make differential", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", type=pathlib.Path, default=ways.corpus())
    parser.add_argument("--oracle", action="store_true", help="play the server that was recorded")
    chosen = parser.parse_args()
    # Short: a store's socket lies in it, and the path of a socket may have only 107 characters.
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        check = _oracle if chosen.oracle else _sluice
        return 0 if check(pathlib.Path(folder), chosen.corpus) else 1


def _sluice(folder: pathlib.Path, corpus: pathlib.Path) -> bool:
    good = True
    with ways.bed(folder) as bed:
        for way in ways.WAYS.values():
            start = time.monotonic()
            verdict = ways.verdict(way, bed, corpus)
            _say(f"== {way.name}, {time.monotonic() - start:.0f} s\n{verdict}\n")
            good = good and verdict.ratio >= FLOOR and not verdict.unlisted and not verdict.stale
    return good


def _oracle(folder: pathlib.Path, corpus: pathlib.Path) -> bool:
    with target.upstream(folder) as server:
        outcome: Outcome = comparison.compare(corpus, server.kubeconfig, group=server.group)
    for step, failure in outcome.failures.items():
        _say("\n".join([f"{step}  {failure.title}", *(line[:400] for line in failure.lines[:12]), ""]))
    _say(
        f"{len(outcome.steps) - len(outcome.failures)} of {len(outcome.steps)} steps are answered as they were recorded"
    )
    return not outcome.failures


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
