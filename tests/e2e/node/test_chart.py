"""charts/sluice with the real Helm: what it makes of the chart, and Sluice installed with it.

There is one APIService of that name, so this file comes before those that deploy an overlay.
"""

from __future__ import annotations

import base64
import json
import pathlib
import shutil
import subprocess
import sys
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
    """Backups are off by default; switched on, they equal the kustomization of `backup`."""
    expected = {(item["kind"], item["metadata"]["name"]): item for item in generate.rendered()}
    assert rendered(helm, "--set=backup.enabled=true") == expected
    assert rendered(helm) == {place: item for place, item in expected.items() if place[1] != generate.BACKUP}


def test_chart_of_three_store_nodes_equals_the_kustomization_with_the_component(helm: pathlib.Path) -> None:
    expected = {(item["kind"], item["metadata"]["name"]): item for item in generate.rendered("store-nodes")}
    assert rendered(helm, "--set=store.nodes=3") == expected


def test_chart_refuses_another_number_of_store_nodes(helm: pathlib.Path) -> None:
    command = [str(helm), "template", "sluice", str(generate.CHART), "--set=store.nodes=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "store.nodes: 1 or 3" in done.stderr) == (1, True)


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
    assert rules[0] == {"ports": [{"port": port, "protocol": "TCP"} for port in (6380, 26379)]}
    assert {"ports": [{"protocol": "TCP"}], "to": [{"namespaceSelector": {}}]} in rules
    assert rules[-1] == {"ports": [{"port": 8443}]}
    [init] = objects["Job", JOB]["spec"]["template"]["spec"]["containers"]
    kinds = {"name": "SLUICE_KINDS", "value": "harbour,depot"}
    assert (container["env"][-2:], init["env"][-1]) == ([kinds, {"name": "MORE", "value": "said"}], kinds)
    assert objects["APIService", APISERVICE]["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": f"{generate.NAMESPACE}/sluice-serving"
    }
    assert {name for kind, name in objects if kind == "Certificate"} == {"sluice-serving", "sluice-serving-ca"}


def custom(plural: str, group: str, *versions: str, scope: str = "Namespaced", **subresources: Any) -> dict[str, Any]:
    """A definition of served versions, the first of which is stored."""
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": plural.removesuffix("s").title(), "plural": plural},
            "versions": [
                {"name": name, "served": True, "storage": name == versions[0], "schema": schema}
                | ({"subresources": subresources} if subresources else {})
                for name in versions
            ],
        },
    }


def rights(*roles: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_definitions_are_served_and_registered_as_sluice_manifests_prints(
    helm: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    unserved = custom("boats", "harbour.example.com", "v1", "v2")
    unserved["spec"]["versions"][1]["served"] = False
    documents = [
        custom("ships", "harbour.example.com", "v1", "v1beta1", status={}, scale=scale),
        unserved,
        custom("seas", "harbour.example.com", "v1", scope="Cluster"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ignored"}},
    ]
    texts = {
        "several.yaml": "# first\n---\n" + "--- # next\n".join(map(yaml.safe_dump, documents)),
        "list.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": [custom("cars", "road.example", "v1")]}),
    }
    words = ["--set=builtinKinds=false,certificates.certManager=true"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        words += ["--set-file", f"crds.{name.replace('.', chr(92) + '.')}={tmp_path / name}"]
    chart = rendered(helm, *words)
    command = [sys.executable, "-m", "apiserver", "manifests", "--no-builtin-kinds", f"--crds={tmp_path}"]
    done = subprocess.run(command, check=True, capture_output=True)
    printed = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout)}

    assert chart["ConfigMap", "sluice-crds"]["data"] == texts
    registered = {key: item["spec"] for key, item in printed.items() if key[0] == "APIService"}
    assert {key: item["spec"] for key, item in chart.items() if key[0] == "APIService"} == registered
    assert len(registered) == 3
    for name in ("view", "edit"):
        mine, its = chart["ClusterRole", f"sluice-crds-{name}"], printed["ClusterRole", f"sluice-{name}"]
        assert rights(mine) == rights(its)
        assert its["metadata"]["labels"].items() <= mine["metadata"]["labels"].items()
    assert ("ClusterRole", "sluice-view") not in chart
    pods = [found["Deployment", "sluice"]["spec"]["template"]["spec"] for found in (chart, printed)]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert pods[0]["containers"][0]["args"] == pods[1]["containers"][0]["args"]
    assert pods[0]["containers"][0]["volumeMounts"] == pods[1]["containers"][0]["volumeMounts"]
    job = chart["Job", JOB]["spec"]["template"]["spec"]
    for pod in (pods[0], job):
        assert {"name": "SLUICE_BUILTIN_KINDS", "value": "false"} in pod["containers"][0]["env"]
        assert "--crds=/etc/sluice/crds" in pod["containers"][0]["args"]
    assert job["volumes"][0] in pods[0]["volumes"]


@pytest.mark.parametrize(
    ("text", "why"),
    [("#" * ((1 << 20) + 1), "and a ConfigMap has at most 1048576"), ("a: [", "crds: a.yaml: error converting YAML")],
    ids=["too large", "no YAML"],
)
def test_definitions_that_no_configmap_holds_are_refused(
    helm: pathlib.Path, tmp_path: pathlib.Path, text: str, why: str
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    command = [
        str(helm),
        "template",
        "sluice",
        str(generate.CHART),
        "--set-file",
        rf"crds.a\.yaml={tmp_path / 'a.yaml'}",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, why in done.stderr) == (1, True)


@pytest.fixture
def secrets(node: Node, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Secrets in a namespace for the chart, as certs/README.md makes them."""
    shutil.copy(PROJECT / "certs" / "make.sh", tmp_path)
    subprocess.run([tmp_path / "make.sh", tmp_path / "out", "sluice", NAMESPACE], check=True, capture_output=True)
    node.kubectl("create", "namespace", NAMESPACE)
    out, create = tmp_path / "out", ("--namespace", NAMESPACE, "create", "secret")
    names = ("password", "auth.conf", "redis-url", "admin-redis-url", "backup-redis-url")
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
