"""kubectl where it reads or writes who manages which field: every command is run for kube-apiserver's own resource.k8s.io and for
Sluice's kinds behind the same kube-apiserver, and must end alike and say the same."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import yaml

from tests.e2e import objects
from tests.e2e.controlplane.external import Cluster
from tests.e2e.objects import Object

UPSTREAM_GROUP = "resource.k8s.io"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
STRATEGIC = "application/strategic-merge-patch+json"
ALIKE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r'(resourceVersion\\*"?: ?\\*"?)\d+'), r"\1<version>"),
    (re.compile(r"/\S*?/(LIVE-|MERGED-|kubectl-edit-)\d+"), r"\1"),
    (re.compile(r"^W\d{4} [\d:.]+ +\d+ ", re.MULTILINE), "W "),
)
"""Texts that differ between servers and between runs, and their replacements."""
_PATCHED = re.compile(r'verb="PATCH".*?Content-Type: (\S+)', re.DOTALL)


class Shown(NamedTuple):
    """The exit code and the output of kubectl."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Both:
    """kubectl with the two groups. Inputs and outputs name kube-apiserver's own group."""

    cluster: Cluster
    namespace: str
    folder: pathlib.Path
    """Where kubectl leaves what was edited in vain."""

    def __call__(self, *words: str, stdin: Sequence[Object] = (), editor: str = "false") -> Shown:
        """Run kubectl with both groups and compare the results."""
        theirs, ours = (self._run(group, words, stdin, editor) for group in (UPSTREAM_GROUP, objects.GROUP))
        assert ours == theirs
        return theirs

    def _run(self, group: str, words: Sequence[str], stdin: Sequence[Object] = (), editor: str = "false") -> Shown:
        def given(text: str) -> str:
            return text.replace(UPSTREAM_GROUP, group)

        done = self.cluster.kubectl(
            *map(given, words),
            "--namespace",
            self.namespace,
            stdin=given(yaml.safe_dump_all(stdin)),
            check=False,
            KUBE_EDITOR=editor,
            TMPDIR=str(self.folder),
        )
        return Shown(done.returncode, _alike(done.stdout, group), _alike(done.stderr, group))

    def managed(self, name: str) -> Object:
        """The object with its managedFields, in an order that no second decides."""
        words = ("get", name, "-o", "json", "--show-managed-fields")
        both: list[Object] = [json.loads(self._run(group, words).out) for group in (UPSTREAM_GROUP, objects.GROUP)]
        theirs, ours = both
        for found in (theirs, ours):
            found["metadata"].get("managedFields", []).sort(key=lambda entry: (entry["operation"], entry["manager"]))
        assert ours == theirs
        return theirs

    def patched_as(self, *words: str, stdin: Sequence[Object]) -> list[str]:
        """The media types of the patches that a command sends."""
        theirs, ours = (
            _PATCHED.findall(self._run(group, (*words, "-v=8"), stdin).err) for group in (UPSTREAM_GROUP, objects.GROUP)
        )
        assert ours == theirs
        return theirs


def _alike(text: str, group: str) -> str:
    text = text.replace(group, UPSTREAM_GROUP)
    for pattern, word in ALIKE:
        text = pattern.sub(word, text)
    return text


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str, tmp_path: pathlib.Path) -> Both:
    return Both(cluster, namespace, tmp_path)


@pytest.fixture
def name(namespace: str) -> str:
    """A name of objects without a namespace."""
    return f"of-{namespace}"


def device_class(name: str, *, resource: str = "example.com/gpu", **metadata: Any) -> Object:
    spec = {"extendedResourceName": resource, "selectors": [{"cel": {"expression": "true"}}]}
    return _object("DeviceClass", name, metadata) | {"spec": spec}


def claim(name: str, **metadata: Any) -> Object:
    """With what is defaulted: it stands in a list that is replaced as a whole."""
    wanted = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "gpu", "exactly": wanted}]
    return _object("ResourceClaim", name, metadata) | {"spec": {"devices": {"requests": requests}}}


def _object(kind: str, name: str, metadata: Object) -> Object:
    return {"apiVersion": f"{UPSTREAM_GROUP}/v1", "kind": kind, "metadata": {"name": name, **metadata}}


def of_class(name: str) -> str:
    return f"deviceclass.{UPSTREAM_GROUP}/{name}"


def of_claim(name: str) -> str:
    return f"resourceclaim.{UPSTREAM_GROUP}/{name}"


def managers(obj: Object) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["operation"]) for entry in obj["metadata"]["managedFields"]]


def editor(folder: pathlib.Path, command: str) -> str:
    """One that runs `sed` on what it is to edit."""
    file = folder / "editor"
    file.write_text(f"#!/bin/sh\nexec sed -i '{command}' \"$1\"\n")
    file.chmod(0o755)
    return str(file)


def test_server_side_apply_creates_changes_and_reports_conflicts(kubectl: Both, name: str) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    made = device_class(name, labels={"a": "1", "b": "1"})
    other = device_class(name, resource="example.com/other", labels={"a": "2"})

    tried = kubectl(*apply, "--dry-run=server", stdin=[made])
    assert tried == (0, f"{of_class(name)} serverside-applied (server dry run)\n", "")
    assert kubectl("get", of_class(name)).code == 1
    for _ in range(2):
        assert kubectl(*apply, stdin=[made]) == (0, f"{of_class(name)} serverside-applied\n", "")
    assert managers(kubectl.managed(of_class(name))) == [("kubectl", "Apply")]

    refused = kubectl(*apply, "--field-manager=other", stdin=[other])
    assert (refused.code, refused.out) == (1, "")
    assert '2 conflicts: conflicts with "kubectl":' in refused.err
    assert "- .metadata.labels.a\n- .spec.extendedResourceName" in refused.err
    assert kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=[other]).code == 0
    assert kubectl(*apply, "--field-manager=other", "--dry-run=server", "-o", "yaml", stdin=[other]).code == 0

    # A manager that gives a field up leaves it to the other; a field without any other manager is removed.
    assert kubectl(*apply, stdin=[device_class(name, resource="example.com/other")]).code == 0
    found = kubectl.managed(of_class(name))
    assert found["metadata"]["labels"] == {"a": "2"}
    assert managers(found) == [("kubectl", "Apply"), ("other", "Apply")]


def test_errors_in_applied_objects_get_upstreams_messages(kubectl: Both, name: str) -> None:
    made = device_class(name)
    wrong = {**made, "spec": {**made["spec"], "nothing": 1}}

    for validate in ("strict", "ignore"):
        refused = kubectl("apply", "--server-side", f"--validate={validate}", "-f", "-", stdin=[wrong])
        assert refused.code == 1
    assert "field not declared in schema" in refused.err
    carried = {**made, "metadata": {**made["metadata"], "managedFields": []}}
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=[carried])
    assert "metadata.managedFields must be nil" in refused.err


def test_diff_shows_what_an_apply_would_change(kubectl: Both, name: str) -> None:
    made = device_class(name, labels={"a": "1"})
    other = device_class(name, labels={"a": "2"})

    created = kubectl("diff", "--server-side", "-f", "-", stdin=[made])
    assert created.code == 1
    assert "+  name: " in created.out
    kubectl("apply", "--server-side", "-f", "-", stdin=[made])
    assert kubectl("diff", "--server-side", "-f", "-", stdin=[made]) == (0, "", "")
    changed = kubectl("diff", "--server-side", "-f", "-", stdin=[other])
    assert changed.code == 1
    assert '-    a: "1"\n+    a: "2"' in changed.out
    refused = kubectl("diff", "--server-side", "--field-manager=other", "-f", "-", stdin=[other])
    assert refused.code > 1
    assert (
        kubectl("diff", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=[other]).code
        == 1
    )
    assert kubectl("diff", "-f", "-", stdin=[other]).code == 1


def test_client_side_apply_patches_strategically_and_moves_to_the_server(kubectl: Both, namespace: str) -> None:
    """The lists of the claim's metadata are merged."""
    name = "applied"
    held = claim(name, labels={"a": "1", "b": "1"}, finalizers=["example.com/one", "example.com/two"])
    less = claim(name, labels={"a": "2"}, finalizers=["example.com/two"])
    apply = ("apply", "-f", "-")

    assert kubectl(*apply, stdin=[held]) == (0, f"{of_claim(name)} created\n", "")
    assert kubectl(*apply, stdin=[held]) == (0, f"{of_claim(name)} unchanged\n", "")
    assert kubectl(*apply, "--dry-run=server", stdin=[less]) == (
        0,
        f"{of_claim(name)} configured (server dry run)\n",
        "",
    )
    assert kubectl.patched_as(*apply, "--dry-run=server", stdin=[less]) == [STRATEGIC]
    kubectl(
        "patch",
        of_claim(name),
        "--type=json",
        "-p",
        '[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/x"}]',
    )
    assert kubectl(*apply, stdin=[less]) == (0, f"{of_claim(name)} configured\n", "")
    found = kubectl.managed(of_claim(name))
    assert found["metadata"]["finalizers"] == ["example.com/two", "example.com/x"]
    assert found["metadata"]["labels"] == {"a": "2"}
    assert kubectl("apply", "view-last-applied", of_claim(name)).code == 0

    moved = kubectl("apply", "--server-side", "-f", "-", stdin=[claim(name, labels={"a": "3"})])
    assert (moved.code, moved.out) == (0, f"{of_claim(name)} serverside-applied\n")
    found = kubectl.managed(of_claim(name))
    assert ("kubectl", "Apply") in managers(found)
    assert ("kubectl-client-side-apply", "Update") not in managers(found)
    assert found["metadata"]["finalizers"] == ["example.com/x"]
    # And back: what the annotation says is what was applied last.
    back = kubectl(*apply, stdin=[claim(name, labels={"b": "4"})])
    assert back.code == 0
    assert kubectl.managed(of_claim(name))["metadata"]["labels"] == {"b": "4"}
    kubectl("patch", of_claim(name), "-p", '{"metadata":{"finalizers":null}}')


def test_apply_prunes_what_is_no_longer_in_the_set(kubectl: Both, name: str) -> None:
    label = {"set": name}
    kept, gone = device_class(f"{name}-kept", labels=label), device_class(f"{name}-gone", labels=label)
    prune = ("--prune", "-l", f"set={name}", f"--prune-allowlist={UPSTREAM_GROUP}/v1/DeviceClass", "-f", "-")

    kubectl("apply", "-f", "-", stdin=[kept, gone])
    pruned = kubectl("apply", *prune, stdin=[kept])
    assert pruned.code == 0
    assert f"{of_class(gone['metadata']['name'])} pruned" in pruned.out
    assert (
        kubectl("get", "deviceclasses.resource.k8s.io", "-l", f"set={name}", "-o", "name").out
        == f"{of_class(kept['metadata']['name'])}\n"
    )


def test_patch_knows_three_types_and_the_status(kubectl: Both) -> None:
    name = "patched"
    kubectl("create", "-f", "-", stdin=[claim(name, finalizers=["example.com/one"])])
    patch = ("patch", of_claim(name))
    more = '{"metadata":{"finalizers":["example.com/two"],"labels":{"a":"1"}}}'

    assert kubectl(*patch, "-p", more) == (0, f"{of_claim(name)} patched\n", "")
    assert kubectl(*patch, "-p", more) == (0, f"{of_claim(name)} patched (no change)\n", "")
    assert sorted(kubectl.managed(of_claim(name))["metadata"]["finalizers"]) == ["example.com/one", "example.com/two"]
    assert kubectl(*patch, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/three"]}}').code == 0
    assert kubectl(*patch, "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels"}]').code == 0
    assert kubectl(*patch, "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels"}]').code == 1
    assert kubectl(*patch, "-p", '{"metadata":{"$patch":"nonsense"}}').code == 1
    assert kubectl(*patch, "-p", '{"spec":{"devices":{"requests":[]}}}').code == 1

    status = ("--subresource=status", "-p", json.dumps({"status": {"allocation": {"devices": {"results": [RESULT]}}}}))
    assert kubectl(*patch, *status, "--field-manager=scheduler").code == 0
    found = kubectl.managed(of_claim(name))
    assert ("scheduler", "Update") in managers(found)
    assert [entry["subresource"] for entry in found["metadata"]["managedFields"] if "subresource" in entry] == [
        "status"
    ]
    assert kubectl(*patch, "--type=merge", "-p", '{"metadata":{"finalizers":null}}').code == 0


RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


def test_edit_saves_what_was_applied_and_says_when_nothing_changed(
    kubectl: Both, name: str, tmp_path: pathlib.Path
) -> None:
    kubectl("create", "--save-config", "-f", "-", stdin=[device_class(name, labels={"a": "1"})])
    change = editor(tmp_path, "s,example.com/gpu,example.com/edited,")

    edited = kubectl("edit", "--save-config", of_class(name), editor=change)
    assert (edited.code, edited.out) == (0, f"{of_class(name)} edited\n")
    unchanged = kubectl("edit", of_class(name), editor="true")
    assert (unchanged.code, unchanged.out + unchanged.err) == (0, "Edit cancelled, no changes made.\n")
    found = kubectl.managed(of_class(name))
    assert found["spec"]["extendedResourceName"] == "example.com/edited"
    assert managers(found) == [("kubectl-create", "Update"), ("kubectl-edit", "Update")]
    assert '"example.com/edited"' in found["metadata"]["annotations"][LAST_APPLIED]
    change = editor(tmp_path, "s,example.com/edited,no name,")
    assert kubectl("edit", of_class(name), editor=change).code == 1


def test_label_annotate_and_replace_name_their_managers(kubectl: Both, name: str) -> None:
    kubectl("create", "--save-config", "-f", "-", stdin=[device_class(name, labels={"a": "1"})])

    assert kubectl("label", of_class(name), "a=2").code == 1
    assert kubectl("label", "--overwrite", of_class(name), "a=2", "b=1") == (0, f"{of_class(name)} labeled\n", "")
    assert kubectl("label", of_class(name), "b=1") == (0, f"{of_class(name)} not labeled\n", "")
    assert kubectl("annotate", of_class(name), "n=ü").code == 0
    assert kubectl("label", of_class(name), "b-").code == 0
    found = kubectl.managed(of_class(name))
    assert managers(found) == [
        ("kubectl-annotate", "Update"),
        ("kubectl-create", "Update"),
        ("kubectl-label", "Update"),
    ]
    assert kubectl("replace", "-f", "-", stdin=[device_class(name, resource="example.com/other")]).code == 0
    assert ("kubectl-replace", "Update") in managers(kubectl.managed(of_class(name)))
    assert kubectl("replace", "--save-config", "-f", "-", stdin=[device_class(name)]).code == 0
    assert kubectl("apply", "set-last-applied", "-f", "-", stdin=[device_class(name, labels={"c": "1"})]).code == 0
    assert "managedFields" not in kubectl("get", of_class(name), "-o", "yaml").out
