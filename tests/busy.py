"""`make test-busy`: runs the tests several times beside programs that never rest. Ends with the first run that fails.

With `--pause 2` all processes of the tests stand still for 2 seconds now and then, as on a virtual machine that is moved. That needs the
freezer of cgroup v1 and root. Sentinels stop deciding for 30 s after a pause of more than 2 s, so tests of failovers fail with longer ones.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from tests.fixtures.processes import start

FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
BETWEEN_PAUSES = (5.0, 15.0)
"""Seconds that the tests run between two pauses."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make test-busy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--burners", type=int, default=2, help="programs that never rest (default: 2)")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="let the tests stand still so long")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, behind --")
    chosen = parser.parse_args()
    with burning(chosen.burners), pausing(chosen.pause) as before:
        for number in range(1, chosen.runs + 1):
            began = time.monotonic()
            code = subprocess.run([*before, sys.executable, "-m", "pytest", *chosen.arguments], check=False).returncode
            print(f"run {number} of {chosen.runs}: exit code {code} after {time.monotonic() - began:.0f} s", flush=True)
            if code != 0:
                return code
    return 0


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    programs = [start([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextlib.contextmanager
def pausing(seconds: float) -> Iterator[list[str]]:
    """Yield the words before a command that stands still now and then, with all that it starts."""
    if not seconds:
        yield []
        return
    group = FREEZER / f"sluice-tests-{os.getpid()}"
    group.mkdir()
    ended = threading.Event()
    pauses = threading.Thread(target=_pause, args=(group / "freezer.state", seconds, ended))
    pauses.start()
    try:
        yield ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        ended.set()
        pauses.join()
        with contextlib.suppress(OSError):  # a program that ends a little later keeps it
            group.rmdir()


def _pause(state: pathlib.Path, seconds: float, ended: threading.Event) -> None:
    while not ended.wait(random.uniform(*BETWEEN_PAUSES)):
        state.write_text("FROZEN")
        ended.wait(seconds)
        state.write_text("THAWED")


if __name__ == "__main__":
    sys.exit(main())
