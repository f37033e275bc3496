"""`make e2e-dra`: Kubernetes' own specs for dynamic resource allocation, with the group of kube-apiserver and with Sluice's (README.md)."""

from __future__ import annotations

import argparse
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
from tests.e2e.node import images, isolation, machine
from tests.e2e.node.__main__ import SIGNALS, interrupt

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


def compare(places: Places, names: list[str], focus: str) -> int:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-dra-"))
    try:
        found = {name: results(places, name, focus, folder / name) for name in names}
    except BaseException:
        images.say(f"the logs are in {folder}")
        raise
    lost = tell(found)
    if lost or not all(found.values()):
        print(f"{lost} passed with the built-in group and not with Sluice; the logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def main() -> int:
    """Fails when a spec that the built-in group passes is not passed by Sluice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--focus", default="DRA", help="regular expression of the specs to run")
    parser.add_argument("--only", choices=PLACES, help="run them with one of the two")
    parser.add_argument(
        "--node", action="store_true", help="on a real node, with those that need a kubelet (root; ../node/README.md)"
    )
    words = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        if words.node:
            machine.check(isolation.STATE, binaries.cache_folder())
        return compare(ON_A_NODE if words.node else PLACES, [words.only] if words.only else list(PLACES), words.focus)
    except (machine.Unable, isolation.Busy) as e:
        images.say(str(e))
        return machine.UNABLE
    except (images.ImageError, binaries.BuildError, subprocess.SubprocessError) as e:
        images.say(str(e))
        return 1


if __name__ == "__main__":
    sys.exit(main())
