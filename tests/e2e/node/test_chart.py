"""charts/sluice with the real Helm: what it makes of the chart, and Sluice installed with it.

There is one APIService of that name, so this file comes before those that deploy an overlay.
"""

from __future__ import annotations

import base64
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from charts import generate
from tests.e2e.controlplane.bed import PROJECT
from tests.e2e.node import programs
from tests.e2e.node.cluster import Node
from tests.e2e.node.deployment import APISERVICE, JOB, Deployment

NAMESPACE = "charted"


@pytest.fixture(scope="module")
def helm() -> pathlib.Path:
    return programs.program("helm")


def rendered(helm: pathlib.Path, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    command = [str(helm), "template", "sluice", str(generate.CHART), "--namespace", generate.NAMESPACE, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout) if item}


def test_the_chart_passes_helms_own_look(helm: pathlib.Path) -> None:
    done = subprocess.run([helm, "lint", "--strict", generate.CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_default_chart_equals_the_kustomization_of_base_and_store_init(helm: pathlib.Path) -> None:
    expected = {(item["kind"], item["metadata"]["name"]): item for item in generate.rendered()}
    assert rendered(helm) == expected


def test_values_go_where_they_belong(helm: pathlib.Path) -> None:
    words = ["image=registry.example/sluice:1", "replicas=2", "store.embedded=false", "store.port=6380"]
    words += [
        "extraArgs={--runtime-config=api/beta=true}",
        "certificates.certManager=true",
        "resources.limits.memory=2Gi",
        "kinds={harbour,depot}",
        "extraEnv[0].name=MORE,extraEnv[0].value=said",
        "extraEgress[0].ports[0].port=8443",
    ]
    objects = rendered(helm, *(f"--set={word}" for word in words))
    assert [name for kind, name in objects if kind == "StatefulSet" or "valkey" in name] == []
    deployment = objects["Deployment", "sluice"]["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    assert (deployment["replicas"], container["image"]) == (2, "registry.example/sluice:1")
    assert container["args"][-1] == "--runtime-config=api/beta=true"
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    rules = objects["NetworkPolicy", "sluice"]["spec"]["egress"]
    assert rules[0] == {"ports": [{"port": 6380, "protocol": "TCP"}]}
    assert {"ports": [{"protocol": "TCP"}], "to": [{"namespaceSelector": {}}]} in rules
    assert rules[-1] == {"ports": [{"port": 8443}]}
    [init] = objects["Job", JOB]["spec"]["template"]["spec"]["containers"]
    kinds = {"name": "SLUICE_KINDS", "value": "harbour,depot"}
    assert (container["env"][-2:], init["env"][-1]) == ([kinds, {"name": "MORE", "value": "said"}], kinds)
    assert objects["APIService", APISERVICE]["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": f"{generate.NAMESPACE}/sluice-serving"
    }
    assert {name for kind, name in objects if kind == "Certificate"} == {"sluice-serving", "sluice-serving-ca"}


@pytest.fixture
def secrets(node: Node, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Secrets in a namespace for the chart, as certs/README.md makes them."""
    shutil.copy(PROJECT / "certs" / "make.sh", tmp_path)
    subprocess.run([tmp_path / "make.sh", tmp_path / "out", "sluice", NAMESPACE], check=True, capture_output=True)
    node.kubectl("create", "namespace", NAMESPACE)
    out, create = tmp_path / "out", ("--namespace", NAMESPACE, "create", "secret")
    names = ("password", "auth.conf", "redis-url", "admin-redis-url")
    node.kubectl(*create, "generic", "sluice-store", *(f"--from-file={out / name}" for name in names))
    node.kubectl(*create, "tls", "sluice-serving", f"--cert={out / 'tls.crt'}", f"--key={out / 'tls.key'}")
    yield out
    node.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_helm_installs_upgrades_and_uninstalls_it(
    helm: pathlib.Path, sluice: Deployment, secrets: pathlib.Path
) -> None:
    node = sluice.node

    def run(*words: str) -> None:
        command = [str(helm), "--kubeconfig", str(node.admin), "--namespace", NAMESPACE, *words]
        subprocess.run(command, check=True, capture_output=True, text=True)

    ca = base64.b64encode((secrets / "ca.crt").read_bytes()).decode()
    values = [f"--set=certificates.caBundle={ca}", "--wait", "--timeout=5m"]
    run("install", "sluice", str(generate.CHART), *values)
    node.kubectl("wait", f"apiservice/{APISERVICE}", "--for=condition=Available", "--timeout=110s")
    node.kubectl("get", "deviceclasses.resource.sluice.dev")
    run("upgrade", "sluice", str(generate.CHART), *values, "--set=replicas=2")
    jobs = node.kubectl("--namespace", NAMESPACE, "get", "job", JOB, "--ignore-not-found", "-o", "name").stdout
    assert jobs == "", "only an installation creates the store"
    ready = node.kubectl(
        "--namespace", NAMESPACE, "get", "deployment", "sluice", "-o", "jsonpath={.status.readyReplicas}"
    )
    assert ready.stdout == "2"
    run("uninstall", "sluice", "--wait")
