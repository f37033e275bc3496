"""The manifests agree with each other, with the program, and with what certs/make.sh and cert-manager write."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509

from apiserver import resources, server
from apiserver.admission.webhooks import resolution
from apiserver.apimachinery.request import RequestInfo, User
from apiserver.cluster import access, client, configurations, namespaces, quotas, requestheader, tokens
from apiserver.config import config, parsers, store_address
from apiserver.filters import request_info
from apiserver.storage.operations import rights
from apiserver.storage.options import StoreOptions
from tests.e2e.controlplane import binaries
from tests.e2e.node import images
from tests.e2e.node.deployment import take_the_digest_off

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = PROJECT / "manifests"
FILES = sorted(
    file for folder in ("manifests", "certs") for file in (PROJECT / folder).rglob("*.yaml") if "out" not in file.parts
)
ROLES = MANIFESTS / "base" / "clusterroles.yaml"
"""Written by the program."""
KUSTOMIZATIONS = [file for file in FILES if file.name == "kustomization.yaml"]
DEPLOYMENTS = ["dev", "test", "ha", "ha-store"]
"""Overlays whose pods run."""
BEDS = {
    "bed, external name": ["overlays/bed/external-name"],
    "bed, endpoint slices": ["overlays/bed/endpoint-slices"],
    "bed, take-over": ["overlays/bed/external-name", "take-over"],
}
"""Manifests that are combined for a control plane without kubelets."""
TAKEN_OVER = {f"{name}, take-over": name for name in DEPLOYMENTS}
"""The same as servers of resource.k8s.io."""

END_OF_VALKEY_SECONDS = 15
"""A hand-over leaves so much of the pod's grace period: Valkey writes its log to the disk and ends."""

Object = dict[str, Any]


def _load(file: pathlib.Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document is not None]


def _title(file: pathlib.Path) -> str:
    return str(file.relative_to(PROJECT))


# ------------------------------------------------------------------------------------------------------------ files


def _named_files(kustomization: Object) -> Iterator[str]:
    yield from kustomization.get("resources", [])
    yield from kustomization.get("components", [])
    yield from (entry["path"] for field in ("patches", "replacements") for entry in kustomization.get(field, []))
    for generator in kustomization.get("secretGenerator", []):
        yield from generator["files"]


@pytest.mark.parametrize("file", [*FILES, PROJECT / "skaffold.yaml"], ids=_title)
def test_every_file_is_yaml_of_one_object(file: pathlib.Path) -> None:
    if file != ROLES:
        assert len(_load(file)) == 1


def test_the_roles_are_what_the_program_makes_of_its_kinds() -> None:
    command = [sys.executable, "-m", "apiserver", "roles"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert (ROLES.read_text(), done.stderr) == (done.stdout, ""), "sluice roles > manifests/base/clusterroles.yaml"


def test_sluice_manifests_prints_what_the_base_has() -> None:
    """The image has no folder manifests/, so the package keeps a copy of the Deployment."""
    base = MANIFESTS / "base"
    assert (PROJECT / "apiserver" / "deployment.yaml").read_text() == (base / "deployment.yaml").read_text()
    command = [sys.executable, "-m", "apiserver", "manifests"]
    printed = list(yaml.safe_load_all(subprocess.run(command, cwd=PROJECT, capture_output=True, check=True).stdout))
    [registered] = _of(printed, "APIService")
    del registered["metadata"]["annotations"], registered["metadata"]["labels"]
    assert [registered] == _load(base / "apiservice.yaml")
    assert _of(printed, "Deployment") == _load(base / "deployment.yaml")
    assert _of(printed, "ClusterRole") == _load(ROLES)


@pytest.mark.parametrize("file", KUSTOMIZATIONS, ids=_title)
def test_a_kustomization_names_existing_files_and_leaves_none_out(file: pathlib.Path) -> None:
    named = set(_named_files(_load(file)[0]))
    # certs/make.sh writes these; the rendered overlays below prove that it writes them all.
    generated = {name for name in named if name.startswith("out/")}
    assert [name for name in named - generated if not (file.parent / name).exists()] == []
    assert {other.name for other in file.parent.glob("*.yaml")} - {"kustomization.yaml"} - named == set()


def test_skaffold_deploys_what_exists() -> None:
    [skaffold] = _load(PROJECT / "skaffold.yaml")
    paths = [
        *skaffold["manifests"]["kustomize"]["paths"],
        *(
            path
            for profile in skaffold["profiles"]
            for path in profile.get("manifests", {}).get("kustomize", {}).get("paths", [])
        ),
        *(
            patch["value"]
            for profile in skaffold["profiles"]
            for patch in profile.get("patches", [])
            if "paths" in patch["path"]
        ),
    ]
    assert set(paths) == {"manifests/overlays/dev", "manifests/overlays/test", "manifests/store-init"}
    assert [path for path in paths if not (PROJECT / path / "kustomization.yaml").exists()] == []


def test_the_image_holds_the_program_and_nothing_of_its_deployment(rendered: list[Object]) -> None:
    lines = [line.split() for line in (PROJECT / "Dockerfile").read_text().splitlines()]
    copied = {word for line in lines if line[:1] == ["COPY"] and "--from=build" not in line for word in line[1:-1]}
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    assert {f"!{word}".partition("/")[0] for word in copied} == {
        line.rstrip("/") for line in ignored if line.startswith("!")
    }
    assert [name for name in copied if not (PROJECT / name).exists()] == []
    assert "apiserver" in copied
    assert not copied & {".", "manifests", "certs", "tests"}
    sources = [file for file in (PROJECT / "apiserver").rglob("*.py") if "manifests/" in file.read_text()]
    # Doctor only names the files, for people to apply.
    assert [file for file in sources if "doctor" not in file.parts] == []
    deployment = _one(rendered, "Deployment", "sluice")
    security = deployment["spec"]["template"]["spec"]["securityContext"]
    assert ["USER", f"{security['runAsUser']}:{security['runAsGroup']}"] in lines
    assert ["EXPOSE", str(_containers(deployment)[0]["ports"][0]["containerPort"])] in lines


# ------------------------------------------------------------------------------------------------------------ rendering


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of manifests and certs with everything that certs/make.sh writes."""
    if shutil.which("openssl") is None:
        pytest.skip("certs/make.sh needs openssl")
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("manifests", "certs"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("out"))
    _make(copy)
    return copy


def _make(checkout: pathlib.Path) -> None:
    subprocess.run([checkout / "certs" / "make.sh"], env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True)


Render = Callable[[str], list[Object]]


@pytest.fixture(scope="module")
def render(checkout: pathlib.Path) -> Render:
    """The objects of a deployment or a bed, the Job that creates the store included."""
    known: dict[str, list[Object]] = {}

    def once(name: str) -> list[Object]:
        if name not in known:
            known[name] = _render(checkout, name)
        return known[name]

    return once


def _render(checkout: pathlib.Path, name: str) -> list[Object]:
    manifests = pathlib.Path("..", "manifests")
    resources = ["overlays/bed"] if name in BEDS else [f"overlays/{TAKEN_OVER.get(name, name)}", "store-init", "backup"]
    components = ["take-over"] if name in TAKEN_OVER else BEDS.get(name, [])
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(manifests / path) for path in resources],
        "components": [str(manifests / path) for path in components],
    }
    folder = checkout / name
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = subprocess.run([binaries.kubectl(), "kustomize", folder], capture_output=True, text=True, check=False)
    # kustomize reports deprecated fields there.
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(params=[*DEPLOYMENTS, *BEDS])
def rendered(request: pytest.FixtureRequest, render: Render) -> list[Object]:
    return render(request.param)


@pytest.fixture(params=DEPLOYMENTS)
def deployed(request: pytest.FixtureRequest, render: Render) -> list[Object]:
    return render(request.param)


def _of(objects: list[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def _one(objects: list[Object], kind: str, name: str) -> Object:
    [found] = [item for item in _of(objects, kind) if item["metadata"]["name"] == name]
    return found


def _workloads(objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] in {"Deployment", "StatefulSet", "Job", "CronJob"}]


def _template(workload: Object) -> Object:
    spec = workload["spec"]
    template: Object = spec["jobTemplate"]["spec"]["template"] if workload["kind"] == "CronJob" else spec["template"]
    return template


def _pod(workload: Object) -> Object:
    pod: Object = _template(workload)["spec"]
    return pod


def _labels(workload: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = _template(workload)["metadata"]["labels"]
    return labels


def _containers(workload: Object) -> list[Object]:
    return [*_pod(workload).get("initContainers", []), *_pod(workload)["containers"]]


def _identity(item: Object) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


CLUSTER_SCOPED = {"Namespace", "APIService", "ClusterRole", "ClusterRoleBinding"}


def test_every_namespaced_object_lies_in_our_namespace(rendered: list[Object]) -> None:
    [namespace] = _of(rendered, "Namespace")
    ours = namespace["metadata"]["name"]
    elsewhere = [_identity(item) for item in rendered if item["metadata"].get("namespace") != ours]
    assert [identity for identity in elsewhere if identity[0] not in CLUSTER_SCOPED] == [
        ("RoleBinding", "kube-system", "sluice-authentication-reader")
    ]
    assert [identity for identity in elsewhere if identity[0] in CLUSTER_SCOPED and identity[1]] == []


@pytest.mark.parametrize("name", BEDS)
def test_a_bed_has_the_same_objects_as_a_deployment_but_its_secrets(name: str, render: Render) -> None:
    if name == "bed, take-over":
        renamed = {"v1.resource.sluice.dev": "v1.resource.k8s.io"}
        covered = {("ClusterRole", "", item["metadata"]["name"]) for item in _load(ROLES)}
    else:
        renamed, covered = {}, set()
    covered |= {_identity(item) for item in render("dev") if item["metadata"]["name"] == "sluice-backup"}
    deployment = {_identity(item) for item in render("dev") if item["kind"] != "Secret"} - covered
    expected = {(kind, namespace, renamed.get(found, found)) for kind, namespace, found in deployment}
    assert {_identity(item) for item in render(name)} == expected


@pytest.mark.parametrize("name", BEDS)
def test_a_bed_differs_only_where_no_kubelet_and_no_proxy_is_needed(name: str, render: Render) -> None:
    base = [item for item in render("dev") if item["metadata"]["name"] != "sluice-backup"]
    bed = render(name)
    for kind in ("ServiceAccount", "RoleBinding", "ClusterRoleBinding", "NetworkPolicy", "PodDisruptionBudget"):
        assert _of(bed, kind) == _of(base, kind)
    for workload in _workloads(bed):
        assert workload["spec"].get("replicas", 0) == 0
        assert (workload["kind"] == "Job") == (workload["spec"].get("suspend") is True)
    service = _one(bed, "Service", "sluice")["spec"]
    if name == "bed, endpoint slices":
        # As it was, but for whose addresses it has.
        assert service == {key: v for key, v in _one(base, "Service", "sluice")["spec"].items() if key != "selector"}
    else:
        assert service == {"type": "ExternalName", "externalName": "localhost"}


@pytest.mark.parametrize("name", TAKEN_OVER)
def test_the_take_over_leads_the_real_group_to_any_overlay_which_serves_it(name: str, render: Render) -> None:
    """Wherever in its list an overlay has the variable."""

    def variables(objects: list[Object]) -> dict[str, dict[str, Object]]:
        return {
            workload["metadata"]["name"]: {item["name"]: item for item in container.get("env", [])}
            for workload in _workloads(objects)
            for container in _containers(workload)
        }

    taken = render(name)
    [apiservice] = _of(taken, "APIService")
    assert (apiservice["metadata"]["name"], apiservice["spec"]["group"]) == ("v1.resource.k8s.io", "resource.k8s.io")
    expected = variables(render(TAKEN_OVER[name]))
    for workload in ("sluice", "sluice-store-init"):
        assert expected[workload]["SLUICE_GROUP"]["value"] == "resource.sluice.dev"
        expected[workload]["SLUICE_GROUP"] = {"name": "SLUICE_GROUP", "value": "resource.k8s.io"}
    assert variables(taken) == expected


def test_kustomization_of_the_page_names_a_package_to_server_and_job(
    checkout: pathlib.Path,
) -> None:
    page = (PROJECT / "docs" / "kinds.md").read_text()
    [text] = re.findall(r"^ *```yaml\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    folder = checkout / "kinds"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(textwrap.dedent(text).replace("manifests/", "../manifests/"))
    done = subprocess.run([binaries.kubectl(), "kustomize", folder], capture_output=True, text=True, check=True)
    named = {
        workload["metadata"]["name"]: {item.get("value") for item in container["env"] if item["name"] == "SLUICE_KINDS"}
        for workload in _workloads(list(yaml.safe_load_all(done.stdout)))
        for container in _containers(workload)
    }
    assert named == {"sluice": {"harbour"}, "sluice-store-init": {"harbour"}, "sluice-valkey": set()}


def test_kustomization_of_the_page_about_scaling_has_three_replicas(checkout: pathlib.Path) -> None:
    page = (PROJECT / "docs" / "scaling.md").read_text()
    [text] = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    folder = checkout / "scaling"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(text.replace("manifests/", "../manifests/"))
    done = subprocess.run([binaries.kubectl(), "kustomize", folder], capture_output=True, text=True, check=True)
    deployment = _one(list(yaml.safe_load_all(done.stdout)), "Deployment", "sluice")
    assert deployment["spec"]["replicas"] == 3
    node, _zone = _pod(deployment)["topologySpreadConstraints"]
    assert (node["topologyKey"], node["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")


CRDS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ships.harbour.example.com
spec:
  group: harbour.example.com
  names: {kind: Ship, plural: ships}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


def _with_crds(checkout: pathlib.Path, name: str, *, only: bool) -> tuple[list[Object], list[Object]]:
    """The objects of the kustomization in docs/crds.md, and those that the command behind it prints."""
    [text] = re.findall(r"^```yaml\n(.*?)^```", (PROJECT / "docs" / "crds.md").read_text(), re.DOTALL | re.MULTILINE)
    folder = checkout / name
    (folder / "crds").mkdir(parents=True)
    (folder / "crds" / "policyreports.yaml").write_text(CRDS)
    asked = yaml.safe_load(text.replace("manifests/", "../manifests/"))
    if only:
        asked["components"].append("../manifests/crds/only")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(asked))
    rendered = subprocess.run([binaries.kubectl(), "kustomize", folder], capture_output=True, text=True, check=True)
    words = ["manifests", "--no-deployment", "--crds", str(folder / "crds"), *(["--no-builtin-kinds"] if only else [])]
    printed = subprocess.run([sys.executable, "-m", "apiserver", *words], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(rendered.stdout)), list(yaml.safe_load_all(printed.stdout))


@pytest.mark.parametrize("only", [False, True], ids=["beside the built-in kinds", "alone"])
def test_kustomization_of_definitions_mounts_them_in_server_and_job(checkout: pathlib.Path, *, only: bool) -> None:
    objects, registered = _with_crds(checkout, f"crds-{only}", only=only)
    assert {_identity(item) for item in objects} & {_identity(item) for item in registered} == set()
    [configmap] = [item for item in _of(objects, "ConfigMap") if item["metadata"]["name"] == "sluice-crds"]
    assert configmap["data"] == {"policyreports.yaml": CRDS}
    for kind, name in (("Deployment", "sluice"), ("Job", "sluice-store-init")):
        workload = _one(objects, kind, name)
        [container] = _containers(workload)
        [folder] = [word.partition("=")[2] for word in container["args"] if word.startswith("--crds=")]
        [mounted] = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == folder]
        [volume] = [volume for volume in _pod(workload)["volumes"] if volume["name"] == mounted]
        assert volume["projected"]["sources"] == [{"configMap": {"name": "sluice-crds"}}]
        assert ({"name": "SLUICE_BUILTIN_KINDS", "value": "false"} in container["env"]) is only
    names = {item["metadata"]["name"] for item in _of(registered, "APIService")}
    assert names == {"v1.harbour.example.com"} | (set() if only else {"v1.resource.sluice.dev"})


def test_printed_deployment_mounts_definitions_as_the_component_does(
    checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    objects, _ = _with_crds(checkout, "crds-printed", only=False)
    (tmp_path / "a.yaml").write_text(CRDS)
    command = [sys.executable, "-m", "apiserver", "manifests", "--crds", str(tmp_path / "a.yaml")]
    printed = yaml.safe_load_all(subprocess.run(command, capture_output=True, check=True).stdout)
    component, own = _pod(_one(objects, "Deployment", "sluice")), _pod(_one(list(printed), "Deployment", "sluice"))
    assert own["containers"][0]["args"] == component["containers"][0]["args"]
    for field in ("volumeMounts", "volumes"):
        pair = [pod["containers"][0][field] if field == "volumeMounts" else pod[field] for pod in (component, own)]
        first, second = ([entry for entry in each if entry["name"] == "sluice-crds"] for each in pair)
        assert first == second != []


# ------------------------------------------------------------------------------------------------------------ pods and services


POD_NAME = "statefulset.kubernetes.io/pod-name"
"""A label that the controller adds to each pod of a StatefulSet."""


def _serving(service: Object) -> str:
    """The workload whose pods, or one pod, a Service leads to."""
    name: str = service["metadata"]["name"]
    pod = service["spec"]["selector"].get(POD_NAME)
    assert pod in (None, name)
    return name if pod is None else name.rpartition("-")[0]


def test_selectors_match_exactly_one_workload(deployed: list[Object]) -> None:
    labels = {item["metadata"]["name"]: _labels(item) for item in _workloads(deployed)}

    def selected(selector: Mapping[str, str]) -> list[str]:
        return [name for name, own in labels.items() if selector.items() <= own.items()]

    for item in [*_of(deployed, "Deployment"), *_of(deployed, "StatefulSet"), *_of(deployed, "PodDisruptionBudget")]:
        assert selected(item["spec"]["selector"]["matchLabels"]) == [item["metadata"]["name"]]
    for service in _of(deployed, "Service"):
        selector = {label: value for label, value in service["spec"]["selector"].items() if label != POD_NAME}
        assert selected(selector) == [_serving(service)]
    for workload in _workloads(deployed):
        for constraint in _pod(workload).get("topologySpreadConstraints", []):
            assert selected(constraint["labelSelector"]["matchLabels"]) == [workload["metadata"]["name"]]


def test_services_and_probes_name_ports_of_their_pods(deployed: list[Object]) -> None:
    for service in _of(deployed, "Service"):
        [workload] = [item for item in _workloads(deployed) if item["metadata"]["name"] == _serving(service)]
        ports = {port["name"] for container in _containers(workload) for port in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        for container in _containers(workload):
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                check = container.get(probe, {})
                named = [check[how]["port"] for how in ("httpGet", "tcpSocket") if how in check]
                assert set(named) <= ports


def _secret_keys(objects: list[Object]) -> dict[str, set[str]]:
    """Keys of every Secret that exists once the objects are applied and certs/README.md and manifests/README.md were followed."""
    keys = {item["metadata"]["name"]: set(item["data"]) for item in _of(objects, "Secret")}
    # Keys that cert-manager writes into the Secret of a Certificate.
    for certificate in _of(objects, "Certificate"):
        keys[certificate["spec"]["secretName"]] = {"tls.crt", "tls.key", "ca.crt"}
    if "sluice-store" not in keys:
        text = (MANIFESTS / "README.md").read_text()
        names = ("password", "auth.conf", "redis-url", "admin-redis-url", "backup-redis-url")
        keys["sluice-store"] = {name for name in names if f"certs/out/{name}" in text}
    return keys


def test_mounts_and_variables_come_from_secrets_and_configmaps_that_exist(deployed: list[Object]) -> None:
    secrets = _secret_keys(deployed)
    configmaps, claims = (
        {item["metadata"]["name"] for item in _of(deployed, kind)} for kind in ("ConfigMap", "PersistentVolumeClaim")
    )
    for workload in _workloads(deployed):
        pod = _pod(workload)
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                source = volume["secret"]
                assert {item["key"] for item in source.get("items", [])} <= secrets[source["secretName"]]
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
            if "configMap" in volume:
                assert volume["configMap"]["name"] in configmaps
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for container in _containers(workload):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for variable in container.get("env", []):
                if "secretKeyRef" in variable.get("valueFrom", {}):
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert reference["key"] in secrets[reference["name"]]


def test_files_named_in_arguments_are_mounted(deployed: list[Object]) -> None:
    deployment = _one(deployed, "Deployment", "sluice")
    [container] = _containers(deployment)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in _pod(deployment)["volumes"]}
    files = [
        pathlib.PurePosixPath(argument.partition("=")[2]) for argument in container["args"] if "-file=" in argument
    ]
    assert len(files) == 2
    for file in files:
        secret = volumes[mounts[str(file.parent)]]["secret"]["secretName"]
        assert file.name in _secret_keys(deployed)[secret]


def test_every_pod_is_restricted(rendered: list[Object]) -> None:
    for workload in _workloads(rendered):
        pod = _pod(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in _containers(workload):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_only_the_server_has_a_token_and_it_is_that_of_its_account(rendered: list[Object]) -> None:
    [account] = _of(rendered, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    mounted = {item["metadata"]["name"]: _pod(item)["automountServiceAccountToken"] for item in _workloads(rendered)}
    assert mounted.pop("sluice-backup", False) is False
    assert mounted == {"sluice": True, "sluice-valkey": False, "sluice-store-init": False}
    assert _pod(_one(rendered, "Deployment", "sluice"))["serviceAccountName"] == account["metadata"]["name"]


# ------------------------------------------------------------------------------------------------------------ kube-apiserver


def test_the_apiservice_names_the_group_and_the_service(rendered: list[Object]) -> None:
    [apiservice] = _of(rendered, "APIService")
    spec = apiservice["spec"]
    assert apiservice["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
    priorities = {"resource.sluice.dev": 1000, "resource.k8s.io": 16200}
    assert spec["groupPriorityMinimum"] == priorities[spec["group"]]
    told = re.findall(r"(\d+) for\s`(v1\w*)`", (MANIFESTS / "README.md").read_text().partition("## Older versions")[2])
    assert [version for _, version in told] == ["v1", "v1beta2", "v1beta1"]
    assert [int(priority) for priority, _ in told] == [spec["versionPriority"], 15, 9]
    service = _one(rendered, "Service", spec["service"]["name"])
    assert service["metadata"]["namespace"] == spec["service"]["namespace"]
    if service["spec"].get("type") != "ExternalName":
        assert spec["service"]["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert "insecureSkipTLSVerify" not in spec
    assert "kube-aggregator.kubernetes.io/automanaged" not in apiservice["metadata"]["labels"]


@pytest.mark.parametrize("name", ["dev", "test"])
def test_the_apiservice_has_the_ca_that_make_sh_wrote(name: str, render: Render) -> None:
    [apiservice] = _of(render(name), "APIService")
    # Only a CA certificate that Python can read gets counted.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(apiservice["spec"]["caBundle"]).decode())
    assert context.cert_store_stats()["x509_ca"] == 1


def _dialled_name() -> str:
    """The name that kube-apiserver checks the serving certificate for."""
    [apiservice] = _load(MANIFESTS / "base" / "apiservice.yaml")
    service = apiservice["spec"]["service"]
    return f"{service['name']}.{service['namespace']}.svc"


def test_serving_certificate_has_the_name_that_kube_apiserver_dials(checkout: pathlib.Path) -> None:
    out = checkout / "certs" / "out"
    verify = ["openssl", "verify", "-purpose", "sslserver", "-verify_hostname", _dialled_name(), "-CAfile", "ca.crt"]
    done = subprocess.run([*verify, "tls.crt"], cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in out.iterdir() if file.stat().st_mode & 0o077] == []


def test_second_run_of_make_sh_renews_only_the_pair(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(checkout / "certs", tmp_path / "certs")
    before = {file.name: file.read_bytes() for file in (tmp_path / "certs" / "out").iterdir()}
    _make(tmp_path)
    after = {file.name: file.read_bytes() for file in (tmp_path / "certs" / "out").iterdir()}
    assert {name for name, content in after.items() if before[name] != content} == {"tls.crt", "tls.key"}
    old, new = (x509.load_pem_x509_certificate(files["tls.crt"]) for files in (before, after))
    ca = x509.load_pem_x509_certificate(after["ca.crt"])
    assert old.serial_number != new.serial_number
    new.verify_directly_issued_by(ca)
    assert ca.not_valid_after_utc > new.not_valid_after_utc


def test_make_sh_replaces_a_ca_that_would_end_before_the_pair(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(checkout / "certs", tmp_path / "certs")
    out = tmp_path / "certs" / "out"
    brief = ["openssl", "req", "-x509", "-key", "ca.key", "-subj", "/CN=old", "-days", "80", "-out", "ca.crt"]
    subprocess.run(brief, cwd=out, check=True, capture_output=True)
    _make(tmp_path)
    ca, pair = (x509.load_pem_x509_certificate((out / name).read_bytes()) for name in ("ca.crt", "tls.crt"))
    pair.verify_directly_issued_by(ca)
    assert ca.not_valid_after_utc > pair.not_valid_after_utc


# ------------------------------------------------------------------------------------------------------------ cert-manager


def _hours(text: str) -> int:
    return int(text.removesuffix("h"))


def test_cert_manager_writes_the_mounted_pair_and_its_ca(render: Render) -> None:
    objects = render("ha")
    serving, ca = (_one(objects, "Certificate", name)["spec"] for name in ("sluice-serving", "sluice-serving-ca"))
    volumes = {volume["name"]: volume for volume in _pod(_one(objects, "Deployment", "sluice"))["volumes"]}
    assert serving["secretName"] == volumes["serving"]["secret"]["secretName"]
    assert _dialled_name() in serving["dnsNames"]
    assert "server auth" in serving["usages"]

    issuer = _one(objects, "Issuer", serving["issuerRef"]["name"])["spec"]
    assert issuer == {"ca": {"secretName": ca["secretName"]}}
    assert ca["isCA"] is True
    assert _one(objects, "Issuer", ca["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    # A renewed CA still vouches for pairs in use, and an old one is never trusted to its last day.
    assert ca["privateKey"]["rotationPolicy"] == "Never"
    assert _hours(ca["renewBefore"]) > _hours(serving["duration"])

    [apiservice] = _of(objects, "APIService")
    assert apiservice["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "sluice-system/"
        + _one(objects, "Certificate", "sluice-serving")["metadata"]["name"]
    }
    assert "caBundle" not in apiservice["spec"]
    assert _of(objects, "Secret") == []


# ------------------------------------------------------------------------------------------------------------ rights

BUILT_IN: dict[str, list[Object]] = {
    "system:auth-delegator": [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ],
    "extension-apiserver-authentication-reader": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
"""kubernetes/kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy/{policy,namespace_policy}.go"""

Right = tuple[str, str, str, str, str]
"""Verb, group, resource, name ("" for any) and namespace ("" for all)."""


def _rights(objects: list[Object]) -> set[Right]:
    """Rights of the service account."""
    account = {"kind": "ServiceAccount", "name": "sluice", "namespace": "sluice-system"}
    bindings = [*_of(objects, "RoleBinding"), *_of(objects, "ClusterRoleBinding")]
    found = set()
    for binding in bindings:
        assert binding["subjects"] == [account]
        role = binding["roleRef"]["name"]
        own = [item for item in _of(objects, binding["roleRef"]["kind"]) if item["metadata"]["name"] == role]
        for rule in own[0].get("rules", []) if own else BUILT_IN[role]:
            found |= {
                (verb, group, resource, name, binding["metadata"].get("namespace", ""))
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", [""])
            }
    return found


class Recorder:
    """In the place of the client of a cluster that has nothing: remembers what it is asked."""

    def __init__(self) -> None:
        self.asked: set[Right] = set()
        self.watched = asyncio.Event()
        self.start = asyncio.create_task

    def clock(self) -> float:
        return 0.0

    def random(self) -> float:
        return 0.0

    async def ask(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: object
    ) -> Mapping[str, Any]:
        self._note(method, path, query or {})
        return {"metadata": {"resourceVersion": "1"}, "items": [], "status": {}}

    async def page(self, path: str, query: Mapping[str, str], **_: object) -> client.Page:
        self._note("GET", path, query)
        return client.Page({"resourceVersion": "1"}, [])

    @contextlib.asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], **_: object) -> AsyncIterator[AsyncIterator[Any]]:
        self._note("GET", path, {**query, "watch": "true"})
        self.watched.set()
        yield _silence()

    def _note(self, method: str, path: str, query: Mapping[str, str]) -> None:
        target = path + "?" + "&".join(f"{key}={value.replace('=', '%3D')}" for key, value in query.items())
        info = request_info.parse(method, target)
        # A namespace is cluster-scoped, although the parser says that it lies in itself.
        within = "" if info.resource == "namespaces" else info.namespace
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        self.asked.add((info.verb, info.group, resource, info.name, within))


async def _silence() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


FLOW_CONTROL = (configurations.SCHEMAS, configurations.LEVELS)


async def _everything_that_is_asked(group: str) -> set[Right]:
    recorder = Recorder()
    asking = cast("client.Client", recorder)
    with contextlib.suppress(tokens.BadToken):
        await tokens.Tokens(asking, clock=recorder.clock).review("a-token")
    await access.Access(asking, clock=recorder.clock).authorize(User("jane"), RequestInfo("/", "get", "GET"))
    trust = requestheader.TrustSource(asking)
    await trust.first(1)
    known = namespaces.Namespaces(asking)
    await known.ask("any")
    followed = configurations.reflectors(asking, parsers.PLUGINS.__contains__)
    limits = quotas.Quotas(asking, followed["quotas"])
    await limits.list("any")
    await limits.get("any", "any")
    await limits.update_status({"metadata": {"namespace": "any", "name": "any"}})
    if group == _claims_measured_in():
        await limits.pod("any", "any")
    await resolution.service(asking, "any", "any")
    await resolution.slices(asking, "any", "any")
    flows = [configurations.of_flow_control(asking, name, on_change=lambda: None) for name in FLOW_CONTROL]
    for following in (trust.run(), known.run(), *(copy.run() for copy in (*followed.values(), *flows))):
        recorder.watched.clear()
        task = asyncio.create_task(following)
        await recorder.watched.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return recorder.asked


def _claims_measured_in() -> str:
    """The group in which claims count for quotas by what pods have counted."""
    [home] = {kind.consumption.home for kind in resources.RESOURCES if kind.consumption is not None}
    return home


async def test_the_service_account_may_do_exactly_what_the_program_asks(rendered: list[Object]) -> None:
    [apiservice] = _of(rendered, "APIService")
    asked = await _everything_that_is_asked(apiservice["spec"]["group"])
    rights = _rights(rendered)
    allowed = {
        request: {
            right
            for right in rights
            if right[:3] == request[:3] and right[3] in ("", request[3]) and right[4] in ("", request[4])
        }
        for request in asked
    }
    assert [request for request, by in allowed.items() if not by] == []
    assert rights - set().union(*allowed.values()) == set()


def test_label_adds_kinds_of_params_and_the_role_starts_empty(rendered: list[Object]) -> None:
    role = _one(rendered, "ClusterRole", "sluice-params")
    assert "rules" not in role  # the cluster fills them, and kubectl would empty them at each apply
    [selector] = role["aggregationRule"]["clusterRoleSelectors"]
    [(label, value)] = selector["matchLabels"].items()
    assert f"{label}={value}" in (MANIFESTS / "README.md").read_text()
    assert [item for item in _of(rendered, "ClusterRole") if label in item["metadata"]["labels"]] == []


def test_default_roles_get_what_upstreams_give_for_the_real_group(deployed: list[Object]) -> None:
    view, edit = (_one(deployed, "ClusterRole", f"sluice-{name}") for name in ("view", "edit"))
    prefix = "rbac.authorization.k8s.io/aggregate-to-"

    def roles(item: Object) -> set[str]:
        labels = item["metadata"]["labels"]
        return {key.removeprefix(prefix) for key, on in labels.items() if key.startswith(prefix) and on == "true"}

    assert roles(view) == {"view", "edit", "admin"}
    assert roles(edit) == {"edit", "admin"}
    [reading], [writing] = view["rules"], edit["rules"]
    namespaced = {"resourceclaims", "resourceclaimtemplates"}
    assert set(reading["resources"]) == namespaced | {"resourceclaims/status"}
    assert set(reading["verbs"]) == {"get", "list", "watch"}
    assert set(writing["resources"]) == namespaced
    assert set(writing["verbs"]) == {"create", "update", "patch", "delete", "deletecollection"}
    [apiservice] = _of(deployed, "APIService")
    assert reading["apiGroups"] == writing["apiGroups"] == [apiservice["spec"]["group"]]


def test_schedulers_and_drivers_get_what_upstreams_do_for_the_real_group(deployed: list[Object]) -> None:
    """kubernetes/kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go (system:kube-scheduler, the default gates),
    test/e2e/dra/test-driver/deploy/example/plugin-permissions.yaml; they have to ask for rights to other groups themselves."""
    read, change = {"get", "list", "watch"}, {"patch", "update"}

    def rights(name: str) -> dict[str, set[str]]:
        rules = _one(deployed, "ClusterRole", name)["rules"]
        assert {group for rule in rules for group in rule["apiGroups"]} == {"resource.sluice.dev"}
        return {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}

    assert rights("sluice-scheduler") == {
        "deviceclasses": read,
        "devicetaintrules": read,
        "resourceclaims": read | change | {"create", "delete"},
        "resourceclaims/status": read | change,
        "resourceclaims/binding": change,
        "resourceslices": read,
    }
    assert rights("sluice-driver") == {
        "resourceclaims": {"get"},
        "resourceclaims/status": change,
        "resourceclaims/driver": {"associated-node:patch", "associated-node:update"},
        "resourceslices": read | change | {"create", "delete"},
    }


# ------------------------------------------------------------------------------------------------------------ network


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


class End(NamedTuple):
    """An end of a connection: the labels of a pod, of our namespace or of another one; None is no pod."""

    labels: Mapping[str, str] | None
    ours: bool = False


def _is(peer: Object, end: End) -> bool:
    """Whether what a rule names is this one."""
    assert peer.get("namespaceSelector", {}) == {}
    if end.labels is None or not (end.ours or "namespaceSelector" in peer):
        return False
    return _selects(peer.get("podSelector", {}), end.labels)


def _open(rules: Iterable[Object], side: str, other: End, port: int) -> bool:
    """Whether a rule lets `other` through, by TCP."""
    return any(
        any(entry["protocol"] == "TCP" and entry.get("port", port) == port for entry in rule["ports"])
        and (side not in rule or any(_is(peer, other) for peer in rule[side]))
        for rule in rules
    )


def test_the_network_is_closed_but_for_what_is_needed(rendered: list[Object]) -> None:
    policies = _of(rendered, "NetworkPolicy")
    cron = [item["metadata"]["name"] for item in _of(rendered, "CronJob")]
    pods = {item["metadata"]["name"]: End(_labels(item), ours=True) for item in _workloads(rendered)}
    ruled: dict[str, Object] = {}
    for name, end in pods.items():
        [policy] = [item["spec"] for item in policies if _selects(item["spec"]["podSelector"], end.labels or {})]
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
        ruled[name] = policy
    assert len(policies) == len(pods)
    pods |= {
        "stranger": End({"app.kubernetes.io/name": "sluice"}, ours=True),
        "webhook": End({"app": "webhook"}),
        "elsewhere": End(None),
    }
    ports = {10250, 6379, 26379, 443, 6443, 53, 80, 8080, 9443}
    several = _one(rendered, "StatefulSet", "sluice-valkey")["spec"]["replicas"] == 3
    reached = {
        (source, target, port)
        for source, own in pods.items()
        for target, its in pods.items()
        for port in ports
        if source != target
        and (source not in ruled or _open(ruled[source].get("egress", []), "to", its, port))
        and (target not in ruled or _open(ruled[target].get("ingress", []), "from", own, port))
        and (source in ruled or target in ruled)
    }
    assert {path for path in reached if path[1] in ruled} == {
        ("elsewhere", "sluice", 10250),
        ("stranger", "sluice", 10250),
        ("webhook", "sluice", 10250),
        ("sluice", "sluice-valkey", 6379),
        ("sluice-store-init", "sluice-valkey", 6379),
        *((name, "sluice-valkey", 6379) for name in cron),
        *((source, "sluice-valkey", 26379) for source in ("sluice", "sluice-store-init", "sluice-backup") if several),
    }
    assert {path for path in reached if path[1] == "elsewhere"} == {
        ("sluice", "elsewhere", 443),
        ("sluice", "elsewhere", 6443),
        ("sluice", "elsewhere", 53),
        ("sluice-store-init", "elsewhere", 53),
        *((name, "elsewhere", 53) for name in cron),
        *([("sluice-valkey", "elsewhere", 53)] if several else []),
    }
    # A Service's port says nothing about those of its pods.
    assert {path for path in reached if path[1] == "webhook"} == {
        *(("sluice", "webhook", port) for port in ports),
        ("sluice-store-init", "webhook", 53),
        *((name, "webhook", 53) for name in cron),
        *([("sluice-valkey", "webhook", 53)] if several else []),
    }


def test_policies_name_the_ports_that_are_served(rendered: list[Object]) -> None:
    for workload in _workloads(rendered):
        served = {port["containerPort"] for container in _containers(workload) for port in container.get("ports", [])}
        policy = _one(rendered, "NetworkPolicy", workload["metadata"]["name"])
        assert {entry["port"] for rule in policy["spec"].get("ingress", []) for entry in rule["ports"]} == served


# ------------------------------------------------------------------------------------------------------------ availability


def test_one_pod_at_a_time_may_be_evicted_and_in_ha_one_stays(deployed: list[Object], render: Render) -> None:
    deployment = _one(deployed, "Deployment", "sluice")["spec"]
    replicas = deployment["replicas"]
    limits = _one(deployed, "PodDisruptionBudget", "sluice")["spec"]
    assert len({"minAvailable", "maxUnavailable"} & set(limits)) == 1
    assert limits.get("maxUnavailable", replicas - limits.get("minAvailable", 0)) == 1
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    if deployed is render("ha"):
        assert replicas >= 2
        assert limits["minAvailable"] == 1


def test_the_store_may_be_moved_from_a_node_that_is_drained(deployed: list[Object]) -> None:
    limits = _one(deployed, "PodDisruptionBudget", "sluice-valkey")["spec"]
    assert (limits["maxUnavailable"], limits["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_every_container_asks_for_memory_and_has_a_limit(deployed: list[Object]) -> None:
    for workload in _workloads(deployed):
        for container in _containers(workload):
            resources = container["resources"]
            assert mib(resources["requests"]["memory"]) <= mib(resources["limits"]["memory"])
            assert "cpu" in resources["requests"]


def test_probe_of_valkey_has_its_password_for_old_and_new_clients(deployed: list[Object]) -> None:
    container = _containers(_one(deployed, "StatefulSet", "sluice-valkey"))[0]
    given = {item["name"]: key for item in container["env"] if (key := item["valueFrom"].get("secretKeyRef"))}
    password = {"name": "sluice-store", "key": "password"}
    assert given == {"VALKEYCLI_AUTH": password, "REDISCLI_AUTH": password}


def test_skaffold_deletes_the_server_and_never_the_store(render: Render) -> None:
    [skaffold] = _load(PROJECT / "skaffold.yaml")
    [word] = skaffold["deploy"]["kubectl"]["flags"]["delete"]
    key, value = word.removeprefix("--selector=").split("=")
    gone = {_identity(item)[0] for item in render("dev") if item["metadata"].get("labels", {}).get(key) == value}
    assert gone == {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}


def test_ha_spreads_each_revision_over_nodes_and_asks_for_resources(render: Render) -> None:
    objects = render("ha")
    constraints = _pod(_one(objects, "Deployment", "sluice"))["topologySpreadConstraints"]
    assert {item["topologyKey"]: item["whenUnsatisfiable"] for item in constraints} == {
        "kubernetes.io/hostname": "DoNotSchedule",
        "topology.kubernetes.io/zone": "ScheduleAnyway",
    }
    assert [item["matchLabelKeys"] for item in constraints] == [["pod-template-hash"]] * 2
    settings = _one(objects, "ConfigMap", "sluice-valkey")["data"]["valkey.conf"].splitlines()
    [store] = _containers(_one(objects, "StatefulSet", "sluice-valkey"))
    # The objects, and a fork's copies of pages while the log is rewritten.
    assert "maxmemory 2gb" in settings
    assert store["resources"] == {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}
    assert "limits" in _containers(_one(objects, "Deployment", "sluice"))[0]["resources"]


def mib(quantity: str) -> int:
    sizes = {"Mi": 1, "Gi": 1024}
    return int(quantity[:-2]) * sizes[quantity[-2:]]


def test_the_memory_limit_is_the_sum_of_what_the_readme_says(render: Render) -> None:
    table = (MANIFESTS / "README.md").read_text().partition("## Memory")[2].partition("\n## ")[0]
    parts = {name: int(size) for name, size in re.findall(r"^\| ([a-z ]+) \| (\d+) \|", table, re.MULTILINE)}
    limit, more = map(int, re.findall(r"(?<=\*\*)\d+(?=\*\*)|(?<=`ha` has )\d+(?= more)", table))
    assert parts["windows"] == 2 * StoreOptions(url="").window_bytes >> 20
    assert sum(parts.values()) == limit
    for overlay, expected in {"dev": limit, "test": limit, "ha": limit + more}.items():
        resources = _containers(_one(render(overlay), "Deployment", "sluice"))[0]["resources"]
        assert mib(resources["limits"]["memory"]) == expected
        assert mib(resources["requests"]["memory"]) <= expected
        assert "cpu" not in resources["limits"], "a throttled process delays every watch"


def test_memory_limit_of_valkey_suffices_for_a_fork(deployed: list[Object]) -> None:
    settings = _one(deployed, "ConfigMap", "sluice-valkey")["data"]["valkey.conf"]
    [most] = re.findall(r"^maxmemory (\d+)gb$", settings, re.MULTILINE)
    resources = _containers(_one(deployed, "StatefulSet", "sluice-valkey"))[0]["resources"]
    assert mib(resources["limits"]["memory"]) == 2 * int(most) * 1024


def test_dev_has_one_replica_and_logs_to_be_read(
    render: Render, checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    deployment = _one(render("dev"), "Deployment", "sluice")
    parsed = _configuration(deployment, checkout, tmp_path)
    assert deployment["spec"]["replicas"] == 1
    assert (parsed.logging.format, parsed.logging.verbosity) == ("text", 3)


# ------------------------------------------------------------------------------------------------------------ the store


def test_the_store_is_durable_and_never_evicts(deployed: list[Object]) -> None:
    settings = _one(deployed, "ConfigMap", "sluice-valkey")["data"]["valkey.conf"].splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction"} <= set(settings)


def test_containers_of_a_store_pod_have_one_image(deployed: list[Object]) -> None:
    [image] = {container["image"] for container in _containers(_one(deployed, "StatefulSet", "sluice-valkey"))}
    assert "@sha256:" in image


@pytest.mark.parametrize("name", ["dev", "ha-store"])
def test_a_node_without_a_registry_runs_the_tag_of_the_store(tmp_path: pathlib.Path, name: str) -> None:
    for part in ("manifests", "certs"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=shutil.ignore_patterns("out"))
    take_the_digest_off(tmp_path / "manifests")
    _make(tmp_path)
    store = _one(_render(tmp_path, name), "StatefulSet", "sluice-valkey")
    assert {container["image"] for container in _containers(store)} == {images.named_by_the_manifests()}


def test_only_the_store_with_sentinels_has_more_than_one_pod(deployed: list[Object], render: Render) -> None:
    """Two pods without sentinels would be two stores."""
    store = _one(deployed, "StatefulSet", "sluice-valkey")
    programs = [container["command"][-1] for container in _containers(store)]
    if deployed is not render("ha-store"):
        assert (store["spec"]["replicas"], len(programs)) == (1, 1)
        return
    assert (store["spec"]["replicas"], programs) == (3, ["node", "sentinel"])
    [apart] = _pod(store)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"].items() <= _labels(store).items()
    [seconds] = re.findall(r"STORE_HANDOVER_SECONDS:-(\d+)", (MANIFESTS / "store-nodes" / "store.sh").read_text())
    assert int(seconds) + END_OF_VALKEY_SECONDS <= _pod(store)["terminationGracePeriodSeconds"]
    assert {container["lifecycle"]["preStop"]["exec"]["command"][-1] for container in _containers(store)} == {
        "handover"
    }
    budget = _one(deployed, "PodDisruptionBudget", "sluice-valkey")
    assert budget["spec"]["maxUnavailable"] == 1
    pods = {f"sluice-valkey-{number}" for number in range(3)}
    assert pods <= {service["metadata"]["name"] for service in _of(deployed, "Service")}


def test_make_sh_writes_the_sentinels_of_a_store_on_three_nodes(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    command = [str(checkout / "certs" / "make.sh"), str(tmp_path / "out"), "sluice", "sluice-system", "3"]
    subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True)
    for name, user in (("redis-url", "sluice"), ("admin-redis-url", "default")):
        address = store_address.parse((tmp_path / "out" / name).read_text())
        hosts = [f"sluice-valkey-{number}.sluice-system.svc:26379" for number in range(3)]
        assert ([str(node) for node in address.sentinels], address.name) == (hosts, "sluice-valkey")
        assert f"//{user}:" in (tmp_path / "out" / name).read_text()


def test_only_the_store_of_the_test_overlay_forgets(deployed: list[Object], render: Render) -> None:
    store = _one(deployed, "StatefulSet", "sluice-valkey")
    forgets = {"name": "data", "emptyDir": {}} in _pod(store)["volumes"]
    keeps = [claim["metadata"]["name"] for claim in store["spec"].get("volumeClaimTemplates", [])]
    assert (forgets, keeps) == ((True, []) if deployed is render("test") else (False, ["data"]))


def test_store_is_created_by_a_persistent_job_and_no_init_container(rendered: list[Object]) -> None:
    [job] = _of(rendered, "Job")
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert [container["args"][:2] for container in _containers(job)] == [["store", "init"]]
    assert [item["metadata"]["name"] for item in _workloads(rendered) if "initContainers" in _pod(item)] == []


# ------------------------------------------------------------------------------------------------------------ the program

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
"""Variables that the kubelet adds to every container (kubernetes/kubernetes pkg/kubelet/kubelet_pods.go getServiceEnvVarMap)."""


def _configuration(workload: Object, checkout: pathlib.Path, files: pathlib.Path) -> config.Config:
    """The program's configuration for a workload's arguments and variables. Mounted files are assumed to exist."""
    [container] = _containers(workload)
    arguments = []
    for argument in container["args"]:
        flag, _, value = argument.partition("=")
        if flag.endswith("-file"):
            file = files / pathlib.PurePosixPath(value).name
            file.touch()
            value = str(file)
        arguments.append(f"{flag}={value}" if value else flag)
    environment = {}
    for variable in container["env"]:
        if "fieldRef" in variable.get("valueFrom", {}):
            assert any(f"$({variable['name']})" in argument for argument in arguments)
        elif "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert reference["name"] == "sluice-store"
            environment[variable["name"]] = (checkout / "certs" / "out" / reference["key"]).read_text()
        else:
            environment[variable["name"]] = variable["value"]
    parsed = config.parse(arguments, {**environment, **POD})
    # A variable that no flag reads would be ignored without a word.
    assert set(environment) <= {flag.variable for flag in config.FLAGS if parsed.command in flag.commands}
    # Nor may the kubelet add some of that prefix: it would for each Service of the namespace.
    assert _pod(workload)["enableServiceLinks"] is False
    return parsed


def test_the_program_understands_its_arguments_and_variables(
    rendered: list[Object], checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    deployment = _one(rendered, "Deployment", "sluice")
    serve = _configuration(deployment, checkout, tmp_path)
    init = _configuration(_one(rendered, "Job", "sluice-store-init"), checkout, tmp_path)
    [store] = [item for item in _of(rendered, "Service") if item["spec"].get("clusterIP") == "None"]
    assert (serve.command, init.command, init.action) == ("serve", "store", "init")
    serving, administering = urlsplit(serve.storage.redis_url), urlsplit(init.storage.redis_url)
    assert (serving.username, administering.username) == (rights.SERVING_USER, "default")
    assert serving.hostname == administering.hostname
    assert serving.password != administering.password
    users = (checkout / "certs" / "out" / "auth.conf").read_text().splitlines()
    backing_up = (checkout / "certs" / "out" / "backup-password").read_text()
    assert users == [
        f"requirepass {administering.password}",
        rights.user_line(serving.password or ""),
        rights.backup_user_line(backing_up),
    ]
    for cron in _of(rendered, "CronJob"):
        backup = _configuration(cron, checkout, tmp_path)
        assert (backup.command, backup.action) == ("store", "backup")
        assert backup.storage.redis_url == serve.storage.redis_url.replace(
            f"{rights.SERVING_USER}:{serving.password}", f"{rights.BACKUP_USER}:{backing_up}"
        )
    assert f"@{store['metadata']['name']}.{store['metadata']['namespace']}.svc:6379/" in serve.storage.redis_url
    assert serve.serving.group == init.serving.group == _of(rendered, "APIService")[0]["spec"]["group"]
    [container] = _containers(deployment)
    assert [port["containerPort"] for port in container["ports"]] == [serve.serving.secure_port]


def test_trust_is_looked_up_in_the_cluster_and_never_mounted(
    rendered: list[Object], checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    serve = _configuration(_one(rendered, "Deployment", "sluice"), checkout, tmp_path)
    assert not serve.delegation.standalone
    assert not serve.delegation.skip_lookup
    assert not serve.delegation.tolerate_lookup_failure
    # The service account of the pod.
    assert (serve.delegation.authentication_kubeconfig, serve.delegation.authorization_kubeconfig) == ("", "")
    assert (serve.authentication.client_ca_file, serve.authentication.request_header.ca_file) == ("", "")
    assert "cluster-trust" not in json.dumps(rendered)


def test_a_pod_gets_the_time_that_an_orderly_stop_takes(
    rendered: list[Object], checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    deployment = _one(rendered, "Deployment", "sluice")
    serve = _configuration(deployment, checkout, tmp_path)
    closing = server.LAST_HANDSHAKES_SECONDS + server.SILENCE_SECONDS
    needed = serve.shutdown.delay_seconds + serve.shutdown.watch_seconds + 2 * serve.limits.request_seconds + closing
    assert _pod(deployment)["terminationGracePeriodSeconds"] > needed
