"""`make e2e-node`: `up` keeps a node with Sluice until Ctrl-C, `clean` removes what a killed one left, `if-built` is for who has
minutes, not a quarter of an hour (`.ci/run`); other words are for pytest."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.e2e.controlplane import binaries
from tests.e2e.node import images, isolation, machine, programs, several
from tests.e2e.node.cluster import RUNS, WAIT, Node
from tests.e2e.node.deployment import Deployment
from tests.e2e.node.images import say

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TESTS = pathlib.Path(__file__).parent
DISRUPTIONS = str(TESTS / "test_disruptions.py")
NODES = 2
COMMAND = [sys.executable, "-m", "tests.e2e.node"]
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]


def interrupt(*_: object) -> None:
    """The first signal stops everything, in order; further ones would leave something running."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def up(overlay: str = "") -> int:
    """`up dev`: another overlay than `test`; `up none`: without Sluice."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-node-"))
    started = time.monotonic()
    try:
        with Node(folder) as node:
            if overlay != "none":
                deployment = Deployment(node, folder / "deployment")
                deployment.load_images()
                deployment.deploy(overlay or "test")
            say(
                f"up after {time.monotonic() - started:.0f} s; Ctrl-C ends it; the logs are in {folder}; to enter the node:"
            )
            say(shlex.join([*node.namespaces.inside, "sh"]))
            print(f"export KUBECONFIG={shlex.quote(str(node.admin))}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        say("stopped")
    except (machine.Unable, isolation.Busy):
        folder.rmdir()
        raise
    except BaseException:
        say(f"the logs are in {folder}")
        raise
    shutil.rmtree(folder)
    return 0


def clean() -> int:
    with isolation.alone(wait=float(os.environ.get(WAIT) or 0)):
        isolation.clean()
    say(f"nothing of {isolation.NAME} is left")
    return 0


def everything() -> int:
    """All tests. Disruptions wait the most and run on a node of their own at the same time; their results are printed at the end."""
    with tempfile.TemporaryFile() as output:
        codes = several.run(
            [([*PYTEST, DISRUPTIONS], None), ([*PYTEST, str(TESTS), f"--ignore={DISRUPTIONS}"], output)],
            {RUNS: "yes"},
        )
        output.seek(0)
        print(output.read().decode(errors="replace"), flush=True)
    return max(codes)


def main(words: Sequence[str]) -> int:
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        machine.check(isolation.STATE, binaries.cache_folder())
        if list(words) == ["if-built"]:
            if missing := programs.not_built():
                raise machine.Unable(f"no node is run: `make e2e-node` has to build {', '.join(missing)} first, once")
            words = []
        match words:
            case ["clean"]:
                return max(several.run([([*COMMAND, "clean-one"], None)] * NODES, {}))
            case ["clean-one"]:
                return clean()
            case ["up", *overlay]:
                return up(*overlay)
            case [] if machine.has_room_for(NODES):
                return everything()
            case _:
                # In our place: who stops us stops the tests.
                os.execve(sys.executable, [*PYTEST, *(words or [str(TESTS)])], {**os.environ, RUNS: "yes"})
    except (machine.Unable, isolation.Busy) as e:
        say(str(e))
        return machine.UNABLE
    except (images.ImageError, binaries.BuildError, subprocess.SubprocessError) as e:
        say(str(e))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
