"""`make soak`: half an hour of writes, watches, lists and restarts, and a judge of all that must not grow meanwhile.

Prints a table. --output gets the results as JSON, a picture of the curves, and the logs of the servers. Ends with 1 if a curve rises, if a
watcher missed a change or saw one twice, or if a request failed. README.md has the rule.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile
import time

import uvloop

from tests.soak import report
from tests.soak.clients import Load
from tests.soak.run import Options, soak


def options() -> tuple[Options, pathlib.Path]:
    load = Load()
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the load lasts (default: 30)")
    parser.add_argument("--writes", type=float, default=load.writes, help="in a second (default: %(default)g)")
    parser.add_argument("--watchers", type=int, default=load.watchers, help="(default: %(default)s)")
    parser.add_argument(
        "--of-everything", type=int, default=load.of_everything, help="watchers without a node (default: %(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=load.nodes, help="(default: %(default)s)")
    parser.add_argument("--slices", type=int, default=load.slices, help="for each node (default: %(default)s)")
    parser.add_argument("--lists", type=float, default=load.lists, help="in a second (default: %(default)g)")
    parser.add_argument(
        "--restart-every", type=float, default=4.0, metavar="MINUTES", help="by hand-over (default: %(default)g)"
    )
    parser.add_argument("--sample-every", type=float, default=5.0, metavar="SECONDS", help="(default: %(default)g)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="(default: drawn)")
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("dist/soak"), help="a folder (default: %(default)s)"
    )
    chosen = parser.parse_args()
    load = Load(chosen.writes, chosen.watchers, chosen.of_everything, chosen.nodes, chosen.slices, chosen.lists)
    restart, sample = 60 * chosen.restart_every, chosen.sample_every
    return Options(60 * chosen.minutes, load, chosen.seed, restart, sample), chosen.output


def main() -> int:
    chosen, output = options()
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:7.1f} s  {text}", flush=True)

    say(f"seed {chosen.seed}")
    with tempfile.TemporaryDirectory(prefix="sluice-soak-") as folder:
        result = uvloop.run(soak(pathlib.Path(folder), chosen, say))
        output.mkdir(parents=True, exist_ok=True)
        for log in pathlib.Path(folder, "servers").glob("*.log"):
            shutil.copy(log, output)
    found = report.document(result)
    (output / "last.json").write_text(json.dumps(found, indent=1) + "\n")
    (output / "last.svg").write_text(report.picture(found))
    print(report.table(found))
    say(f"{'passed' if result.passed else 'FAILED'}; {output / 'last.json'}, {output / 'last.svg'}")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
