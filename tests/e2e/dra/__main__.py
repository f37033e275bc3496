"""`make e2e-dra`: Kubernetes' own specs for dynamic resource allocation, with the group of kube-apiserver and with Sluice's (README.md)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from tests.e2e.controlplane import binaries
from tests.e2e.dra import specs
from tests.e2e.dra.places import BUILT_IN, ON_A_NODE, PLACES, SLUICE, Places
from tests.e2e.dra.specs import PASSED, SKIPPED, Result, Results
from tests.e2e.node import images, isolation, machine, several
from tests.e2e.node.__main__ import SIGNALS, interrupt

COMMAND = [sys.executable, "-m", "tests.e2e.dra"]
ABSENT = Result("not run", 0.0, "")


def results(places: Places, place: str, focus: str, folder: pathlib.Path) -> Results:
    """Each spec that was run, or that said why it was not."""
    found: dict[str, Result] = {}
    with places[place](folder / "cluster") as where:
        for number, turn in enumerate(where.rounds):
            turn.prepare()
            where.until_ready()
            found |= specs.run(
                folder / f"specs-{number}", where.plane.admin, focus=focus, labels=turn.labels, words=where.words
            )
    return found


def tell(found: dict[str, Results]) -> int:
    """How many specs passed with the built-in group and not with Sluice."""
    lost = 0
    for spec in dict.fromkeys(spec for ran in found.values() for spec in ran):
        ends = {place: ran.get(spec, ABSENT) for place, ran in found.items()}
        told = ", ".join(f"{place} {end.state} {end.seconds:.1f} s" for place, end in ends.items())
        print(f"{spec}: {told}")
        for place, end in ends.items():
            if end.reason:
                print(f"    {place}: {' '.join(end.reason.split())[:300]}")
        lost += ends.get(BUILT_IN, ABSENT).state == PASSED and ends.get(SLUICE, ends[BUILT_IN]).state != PASSED
    for place, ran in found.items():
        tried = [end for end in ran.values() if end.state != SKIPPED]
        print(f"{place}: {sum(end.state == PASSED for end in tried)} of {len(tried)} passed")
    return lost


def keep(words: argparse.Namespace, name: str, folder: pathlib.Path) -> None:
    """Runs them with one of the two, and writes down how they ended."""
    found = results(ON_A_NODE if words.node else PLACES, name, words.focus, folder / name)
    content = {spec: dataclasses.asdict(result) for spec, result in found.items()}
    (folder / f"{name}.json").write_text(json.dumps(content))


def kept(name: str, folder: pathlib.Path) -> Results:
    content = json.loads((folder / f"{name}.json").read_text())
    return {spec: Result(**result) for spec, result in content.items()}


def compare(words: argparse.Namespace, folder: pathlib.Path) -> int:
    """Run the specs against both servers, at the same time if the machine suffices for two nodes."""
    names = [words.only] if words.only else list(PLACES)
    if words.node and len(names) > 1 and machine.has_room_for(len(names)):
        each = [*COMMAND, "--node", f"--focus={words.focus}", f"--into={folder}"]
        code = max(several.run([([*each, f"--only={name}"], None) for name in names], {}))
        if code:
            return code
    else:
        for name in names:
            keep(words, name, folder)
    found = {name: kept(name, folder) for name in names}
    lost = tell(found)
    if lost or not all(found.values()):
        print(f"{lost} passed with the built-in group and not with Sluice")
        return 1
    shutil.rmtree(folder)
    return 0


def run(words: argparse.Namespace) -> int:
    if words.node:
        machine.check(isolation.STATE, binaries.cache_folder())
    if words.into:
        keep(words, words.only, words.into)
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-dra-"))
    try:
        return compare(words, folder)
    finally:
        if folder.exists():
            images.say(f"the logs are in {folder}")


def main() -> int:
    """Fails when a spec that the built-in group passes is not passed by Sluice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--focus", default="DRA", help="regular expression of the specs to run")
    parser.add_argument("--only", choices=PLACES, help="run them with one of the two")
    parser.add_argument(
        "--node", action="store_true", help="on a real node, with those that need a kubelet (root; ../node/README.md)"
    )
    # For a process that runs beside another one: the folder that takes its results.
    parser.add_argument("--into", type=pathlib.Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        return run(words)
    except (machine.Unable, isolation.Busy) as e:
        images.say(str(e))
        return machine.UNABLE
    except (images.ImageError, binaries.BuildError, subprocess.SubprocessError) as e:
        images.say(str(e))
        return 1
    except KeyboardInterrupt:
        images.say("stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
