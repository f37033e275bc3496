"""docs/take-over-crds.md, command by command: the objects of a definition move into Sluice, are worked with there, and move back."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import PROJECT, Bed
from tests.e2e.controlplane.connection import Stream
from tests.e2e.controlplane.plane import until

PAGE = (PROJECT / "docs" / "take-over-crds.md").read_text()
COMMANDS = re.findall(r"^ *\$ (.*)$", PAGE, re.MULTILINE)
GROUP = "example.com"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APISERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}"
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SLUICE = 1 << 32
"""Sluice's resourceVersions are above this, etcd's below."""

pytestmark = pytest.mark.timeout(1800)
"""A dozen commands, each a start of Python, and three starts of a control plane."""

Object = dict[str, Any]


def definition(plural: str, group: str = GROUP) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": plural.removesuffix("s").title(), "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {**FREE, "description": "What is wanted."},
                                "status": FREE,
                            },
                        }
                    },
                    "subresources": {"status": {}},
                }
            ],
        },
    }


class MovingBed(Bed):
    """Its Sluice serves the definition too."""

    def environment(self) -> dict[str, str]:
        self.crds.write_text(yaml.safe_dump(definition("widgets")))
        return {**super().environment(), "SLUICE_CRDS": str(self.crds)}

    @property
    def crds(self) -> pathlib.Path:
        return self.folder / "crds.yaml"


class Administrator:
    """The reader of the page, who follows it. Knows which of its commands were run."""

    def __init__(self, bed: MovingBed) -> None:
        self.bed = bed
        self.folder = bed.folder / "administrator"
        self.folder.mkdir()
        (self.folder / "kubectl").symlink_to(binaries.kubectl())
        (self.folder / "ca.crt").write_bytes(bed.plane.pki.sluice.pem)
        keep, freeze = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        (self.folder / "keep-definitions.yaml").write_text(keep)
        (self.folder / "freeze.yaml").write_text(freeze)
        self.left = list(COMMANDS)
        bed.kubectl("create", "clusterrole", "probe", "--verb=create", f"--resource=widgets.{GROUP}")
        bed.kubectl("create", "clusterrolebinding", "probe", "--clusterrole=probe", "--user=probe")

    def run(self, beginning: str, *, after: str = "", **more: str) -> list[str]:
        """The page's next command that begins and ends like that: the lines of its output. `more` are further variables."""
        command = next(c for c in self.left if c.startswith(beginning) and c.endswith(after))
        self.left.remove(command)
        return self.again(command, **more)

    def again(self, command: str, **more: str) -> list[str]:
        done = self.attempt(command, **more)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    def attempt(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {
            "PATH": f"{self.folder}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.bed.admin),
            "CRDS": str(self.bed.crds),
            "CA": str(self.folder / "ca.crt"),
            "ADMIN_REDIS_URL": self.bed.store.url,
            "HOME": str(self.folder),
            **more,
        }
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def refused(self, beginning: str) -> None:
        """Run the page's next command until it is refused."""
        command = next(c for c in self.left if c.startswith(beginning))
        self.left.remove(command)
        until(lambda: "its objects are in Sluice" in self.attempt(command).stderr, "the definition is kept")

    def register(self) -> None:
        """Put the port of the process into the APIServices, where a cluster has that of the Service."""
        file = self.folder / "registered.yaml"
        objects = list(yaml.safe_load_all(file.read_text()))
        for item in objects:
            if item["kind"] == "APIService":
                item["spec"]["service"]["port"] = self.bed.replicas[0].port
        file.write_text(yaml.safe_dump_all(objects))

    def frozen(self) -> bool:
        with self.bed.connect() as admin:
            headers = {"Impersonate-User": "probe"}
            return "are being moved" in admin.ask("POST", f"{WIDGETS}?dryRun=All", widget("p"), headers=headers).text


def widget(name: str, **metadata: Any) -> Object:
    spec = {"n": 1, "x": 1.5, "none": None}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name, **metadata}, "spec": spec}


def owned_by(owner: Object, made: Object) -> Object:
    metadata = owner["metadata"]
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": metadata["name"], "uid": metadata["uid"]}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [reference]}}


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.fixture(scope="module")
def moving_bed(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MovingBed]:
    bed = MovingBed(tmp_path_factory.mktemp("crds"), registered=False)
    with bed:
        yield bed


def objects(bed: Bed) -> dict[str, Object] | None:
    """All widgets by name, without their resourceVersions; None while nobody serves them."""
    with bed.connect() as admin:
        reply = admin.ask("GET", WIDGETS)
    if reply.status != 200:
        return None
    found = {item["metadata"]["name"]: item for item in reply.json["items"]}
    for item in found.values():
        del item["metadata"]["resourceVersion"]
    return found


def from_sluice(bed: Bed) -> bool:
    with bed.connect() as admin:
        reply = admin.ask("GET", WIDGETS)
        return reply.status == 200 and int(reply.json["metadata"]["resourceVersion"]) >= SLUICE


def test_the_objects_of_a_definition_move_into_sluice_and_back(moving_bed: MovingBed) -> None:
    bed = moving_bed
    bed.kubectl("apply", "-f", str(bed.crds))
    bed.kubectl("wait", f"crd/widgets.{GROUP}", "--for=condition=Established")
    page = Administrator(bed)
    with bed.connect() as admin:
        until(lambda: admin.ask("GET", WIDGETS).status == 200, "kube-apiserver serves the definition")
        for name in ("a", "goes"):
            assert admin.ask("POST", WIDGETS, widget(name)).status == 201
        assert admin.ask("POST", WIDGETS, widget("held", finalizers=["example.com/hold"])).status == 201
        assert admin.ask("DELETE", f"{WIDGETS}/held").status == 200
        seen = admin.ask("GET", f"{WIDGETS}/a").json | {"status": {"seen": True}}
        assert admin.ask("PUT", f"{WIDGETS}/a/status", seen).status == 200
        assert admin.ask("POST", CONFIG_MAPS, owned_by(seen, config_map("of-a"))).status == 201

    # Into Sluice.
    page.run("kubectl apply -f keep-definitions.yaml")
    page.refused("kubectl delete -f")
    page.run("sluice store init")
    page.run("sluice manifests")
    page.register()
    assert page.run("sluice store import", after="--dry-run") == [
        "widgets: 3 read through v1, 3 to import, 0 renewed, 0 already there"
    ]
    # Written after the first import, and before the freeze.
    early = page.again(COMMANDS[COMMANDS.index(page.left[0]) :][1])
    assert early == ["widgets: 3 read through v1, 3 imported, 0 renewed, 0 already there"]
    with bed.connect() as admin:
        assert (
            admin.ask("PUT", f"{WIDGETS}/goes", admin.ask("GET", f"{WIDGETS}/goes").json | {"spec": {}}).status == 200
        )
    page.run("kubectl apply -f freeze.yaml")
    until(page.frozen, "the freeze is heeded")
    before = objects(bed)
    assert before is not None
    assert before["held"]["metadata"]["deletionTimestamp"]
    imported = page.run("sluice store import")
    assert imported == ["widgets: 3 read through v1, 0 imported, 1 renewed, 2 already there"]
    again = page.run("sluice store import", after="--dry-run")
    assert again == ["widgets: 3 read through v1, 0 to import, 0 renewed, 3 already there"]
    with bed.connect() as admin:
        last_seen = admin.ask("GET", WIDGETS).json["metadata"]["resourceVersion"]
    page.run("kubectl label apiservice")
    page.run("kubectl apply --server-side")
    page.run("kubectl wait apiservice")
    until(lambda: from_sluice(bed), "Sluice answers")
    assert objects(bed) == before
    assert page.frozen()
    with bed.connect() as admin:
        watch = f"{WIDGETS}?watch=true&resourceVersion={last_seen}"
        with Stream(admin, watch) as stream:
            told = stream.next()
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410), "a watch of etcd's lists again"
    page.run("kubectl delete -f freeze.yaml")
    until(lambda: not page.frozen(), "everybody writes again")

    # The definition stays, and kube-apiserver does not take the group back.
    with bed.connect() as admin:
        assert "its objects are in Sluice" in admin.ask("DELETE", f"{DEFINITIONS}/widgets.{GROUP}").text
    bed.kubectl("annotate", "crd", f"widgets.{GROUP}", "example.com/touched=yes")
    changed = [{"op": "add", "path": "/spec/names/shortNames", "value": ["wd"]}]
    bed.kubectl("patch", "crd", f"widgets.{GROUP}", "--type=json", f"--patch={yaml.safe_dump(changed)}")
    bed.plane.controllers = True
    bed.plane.restart()
    until(lambda: from_sluice(bed), "Sluice answers after a restart of kube-apiserver")
    with bed.connect() as admin:
        registered = admin.ask("GET", APISERVICE).json
        assert AUTOMANAGED not in registered["metadata"]["labels"]
        assert registered["spec"]["service"]["name"] == "sluice"
    assert "What is wanted." in bed.kubectl("explain", "widgets.spec").stdout

    # It is worked with there: the garbage collector sees owners in Sluice.
    with bed.connect() as admin:
        assert admin.ask("DELETE", f"{WIDGETS}/goes").status == 200
        for name in ("b", "comes"):
            made = admin.ask("POST", WIDGETS, widget(name))
            assert made.status == 201
            assert admin.ask("POST", CONFIG_MAPS, owned_by(made.json, config_map(f"of-{name}"))).status == 201
        for name in ("corrected", "left"):
            assert admin.ask("POST", WIDGETS, owned_by(made.json, widget(name))).status == 201
        assert admin.ask("DELETE", f"{WIDGETS}/b?propagationPolicy=Background").status == 200
        until(lambda: admin.ask("GET", f"{CONFIG_MAPS}/of-b").status == 404, "the dependent is collected", seconds=240)
        for name in ("a", "comes"):
            assert admin.ask("GET", f"{CONFIG_MAPS}/of-{name}").status == 200
    moved = objects(bed)
    assert moved is not None

    # And back.
    bed.plane.processes.pop("kube-controller-manager").stop()
    page.run("kubectl apply -f freeze.yaml")
    until(page.frozen, "the freeze is heeded")
    page.run("kubectl delete apiservice")
    until(lambda: objects(bed) == before, "etcd is as it was left")
    with bed.connect() as admin:
        assert AUTOMANAGED in admin.ask("GET", APISERVICE).json["metadata"]["labels"]
    lines = page.run("sluice store export", after="--dry-run")
    assert lines[0] == "widgets: 3 to create, 0 to update, 2 there already, 1 to delete"
    lines = page.run("sluice store export")
    assert lines[:2] == [
        "widgets: 3 created, 0 updated, 2 there already, 1 deleted",
        "deleted: widgets goes of namespace default",
    ]
    back = objects(bed)
    assert back is not None
    assert back.keys() == moved.keys()
    assert (back["a"], back["held"]) == (before["a"], before["held"])
    former, uid = moved["comes"]["metadata"]["uid"], back["comes"]["metadata"]["uid"]
    assert uid != former
    assert f"new uid: widgets comes of namespace default: {uid}, was {former}" in lines
    own = {"FORMER_UID": former, "NEW_UID": uid}
    command = next(c for c in page.left if c.startswith("kubectl get "))
    page.run("kubectl get ", KIND="widgets", NAME="corrected", **own)
    page.again(command, KIND="configmaps", NAME="of-comes", **own)
    bed.plane.start_clients()
    with bed.connect() as admin:
        page.run("kubectl delete -f freeze.yaml")
        until(lambda: admin.ask("GET", f"{WIDGETS}/left").status == 404, "its owner is missing", seconds=240)
        # Deletions of its kind: whatever else had to go went as well.
        made = admin.ask("POST", WIDGETS, widget("last")).json
        assert admin.ask("POST", CONFIG_MAPS, owned_by(made, config_map("of-last"))).status == 201
        assert admin.ask("DELETE", f"{WIDGETS}/last?propagationPolicy=Background").status == 200
        until(lambda: admin.ask("GET", f"{CONFIG_MAPS}/of-last").status == 404, "it is collected", seconds=240)
        for kept in (f"{CONFIG_MAPS}/of-a", f"{CONFIG_MAPS}/of-comes", f"{WIDGETS}/corrected"):
            assert admin.ask("GET", kept).status == 200
    page.run("kubectl delete -f keep-definitions.yaml")
    assert page.left == []


def test_sluice_keeps_the_objects_of_a_definition_that_was_deleted(moving_bed: MovingBed) -> None:
    """The page's policy is missing. The way back gives each object a new uid."""
    bed, named = moving_bed, f"widgets.{GROUP}"
    bed.kubectl("apply", "-f", str(bed.crds))
    bed.kubectl("wait", f"crd/{named}", "--for=condition=Established")
    written = yaml.safe_load_all((bed.folder / "administrator" / "registered.yaml").read_text())
    registered = [item for item in written if item["metadata"]["name"] == f"v1.{GROUP}"]
    with bed.connect() as admin:
        bed.kubectl("label", "apiservice", f"v1.{GROUP}", f"{AUTOMANAGED}-")
        bed.apply(registered)
        until(lambda: from_sluice(bed), "Sluice answers")
        kept = objects(bed)
        assert kept

        # With its label, the APIService is kube-apiserver's again.
        bed.kubectl("label", "apiservice", f"v1.{GROUP}", f"{AUTOMANAGED}=true")
        until(lambda: objects(bed) is not None and not from_sluice(bed), "kube-apiserver takes the group back")
        bed.kubectl("label", "apiservice", f"v1.{GROUP}", f"{AUTOMANAGED}-")
        bed.apply(registered)
        until(lambda: from_sluice(bed), "Sluice answers")

        assert admin.ask("DELETE", f"{DEFINITIONS}/{named}").status == 200
        # Owners get new uids below, and nobody corrects the references to them.
        bed.plane.controllers = False
        bed.plane.restart()
    until(lambda: from_sluice(bed), "Sluice answers")
    assert objects(bed) == kept
    with bed.connect() as admin:
        # Objects with finalizers wait in etcd, and the definition with them.
        bed.kubectl("delete", "apiservice", f"v1.{GROUP}")
        until(lambda: objects(bed) is not None and not from_sluice(bed), "kube-apiserver has the group")
        until(lambda: {*(objects(bed) or ())} == {"held"}, "etcd has lost the others")
        assert admin.ask("GET", f"{DEFINITIONS}/{named}").json["metadata"]["deletionTimestamp"]
        bed.kubectl("patch", "widget", "held", "--type=merge", '--patch={"metadata":{"finalizers":null}}')
        until(lambda: admin.ask("GET", f"{DEFINITIONS}/{named}").status == 404, "the definition is deleted")
        bed.kubectl("apply", "-f", str(bed.crds))
        bed.kubectl("wait", f"crd/{named}", "--for=condition=Established")
        until(lambda: objects(bed) == {}, "it is served again, without objects")
        lines = bed.sluice("store", "export", f"--crds={bed.crds}", f"--to-kubeconfig={bed.admin}").stdout.splitlines()
        assert lines[0] == f"widgets: {len(kept)} created, 0 updated, 0 there already"
        back = objects(bed)
        assert back is not None
        assert back.keys() == kept.keys()
        assert all(back[name]["metadata"]["uid"] != kept[name]["metadata"]["uid"] for name in kept)


def test_a_finalizer_does_not_keep_the_objects_of_a_deleted_definition(moving_bed: MovingBed) -> None:
    """So the page has a policy instead."""
    bed, group = moving_bed, "finalized.example.com"
    made = definition("gadgets", group)
    made["metadata"]["finalizers"] = ["example.com/keep"]
    bed.apply([made])
    named = f"gadgets.{group}"
    bed.kubectl("wait", f"crd/{named}", "--for=condition=Established")
    path = f"/apis/{group}/v1/namespaces/default/gadgets"
    with bed.connect() as admin:
        body = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
        until(lambda: admin.ask("POST", path, body).status in {201, 409}, "kube-apiserver serves the definition")
        assert admin.ask("DELETE", f"{DEFINITIONS}/{named}").status == 200
        until(lambda: admin.ask("GET", f"{path}/a").status == 404, "the object is deleted")
        waits = admin.ask("GET", f"{DEFINITIONS}/{named}").json["metadata"]
        assert waits["deletionTimestamp"]
    bed.kubectl("patch", "crd", named, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
