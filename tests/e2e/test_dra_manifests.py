"""Manifests of DRA drivers, applied unchanged by the real kubectl to `sluice dev --group resource.k8s.io`."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from apiserver import dev
from tests.e2e.conftest import Kubectl
from tests.e2e.controlplane import kubectl as real_kubectl
from tests.fixtures.server import DevServer, dev_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "accelerators.yaml"
KINDS = ("deviceclass", "resourceslice", "resourceclaimtemplate", "resourceclaim")

BETA1 = """
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: beta1.example.com}
spec:
  selectors: [{cel: {expression: device.driver == "beta1.example.com"}}]
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: beta1}
spec:
  driver: beta1.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    basic:
      attributes: {model: {string: X}}
      capacity: {memory: {value: 80Gi}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: beta1, namespace: gpu-test1}
spec:
  spec: {devices: {requests: [{name: gpu, deviceClassName: beta1.example.com}]}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: beta1, namespace: gpu-test1}
spec: {devices: {requests: [{name: gpu, deviceClassName: beta1.example.com}]}}
"""
BETA2 = """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceClass
metadata: {name: beta2.example.com}
spec:
  selectors: [{cel: {expression: device.driver == "beta2.example.com"}}]
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceSlice
metadata: {name: beta2}
spec:
  driver: beta2.example.com
  allNodes: true
  pool: {name: all, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, attributes: {model: {string: X}}, capacity: {memory: {value: 80Gi}}}
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaimTemplate
metadata: {name: beta2, namespace: gpu-test2}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: beta2.example.com}}]}}
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaim
metadata: {name: beta2, namespace: gpu-test2}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: beta2.example.com}}]}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("dra"), "--group", dev.GROUP_OF_DRIVERS) as made:
        yield made


@pytest.fixture
def kubectl(server: DevServer, tmp_path: pathlib.Path) -> Kubectl:
    def run(*words: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        return real_kubectl.run(*words, kubeconfig=server.kubeconfig, home=tmp_path, stdin=stdin, check=check)

    return run


def versions(kubectl: Kubectl, manifest: str) -> list[str]:
    """The resourceVersion of each object."""
    shown = kubectl(
        "get", "-f", "-", "-o", "jsonpath={.items[*].metadata.resourceVersion}", stdin=manifest
    ).stdout.split()
    assert len(shown) == len(KINDS)
    return shown


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("manifest", [EXAMPLE.read_text(), BETA1, BETA2], ids=["v1", "v1beta1", "v1beta2"])
def test_a_manifest_applies_unchanged_and_then_writes_nothing(
    kubectl: Kubectl, manifest: str, how: tuple[str, ...]
) -> None:
    made = kubectl("apply", *how, "-f", "-", stdin=manifest).stdout.splitlines()
    before = versions(kubectl, manifest)
    again = kubectl("apply", *how, "-f", "-", stdin=manifest).stdout.splitlines()

    try:
        assert [line.partition(".")[0] for line in made] == list(KINDS)
        assert {line.rpartition(" ")[2] for line in made} == {"serverside-applied" if how else "created"}
        # kubectl sends the lists of claims again, which have defaults in them, as to kube-apiserver. Nothing is written.
        assert {line.rpartition(" ")[2] for line in again} <= {"serverside-applied", "unchanged", "configured"}
        assert versions(kubectl, manifest) == before
        assert kubectl("diff", *how, "-f", "-", stdin=manifest).stdout == ""
    finally:
        kubectl("delete", "-f", "-", stdin=manifest)


def test_the_commands_of_the_readme_work_as_they_stand(kubectl: Kubectl) -> None:
    text = (ROOT / "README.md").read_text()
    assert '$ make run ARGS="--group resource.k8s.io"' in text
    commands = re.findall(r"^\$ kubectl (.*)$", text.partition("## In a cluster")[0], re.MULTILINE)
    assert commands[0] == f"apply -f {EXAMPLE.relative_to(ROOT)}"
    for command in commands:
        shown = kubectl(*(str(EXAMPLE) if word.endswith(".yaml") else word for word in shlex.split(command)))
        assert shown.stdout
        assert shown.stderr == ""
