"""`make test-busy`: runs the tests several times beside programs that never rest. Ends with the first run that fails."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.fixtures.processes import start


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-busy", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--burners", type=int, default=2, help="programs that never rest (default: 2)")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, behind --")
    chosen = parser.parse_args()
    with burning(chosen.burners):
        for number in range(1, chosen.runs + 1):
            began = time.monotonic()
            code = subprocess.run([sys.executable, "-m", "pytest", *chosen.arguments], check=False).returncode
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


if __name__ == "__main__":
    sys.exit(main())
