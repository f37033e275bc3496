"""`make e2e-dra`: Kubernetes' own specs for dynamic resource allocation, with the group of kube-apiserver and with Sluice's (README.md)."""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.e2e.dra.kubelets import Kubelets

PROGRAM = "dra-specs"
SPECS = binaries.Module(
    pathlib.Path(__file__).resolve().parent / "go",
    {PROGRAM: "."},
    takes="five to fifteen minutes on two cores, once the control plane is compiled",
)
NODES = ("node-1", "node-2", "node-3")
FLAGS = ("--allow-privileged=true",)
"""The specs' driver asks for it, though nothing runs here."""
BEYOND = "Feature:|Alpha"
"""Labels of specs that need a kubelet, or what is off by default."""
PASSED, SKIPPED = "passed", ("skipped", "pending")

Results = Mapping[str, tuple[str, float]]
"""By the name of a spec: how it ended, and the seconds it took."""


@contextlib.contextmanager
def built_in(folder: pathlib.Path) -> Iterator[ControlPlane]:
    with ControlPlane(folder, controllers=True, scheduler=True, flags=FLAGS) as plane:
        plane.start_clients()
        yield plane


@contextlib.contextmanager
def sluice(folder: pathlib.Path) -> Iterator[ControlPlane]:
    with Bed(folder, group=DRA_GROUP, controllers=True, scheduler=True, flags=FLAGS) as bed:
        yield bed.plane


PLACES: Mapping[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[ControlPlane]]] = {
    "built-in": built_in,
    "sluice": sluice,
}


def results(place: str, focus: str) -> Results:
    """Each spec that was run. What ginkgo said of it goes to standard error when one failed."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        with PLACES[place](folder / "plane") as plane, plane.connect() as admin, Kubelets(plane, NODES):
            until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")
            until(
                lambda: not any(node["spec"].get("taints") for node in admin.ask("GET", "/api/v1/nodes").json["items"]),
                "the nodes are ready",
            )
            return _run(folder, plane, focus)


def _run(folder: pathlib.Path, plane: ControlPlane, focus: str) -> Results:
    report = folder / "report.json"
    command = [
        str(binaries.binary(PROGRAM, SPECS)),
        "-ginkgo.v",
        "-ginkgo.no-color",
        f"-ginkgo.focus={focus}",
        f"-ginkgo.skip={BEYOND}",
        f"-ginkgo.json-report={report}",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        f"--kubeconfig={plane.admin}",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    [suite] = json.loads(report.read_text())
    return {
        " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]): (
            spec["State"],
            spec["RunTime"] / 1e9,
        )
        for spec in suite["SpecReports"]
        if spec["LeafNodeType"] == "It" and spec["State"] not in SKIPPED
    }


def main() -> int:
    """Fails when a spec that the built-in group passes is not passed by Sluice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--focus", default="DRA", help="regular expression of the specs to run")
    parser.add_argument("--only", choices=PLACES, help="run them with one of the two")
    words = parser.parse_args()
    found = {place: results(place, words.focus) for place in PLACES if words.only in (None, place)}
    lost = 0
    for spec in dict.fromkeys(spec for ran in found.values() for spec in ran):
        ends = {place: ran.get(spec, ("not run", 0.0)) for place, ran in found.items()}
        told = ", ".join(f"{place} {state} {seconds:.1f} s" for place, (state, seconds) in ends.items())
        print(f"{spec}: {told}", flush=True)
        lost += ends.get("built-in", (PASSED,))[0] == PASSED and ends.get("sluice", (PASSED,))[0] != PASSED
    passed = {place: sum(state == PASSED for state, _ in ran.values()) for place, ran in found.items()}
    print("; ".join(f"{place}: {passed[place]} of {len(ran)} passed" for place, ran in found.items()))
    return 1 if lost or not all(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
