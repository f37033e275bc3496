"""`make hostile`: some minutes of hostile requests against a server of its own. `--seed` repeats a campaign.

`--heads --lanes 8` sends only what anybody may send, and much of it in a second: the server must not have grown in the end.
With `--cluster` the server stands behind a kube-apiserver (`make binaries`), which it asks about every sender.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import pathlib
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tests.fixtures.server import DevServer, dev_server
from tests.hostile.behind import behind
from tests.hostile.campaign import GATES, WARM, WARM_HEADS, Campaign
from tests.hostile.generator import FAMILIES, Generator, Hostile, heads


def alone(folder: pathlib.Path) -> AbstractContextManager[DevServer]:
    return dev_server(folder, GATES)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the requests (default: drawn)")
    parser.add_argument("--requests", type=int, default=10_000, help="how many are sent, after those that warm it up")
    parser.add_argument("--seconds", type=float, help="how long they are sent at most")
    parser.add_argument("--lanes", type=int, default=1, help="how many are sent at once (default: 1)")
    parser.add_argument("--heads", action="store_true", help="only request lines and headers, of nobody")
    parser.add_argument("--cluster", action="store_true", help="against a server behind a kube-apiserver")
    parser.add_argument("--family", choices=sorted(FAMILIES), help="only these")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    generator = Generator(chosen.seed)
    requests: Iterator[Hostile] = heads(generator) if chosen.heads else iter(generator)
    if chosen.family:
        requests = (generator.draw(chosen.family) for _ in itertools.count())
    warm = WARM_HEADS if chosen.heads else WARM
    start = behind if chosen.cluster else alone
    with tempfile.TemporaryDirectory() as folder, start(pathlib.Path(folder)) as server:
        report = asyncio.run(
            Campaign(server, lanes=chosen.lanes, warm=warm).run(
                requests, most=warm + chosen.requests, seconds=chosen.seconds
            )
        )
    print(report)
    return 1 if report.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
