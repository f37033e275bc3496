"""An operator written with kopf, run against `sluice dev` as its users run it."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Kubectl
from tests.e2e.controlplane.plane import until
from tests.fixtures.processes import Process
from tests.fixtures.server import DevServer

OPERATOR = """
import kopf

@kopf.on.create("resource.sluice.dev", "v1", "resourceclaims")
def created(body, patch, **_):
    patch.metadata.annotations["example.com/seen-in"] = body["metadata"]["namespace"]

@kopf.on.delete("resource.sluice.dev", "v1", "resourceclaims")
def deleted(name, logger, **_):
    logger.info(f"gone: {name}")
"""
CLAIM = """
apiVersion: resource.sluice.dev/v1
kind: ResourceClaim
metadata: {name: watched}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}
"""


@pytest.fixture(
    params=[("--all-namespaces", "operated-all"), ("--namespace=operated-one", "operated-one")], ids=["all", "one"]
)
def operated(request: pytest.FixtureRequest, dev: DevServer, tmp_path: pathlib.Path) -> Iterator[tuple[Process, str]]:
    """An operator that runs, and a namespace that it should see. Nobody has made that yet."""
    scope, namespace = request.param
    program = tmp_path / "operator.py"
    program.write_text(OPERATOR)
    command = [sys.executable, "-m", "kopf", "run", scope, str(program)]
    operator = Process(command, log=tmp_path / "operator.log", environ={"KUBECONFIG": str(dev.kubeconfig)})
    yield operator, namespace
    operator.stop()


def test_operator_sees_creations_in_a_new_namespace_and_deletions(
    operated: tuple[Process, str], kubectl: Kubectl
) -> None:
    operator, namespace = operated
    until(lambda: "Initial authentication has finished" in operator.log.read_text(), "the operator is logged in")

    kubectl("create", "-n", namespace, "-f", "-", stdin=CLAIM)

    path = "jsonpath={.metadata.annotations.example\\.com/seen-in}"

    def seen() -> str:
        return kubectl("get", "resourceclaim", "watched", "-n", namespace, "-o", path).stdout

    until(lambda: seen() == namespace, "the operator has annotated the claim")
    kubectl("delete", "resourceclaim", "watched", "-n", namespace, "--timeout=120s")
    until(lambda: "gone: watched" in operator.log.read_text(), "the operator has let the claim go")
