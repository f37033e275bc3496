"""`sluice manifests`: objects that fit together, and the limits of a ConfigMap."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver import __main__ as program
from apiserver.apiextensions import loading
from tests.fixtures.authorities import issue
from tests.fixtures.definitions import GROUP, definition, write

pytestmark = pytest.mark.usefixtures("configured_process")

Object = dict[str, Any]
Print = Callable[..., list[Object]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Print:
    def run(*words: object) -> list[Object]:
        assert program.run(["manifests", *map(str, words)], {}) == 0
        return list(yaml.safe_load_all(capsys.readouterr().out))

    return run


def of(kind: str, objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def versions(*names: str, unserved: str = "") -> Object:
    """A definition of several versions, the first of which is stored."""
    made = definition()
    [version] = made["spec"]["versions"]
    made["spec"]["versions"] = [
        {**version, "name": name, "served": name != unserved, "storage": name == names[0]} for name in names
    ]
    return made


def large(plural: str, size: int) -> Object:
    """A definition of at least this many bytes, which no compression makes much smaller."""
    made = definition(plural)
    digest = hashlib.shake_256(plural.encode()).digest(size * 6 // 8)
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = base64.b64encode(digest).decode()
    return made


def test_each_served_group_and_version_has_one_apiservice(tmp_path: Path, printed: Print) -> None:
    file = write(tmp_path / "a.yaml", versions("v1", "v1beta1", "v2", unserved="v2"), definition("gadgets"))
    found = of("APIService", printed("--crds", file, "--no-builtin-kinds"))
    assert {item["metadata"]["name"] for item in found} == {f"v1.{GROUP}", f"v1beta1.{GROUP}"}
    for item in found:
        spec = item["spec"]
        assert item["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
        assert (spec["groupPriorityMinimum"], spec["versionPriority"]) == (1000, 100)
        assert spec["service"] == {"namespace": "sluice-system", "name": "sluice", "port": 443}
        assert "kube-aggregator.kubernetes.io/automanaged" not in item["metadata"]["labels"]
    named = {item["metadata"]["name"] for item in of("APIService", printed("--crds", file))}
    assert named == {f"v1.{GROUP}", f"v1beta1.{GROUP}", "v1.resource.sluice.dev"}


def test_built_in_versions_have_the_priorities_of_kube_apiserver(printed: Print) -> None:
    found = of("APIService", printed("--group=resource.k8s.io"))
    assert {item["spec"]["version"]: item["spec"]["versionPriority"] for item in found} == {
        "v1": 21,
        "v1beta2": 15,
        "v1beta1": 9,
    }
    assert {item["spec"]["groupPriorityMinimum"] for item in found} == {16200}


def test_ca_is_in_each_apiservice_or_cert_manager_writes_it(tmp_path: Path, printed: Print) -> None:
    file, authority = write(tmp_path / "a.yaml", definition()), tmp_path / "ca.crt"
    authority.write_bytes(issue("ca").pem)
    for item in of("APIService", printed("--crds", file, "--ca-file", authority)):
        assert base64.b64decode(item["spec"]["caBundle"]) == authority.read_bytes()
        assert "annotations" not in item["metadata"]
    for item in of("APIService", printed("--crds", file)):
        assert "caBundle" not in item["spec"]
        assert item["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "sluice-system/sluice-serving"}


def test_ca_file_without_certificates_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.crt").write_text("none")
    assert program.run(["manifests", "--ca-file", str(tmp_path / "ca.crt")], {}) == 2
    assert capsys.readouterr().err.startswith("sluice: --ca-file: ")


def test_roles_cover_the_definitions(tmp_path: Path, printed: Print) -> None:
    made = definition()
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    made["spec"]["versions"][0]["subresources"] = {"status": {}, "scale": paths}
    file = write(tmp_path / "a.yaml", made, definition("seas", scope="Cluster"))
    view, edit = of("ClusterRole", printed("--crds", file, "--no-builtin-kinds"))
    assert [rule["resources"] for rule in view["rules"]] == [["widgets", "widgets/scale", "widgets/status"]]
    assert [rule["resources"] for rule in edit["rules"]] == [["widgets"], ["widgets/scale"]]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"


def test_deployment_serves_the_definitions_of_its_configmap(tmp_path: Path, printed: Print) -> None:
    for plural in ("widgets", "gadgets"):
        write(tmp_path / f"{plural}.yaml", definition(plural))
    objects = printed("--crds", tmp_path, "--no-builtin-kinds", "--group=own.example.com", "--emulated-version=1.36")
    [configmap], [deployment] = of("ConfigMap", objects), of("Deployment", objects)
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if f"--crds={mount['mountPath']}" in container["args"]]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert volume["projected"]["sources"] == [{"configMap": {"name": configmap["metadata"]["name"]}}]
    assert "subPath" not in mount, "a file with a subPath never changes"
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["SLUICE_GROUP"] == "own.example.com"
    assert variables["SLUICE_BUILTIN_KINDS"] == "false"
    assert variables["SLUICE_EMULATED_VERSION"] == "1.36"

    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name, text in configmap["data"].items():
        (mounted / name).write_text(text)
    again, errors = loading.read([mounted])
    first, _ = loading.read([tmp_path])
    assert errors == []
    assert [each.source for each in again] == [each.source for each in first]


def test_packages_are_named_to_the_deployment(printed: Print) -> None:
    [deployment] = of("Deployment", printed("--kinds=tests.fixtures.varying_kind"))
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "SLUICE_KINDS", "value": "tests.fixtures.varying_kind"} in container["env"]


def test_without_the_deployment_only_registrations_and_roles_are_printed(tmp_path: Path, printed: Print) -> None:
    objects = printed("--crds", write(tmp_path / "a.yaml", definition()), "--no-deployment")
    assert {item["kind"] for item in objects} == {"APIService", "ClusterRole"}
    assert "ConfigMap" not in {item["kind"] for item in printed()}


def test_configmap_leaves_out_what_a_cluster_recorded(tmp_path: Path, printed: Print) -> None:
    made = definition()
    made["metadata"] |= {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    }
    [configmap] = of("ConfigMap", printed("--crds", write(tmp_path / "a.yaml", made)))
    [text] = configmap["data"].values()
    assert yaml.safe_load(text)["metadata"] == {"annotations": {"kept": "yes"}, "name": f"widgets.{GROUP}"}


def test_definitions_above_one_mebibyte_are_compressed(tmp_path: Path, printed: Print) -> None:
    made = definition()
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "x" * (2 << 20)
    [configmap] = of("ConfigMap", printed("--crds", write(tmp_path / "a.yaml", made)))
    [(name, value)] = configmap["binaryData"].items()
    (tmp_path / name).write_bytes(base64.b64decode(value))
    [found], errors = loading.read([tmp_path / name])
    assert (found.plural, errors) == ("widgets", [])


def test_definitions_are_spread_over_configmaps_that_one_volume_holds(tmp_path: Path, printed: Print) -> None:
    names = [f"kind{i}s" for i in range(4)]
    objects = printed("--crds", write(tmp_path / "a.yaml", *(large(name, 600_000) for name in names)))
    maps, [deployment] = of("ConfigMap", objects), of("Deployment", objects)
    assert [item["metadata"]["name"] for item in maps] == ["sluice-crds", "sluice-crds-2"]
    for item in maps:
        assert sum(len(base64.b64decode(value)) for value in item["binaryData"].values()) <= 1 << 20
    assert sorted(key for item in maps for key in item["binaryData"]) == [f"{name}.{GROUP}.yaml.gz" for name in names]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    [sources] = [volume["projected"]["sources"] for volume in volumes if "projected" in volume]
    assert [source["configMap"]["name"] for source in sources] == ["sluice-crds", "sluice-crds-2"]


def test_definition_that_no_configmap_holds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", large("widgets", 3 << 20))
    assert program.run(["manifests", "--crds", str(file)], {}) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"sluice: --crds: widgets.{GROUP}.yaml.gz: compressed, it has ")
    assert "a ConfigMap has at most 1048576" in line


def test_definition_that_cannot_be_served_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = definition()
    made["spec"]["scope"] = "Global"
    file = tmp_path / "a.json"
    file.write_text(json.dumps(made))
    assert program.run(["manifests", "--crds", str(file)], {}) == 2
    seen = capsys.readouterr()
    assert (seen.out, "spec.scope: Unsupported value" in seen.err) == ("", True)
