"""charts/sluice with the real Helm: what it makes of the chart, and Sluice installed with it.

There is one APIService of that name, so this file comes before those that deploy an overlay.
"""

from __future__ import annotations

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apiserver import buildinfo
from charts import generate
from monitoring import dashboards
from release import archives, checkout
from tests.e2e.controlplane.bed import OWN_GROUP, PROJECT
from tests.e2e.controlplane.plane import until
from tests.e2e.node import images, programs
from tests.e2e.node.cluster import Node
from tests.e2e.node.deployment import APISERVICE, JOB, Deployment

NAMESPACE = "charted"
CLASS = f"deviceclasses.{OWN_GROUP}"
NEXT = "docker.io/library/sluice:next"
"""The image of an upgrade: the same program under another name."""
CA = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()
CA_BUNDLE = f"--set=certificates.caBundle={CA}"


@pytest.fixture(scope="module")
def helm() -> pathlib.Path:
    return programs.program("helm")


def template(helm: pathlib.Path, *words: str, chart: pathlib.Path = generate.CHART) -> subprocess.CompletedProcess[str]:
    command = [str(helm), "template", "sluice", str(chart), "--namespace", generate.NAMESPACE, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def rendered(helm: pathlib.Path, *words: str, chart: pathlib.Path = generate.CHART) -> dict[tuple[str, str], Any]:
    """The objects of the chart, by kind and name, with a CA unless cert-manager brings one."""
    ca = [] if any("certManager=true" in word for word in words) else [CA_BUNDLE]
    done = template(helm, *ca, *words, chart=chart)
    assert done.returncode == 0, done.stderr
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout) if item}


def kustomized(*components: str) -> dict[tuple[str, str], Any]:
    """The objects of kustomize, by kind and name, with the CA."""
    objects = {(item["kind"], item["metadata"]["name"]): item for item in generate.rendered(*components)}
    objects["APIService", APISERVICE]["spec"]["caBundle"] = CA
    return objects


def test_the_chart_passes_helms_own_look(helm: pathlib.Path) -> None:
    done = subprocess.run([helm, "lint", "--strict", generate.CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def release() -> checkout.Release:
    return checkout.described(PROJECT, buildinfo.DEVELOPMENT.removesuffix(".dev0"))


@pytest.fixture(scope="module")
def packed(release: checkout.Release, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The chart as the file of a release."""
    folder = tmp_path_factory.mktemp("packed")
    checkout.stage(PROJECT, release, folder / "tree")
    package = folder / f"sluice-{release.version}.tgz"
    archives.pack(folder / "tree" / "charts" / "sluice", package, root="sluice", time=release.built)
    return package


def test_packed_chart_of_a_release_passes_and_renders_the_same_objects(
    helm: pathlib.Path, release: checkout.Release, packed: pathlib.Path
) -> None:
    done = subprocess.run([helm, "lint", "--strict", packed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    shown = subprocess.run([helm, "show", "chart", packed], capture_output=True, text=True, check=True).stdout
    assert yaml.safe_load(shown)["appVersion"] == release.version
    assert rendered(helm, chart=packed) == rendered(helm)


def test_default_chart_equals_the_kustomization_of_base_and_store_init(helm: pathlib.Path) -> None:
    """Backups are off by default; switched on, they equal the kustomization of `backup`."""
    expected = kustomized()
    assert rendered(helm, "--set=backup.enabled=true") == expected
    assert rendered(helm) == {place: item for place, item in expected.items() if place[1] != generate.BACKUP}


def test_chart_of_three_store_nodes_equals_the_kustomization_with_the_component(helm: pathlib.Path) -> None:
    assert rendered(helm, "--set=store.nodes=3,backup.enabled=true") == kustomized("store-nodes")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--set=store.nodes=2", "at '/store/nodes': value must be one of 1, 3"),
        ("--set=nodeselector.disk=ssd", "additional properties 'nodeselector' not allowed"),
        ("--set=store.tolerations[0].operater=Exists", "additional properties 'operater' not allowed"),
        ("--set-string=replicas=2", "at '/replicas': got string, want integer"),
        ("--set=nodeSelector.rank=1", "at '/nodeSelector/rank': got number, want string"),
        ("--set=certificates.caBundle=AAAA", "is not the base64 of a certificate in PEM"),
        ("--set=certificates.caBundle=#", "is not the base64 of a certificate in PEM"),
    ],
)
def test_chart_refuses_values_that_it_cannot_use(helm: pathlib.Path, word: str, why: str) -> None:
    done = template(helm, CA_BUNDLE, word)
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("words", ["builtinKinds=true", "builtinKinds=false,crds.a=", "serviceMonitor.enabled=true"])
def test_chart_refuses_to_render_without_a_ca(helm: pathlib.Path, words: str) -> None:
    done = template(helm, f"--set={words}")
    assert done.returncode == 1
    for way in ("--set certificates.certManager=true", '--set certificates.caBundle="$(base64 -w0 ca.crt)"'):
        assert way in done.stderr


def test_chart_without_apiservices_needs_no_ca(helm: pathlib.Path) -> None:
    done = template(helm, "--set=builtinKinds=false,kinds={harbour}")
    assert (done.returncode, "kind: APIService" in done.stdout) == (0, False)


POD: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
}
ANNOTATED: dict[str, Any] = {"annotations": {"example.com/team": "a"}, "podAnnotations": {"example.com/cost": "1"}}
SECRETS = [{"name": "registry"}]


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    spec = workload["spec"]["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else workload["spec"]
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


@pytest.mark.parametrize("nodes", [1, 3])
def test_values_place_and_annotate_pods(helm: pathlib.Path, tmp_path: pathlib.Path, nodes: int) -> None:
    values = {
        **POD,
        **ANNOTATED,
        "imagePullSecrets": SECRETS,
        "store": {"nodes": nodes, **POD, **ANNOTATED},
        "backup": {"enabled": True, "resources": {"limits": {"memory": "2Gi"}}},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    objects = rendered(helm, f"--values={tmp_path / 'values.yaml'}")
    default = rendered(helm, "--set=backup.enabled=true", f"--set=store.nodes={nodes}")
    server, store = objects["Deployment", "sluice"], objects["StatefulSet", generate.STORE]
    job, backup = objects["Job", JOB], objects["CronJob", generate.BACKUP]
    for workload in (server, store, job, backup):
        pod, before = pod_of(workload), pod_of(default[workload["kind"], workload["metadata"]["name"]])
        expected = (
            dict(POD) if workload in (server, store) else {key: POD[key] for key in ("nodeSelector", "tolerations")}
        )
        if "affinity" in before:
            expected["affinity"] = before["affinity"] | POD["affinity"]
        assert {key: pod[key] for key in expected} == expected
        assert pod.keys() - before.keys() - expected.keys() == {"imagePullSecrets"}
        assert pod["imagePullSecrets"] == SECRETS
    for workload in (server, store):
        assert workload["metadata"]["annotations"] == ANNOTATED["annotations"]
        assert workload["spec"]["template"]["metadata"]["annotations"] == ANNOTATED["podAnnotations"]
    [container] = pod_of(backup)["containers"]
    assert container["resources"]["limits"] == {"memory": "2Gi"}


def test_store_affinity_may_replace_the_anti_affinity_of_three_nodes(helm: pathlib.Path) -> None:
    word = "--set=store.nodes=3,store.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone"
    [term] = pod_of(rendered(helm, word)["StatefulSet", generate.STORE])["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term == {"topologyKey": "zone"}


@pytest.mark.parametrize("cert_manager", [False, True])
def test_service_monitor_comes_with_a_token_that_reads_metrics_only(helm: pathlib.Path, cert_manager: bool) -> None:
    words = "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus,serviceMonitor.interval=15s"
    manager = f"--set=certificates.certManager={str(cert_manager).lower()}"
    objects = rendered(helm, f"--set={words}", manager)
    added = objects.keys() - rendered(helm, manager).keys()
    ca = set() if cert_manager else {("ConfigMap", "sluice-serving-ca")}
    reader = {(kind, "sluice-metrics") for kind in ("ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding")}
    assert added == {("ServiceMonitor", "sluice")} | reader | ca
    monitor, service = objects["ServiceMonitor", "sluice"], objects["Service", "sluice"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert (endpoint["interval"], endpoint["scheme"], endpoint["path"]) == ("15s", "https", "/metrics")
    secret = objects["Secret", endpoint["authorization"]["credentials"]["name"]]
    [subject] = objects["ClusterRoleBinding", "sluice-metrics"]["subjects"]
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == subject["name"]
    assert objects["ClusterRole", "sluice-metrics"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert endpoint["tlsConfig"]["serverName"] == f"sluice.{generate.NAMESPACE}.svc"
    if cert_manager:
        assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "sluice-serving", "key": "ca.crt"}}
    else:
        named = endpoint["tlsConfig"]["ca"]["configMap"]
        assert base64.b64encode(objects["ConfigMap", named["name"]]["data"][named["key"]].encode()).decode() == CA
    selector = monitor["spec"]["selector"]
    [absent] = selector["matchExpressions"]
    selected = {
        name
        for (kind, name), item in objects.items()
        if kind == "Service"
        and selector["matchLabels"].items() <= item["metadata"]["labels"].items()
        and absent["key"] not in item["metadata"]["labels"]
    }
    assert (absent["operator"], selected) == ("DoesNotExist", {"sluice"})


def test_rules_and_dashboards_are_those_of_the_project(helm: pathlib.Path) -> None:
    words = ["prometheusRule.enabled=true,prometheusRule.labels.release=p,prometheusRule.page=https://docs.example/m"]
    objects = rendered(helm, *(f"--set={word}" for word in [*words, "dashboards.enabled=true"]))
    rule, shown = objects["PrometheusRule", "sluice"], objects["ConfigMap", "sluice-dashboards"]
    text = (PROJECT / "monitoring" / "rules.yaml").read_text().replace("docs/monitoring.md#", "https://docs.example/m#")
    assert rule["spec"] == yaml.safe_load(text)
    assert rule["metadata"]["labels"]["release"] == "p"
    assert shown["data"] == dashboards.files()
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the chart with its notes in a ConfigMap: without a cluster Helm renders notes, but prints none."""
    chart = tmp_path_factory.mktemp("noted") / "sluice"
    shutil.copytree(generate.CHART, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{- define "notes" }}}}{notes}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text(
        'kind: ConfigMap\nmetadata:\n  name: notes\ndata:\n  text: {{ include "notes" . | quote }}\n'
    )
    return chart


def test_notes_say_what_to_do_next(helm: pathlib.Path, noted: pathlib.Path) -> None:
    def notes(*words: str) -> str:
        text: str = rendered(helm, *words, chart=noted)["ConfigMap", "notes"]["data"]["text"]
        return text

    first, upgrade = notes(), notes("--is-upgrade")
    job = f"kubectl -n {generate.NAMESPACE} wait job/{JOB}"
    assert (job in first, job in upgrade) == (True, False)
    assert "--set store.init=true" in upgrade
    assert f"{job}-1 " in notes("--is-upgrade", "--set=store.init=true")
    for text in (first, upgrade):
        assert f"kubectl -n {generate.NAMESPACE} exec deployment/sluice -- sluice store check\n" in text
        assert f"kubectl wait apiservice/{APISERVICE} --for=condition=Available" in text
        for page in re.findall(r"\S+\.md", text):
            assert (PROJECT / page.strip("(),.")).is_file(), page
    later = notes("--set=backup.enabled=true,serviceMonitor.enabled=true,builtinKinds=false")
    assert [word for word in ("backup.enabled", "serviceMonitor.enabled", APISERVICE) if word in later] == []


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
    done = template(helm, CA_BUNDLE, "--set-file", rf"crds.a\.yaml={tmp_path / 'a.yaml'}")
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


def test_helm_installs_upgrades_rolls_back_and_uninstalls_it(
    helm: pathlib.Path, packed: pathlib.Path, sluice: Deployment, secrets: pathlib.Path
) -> None:
    """From the packed chart. An object stays through all of it, until the release is uninstalled."""
    node = sluice.node

    def run(*words: str) -> None:
        command = [str(helm), "--kubeconfig", str(node.admin), "--namespace", NAMESPACE, *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def found(*words: str) -> str:
        return node.kubectl("--namespace", NAMESPACE, "get", *words).stdout

    def serves(replicas: int) -> None:
        node.kubectl("wait", f"apiservice/{APISERVICE}", "--for=condition=Available", "--timeout=110s")
        ready = ("deployment", "sluice", "-o", "jsonpath={.status.readyReplicas}")
        until(lambda: found(*ready) == str(replicas), f"{replicas} servers")
        assert found(CLASS, "kept", "-o", "name").strip() == f"deviceclass.{OWN_GROUP}/kept"

    def jobs() -> list[str]:
        return found("job", "-o", "jsonpath={.items[*].metadata.name}").split()

    def left_alone(job: str) -> None:
        """Wait for a Job that finds the store as it is."""
        words = ("--namespace", NAMESPACE)
        node.kubectl(*words, "wait", f"job/{job}", "--for=condition=Complete", "--timeout=110s")
        told = node.kubectl(*words, "logs", f"job/{job}").stdout
        assert (f"{OWN_GROUP}/deviceclasses: already there" in told, ": created" in told) == (True, False), told

    waiting = ["--wait", "--timeout=5m"]
    ca = base64.b64encode((secrets / "ca.crt").read_bytes()).decode()
    values = [f"--set=certificates.caBundle={ca}", f"--set=store.image={images.VALKEY}", *waiting]
    run("install", "sluice", str(packed), *values)
    node.kubectl("wait", f"apiservice/{APISERVICE}", "--for=condition=Available", "--timeout=110s")
    node.apply(
        [
            {
                "apiVersion": f"{OWN_GROUP}/v1",
                "kind": "DeviceClass",
                "metadata": {"name": "kept"},
                "spec": {},
            }
        ]
    )
    serves(1)
    node.containerd.ctr("images", "tag", images.SLUICE, NEXT)
    run("upgrade", "sluice", str(packed), *values, f"--set=image={NEXT},store.init=true")
    assert jobs() == [f"{JOB}-2"]
    left_alone(f"{JOB}-2")
    serves(1)
    run("upgrade", "sluice", str(packed), *values, f"--set=image={NEXT},replicas=2")
    assert jobs() == [], "only an installation creates the store, and who asks for it"
    serves(2)
    for revision, job in (("2", f"{JOB}-2"), ("1", JOB)):
        run("rollback", "sluice", revision, *waiting)
        assert jobs() == [job]
        left_alone(job)
        serves(1)
    run("uninstall", "sluice", "--wait")
