"""Kubernetes' own specs for dynamic resource allocation: the program that has them, and how ginkgo runs it, several specs at a time."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.controlplane import binaries
from tests.fixtures.processes import Process

PROGRAM, GINKGO, PROXY, DEVICE_PLUGIN = "dra-specs", "ginkgo", "hostpathplugin", "sample-device-plugin"
MODULE = binaries.Module(
    pathlib.Path(__file__).resolve().parent / "go",
    {
        PROGRAM: ".",
        GINKGO: "github.com/onsi/ginkgo/v2/ginkgo",
        PROXY: "./hostpathplugin",
        DEVICE_PLUGIN: "k8s.io/kubernetes/test/images/sample-device-plugin",
    },
    takes="five to fifteen minutes on two cores, once the control plane is compiled",
)
PROCESSES = 8
"""Specs wait most of the time: after each, half a minute until a kubelet believes that its driver has gone."""
PASSED, SKIPPED, PENDING = "passed", "skipped", "pending"


@dataclass(frozen=True)
class Result:
    """How a spec ended, after how many seconds, and what it said when it did not pass."""

    state: str
    seconds: float
    reason: str


Results = Mapping[str, Result]
"""By the name of a spec."""


def run(
    folder: pathlib.Path, kubeconfig: pathlib.Path, *, focus: str, labels: str, words: Sequence[str] = ()
) -> Results:
    """Run each spec whose name and labels are selected. The output goes to a log in `folder`; `words` are arguments of the program."""
    folder.mkdir(parents=True)
    # ginkgo runs what has such a name, and compiles everything else.
    program = folder / "dra.test"
    program.symlink_to(binaries.binary(PROGRAM, MODULE))
    command = [
        str(binaries.binary(GINKGO, MODULE)),
        "run",
        f"--procs={PROCESSES}",
        "-v",
        "--no-color",
        f"--focus={focus}",
        f"--label-filter={labels}",
        f"--output-dir={folder}",
        "--json-report=report.json",
        "--keep-going",
        str(program),
        "--",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        f"--kubeconfig={kubeconfig}",
        *words,
    ]
    process = Process(command, log=folder / "specs.log")
    try:
        process.popen.wait()
    finally:
        process.stop()
        # The process group has children that it could not stop itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
    [suite] = json.loads((folder / "report.json").read_text())
    return {_name(spec): _result(spec) for spec in suite["SpecReports"] if _was_wanted(spec)}


def _name(spec: Mapping[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])


def _was_wanted(spec: Mapping[str, Any]) -> bool:
    """Those left out by name or label are in the report, too; what skips itself says why."""
    if spec["LeafNodeType"] != "It" or spec["State"] == PENDING:
        return False
    return spec["State"] != SKIPPED or bool(_reason(spec))


def _reason(spec: Mapping[str, Any]) -> str:
    return str(spec.get("Failure", {}).get("Message", ""))


def _result(spec: Mapping[str, Any]) -> Result:
    return Result(spec["State"], spec["RunTime"] / 1e9, _reason(spec))
