"""The manifests agree with each other, with the program's flags and with what certs/make.sh writes."""

from __future__ import annotations

import base64
import pathlib
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apiserver import config
from tests.e2e.controlplane import binaries

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = PROJECT / "manifests"
KUSTOMIZATIONS = sorted([*MANIFESTS.rglob("kustomization.yaml"), *PROJECT.glob("certs/kustomization.yaml")])
OVERLAYS = ["overlays/dev", "overlays/test"]

Object = dict[str, Any]


def _load(file: pathlib.Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document is not None]


def _named_files(kustomization: Object) -> Iterator[str]:
    yield from kustomization.get("resources", [])
    yield from (entry["path"] for field in ("patches", "replacements") for entry in kustomization.get(field, []))
    for field in ("secretGenerator", "configMapGenerator"):
        for generator in kustomization.get(field, []):
            yield from (file.partition("=")[2] or file for file in generator.get("files", []))


def _title(file: pathlib.Path) -> str:
    return str(file.relative_to(PROJECT))


@pytest.mark.parametrize("file", sorted([*MANIFESTS.rglob("*.yaml"), PROJECT / "skaffold.yaml"]), ids=_title)
def test_every_file_is_yaml_of_one_object(file: pathlib.Path) -> None:
    assert len(_load(file)) == 1


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
    assert {path.removeprefix("manifests/") for path in paths} == {*OVERLAYS, "store-init"}
    assert [path for path in paths if not (PROJECT / path / "kustomization.yaml").exists()] == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of manifests and certs with everything that certs/make.sh writes; the cluster's CAs are stand-ins."""
    if shutil.which("openssl") is None:
        pytest.skip("certs/make.sh needs openssl")
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("manifests", "certs"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("out"))
    trust = copy / "trust"
    trust.mkdir()
    for bundle in ("client-ca-file", "requestheader-client-ca-file"):
        (trust / bundle).write_text(f"{bundle} of the cluster\n")
    subprocess.run(
        [copy / "certs" / "make.sh"],
        env={"PATH": "/usr/bin:/bin", "CLUSTER_TRUST": str(trust)},
        check=True,
        capture_output=True,
    )
    return copy


def _render(checkout: pathlib.Path, folder: str) -> list[Object]:
    command = [str(binaries.kubectl()), "kustomize", str(checkout / "manifests" / folder)]
    return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True).stdout))


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request: pytest.FixtureRequest, checkout: pathlib.Path) -> list[Object]:
    return [*_render(checkout, request.param), *_render(checkout, "store-init")]


def _of(objects: list[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def _one(objects: list[Object], kind: str, name: str) -> Object:
    [found] = [item for item in _of(objects, kind) if item["metadata"]["name"] == name]
    return found


def _workloads(objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] in {"Deployment", "StatefulSet", "Job"}]


def _containers(workload: Object) -> list[Object]:
    pod = workload["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_every_namespaced_object_lies_in_our_namespace(rendered: list[Object]) -> None:
    [namespace] = _of(rendered, "Namespace")
    cluster_scoped = {"Namespace", "APIService"}
    elsewhere = [
        item
        for item in rendered
        if item["kind"] not in cluster_scoped and item["metadata"].get("namespace") != namespace["metadata"]["name"]
    ]
    assert elsewhere == []


def test_selectors_match_exactly_one_workload(rendered: list[Object]) -> None:
    labels = {item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in _workloads(rendered)}
    for item in [*_of(rendered, "Deployment"), *_of(rendered, "StatefulSet")]:
        selector = item["spec"]["selector"]["matchLabels"]
        assert [name for name, own in labels.items() if selector.items() <= own.items()] == [item["metadata"]["name"]]
    for service in _of(rendered, "Service"):
        selector = service["spec"]["selector"]
        assert [name for name, own in labels.items() if selector.items() <= own.items()] == [
            service["metadata"]["name"]
        ]


def test_services_and_probes_name_ports_of_their_pods(rendered: list[Object]) -> None:
    for service in _of(rendered, "Service"):
        [workload] = [item for item in _workloads(rendered) if item["metadata"]["name"] == service["metadata"]["name"]]
        ports = {port["name"] for container in _containers(workload) for port in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        for container in _containers(workload):
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                check = container.get(probe, {})
                named = [check[how]["port"] for how in ("httpGet", "tcpSocket") if how in check]
                assert set(named) <= ports


def test_mounts_and_variables_come_from_secrets_and_configmaps_that_exist(rendered: list[Object]) -> None:
    keys = {
        (item["kind"], item["metadata"]["name"]): set(item["data"])
        for item in rendered
        if item["kind"] in {"Secret", "ConfigMap"}
    }
    for workload in _workloads(rendered):
        pod = workload["spec"]["template"]["spec"]
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                source = volume["secret"]
                assert {item["key"] for item in source.get("items", [])} <= keys["Secret", source["secretName"]]
            if "configMap" in volume:
                assert keys["ConfigMap", volume["configMap"]["name"]]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for container in _containers(workload):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for variable in container.get("env", []):
                if "valueFrom" in variable:
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert reference["key"] in keys["Secret", reference["name"]]


def test_files_named_in_arguments_are_mounted(rendered: list[Object]) -> None:
    deployment = _one(rendered, "Deployment", "sluice")
    [container] = _containers(deployment)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    files = [
        pathlib.PurePosixPath(argument.partition("=")[2]) for argument in container["args"] if "-file=" in argument
    ]
    assert len(files) == 4
    for file in files:
        volume = volumes[mounts[str(file.parent)]]
        if "secret" in volume:
            held = _one(rendered, "Secret", volume["secret"]["secretName"])
        else:
            held = _one(rendered, "ConfigMap", volume["configMap"]["name"])
        assert file.name in held["data"]


def test_every_pod_is_restricted(rendered: list[Object]) -> None:
    for workload in _workloads(rendered):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in _containers(workload):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_apiservice_names_the_group_the_service_and_its_ca(rendered: list[Object]) -> None:
    [apiservice] = _of(rendered, "APIService")
    spec = apiservice["spec"]
    assert apiservice["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
    assert (spec["groupPriorityMinimum"], spec["versionPriority"]) == (1000, 15)
    service = _one(rendered, "Service", spec["service"]["name"])
    assert service["metadata"]["namespace"] == spec["service"]["namespace"]
    assert spec["service"]["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert "insecureSkipTLSVerify" not in spec
    # Only a CA certificate that Python can read gets counted.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(spec["caBundle"]).decode())
    assert context.cert_store_stats()["x509_ca"] == 1


def test_the_serving_certificate_carries_the_name_that_kube_apiserver_dials(checkout: pathlib.Path) -> None:
    out = checkout / "certs" / "out"
    [apiservice] = _load(MANIFESTS / "base" / "apiservice.yaml")
    service = apiservice["spec"]["service"]
    name = f"{service['name']}.{service['namespace']}.svc"
    command = ["openssl", "verify", "-purpose", "sslserver", "-verify_hostname", name, "-CAfile", "ca.crt", "tls.crt"]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in out.iterdir() if file.stat().st_mode & 0o077] == []


def test_the_store_is_durable_and_never_evicts(rendered: list[Object]) -> None:
    settings = _one(rendered, "ConfigMap", "sluice-valkey")["data"]["valkey.conf"].splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction"} <= set(settings)
    assert _one(rendered, "StatefulSet", "sluice-valkey")["spec"]["replicas"] == 1


def test_the_store_is_created_by_a_job_that_stays_and_never_by_an_init_container(rendered: list[Object]) -> None:
    [job] = _of(rendered, "Job")
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert [container["args"][:2] for container in _containers(job)] == [["store", "init"]]
    assert [
        item["metadata"]["name"]
        for item in _workloads(rendered)
        if "initContainers" in item["spec"]["template"]["spec"]
    ] == []


def _configuration(objects: list[Object], workload: Object, files: pathlib.Path) -> config.Config:
    """What the program makes of a workload's arguments and variables. Mounted files are taken as present."""
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
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            held = _one(objects, "Secret", reference["name"])["data"][reference["key"]]
            environment[variable["name"]] = base64.b64decode(held).decode()
        else:
            environment[variable["name"]] = variable["value"]
    parsed = config.parse(arguments, environment)
    # A variable that no flag reads would be ignored without a word.
    assert set(environment) <= {flag.variable for flag in config.FLAGS if parsed.command in flag.commands}
    return parsed


def test_the_program_understands_its_arguments_and_variables(rendered: list[Object], tmp_path: pathlib.Path) -> None:
    deployment = _one(rendered, "Deployment", "sluice")
    serve = _configuration(rendered, deployment, tmp_path)
    init = _configuration(rendered, _one(rendered, "Job", "sluice-store-init"), tmp_path)
    [store] = [item for item in _of(rendered, "Service") if item["spec"].get("clusterIP") == "None"]
    assert (serve.command, init.command, init.action) == ("serve", "store", "init")
    assert serve.storage.redis_url == init.storage.redis_url
    assert f"@{store['metadata']['name']}.{store['metadata']['namespace']}.svc:6379/" in serve.storage.redis_url
    assert serve.serving.group == init.serving.group == _of(rendered, "APIService")[0]["spec"]["group"]
    [container] = _containers(deployment)
    assert [port["containerPort"] for port in container["ports"]] == [serve.serving.secure_port]


def test_a_pod_gets_the_time_that_an_orderly_stop_takes(rendered: list[Object], tmp_path: pathlib.Path) -> None:
    deployment = _one(rendered, "Deployment", "sluice")
    serve = _configuration(rendered, deployment, tmp_path)
    needed = serve.shutdown.delay_seconds + serve.limits.request_seconds + serve.shutdown.watch_seconds
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > needed
