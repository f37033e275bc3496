"""A real driver of devices, dra-example-driver, with Sluice in place of resource.k8s.io. It is unmodified, as all of Kubernetes is.

The group stays taken over on the node, so this file comes last, or has a node of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.e2e import workloads
from tests.e2e.controlplane.bed import DRA_GROUP
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until
from tests.e2e.node import images
from tests.e2e.node.containerd import CDI
from tests.e2e.node.deployment import PATIENCE, Deployment, serving
from tests.e2e.node.driver import CONTAINER, DAEMON, DEVICES, NAME, NAMESPACE, Driver
from tests.e2e.workloads import RULES

SLICES, CLAIMS = f"{workloads.V1}/resourceslices", f"{workloads.V1}/namespaces/default/resourceclaims"
TAINTS = f"/apis/{DRA_GROUP}/{RULES.version}/devicetaintrules"
PODS = "/api/v1/namespaces/default/pods"
TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
TEMPLATE = "one-gpu"
KEPT = "example.com/kept"

Object = dict[str, Any]


@pytest.fixture
def built_in(sluice: Deployment) -> Iterator[Driver]:
    """Install the driver with the group of kube-apiserver, as a control. Remove it before Sluice takes the group over."""
    sluice.node.plane.restart(serving(RULES.version), *RULES.flags, client_flags=RULES.flags)
    driver = _installed(sluice)
    yield driver
    driver.uninstall()


@pytest.fixture(scope="module")
def driver(sluice: Deployment) -> Driver:
    sluice.take_over("test", serving(v1=False), *RULES.flags, client_flags=RULES.flags)
    sluice.register(RULES.version)
    return _installed(sluice)


def _installed(sluice: Deployment) -> Driver:
    driver = Driver(sluice.node)
    driver.install()
    until(driver.slices, "it has published its devices")
    return driver


@pytest.fixture(scope="module")
def admin(driver: Driver) -> Iterator[Connection]:
    with driver.node.connect() as admin:
        make_template(admin)
        yield admin


def make_template(admin: Connection) -> None:
    workloads.made(admin, TEMPLATES, {"metadata": {"name": TEMPLATE}, "spec": {"spec": gpus(1)}})


@pytest.fixture(scope="module")
def pair(driver: Driver, admin: Connection) -> list[Object]:
    """The claims of a pod that stays: of one that is made from a template for it, and of one that is there by itself."""
    workloads.made(admin, CLAIMS, {"metadata": {"name": "standing"}, "spec": gpus(1)})
    start(
        admin, "pair", {"made": {"resourceClaimTemplateName": TEMPLATE}, "standing": {"resourceClaimName": "standing"}}
    )
    until_ready(driver, "pair")
    return claims_of(admin, "pair")


def gpus(count: int, expression: str = "") -> Object:
    """The requests of a claim."""
    exactly: Object = {"deviceClassName": NAME, "count": count}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def start(admin: Connection, name: str, claims: Mapping[str, Object], **metadata: Any) -> None:
    """A pod with these claims, all for its only container."""
    container = {
        "name": "c",
        "image": images.VALKEY,
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": claim} for claim in claims]},
    }
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": claim, **source} for claim, source in claims.items()],
        "terminationGracePeriodSeconds": 1,
    }
    workloads.made(admin, PODS, {"metadata": {"name": name, **metadata}, "spec": spec})


def until_ready(driver: Driver, pod: str) -> None:
    driver.node.kubectl("wait", f"pod/{pod}", "--for=condition=Ready", PATIENCE)


def until_gone(driver: Driver, *pods: str) -> None:
    driver.node.kubectl("delete", "pod", *pods, "--wait", "--ignore-not-found")


def container(admin: Connection, pod: str) -> tuple[str, int, bool]:
    """The ID of a pod's container, its restarts, and whether it is ready. (Kubelets report the health of devices in no order.)"""
    [status] = admin.ask("GET", f"{PODS}/{pod}").json["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"], status["ready"]


def claims_of(admin: Connection, pod: str) -> list[Object]:
    """Those that are reserved for it."""
    items = admin.ask("GET", CLAIMS).json["items"]
    return [item for item in items if pod in {user["name"] for user in item.get("status", {}).get("reservedFor", ())}]


def allocated(claim: Object) -> list[str]:
    """The names of its devices."""
    return [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]]


def seen(driver: Driver, pod: str) -> dict[str, str]:
    """Devices that its container sees: the claim of each, by uid."""
    lines = driver.node.kubectl("exec", pod, "--", "env").stdout.splitlines()
    environ = dict(line.split("=", 1) for line in lines)
    devices = {value for name, value in environ.items() if re.fullmatch(r"GPU_DEVICE_\d+", name)}
    assert environ["DRA_RESOURCE_DRIVER_NAME"] == NAME
    return {
        device: environ[f"GPU_DEVICE_{device.upper().replace('-', '_')}_RESOURCE_CLAIM"] for device in sorted(devices)
    }


def wanted(claims: list[Object]) -> dict[str, str]:
    """The same by what was allocated."""
    return {device: claim["metadata"]["uid"] for claim in claims for device in allocated(claim)}


def prepared(driver: Driver) -> str:
    """The names of the files in which the driver has written down devices for the container runtime."""
    return driver.node.enter("ls", CDI).stdout


def taint(admin: Connection, driver: Driver, device: str) -> None:
    """Create a rule that evicts the pods of a device. The driver reports no taints of its own."""
    rule = {
        "deviceSelector": {"driver": NAME, "pool": driver.node.name, "device": device},
        "taint": {"key": "example.com/unhealthy", "effect": "NoExecute"},
    }
    workloads.made(admin, TAINTS, {"metadata": {"name": "unhealthy"}, "spec": rule})


def conditions(admin: Connection, path: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition of an object, by type."""
    found = admin.ask("GET", path).json.get("status", {}).get("conditions", ())
    return {item["type"]: (item["status"], item.get("reason", ""), item.get("message", "")) for item in found}


def loses_its_pod_to_a_rule(driver: Driver, admin: Connection) -> None:
    """Check what upstream's spec "DeviceTaintRule evicts pod" checks, and the status that the controller gives the rule."""
    start(admin, "kept", {"gpu": {"resourceClaimTemplateName": TEMPLATE}}, finalizers=[KEPT])
    until_ready(driver, "kept")
    [claim] = claims_of(admin, "kept")
    taint(admin, driver, *allocated(claim))
    until(lambda: "deletionTimestamp" in admin.ask("GET", f"{PODS}/kept").json["metadata"], "its pod is evicted")
    told = ("True", "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
    assert conditions(admin, f"{PODS}/kept")["DisruptionTarget"] == told
    done = {"EvictionInProgress": ("False", "Completed", "1 pod evicted since starting the controller.")}
    until(lambda: conditions(admin, f"{TAINTS}/unhealthy") == done, "the rule says that the eviction is completed")
    released = {"metadata": {"finalizers": None}}
    assert admin.ask("PATCH", f"{PODS}/kept", released, headers=workloads.MERGE).status == 200
    until(lambda: admin.ask("GET", f"{PODS}/kept").status == 404, "the pod is deleted")
    until(lambda: admin.ask("GET", f"{CLAIMS}/{claim['metadata']['name']}").status == 404, "its claim is deleted")
    assert admin.ask("DELETE", f"{TAINTS}/unhealthy").status == 200


def test_device_taint_rule_evicts_a_pod_with_the_built_in_group(built_in: Driver) -> None:
    """The control of the next test. It comes first: afterwards the group stays taken over."""
    with built_in.node.connect() as admin:
        make_template(admin)
        loses_its_pod_to_a_rule(built_in, admin)
        assert admin.ask("DELETE", f"{TEMPLATES}/{TEMPLATE}").status == 200


def test_device_taint_rule_evicts_a_pod_with_the_group_taken_over(driver: Driver, admin: Connection) -> None:
    loses_its_pod_to_a_rule(driver, admin)


def test_the_driver_publishes_the_devices_of_its_node_into_sluice(driver: Driver) -> None:
    [published] = driver.slices()
    metadata, spec = published["metadata"], published["spec"]
    assert int(metadata["resourceVersion"]) >= 1 << 32
    assert [(owner["kind"], owner["name"]) for owner in metadata["ownerReferences"]] == [("Node", driver.node.name)]
    assert (spec["nodeName"], spec["pool"]["name"]) == (driver.node.name,) * 2
    assert [device["name"] for device in spec["devices"]] == [f"gpu-{number}" for number in range(DEVICES)]


def test_container_gets_devices_of_a_template_claim_and_a_plain_claim(driver: Driver, pair: list[Object]) -> None:
    assert len(pair) == len(wanted(pair)) == 2
    assert {"standing"} < {claim["metadata"]["name"] for claim in pair}
    assert seen(driver, "pair") == wanted(pair)


def test_the_driver_says_in_the_status_of_a_claim_what_its_devices_are(driver: Driver, pair: list[Object]) -> None:
    [published] = driver.slices()
    attributes = {device["name"]: device["attributes"] for device in published["spec"]["devices"]}
    for claim in pair:
        [device], [status] = allocated(claim), claim["status"]["devices"]
        assert (status["driver"], status["pool"], status["device"]) == (NAME, driver.node.name, device)
        assert status["data"] == {name: attributes[device][name] for name in ("driverVersion", "model", "uuid")}


def test_the_kubelet_reads_the_claims_of_its_pods_and_no_others(
    driver: Driver, admin: Connection, pair: list[Object]
) -> None:
    """The Node authorizer of kube-apiserver decides, before Sluice is asked."""
    workloads.made(admin, CLAIMS, {"metadata": {"name": "idle"}, "spec": gpus(1)})
    kubelet = driver.node.user(f"system:node:{driver.node.name}", ["system:nodes"])
    with driver.node.connect(kubelet) as node:
        for claim in pair:
            assert node.ask("GET", f"{CLAIMS}/{claim['metadata']['name']}").status == 200
        refused = node.ask("GET", f"{CLAIMS}/idle")
    assert (refused.status, "no relationship found between node" in refused.text) == (403, True)
    assert admin.ask("DELETE", f"{CLAIMS}/idle").status == 200


def test_admission_policy_keeps_the_driver_of_a_node_to_its_slices(driver: Driver, admin: Connection) -> None:
    """That of its chart. Sluice judges by it; the roles would let the driver write any slice."""

    def offered(name: str, **where: Any) -> Object:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        return {"metadata": {"name": name}, "spec": {"driver": NAME, "pool": pool, "devices": [], **where}}

    def denied(reply: Any, why: str) -> None:
        assert (reply.status, reply.json["reason"]) == (422, "Invalid")
        assert reply.json["message"].endswith(f"denied request: {why}"), reply.text

    mine, other = driver.node.name, "elsewhere"
    workloads.made(admin, SLICES, offered(other, nodeName=other))
    here, nowhere = driver.user(pod=driver.pod()["metadata"]["name"]), driver.user()
    with driver.node.connect(here) as bound, driver.node.connect(nowhere) as unbound:
        assert bound.ask("POST", f"{SLICES}?dryRun=All", offered("mine", nodeName=mine)).status == 201
        theirs = f"this user running on node '{mine}' may not modify resourceslices on node '{other}'"
        denied(bound.ask("POST", SLICES, offered("another", nodeName=other)), theirs)
        denied(bound.ask("PUT", f"{SLICES}/{other}", admin.ask("GET", f"{SLICES}/{other}").json), theirs)
        denied(bound.ask("DELETE", f"{SLICES}/{other}"), theirs)
        everywhere = f"this user running on node '{mine}' may not modify cluster resourceslices"
        denied(bound.ask("POST", SLICES, offered("all", allNodes=True)), everywhere)
        unknown = (
            "no node association found for user, this user must run in a pod on a node and "
            "ServiceAccountTokenPodNodeInfo must be enabled"
        )
        denied(unbound.ask("POST", SLICES, offered("mine", nodeName=mine)), unknown)
    assert admin.ask("DELETE", f"{SLICES}/{other}").status == 200


@pytest.mark.parametrize("how", ["rolled out anew", "killed"])
def test_restarted_driver_keeps_slices_and_pods_and_serves_new_ones(
    driver: Driver, admin: Connection, pair: list[Object], how: str
) -> None:
    before, holding = driver.slices(), container(admin, "pair")
    old = driver.pod()["metadata"]["name"]
    if how == "killed":
        restarts = driver.restarts()
        driver.node.kill(NAMESPACE, old, CONTAINER)
        until(lambda: driver.restarts() > restarts, "the kubelet starts it again")
    else:
        driver.kubectl("rollout", "restart", DAEMON)
    driver.rolled_out()
    assert (driver.pod()["metadata"]["name"] == old) is (how == "killed")

    start(admin, "next", {"gpu": {"resourceClaimTemplateName": TEMPLATE}})
    until_ready(driver, "next")
    assert seen(driver, "next") == wanted(claims_of(admin, "next"))
    until_gone(driver, "next")

    assert driver.slices() == before
    assert container(admin, "pair") == holding
    assert claims_of(admin, "pair") == pair
    assert seen(driver, "pair") == wanted(pair)


def test_tainted_device_loses_its_pod_and_gets_another_after_the_taint(
    driver: Driver, admin: Connection, pair: list[Object]
) -> None:
    """By a DeviceTaintRule."""
    start(admin, "sick", {"gpu": {"resourceClaimTemplateName": TEMPLATE}})
    until_ready(driver, "sick")
    [claim] = claims_of(admin, "sick")
    [device] = allocated(claim)
    taint(admin, driver, device)
    until(lambda: admin.ask("GET", f"{PODS}/sick").status == 404, "its pod is evicted")
    until(lambda: admin.ask("GET", f"{CLAIMS}/{claim['metadata']['name']}").status == 404, "its claim is gone")

    index = device.removeprefix("gpu-")
    same = gpus(1, f"device.attributes['{NAME}'].index == {index}")
    workloads.made(admin, CLAIMS, {"metadata": {"name": "same"}, "spec": same})
    start(admin, "waits", {"gpu": {"resourceClaimName": "same"}})

    def refusal() -> str:
        conditions = admin.ask("GET", f"{PODS}/waits").json["status"].get("conditions", ())
        return " ".join(item.get("message", "") for item in conditions if item["type"] == "PodScheduled")

    until(lambda: "cannot allocate all claims" in refusal(), "nobody gets the device")
    assert admin.ask("GET", f"{PODS}/pair").json["status"]["phase"] == "Running"
    assert admin.ask("DELETE", f"{TAINTS}/unhealthy").status == 200
    until_ready(driver, "waits")
    assert seen(driver, "waits") == {device: admin.ask("GET", f"{CLAIMS}/same").json["metadata"]["uid"]}
    until_gone(driver, "waits")
    assert admin.ask("DELETE", f"{CLAIMS}/same").status == 200


def test_devices_are_free_again_after_their_pods_are_deleted(
    driver: Driver, admin: Connection, pair: list[Object]
) -> None:
    """Released and unprepared: then one pod gets all that there are."""
    uids = [claim["metadata"]["uid"] for claim in pair]
    assert [uid in prepared(driver) for uid in uids] == [True, True]
    until_gone(driver, "pair")
    assert [uid in prepared(driver) for uid in uids] == [False, False]
    until(lambda: "allocation" not in admin.ask("GET", f"{CLAIMS}/standing").json.get("status", {}), "it is released")
    until(lambda: [c["metadata"]["name"] for c in admin.ask("GET", CLAIMS).json["items"]] == ["standing"], "and alone")
    assert admin.ask("GET", f"{CLAIMS}/standing").json.get("status", {}) == {}

    workloads.made(admin, CLAIMS, {"metadata": {"name": "all"}, "spec": gpus(DEVICES)})
    start(admin, "greedy", {"all": {"resourceClaimName": "all"}})
    until_ready(driver, "greedy")
    [claim] = claims_of(admin, "greedy")
    assert seen(driver, "greedy") == wanted([claim])
    assert len(allocated(claim)) == DEVICES
    until_gone(driver, "greedy")


def test_slices_of_a_driver_are_deleted_with_it(driver: Driver) -> None:
    """Its kubelet clears that away, half a minute after the last sign of it."""
    driver.uninstall()
    until(lambda: driver.slices() == [], "the kubelet has deleted the slices")
