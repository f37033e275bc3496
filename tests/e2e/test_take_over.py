"""Sluice as `resource.k8s.io/v1` itself: kube-apiserver's own is off, and everything that knows the group goes to Sluice."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import objects, workloads
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.fixtures.pages import Reader

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SLICES = f"/apis/{DRA_GROUP}/v1/resourceslices"


@pytest.fixture(scope="module")
def taken_over(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with Bed(tmp_path_factory.mktemp("over"), group=DRA_GROUP, controllers=True, scheduler=True) as bed:
        yield bed


def dra_slice(name: str) -> objects.Object:
    return objects.resource_slice(name) | {"apiVersion": f"{DRA_GROUP}/v1"}


def test_the_control_plane_becomes_ready(taken_over: Bed) -> None:
    """The node authorizer's informer reads its slices out of Sluice."""
    with taken_over.connect() as admin:
        until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready", seconds=60)
        assert admin.ask("GET", "/livez").status == 200


def test_kubectl_works_on_slices_without_naming_a_group(taken_over: Bed) -> None:
    taken_over.kubectl("create", "-f", "-", stdin=json.dumps(dra_slice("first")))

    assert taken_over.kubectl("get", "resourceslices", "-o", "name").stdout == f"resourceslice.{DRA_GROUP}/first\n"
    assert "gpu.example.com" in taken_over.kubectl("describe", "resourceslice", "first").stdout
    assert "KIND:       ResourceSlice" in taken_over.kubectl("explain", "resourceslice").stdout
    assert f"{DRA_GROUP}/v1" in taken_over.kubectl("api-resources", f"--api-group={DRA_GROUP}").stdout
    taken_over.kubectl("delete", "resourceslice", "first")
    assert taken_over.kubectl("get", "resourceslice", "first", check=False).returncode == 1


def test_the_answers_come_from_sluice(taken_over: Bed) -> None:
    """Its versions are far above etcd's."""
    with taken_over.connect() as admin, taken_over.connect(taken_over.straight(taken_over.admin)) as straight:
        assert admin.ask("POST", SLICES, dra_slice("seen")).status == 201
        through, direct = admin.ask("GET", f"{SLICES}/seen"), straight.ask("GET", f"{SLICES}/seen")
        assert through.json == direct.json
        assert int(through.json["metadata"]["resourceVersion"]) >= 1 << 32
        assert admin.ask("DELETE", f"{SLICES}/seen").status == 200


def test_older_versions_are_served_too(taken_over: Bed) -> None:
    """kube-apiserver's own are off unless somebody asks for them."""
    with taken_over.connect() as admin:
        assert admin.ask("POST", SLICES, dra_slice("aged")).status == 201
        for version, content in (("v1beta2", {"name": "gpu-0"}), ("v1beta1", {"name": "gpu-0", "basic": {}})):
            reply = admin.ask("GET", f"{SLICES.replace('v1', version)}/aged")
            assert reply.json["apiVersion"] == f"{DRA_GROUP}/{version}"
            assert {name: reply.json["spec"]["devices"][0][name] for name in content} == content
            assert f"{DRA_GROUP}/{version} ResourceSlice is deprecated" in reply.headers["Warning"]
    assert "deprecated" not in taken_over.kubectl("get", "resourceslice", "aged").stderr
    asked = taken_over.kubectl("get", f"resourceslices.v1beta1.{DRA_GROUP}", "aged", "-o", "yaml")
    assert "basic:" in asked.stdout
    assert f"Warning: {DRA_GROUP}/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+" in asked.stderr
    taken_over.kubectl("delete", "resourceslice", "aged")


@pytest.fixture(scope="module")
def real(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A kube-apiserver that serves the group itself."""
    with ControlPlane(tmp_path_factory.mktemp("real")) as plane:
        yield plane


def test_pod_gets_claim_devices_and_node_from_unmodified_control_plane(taken_over: Bed) -> None:
    """kube-controller-manager makes the claim and takes it away again, kube-scheduler allocates it; both speak protobuf alone."""
    v1, core = f"/apis/{DRA_GROUP}/v1", "/api/v1/namespaces/default"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpus"}}
    offered = dra_slice("gpus")
    offered["spec"]["pool"] = {"name": "gpus", "generation": 1, "resourceSliceCount": 1}
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "tolerations": [{"operator": "Exists"}],
    }
    room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    with taken_over.connect() as admin:

        def make(path: str, body: objects.Object) -> None:
            reply = admin.ask("POST", path, body)
            assert reply.status == 201, reply.text

        def claims() -> list[objects.Object]:
            found: list[objects.Object] = admin.ask("GET", f"{v1}/namespaces/default/resourceclaims").json["items"]
            return found

        make("/api/v1/nodes", {"metadata": {"name": "node-1"}})
        assert admin.ask("PATCH", "/api/v1/nodes/node-1/status", room, headers=merge).status == 200
        make(f"{v1}/deviceclasses", {"metadata": {"name": "gpus"}, "spec": {}})
        make(SLICES, offered)
        make(f"{v1}/namespaces/default/resourceclaimtemplates", template)
        make(f"{core}/pods", {"metadata": {"name": "p"}, "spec": pod})
        until(lambda: admin.ask("GET", f"{core}/pods/p").json["spec"].get("nodeName") == "node-1", "the pod is bound")

        [claim] = claims()
        [result] = claim["status"]["allocation"]["devices"]["results"]
        assert (result["request"], result["driver"]) == ("gpu", "gpu.example.com")
        assert [user["name"] for user in claim["status"]["reservedFor"]] == ["p"]
        assert claim["metadata"]["ownerReferences"][0]["name"] == "p"
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]

        assert admin.ask("DELETE", f"{core}/pods/p?gracePeriodSeconds=0").status == 200
        until(lambda: not claims(), "the claim is gone with its pod")


@pytest.mark.skipif(binaries.minor() < "1.37", reason="DeviceTaintRules are in v1 since 1.37")
def test_device_taint_rule_of_sluice_evicts_a_pod(taken_over: Bed) -> None:
    with taken_over.connect() as admin:
        evicted_by_a_rule(admin)


def evicted_by_a_rule(admin: Connection) -> None:
    """Let kube-controller-manager evict a pod. Texts are those that it writes with kube-apiserver's own group. No kubelet ends the pod."""
    rule, tainted = f"{workloads.V1}/devicetaintrules/sick", "/api/v1/namespaces/default/pods/tainted"
    workloads.node(admin, "sick")
    workloads.devices(admin, "sick", count=1)
    workloads.template(admin, "sick")
    workloads.pod(admin, "tainted", template="sick")
    until(lambda: workloads.is_bound(admin, "tainted"), "the pod is bound")
    [claim] = workloads.claims_of(admin, "tainted")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    selector = {name: result[name] for name in ("driver", "pool", "device")}
    taint = {"key": "example.com/sick", "effect": "NoExecute"}
    spec = {"deviceSelector": selector, "taint": taint}
    workloads.made(admin, rule.rpartition("/")[0], {"metadata": {"name": "sick"}, "spec": spec})

    def conditions(path: str) -> dict[str, tuple[str, str, str]]:
        found = admin.ask("GET", path).json.get("status", {}).get("conditions", ())
        return {item["type"]: (item["status"], item.get("reason", ""), item.get("message", "")) for item in found}

    until(lambda: "deletionTimestamp" in admin.ask("GET", tainted).json["metadata"], "the pod is evicted")
    evicted = ("True", "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
    assert conditions(tainted)["DisruptionTarget"] == evicted
    done = {"EvictionInProgress": ("False", "Completed", "1 pod evicted since starting the controller.")}
    until(lambda: conditions(rule) == done, "the status of the rule says so")
    assert admin.ask("DELETE", f"{tainted}?gracePeriodSeconds=0").status == 200
    until(lambda: not workloads.claims_of(admin, "tainted"), "the claim is deleted with its pod")
    for path in (rule, f"{SLICES}/sick-gpus", "/api/v1/nodes/sick"):
        assert admin.ask("DELETE", path).status == 200


def told(program: str, kubeconfig: pathlib.Path, *flags: str) -> list[dict[str, Any]]:
    """Results that client-go returns, call by call, in a Go program beside `controlplane`."""
    command: list[str | pathlib.Path] = [binaries.binary(program), "-kubeconfig", kubeconfig, "-prefix", program]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_typed_clients_of_client_go_get_what_they_get_from_a_real_server(taken_over: Bed, real: ControlPlane) -> None:
    """All verbs, through the aggregator, in protobuf alone."""
    with taken_over.connect() as admin:
        until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")

    ours, theirs = told("typed", taken_over.admin), told("typed", real.admin)

    media = [said for line in ours for said in line["media"]]
    assert all("> protobuf" in said for said in media), media
    assert any(said.startswith("PUT protobuf ") for said in media)
    assert [line["call"] for line in ours] == [line["call"] for line in theirs]
    for line, expected in zip(ours, theirs, strict=True):
        assert line == expected


@pytest.mark.parametrize("flags", [(), ("-protobuf",)], ids=["json", "protobuf"])
def test_apply_configurations_of_client_go_work_as_on_a_real_server(
    taken_over: Bed, real: ControlPlane, flags: tuple[str, ...]
) -> None:
    """Apply, ApplyStatus, what Extract finds, conflicts and the move from client-side apply; through the aggregator and past it."""
    theirs = told("applying", real.admin, *flags)

    for kubeconfig in (taken_over.admin, taken_over.straight(taken_over.admin)):
        ours = told("applying", kubeconfig, *flags)
        assert [line["call"] for line in ours] == [line["call"] for line in theirs]
        for line, expected in zip(ours, theirs, strict=True):
            assert line == expected


def test_a_node_sees_its_own_slices_and_no_others(taken_over: Bed) -> None:
    """The Node authorizer decides by the field selector, which Sluice passes on."""
    node = taken_over.user("system:node:node-1", ["system:nodes"])
    with taken_over.connect(node) as front, taken_over.connect(taken_over.straight(node)) as straight:
        for asking in (front, straight):
            mine = asking.ask("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-1")
            assert mine.status == 200, mine.text
            for path in (SLICES, f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-2"):
                refused = asking.ask("GET", path)
                assert refused.status == 403
                assert (
                    "can only list/watch/deletecollection resourceslices with nodeName field selector" in refused.text
                )


def test_a_node_keeps_slices_of_its_own_and_no_others(taken_over: Bed) -> None:
    """kube-apiserver lets every node create; what it creates and deletes, Sluice judges."""
    with (
        taken_over.connect(taken_over.user("system:node:node-1", ["system:nodes"])) as node,
        taken_over.connect(taken_over.user("system:node:node-2", ["system:nodes"])) as other,
    ):
        made = {**dra_slice("kept"), "spec": {**dra_slice("kept")["spec"], "nodeName": "node-1"}}
        refused = other.ask("POST", SLICES, made)
        why = "can only create ResourceSlice with the same NodeName as the requesting node"
        assert (refused.status, refused.json["message"]) == (
            403,
            f'resourceslices.{DRA_GROUP} "kept" is forbidden: {why}',
        )
        assert node.ask("POST", SLICES, made).status == 201
        path = f"{SLICES}/kept"
        until(lambda: node.ask("GET", path).status == 200, "the node authorizer knows whose slice it is")
        for method in ("GET", "DELETE"):
            told = other.ask(method, path)
            assert (told.status, told.text.count("no relationship found between node 'node-2' and this object")) == (
                403,
                1,
            )
        assert node.ask("PUT", path, node.ask("GET", path).json).status == 200
        assert node.ask("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-1").status == 200
        assert taken_over.kubectl("get", "resourceslice", "kept", check=False).returncode == 1


def test_a_claim_is_shared_by_pods_released_by_the_last_and_used_again(taken_over: Bed) -> None:
    claim = f"{workloads.V1}/namespaces/default/resourceclaims/shared"
    with taken_over.connect() as admin:
        workloads.node(admin, "node-s")
        workloads.devices(admin, "node-s", count=1)
        workloads.made(admin, claim.rpartition("/")[0], workloads.claim("shared"))

        def status() -> objects.Object:
            found: objects.Object = admin.ask("GET", claim).json.get("status", {})
            return found

        def users() -> set[str]:
            return {user["name"] for user in status().get("reservedFor", ())}

        def end(pod: str) -> None:
            assert admin.ask("DELETE", f"/api/v1/namespaces/default/pods/{pod}?gracePeriodSeconds=0").status == 200

        for pod in ("first", "second"):
            workloads.pod(admin, pod, claim="shared")
        until(lambda: all(workloads.is_bound(admin, pod) for pod in ("first", "second")), "both pods are bound")
        assert users() == {"first", "second"}
        allocated = status()["allocation"]
        end("first")
        until(lambda: users() == {"second"}, "the first one's reservation is gone")
        assert status()["allocation"] == allocated
        end("second")
        until(lambda: not status(), "the claim is not allocated any more")

        workloads.pod(admin, "third", claim="shared")
        until(lambda: workloads.is_bound(admin, "third"), "the claim is allocated again")
        assert status()["allocation"]["devices"] == allocated["devices"]
        end("third")
        assert admin.ask("DELETE", claim).status == 200
        until(lambda: admin.ask("GET", claim).status == 404, "what the scheduler held is released and gone")
        assert admin.ask("DELETE", f"{SLICES}/node-s-gpus").status == 200


def test_a_namespace_goes_with_its_claims_which_its_quota_has_counted(taken_over: Bed) -> None:
    name, core = "counted", "/api/v1/namespaces/counted"
    quota, counted = f"{core}/resourcequotas/claims", f"count/resourceclaims.{DRA_GROUP}"
    claims = f"{workloads.V1}/namespaces/{name}/resourceclaims"
    with taken_over.connect() as admin:

        def used() -> str:
            return str(admin.ask("GET", quota).json.get("status", {}).get("used", {}).get(counted))

        workloads.made(admin, "/api/v1/namespaces", {"metadata": {"name": name}})
        body = {"metadata": {"name": "claims"}, "spec": {"hard": {counted: "1"}}}
        workloads.made(admin, f"{core}/resourcequotas", body)
        until(lambda: used() == "0", "the quota is measured")
        workloads.node(admin, "node-q")
        workloads.devices(admin, "node-q", count=1)
        workloads.template(admin, "gpu", namespace=name)
        workloads.pod(admin, "p", template="gpu", namespace=name)
        until(lambda: workloads.is_bound(admin, "p", namespace=name), "the pod is bound")
        assert used() == "1"
        refused = admin.ask("POST", claims, workloads.claim("more"))
        assert (refused.status, "exceeded quota: claims" in refused.text) == (403, True)

        assert admin.ask("DELETE", core).status == 200
        # The node's kubelet deletes a terminating pod like this.
        assert admin.ask("DELETE", f"{core}/pods/p?gracePeriodSeconds=0").status in (200, 404)
        until(lambda: admin.ask("GET", core).status == 404, "the namespace is gone")
        assert admin.ask("GET", claims).json["items"] == []
        assert admin.ask("DELETE", f"{SLICES}/node-q-gpus").status == 200


def test_kubelet_deletes_the_slices_of_a_missing_driver_and_no_others(taken_over: Bed) -> None:
    def offered(name: str, node: str, driver: str) -> objects.Object:
        made = dra_slice(name)
        made["spec"] |= {"nodeName": node, "driver": driver, "pool": made["spec"]["pool"] | {"name": node}}
        return made

    slices = {
        "k-a": ("node-k", "a.example.com"),
        "k-b": ("node-k", "b.example.com"),
        "l-a": ("node-l", "a.example.com"),
    }
    kubelet = taken_over.user("system:node:node-k", ["system:nodes"])
    with taken_over.connect() as admin, taken_over.connect(kubelet) as node:
        for name, (where, driver) in slices.items():
            workloads.made(admin, SLICES, offered(name, where, driver))

        def left() -> set[str]:
            return {item["metadata"]["name"] for item in admin.ask("GET", SLICES).json["items"]} & slices.keys()

        selected = f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-k"
        assert node.ask("DELETE", f"{selected}%2Cspec.driver%3Da.example.com").status == 200
        assert left() == {"k-b", "l-a"}
        assert node.ask("DELETE", selected).status == 200
        assert left() == {"l-a"}
        assert admin.ask("DELETE", f"{SLICES}/l-a").status == 200


def test_tutorial_schedules_a_claim_and_restarts_the_server(taken_over: Bed, tmp_path: pathlib.Path) -> None:
    """docs/tutorial.md, from its cluster on. `test_tutorial_page.py` runs the steps before."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(binaries.kubectl())
    (tmp_path / "sluice-tutorial").mkdir()
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(taken_over.admin)}
    reader = Reader("tutorial.md", PROJECT, environ)
    reader.skip_to("make cluster")
    taken_over.kubectl("delete", "node", "node-1", "--ignore-not-found")
    try:
        assert reader.take("make cluster").make == ["--take-over"]
        reader.run_to("kubectl wait resourceclaim")
        waiting = reader.take("> ~/sluice-tutorial/waited &").text.removesuffix("&")
        with subprocess.Popen(["bash", "-c", waiting], env=environ) as client:
            taken_over.replicas[0].replace()
            reader.run_to("wait; cat")
            assert client.wait(120) == 0
        reader.run_to("rm -r")
    finally:
        taken_over.kubectl("delete", "pod", "training", "--grace-period=0", "--force", "--ignore-not-found")
        taken_over.kubectl("delete", "-f", str(PROJECT / "examples" / "accelerators.yaml"), "--ignore-not-found")
        taken_over.kubectl("delete", "node", "node-1", "--ignore-not-found")
