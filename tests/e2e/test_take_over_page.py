"""docs/take-over.md, command by command: a running cluster's `resource.k8s.io` moves into Sluice, is worked with there, and moves back."""

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

from tests.e2e import workloads
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import DRA_GROUP, MANIFESTS, PROJECT, Bed
from tests.e2e.controlplane.plane import until

PAGE = PROJECT / "docs" / "take-over.md"
OFF = f"--runtime-config={DRA_GROUP}/v1=false"
KINDS = ("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates")

Object = dict[str, Any]


def commands() -> list[str]:
    return re.findall(r"^ *\$ (.*)$", PAGE.read_text(), re.MULTILINE)


class Administrator:
    """The reader of the page, who follows it. Knows which of its commands were run."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.folder = bed.folder / "administrator"
        self.folder.mkdir()
        (self.folder / "manifests").symlink_to(MANIFESTS)
        (self.folder / "kubectl").symlink_to(binaries.kubectl())
        prepared = self.folder / "prepared"
        prepared.mkdir()
        document = {
            "resources": ["../../kustomize"],
            "components": [os.path.relpath(MANIFESTS / "take-over" / "unregistered", prepared)],
        }
        (prepared / "kustomization.yaml").write_text(yaml.safe_dump(document))
        self.left = commands()
        bed.kubectl("create", "clusterrole", "probe", "--verb=create", f"--resource=deviceclasses.{DRA_GROUP}")
        bed.kubectl("create", "clusterrolebinding", "probe", "--clusterrole=probe", "--user=probe")

    def run(self, beginning: str, *, after: str = "", complete: bool = True) -> list[str]:
        """The page's next command that begins and ends like that: the lines of its output."""
        command = next(c for c in self.left if c.startswith(beginning) and c.endswith(after))
        self.left.remove(command)
        environ = os.environ | {
            "PATH": f"{self.folder}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.bed.admin),
            "OVERLAY": str(self.bed.folder / "kustomize"),
            "PREPARED": str(self.folder / "prepared"),
            "ADMIN_REDIS_URL": self.bed.store.url,
            "HOME": str(self.folder),
        }
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) is complete, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    def freeze(self) -> None:
        """Returns when kube-apiserver heeds it."""
        self.run("kubectl apply -k manifests/take-over/freeze")
        until(lambda: "are being moved" in self.probe(), "the freeze is heeded")

    def probe(self) -> str:
        """The answer to a user who may write."""
        with self.bed.connect() as admin:
            body = {"metadata": {"name": "probe"}, "spec": {}}
            headers = {"Impersonate-User": "probe"}
            path = f"/apis/{DRA_GROUP}/v1/deviceclasses?dryRun=All"
            return admin.ask("POST", path, body, headers=headers).text

    def thaw(self) -> None:
        self.run("kubectl delete -k manifests/take-over/freeze")


@pytest.fixture(scope="module")
def cluster_that_moves(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with Bed(
        tmp_path_factory.mktemp("moved"), group=DRA_GROUP, controllers=True, scheduler=True, registered=False
    ) as bed:
        yield bed


@pytest.fixture(scope="module")
def administrator(cluster_that_moves: Bed) -> Administrator:
    return Administrator(cluster_that_moves)


def objects(bed: Bed) -> dict[str, Object]:
    """All of the group, by kind and name."""
    found = {}
    with bed.connect() as admin:
        for plural in KINDS:
            reply = admin.ask("GET", f"/apis/{DRA_GROUP}/v1/{plural}")
            assert reply.status == 200, reply.text
            for item in reply.json["items"]:
                found[f"{plural}/{item['metadata']['name']}"] = item
    return found


def versionless(found: dict[str, Object]) -> dict[str, Object]:
    for item in found.values():
        del item["metadata"]["resourceVersion"]
    return found


def told(lines: list[str], plural: str) -> str:
    [line] = [line for line in lines if line.startswith(f"{plural}: ")]
    return line.partition(": ")[2]


def test_a_running_cluster_moves_into_sluice_and_back(administrator: Administrator) -> None:
    page, bed = administrator, administrator.bed
    with bed.connect() as admin:
        workloads.node(admin, "node-1")
        workloads.devices(admin, "node-1", count=4)
        workloads.template(admin, "gpu")
        workloads.pod(admin, "stays", template="gpu")
        workloads.pod(admin, "goes", template="gpu")
        until(lambda: workloads.is_bound(admin, "stays") and workloads.is_bound(admin, "goes"), "the pods are bound")
        claims = f"/apis/{DRA_GROUP}/v1/namespaces/default/resourceclaims"
        opaque = {"driver": "gpu.example.com", "parameters": {"share": 1.50, "of": ["a", None]}}
        made = workloads.claim("kept", config=[{"opaque": opaque}], finalizers=["example.com/hold"])
        assert admin.ask("POST", claims, made).status == 201
        assert admin.ask("DELETE", f"{claims}/kept").status == 200

    # Into Sluice.
    page.run('kubectl apply -k "$PREPARED"')
    page.run("sluice store init")
    lines = page.run("sluice store import", after="--dry-run")
    assert told(lines, "resourceclaims") == "3 read through v1, 3 to import, 0 renewed, 0 already there"
    page.freeze()
    before = versionless(objects(bed))
    assert before["resourceclaims/kept"]["metadata"]["deletionTimestamp"]
    lines = page.run("sluice store import")
    assert told(lines, "resourceslices") == "1 read through v1, 1 imported, 0 renewed, 0 already there"
    lines = page.run("sluice store import", after="--dry-run")
    assert all(" 0 to import, 0 renewed" in told(lines, plural) for plural in KINDS)
    assert "automanaged" in bed.kubectl("get", "apiservice", "v1.resource.k8s.io", "-o", "yaml").stdout
    page.run("kubectl label apiservice")
    page.run('kubectl apply -k "$OVERLAY"')
    page.run("kubectl wait apiservice/v1.resource.k8s.io")
    after = objects(bed)
    assert all(int(item["metadata"]["resourceVersion"]) >= 1 << 32 for item in after.values())
    assert versionless(after) == before

    page.run("kubectl get --raw")
    lines = page.run("sluice store import", after="--from-file=claims.json --dry-run")
    assert told(lines, "resourceclaims") == "3 read through v1, 0 to import, 0 renewed, 3 already there"

    # It is worked with there.
    bed.plane.restart(OFF)
    with bed.connect() as admin:
        assert "are being moved" in page.probe()
        page.thaw()
        until(lambda: "are being moved" not in page.probe(), "everybody writes again")
        assert admin.ask("DELETE", "/api/v1/namespaces/default/pods/goes?gracePeriodSeconds=0").status == 200
        workloads.pod(admin, "comes", template="gpu")
        until(lambda: workloads.is_bound(admin, "comes"), "a new pod is bound")
        until(lambda: len(workloads.claims_of(admin, "goes")) == 0, "the old one's claim is gone")
        [comes] = workloads.claims_of(admin, "comes")
        [stays] = workloads.claims_of(admin, "stays")

    # And back.
    page.freeze()
    moved = objects(bed)
    page.run("kubectl delete apiservice")
    bed.plane.restart()
    with bed.connect() as admin:
        assert workloads.claims_of(admin, "goes"), "etcd is as it was left"
        lines = page.run("sluice store export", after="--dry-run")
        assert told(lines, "resourceclaims") == "1 to create, 0 to update, 2 there already, 1 to delete"
        lines = page.run("sluice store export")
        assert told(lines, "resourceclaims") == "1 created, 0 updated, 2 there already, 1 deleted"
        again = bed.sluice(
            *["store", "export", f"--group={DRA_GROUP}", f"--to-kubeconfig={bed.admin}", "--prune"]
        ).stdout.splitlines()
        assert told(again, "resourceclaims") == "0 created, 0 updated, 3 there already"
        back = objects(bed)
        assert back.keys() == moved.keys()
        new = back[f"resourceclaims/{comes['metadata']['name']}"]
        assert new["metadata"]["uid"] != comes["metadata"]["uid"]
        assert (new["spec"], new["status"]) == (comes["spec"], comes["status"])
        assert new["metadata"]["finalizers"] == comes["metadata"]["finalizers"]
        assert back[f"resourceclaims/{stays['metadata']['name']}"]["metadata"]["uid"] == stays["metadata"]["uid"]
        page.thaw()
        assert admin.ask("DELETE", "/api/v1/namespaces/default/pods/comes?gracePeriodSeconds=0").status == 200
        until(lambda: not workloads.claims_of(admin, "comes"), "its claim is released and gone")


def test_every_command_of_the_page_was_run(administrator: Administrator) -> None:
    if administrator.left == commands():
        pytest.skip("only after the test before")
    assert administrator.left == []
