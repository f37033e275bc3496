"""A new user's first minute: plain kubectl against `sluice dev`, and against a kube-apiserver with Sluice behind it."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Kubectl
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane import kubectl as real_kubectl
from tests.e2e.controlplane.plane import until

GROUP = "resource.sluice.dev"


def dump(document: Any) -> str:
    return str(yaml.safe_dump(document))


def resource_slice(name: str, *, node: str = "node-1", driver: str = "gpu.example.com") -> str:
    return dump(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name, "labels": {"rack": "a1"}},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": "gpu-0",
                        "attributes": {"model": {"string": "X200"}, "index": {"int": 0}},
                        "capacity": {"memory": {"value": "80Gi"}},
                    }
                ],
            },
        }
    )


def claim(name: str) -> str:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return dump(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
    )


@pytest.fixture(scope="module", params=["dev", "cluster"])
def kubeconfig(request: pytest.FixtureRequest) -> pathlib.Path:
    """The administrator's."""
    server = request.getfixturevalue(request.param)
    file: pathlib.Path = server.kubeconfig if request.param == "dev" else server.admin
    return file


@pytest.fixture
def kubectl(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Kubectl:
    def run(*words: str, stdin: str = "", check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        return real_kubectl.run(*words, kubeconfig=kubeconfig, home=tmp_path, stdin=stdin, check=check, **environ)

    return run


@pytest.fixture
def created(kubectl: Kubectl, request: pytest.FixtureRequest) -> str:
    """The name of a slice that exists for this test."""
    name = "s-" + str(request.node.originalname).removeprefix("test_").replace("_", "-")[:50].strip("-")
    kubectl("create", "-f", "-", stdin=resource_slice(name))
    return name


def stored(kubectl: Kubectl, name: str) -> Any:
    return json.loads(kubectl("get", f"resourceslice.{GROUP}", name, "-o", "json").stdout)


def test_create_validates_on_the_client_and_get_shows_upstreams_columns(kubectl: Kubectl, created: str) -> None:
    header, row, *_ = kubectl("get", f"resourceslices.{GROUP}", created).stdout.splitlines()

    assert header.split() == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert row.split()[:4] == [created, "node-1", "gpu.example.com", "node-1"]


def test_create_and_delete_accept_the_list_that_get_prints(kubectl: Kubectl) -> None:
    names = ["listed-1", "listed-2"]
    for name in names:
        kubectl("create", "-f", "-", stdin=resource_slice(name))
    printed = kubectl("get", f"resourceslices.{GROUP}", *names, "-o", "yaml").stdout
    assert yaml.safe_load(printed)["kind"] == "List"

    assert kubectl("delete", "-f", "-", stdin=printed).stdout.count("deleted") == 2
    assert kubectl("create", "-f", "-", stdin=printed).stdout.count("created") == 2

    wrong = printed.replace("driver:", "drivr: x\n    driver:").replace("listed-", "wrong-")
    assert "drivr" in kubectl("create", "-f", "-", stdin=wrong, check=False).stderr


def test_dev_serves_of_the_kinds_of_kubernetes_namespaces_and_reviews(
    kubectl: Kubectl, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["kubeconfig"] == "cluster":
        pytest.skip("kube-apiserver has more")
    assert "the server doesn't have a resource type" in kubectl("get", "pods", check=False).stderr
    assert "the server doesn't have a resource type" in kubectl("get", "all", check=False).stderr
    assert "could not find the requested resource" in kubectl("create", "configmap", "x", check=False).stderr
    groups = ["authentication.k8s.io/v1", "authorization.k8s.io/v1", f"{GROUP}/v1", "v1"]
    assert kubectl("api-versions").stdout.split() == groups
    assert {row.split()[-1] for row in kubectl("api-resources", "--no-headers").stdout.splitlines()} == {
        "DeviceClass",
        *(["DeviceTaintRule"] if binaries.minor() >= "1.37" else []),
        "LocalSubjectAccessReview",
        "Namespace",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    }


def test_namespaces_are_created_shown_labelled_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "made").stdout == "namespace/made created\n"
    again = kubectl("create", "namespace", "made", check=False).stderr
    assert again == 'Error from server (AlreadyExists): namespaces "made" already exists\n'
    header, row = kubectl("get", "namespace", "made").stdout.splitlines()
    assert (header.split(), row.split()[:2]) == (["NAME", "STATUS", "AGE"], ["made", "Active"])
    kubectl("label", "namespace", "made", "team=a")
    assert kubectl("get", "ns", "-l", "team=a", "-o", "name").stdout == "namespace/made\n"
    kubectl("create", "-n", "made", "-f", "-", stdin=claim("inside"))

    assert kubectl("delete", "namespace", "made", "--timeout=120s").stdout == 'namespace "made" deleted\n'

    assert kubectl("get", f"resourceclaims.{GROUP}", "-n", "made", "-o", "name").stdout == ""
    kept = kubectl("delete", "namespace", "default", check=False).stderr
    assert (
        kept == 'Error from server (Forbidden): namespaces "default" is forbidden: this namespace may not be deleted\n'
    )
    assert "FIELDS:\n  finalizers" in kubectl("explain", "namespace.spec").stdout


def test_get_in_a_missing_namespace_says_that_the_namespace_is_missing(kubectl: Kubectl) -> None:
    missing = kubectl("get", f"resourceclaim.{GROUP}", "nope", "-n", "nowhere", check=False).stderr
    assert missing == 'Error from server (NotFound): namespaces "nowhere" not found\n'

    known = kubectl("get", f"resourceclaim.{GROUP}", "nope", "-n", "kube-system", check=False).stderr
    assert known == f'Error from server (NotFound): resourceclaims.{GROUP} "nope" not found\n'


def test_auth_commands_show_the_user_and_its_rights(kubectl: Kubectl) -> None:
    assert "system:masters" in kubectl("auth", "whoami").stdout
    assert kubectl("auth", "can-i", "create", f"resourceslices.{GROUP}").stdout == "yes\n"
    jane = ("--as", "jane", "--as-group", "system:authenticated")
    assert kubectl("auth", "can-i", "create", f"resourceslices.{GROUP}", *jane, check=False).stdout == "no\n"
    assert kubectl("auth", "can-i", "get", "/version", *jane).stdout == "yes\n"
    rows = [row.split() for row in kubectl("auth", "can-i", "--list").stdout.splitlines()]
    assert ["*.*", "[]", "[]", "[*]"] in rows
    assert ["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"] in rows


@pytest.mark.parametrize(("cascade", "left"), [("orphan", ["dependent"]), ("foreground", []), ("background", [])])
def test_delete_with_each_cascade_ends_and_does_to_dependents_what_it_says(
    kubectl: Kubectl, cascade: str, left: list[str]
) -> None:
    namespace = f"cascade-{cascade}"
    kubectl("create", "namespace", namespace)
    kubectl("create", "-n", namespace, "-f", "-", stdin=claim("owner"))
    uid = kubectl("get", f"resourceclaim.{GROUP}", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}").stdout
    dependent = yaml.safe_load(claim("dependent"))
    owner = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "name": "owner",
        "uid": uid,
        "blockOwnerDeletion": True,
    }
    dependent["metadata"]["ownerReferences"] = [owner]
    kubectl("create", "-n", namespace, "-f", "-", stdin=dump(dependent))

    kubectl("delete", f"resourceclaim.{GROUP}", "owner", "-n", namespace, f"--cascade={cascade}", "--timeout=120s")

    def names() -> list[str]:
        shown = kubectl("get", f"resourceclaims.{GROUP}", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}")
        return shown.stdout.split()

    until(lambda: names() == left, "the dependents are as the deletion left them")
    if left:
        orphan = json.loads(kubectl("get", f"resourceclaim.{GROUP}", *left, "-n", namespace, "-o", "json").stdout)
        assert "ownerReferences" not in orphan["metadata"]


def test_create_of_an_unknown_field_is_refused_with_its_path(kubectl: Kubectl) -> None:
    wrong = resource_slice("wrong").replace("driver:", "drivr: x\n  driver:")

    done = kubectl("create", "-f", "-", stdin=wrong, check=False)

    assert done.returncode != 0
    assert 'unknown field "spec.drivr"' in done.stderr


def test_get_prints_wide_yaml_name_and_jsonpath(kubectl: Kubectl, created: str) -> None:
    assert created in kubectl("get", f"resourceslices.{GROUP}", created, "-o", "wide").stdout
    document = yaml.safe_load(kubectl("get", f"resourceslice.{GROUP}", created, "-o", "yaml").stdout)
    assert document["kind"] == "ResourceSlice"
    assert document["spec"]["devices"][0]["capacity"]["memory"]["value"] == "80Gi"
    assert (
        kubectl("get", f"resourceslice.{GROUP}", created, "-o", "name").stdout == f"resourceslice.{GROUP}/{created}\n"
    )
    assert (
        kubectl("get", f"resourceslice.{GROUP}", created, "-o", "jsonpath={.spec.driver}").stdout == "gpu.example.com"
    )


def test_get_selects_by_label_and_field(kubectl: Kubectl, created: str) -> None:
    by_field = kubectl(
        "get", f"resourceslices.{GROUP}", "--field-selector", f"metadata.name={created}", "-o", "name"
    ).stdout
    assert by_field.split() == [f"resourceslice.{GROUP}/{created}"]
    assert created in kubectl("get", f"resourceslices.{GROUP}", "-l", "rack=a1", "-o", "name").stdout
    assert created not in kubectl("get", f"resourceslices.{GROUP}", "-l", "rack=b2", "-o", "name").stdout


def test_get_of_a_missing_object_says_not_found(kubectl: Kubectl) -> None:
    done = kubectl("get", f"resourceslice.{GROUP}", "nowhere", check=False)

    assert done.returncode == 1
    assert f'Error from server (NotFound): resourceslices.{GROUP} "nowhere" not found' in done.stderr


def test_get_pages_through_chunks(kubectl: Kubectl) -> None:
    for i in range(5):
        kubectl("create", "-f", "-", stdin=claim(f"chunk-{i}"))

    names = kubectl("get", f"resourceclaims.{GROUP}", "--chunk-size=2", "-o", "name").stdout

    assert [f"chunk-{i}" in names for i in range(5)] == [True] * 5


def test_get_watch_shows_a_change_as_it_happens(
    kubeconfig: pathlib.Path, kubectl: Kubectl, kubectl_binary: pathlib.Path, created: str
) -> None:
    command = [
        str(kubectl_binary),
        "--kubeconfig",
        str(kubeconfig),
        "get",
        f"resourceslice.{GROUP}",
        created,
        "-w",
        "-o",
        "name",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().strip().endswith(created)
        kubectl("label", f"resourceslice.{GROUP}", created, "seen=yes")
        assert watching.stdout.readline().strip().endswith(created)
        watching.terminate()


def test_describe_prints_the_object(kubectl: Kubectl, created: str) -> None:
    text = kubectl("describe", f"resourceslice.{GROUP}", created).stdout

    assert created in text
    assert "gpu.example.com" in text


def test_label_and_annotate_change_metadata_and_not_the_generation(kubectl: Kubectl, created: str) -> None:
    kubectl("label", f"resourceslice.{GROUP}", created, "rack=b2", "--overwrite")
    kubectl("annotate", f"resourceslice.{GROUP}", created, "note=hello")

    metadata = stored(kubectl, created)["metadata"]
    assert (metadata["labels"]["rack"], metadata["annotations"]["note"], metadata["generation"]) == ("b2", "hello", 1)


def test_edit_saves_what_the_editor_wrote(kubectl: Kubectl, created: str, tmp_path: pathlib.Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/X200/X300/' \"$1\"\n")
    editor.chmod(0o755)

    kubectl("edit", f"resourceslice.{GROUP}", created, KUBE_EDITOR=str(editor))

    assert stored(kubectl, created)["spec"]["devices"][0]["attributes"]["model"] == {"string": "X300"}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"spec":{"pool":{"generation":2}}}'),
        ("json", '[{"op":"replace","path":"/spec/pool/generation","value":2}]'),
    ],
)
def test_patch_changes_spec_and_raises_the_generation(kubectl: Kubectl, kind: str, patch: str) -> None:
    name = f"patched-{kind}"
    kubectl("create", "-f", "-", stdin=resource_slice(name))

    kubectl("patch", f"resourceslice.{GROUP}", name, "--type", kind, "-p", patch)

    found = stored(kubectl, name)
    assert (found["spec"]["pool"]["generation"], found["metadata"]["generation"]) == (2, 2)


def test_apply_creates_changes_and_then_has_nothing_to_do(kubectl: Kubectl, tmp_path: pathlib.Path) -> None:
    manifest = tmp_path / "slice.yaml"
    manifest.write_text(resource_slice("applied"))

    assert kubectl("apply", "-f", str(manifest)).stdout == f"resourceslice.{GROUP}/applied created\n"
    assert kubectl("apply", "-f", str(manifest)).stdout == f"resourceslice.{GROUP}/applied unchanged\n"
    manifest.write_text(resource_slice("applied").replace("X200", "X400"))
    assert kubectl("diff", "-f", str(manifest), check=False).returncode == 1
    assert kubectl("apply", "-f", str(manifest)).stdout == f"resourceslice.{GROUP}/applied configured\n"
    assert kubectl("diff", "-f", str(manifest)).stdout == ""


def test_replace_with_a_stale_version_is_a_conflict(kubectl: Kubectl, created: str, tmp_path: pathlib.Path) -> None:
    manifest = tmp_path / "old.json"
    manifest.write_text(json.dumps(stored(kubectl, created)))
    kubectl("label", f"resourceslice.{GROUP}", created, "newer=yes")

    done = kubectl("replace", "-f", str(manifest), check=False)

    assert done.returncode != 0
    assert "the object has been modified; please apply your changes to the latest version and try again" in done.stderr


def test_a_server_dry_run_shows_the_object_and_stores_nothing(kubectl: Kubectl) -> None:
    shown = kubectl("create", "-f", "-", "--dry-run=server", "-o", "yaml", stdin=resource_slice("dry")).stdout

    assert yaml.safe_load(shown)["metadata"]["uid"]
    assert kubectl("get", f"resourceslice.{GROUP}", "dry", check=False).returncode == 1


def test_kubectl_reads_version_2_of_openapi_too(kubectl: Kubectl) -> None:
    """In protobuf."""
    text = kubectl(
        "explain", "resourceslice.spec.pool", "--output=plaintext-openapiv2", f"--api-version={GROUP}/v1"
    ).stdout
    assert "generation\t<integer> -required-" in text


def test_explain_knows_every_level(kubectl: Kubectl) -> None:
    text = kubectl("explain", "resourceslice.spec.devices", "--recursive", f"--api-version={GROUP}/v1").stdout

    assert "KIND:       ResourceSlice" in text
    assert "FIELD: devices <[]Device>" in text
    for member in ("attributes", "capacity", "consumesCounters", "taints", "bindingConditions", "requestPolicy"):
        assert member in text
    assert "DESCRIPTION:\n    <empty>" not in text


def test_wait_returns_when_the_condition_holds(
    kubeconfig: pathlib.Path, kubectl: Kubectl, kubectl_binary: pathlib.Path, created: str
) -> None:
    command = [str(kubectl_binary), "--kubeconfig", str(kubeconfig), "wait", f"resourceslice.{GROUP}/{created}"]
    command += ["--for=jsonpath={.metadata.labels.done}=yes", "--timeout=120s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        kubectl("label", f"resourceslice.{GROUP}", created, "done=yes")
        out, err = waiting.communicate(timeout=150)
    assert (waiting.returncode, "condition met" in out) == (0, True), err


def test_kubectl_delete_waits_until_the_object_is_deleted(kubectl: Kubectl, created: str) -> None:
    deleted = kubectl("delete", f"resourceslice.{GROUP}", created, "--timeout=120s").stdout

    assert f'resourceslice.{GROUP} "{created}" deleted' in deleted
    assert kubectl("get", f"resourceslice.{GROUP}", created, check=False).returncode == 1


def test_delete_all_of_a_namespace_leaves_other_namespaces_alone(kubectl: Kubectl) -> None:
    for namespace in ("red", "blue"):
        kubectl("create", "namespace", namespace)
        kubectl("create", "-n", namespace, "-f", "-", stdin=claim("one"))

    kubectl("delete", f"resourceclaims.{GROUP}", "--all", "-n", "red")

    assert "No resources found" in kubectl("get", f"resourceclaims.{GROUP}", "-n", "red").stderr
    assert "one" in kubectl("get", f"resourceclaims.{GROUP}", "-n", "blue", "-o", "name").stdout


def test_the_status_of_a_claim_is_patched_through_its_subresource(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=claim("with-status"))
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}

    kubectl(
        "patch",
        f"resourceclaim.{GROUP}",
        "with-status",
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps(status),
    )

    rows = kubectl("get", f"resourceclaim.{GROUP}", "with-status").stdout
    assert "allocated" in rows


def test_api_resources_lists_the_kinds(kubectl: Kubectl) -> None:
    rows = kubectl("api-resources", f"--api-group={GROUP}", "--no-headers").stdout.splitlines()

    assert {(row.split()[0], row.split()[-2]) for row in rows} >= {
        ("deviceclasses", "false"),
        ("resourceclaims", "true"),
        ("resourceclaimtemplates", "true"),
        ("resourceslices", "false"),
    }


def test_get_raw_answers_as_the_server_does(kubectl: Kubectl) -> None:
    document = json.loads(kubectl("get", "--raw", f"/apis/{GROUP}/v1/resourceslices?limit=1").stdout)

    assert (document["kind"], document["apiVersion"]) == ("ResourceSliceList", f"{GROUP}/v1")
    assert kubectl("get", "--raw", "/readyz").stdout == "ok"


def test_kubectl_takes_the_server_for_the_chosen_kubernetes(kubectl: Kubectl) -> None:
    assert f"Server Version: v{binaries.minor()}." in kubectl("version").stdout
