"""The script of `make e2e-kind`, run with recording stand-ins for the container engine, kind, and the cluster."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import yaml

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.plane import until

KIND = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "kind"
SECONDS = 120.0

RECORD = 'printf "%s %s\\n" "$(basename "$0")" "$*" >>"$RECORD"\n'
STAND_INS = {
    "docker": RECORD + 'if [ "$1" = save ]; then touch "$3"; fi\n',
    "kind": RECORD + 'if [ "$1 $2" = "create cluster" ]; then touch "$KUBECONFIG"; exit "${CREATE:-0}"; fi\n',
    # Flags are read by the real program, which stops at --help; what is applied is rendered by it.
    "kubectl": RECORD
    + '[ -f "$KUBECONFIG" ] || exit 9\n"$REAL_KUBECTL" "$@" --help >/dev/null || exit 8\n'
    + 'if [ "$1" = apply ]; then "$REAL_KUBECTL" kustomize "${@: -1}" >/dev/null || exit 7; fi\n',
    "python": RECORD
    + 'printf "suite %s\\n" "$SLUICE_E2E_KUBECONFIG" >>"$RECORD"\n'
    + 'if [ -n "${HANG:-}" ]; then exec "$REAL_PYTHON" -c "$WAITING"; fi\nexit "${SUITE:-0}"\n',
}
# A signal ends it at once from the moment on that it says it waits: a Python that is just starting may lose an interrupt.
WAITING = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open(os.environ["RECORD"], "a") as record:
    record.write("waiting\\n")
signal.pause()
"""


@dataclass
class Machine:
    """Where the script runs: nothing but stand-ins and the tools of every machine on PATH, and temporary files of its own."""

    record: pathlib.Path
    temporary: pathlib.Path
    environ: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [KIND / "run.sh", *arguments],
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **environ: str) -> int:
        process = self.start(*arguments, **environ)
        process.communicate(timeout=SECONDS)
        return process.returncode

    def stop(self) -> None:
        """Ends what a test that failed has left running, and all that it started."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def calls(self) -> list[str]:
        """In order, without what differs from run to run."""
        text = self.record.read_text() if self.record.exists() else ""
        text = re.sub(rf"{self.temporary}/tmp\.\w+", "WORK", text)
        return re.sub(r"sluice-e2e-\d+", "CLUSTER", text).splitlines()


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Iterator[Machine]:
    tools, temporary = tmp_path / "bin", tmp_path / "tmp"
    tools.mkdir()
    temporary.mkdir()
    for name, body in STAND_INS.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (tools / name).chmod(0o755)
    environ = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "TMPDIR": str(temporary),
        "HOME": str(tmp_path),
        "RECORD": str(tmp_path / "record"),
        "KUBECTL": str(tools / "kubectl"),
        "REAL_KUBECTL": str(binaries.kubectl()),
        "REAL_PYTHON": sys.executable,
        "WAITING": WAITING,
    }
    made = Machine(tmp_path / "record", temporary, environ)
    yield made
    made.stop()


def test_a_cluster_is_made_filled_tested_and_deleted(machine: Machine) -> None:
    assert machine.run() == 0
    project = KIND.parents[2]
    wait = "kubectl --namespace sluice-system"
    assert machine.calls() == [
        f"docker build --tag docker.io/library/sluice:latest {project}",
        "docker save --output WORK/image.tar docker.io/library/sluice:latest",
        f"kind create cluster --name CLUSTER --config {KIND}/cluster.yaml --wait 180s",
        "kind load image-archive WORK/image.tar --name CLUSTER",
        "kubectl apply --server-side --validate=strict --kustomize WORK/deploy/manifests/overlays/test",
        f"{wait} rollout status statefulset/sluice-valkey --timeout=300s",
        "kubectl apply --server-side --validate=strict --kustomize WORK/deploy/manifests/store-init",
        f"{wait} wait job/sluice-store-init --for=condition=Complete --timeout=300s",
        f"{wait} rollout status deployment/sluice --timeout=300s",
        "kubectl wait apiservice/v1.resource.sluice.dev --for=condition=Available --timeout=120s",
        "python -m pytest tests/e2e",
        "suite WORK/kubeconfig",
        "kind delete cluster --name CLUSTER",
    ]
    assert list(machine.temporary.iterdir()) == []


def test_arguments_go_to_pytest(machine: Machine) -> None:
    assert machine.run("tests/e2e/test_identities.py", "-k", "two words") == 0
    assert "python -m pytest tests/e2e/test_identities.py -k two words" in machine.calls()


def test_failed_suite_fails_the_script_and_leaves_logs_but_no_cluster(machine: Machine) -> None:
    assert machine.run(SUITE="3") == 3
    assert [call.split()[:3] for call in machine.calls()[-2:]] == [
        ["kind", "export", "logs"],
        ["kind", "delete", "cluster"],
    ]
    [logs] = machine.temporary.iterdir()
    assert {file.name for file in logs.iterdir()} == {"objects.txt", "apiservice.txt"}


def test_a_cluster_that_is_only_half_there_is_deleted_too(machine: Machine) -> None:
    assert machine.run(CREATE="4") == 4
    assert machine.calls()[-1] == "kind delete cluster --name CLUSTER"
    assert not [call for call in machine.calls() if call.startswith("suite ")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "TERM"])
def test_a_signal_deletes_the_cluster(machine: Machine, number: signal.Signals, code: int) -> None:
    process = machine.start(HANG="yes")
    until(lambda: "waiting" in machine.calls(), "the suite runs", seconds=SECONDS)
    # As a terminal does it: to everything that runs in front.
    os.killpg(process.pid, number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert machine.calls()[-1] == "kind delete cluster --name CLUSTER"


def test_missing_tool_is_reported_before_anything_is_made(machine: Machine) -> None:
    process = machine.start(KIND_EXPERIMENTAL_PROVIDER="no-such-engine")
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "no-such-engine is not on PATH" in output
    assert machine.calls() == []


def test_node_images_are_pinned_to_the_kubernetes_of_the_tests_on_them() -> None:
    cluster = yaml.safe_load((KIND / "cluster.yaml").read_text())
    [version] = re.findall(r"KUBERNETES:-(\S+)\}", (KIND / "run.sh").read_text())
    assert version in binaries.versions()
    minor = f"v{version.rpartition('.')[0]}"
    assert [node["role"] for node in cluster["nodes"]] == ["control-plane", "worker"]
    for node in cluster["nodes"]:
        assert re.fullmatch(rf"kindest/node:{re.escape(minor)}\.\d+@sha256:[0-9a-f]{{64}}", node["image"])
    [patch] = map(yaml.safe_load, cluster["kubeadmConfigPatches"])
    assert patch["apiServer"]["extraArgs"] == [{"name": "requestheader-uid-headers", "value": "X-Remote-Uid"}]
