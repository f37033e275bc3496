"""`make hostile`: some minutes of hostile requests against a server of its own. `--seed` repeats a campaign.

It says how it goes every 500 requests, and each breach at once, with the arguments that send just that request again. Ctrl-C ends it with
the breaches found so far. `--heads --connections 8` sends only requests that need no credential, and many of them in a second: the server
must not have grown in the end. Last come connections that never finish their headers. With `--cluster` the server stands behind a
kube-apiserver (`make binaries`), which it asks about every sender.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fixtures.server import DevServer, dev_server
from tests.hostile import custom
from tests.hostile.behind import behind
from tests.hostile.campaign import FLAGS, WARM, WARM_HEADS, Campaign, Report
from tests.hostile.forms import BODY, Hostile
from tests.hostile.generator import FAMILIES, Generator
from tests.hostile.heads import every_flood
from tests.hostile.rules import as_files

CONNECTIONS, EACH = 8, 8


@contextmanager
def alone(folder: pathlib.Path, definitions: pathlib.Path) -> Iterator[DevServer]:
    with as_files(folder) as rules, dev_server(folder, *FLAGS, f"--crds={definitions}", *rules) as server:
        yield server


def say(text: str) -> None:
    print(text, flush=True)


def drawn(generator: Generator, chosen: argparse.Namespace) -> Iterator[Hostile]:
    """The requests to send."""
    if chosen.only is not None:
        request = generator.at(chosen.only, chosen.family)
        return iter([request] if request.follows is None else [generator.at(request.follows), request])
    if chosen.family:
        return generator.only(itertools.repeat(chosen.family), chosen.first)
    return generator.numbered(chosen.first)


async def play(campaign: Campaign, requests: Iterator[Hostile], most: int, seconds: float | None) -> Report:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, campaign.stop)
    return await campaign.run(requests, most=most, seconds=seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="the seed of the requests (default: drawn)"
    )
    parser.add_argument(
        "--requests", type=int, default=10_000, help="how many are sent, after those that warm it up (default: 10000)"
    )
    parser.add_argument("--seconds", type=float, help="how long they are sent at most")
    parser.add_argument(
        "--connections", type=int, default=CONNECTIONS, help=f"how many are sent at once (default: {CONNECTIONS})"
    )
    parser.add_argument("--heads", action="store_true", help="only request lines and headers, of nobody")
    parser.add_argument("--custom", action="store_true", help="only custom resources and their definitions")
    parser.add_argument("--cluster", action="store_true", help="against a server behind a kube-apiserver")
    parser.add_argument("--family", choices=sorted(FAMILIES), help="only these")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one that is sent (default: 0)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="only this one, and what it follows")
    parser.add_argument("--largest", type=int, default=BODY, help=f"bytes of the largest body (default: {BODY})")
    chosen = parser.parse_args()
    say(f"seed {chosen.seed}")
    generator = Generator(chosen.seed, most=chosen.largest, heads=chosen.heads, customs=chosen.custom)
    warm = WARM_HEADS if chosen.heads else WARM
    start, began = behind if chosen.cluster else alone, time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        custom.serving(pathlib.Path(folder)) as definitions,
        start(pathlib.Path(folder), definitions) as server,
    ):
        campaign = Campaign(
            server,
            connections=chosen.connections if chosen.only is None else 1,
            each=EACH,
            warm=warm,
            say=say,
            again=generator.again,
            definitions=definitions,
        )
        report = asyncio.run(play(campaign, drawn(generator, chosen), warm + chosen.requests, chosen.seconds))
        floods = [] if chosen.only is not None or chosen.family or chosen.custom else asyncio.run(every_flood(server))
    for wrong in floods:
        say(wrong)
    say(f"{report}\nseed {chosen.seed}, {time.monotonic() - began:.0f} s in all")
    return 1 if report.breaches or floods else 0


if __name__ == "__main__":
    sys.exit(main())
