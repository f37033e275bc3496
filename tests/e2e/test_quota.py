"""Quotas and the controller that counts: what claims of `resource.k8s.io` use is claimed by Sluice as by kube-apiserver itself.

The quota controller of the cluster counts deletions. Every test runs against both servers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.fixtures.server import Reply

V1 = f"/apis/{DRA_GROUP}/v1"
COUNT, GOLD = f"count/resourceclaims.{DRA_GROUP}", "gold.deviceclass.resource.k8s.io/devices"
IMPLICIT, EXTENDED = "requests.deviceclass.resource.kubernetes.io/gold", "requests.example.com/gold"
PROBE = "probe.deviceclass.resource.k8s.io/devices"
"""No device of it is allowed, so a server that refuses a claim of it follows the quota."""
VERSION = "apiserver.config.k8s.io/v1"
PLATINUM = {"apiGroup": DRA_GROUP, "resource": "resourceclaims", "matchContains": ["platinum"]}
QUOTAS = {"kind": "ResourceQuotaConfiguration", "apiVersion": VERSION, "limitedResources": [PLATINUM]}
LIMITED = {
    "kind": "AdmissionConfiguration",
    "apiVersion": VERSION,
    "plugins": [{"name": "ResourceQuota", "configuration": QUOTAS}],
}
"""Devices of one class are for those who have a quota for them."""
MERGE = {"Content-Type": "application/merge-patch+json"}
SECONDS = 150.0
TRIES = 100
_NUMBERS = itertools.count()

Object = dict[str, Any]
Connect = Callable[[int], Connection]
"""Connect the administrator to one of two replicas."""


@pytest.fixture(scope="module", params=["upstream", "aggregated"])
def connect(
    request: pytest.FixtureRequest, our_own: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connect]:
    """kube-apiserver with its own kinds, or two processes of Sluice in their place; controllers and scheduler in any case."""
    folder = tmp_path_factory.mktemp(request.param)
    limiting = folder / "admission.json"
    limiting.write_text(json.dumps(LIMITED))
    flags = [f"--admission-control-config-file={limiting}"]
    with contextlib.ExitStack() as stack:
        if request.param == "upstream":
            plane = stack.enter_context(ControlPlane(folder, flags=flags, controllers=True, scheduler=True))
            plane.start_clients()
            made: Connect = lambda replica: plane.connect()  # noqa: E731
        else:
            bed = Bed(folder, group=DRA_GROUP, replicas=2, controllers=True, scheduler=True, serve_flags=flags)
            stack.enter_context(bed)
            plane = bed.plane
            ways = [bed.admin, bed.straight(bed.admin, replica=1)]
            made = lambda replica: bed.connect(ways[replica])  # noqa: E731
        with plane.connect() as admin:
            until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")
            spec = {"extendedResourceName": "example.com/gold"}
            make(admin, f"{V1}/deviceclasses", {"metadata": {"name": "gold"}, "spec": spec})
            # At its start the controller counts every quota twice at once, and may forget a claim of that moment.
            Namespace(admin, {COUNT: "0"})
        yield made


@pytest.fixture
def admin(connect: Connect) -> Iterator[Connection]:
    with connect(0) as made:
        yield made


class Namespace:
    """One with a quota whose limits are in force."""

    def __init__(self, admin: Connection, hard: Mapping[str, str]) -> None:
        self.admin, self.name = admin, f"quota-{next(_NUMBERS)}"
        self.path = f"/api/v1/namespaces/{self.name}"
        self.claims = f"{V1}/namespaces/{self.name}/resourceclaims"
        make(admin, "/api/v1/namespaces", {"metadata": {"name": self.name}})
        spec = {"hard": {**hard, PROBE: "0"}}
        make(admin, f"{self.path}/resourcequotas", {"metadata": {"name": "q"}, "spec": spec})
        self.counts(dict.fromkeys(hard, "0"))
        self.followed_by(admin)

    def followed_by(self, admin: Connection) -> None:
        """Waits until this server follows the quota: it admits what it does not know to be limited, and counts nothing."""
        probe = {"metadata": {"name": "probe"}, "spec": {"devices": {"requests": [exactly(1, device_class="probe")]}}}
        path = f"{self.claims}?dryRun=All"
        until(lambda: admin.ask("POST", path, probe).status == 403, "the quota is followed", seconds=SECONDS)

    def used(self) -> dict[str, str]:
        """Return the usage of the limits that the test named; {} before anything was counted."""
        used: dict[str, str] = self.admin.ask("GET", f"{self.path}/resourcequotas/q").json["status"].get("used", {})
        return {name: amount for name, amount in used.items() if name != PROBE}

    def counts(self, expected: Mapping[str, str]) -> None:
        """Waits until the controller has found out that so much is used."""
        until(lambda: self.used() == expected, f"{expected} is used", seconds=SECONDS)

    def create(self, name: str, *requests: Object, admin: Connection | None = None) -> str:
        """ "" when it was created, else why not. Processes that count at once are in each other's way: one that was for the fourth time
        says so, as kube-apiserver's plugin does, and its client asks again."""
        obj = {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests)}}}
        reply = (admin or self.admin).ask("POST", self.claims, obj)
        for _ in range(TRIES):
            if reply.status != 409 or reply.json["details"]["kind"] != "resourcequotas":
                break
            reply = (admin or self.admin).ask("POST", self.claims, obj)
        assert reply.status in (201, 403), reply.text
        return "" if reply.status == 201 else str(reply.json["message"])

    def admits(self, name: str, *requests: Object) -> None:
        """Waits until it is created: whoever admits follows the quota, and learns what the controller counted a moment after us."""
        until(lambda: self.create(name, *requests) == "", f"{name} is admitted", seconds=SECONDS)


def make(admin: Connection, path: str, obj: Object) -> Reply:
    reply = admin.ask("POST", path, obj)
    assert reply.status == 201, reply.text
    return reply


def exactly(count: int, *, device_class: str = "gold") -> Object:
    return {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}


def either(*counts: int) -> Object:
    offers = [{"name": f"s{number}", "deviceClassName": "gold", "count": count} for number, count in enumerate(counts)]
    return {"name": "f", "firstAvailable": offers}


def refused(name: str, requested: Mapping[str, str], used: str, hard: str) -> str:
    numbers = [",".join(f"{what}={amount}" for what, amount in sorted(requested.items()))]
    numbers += [",".join(f"{what}={amount}" for what in sorted(requested)) for amount in (used, hard)]
    told = "exceeded quota: q, requested: {}, used: {}, limited: {}".format(*numbers)
    return f'resourceclaims.{DRA_GROUP} "{name}" is forbidden: {told}'


def test_claims_use_devices_of_their_class_until_they_are_deleted(admin: Connection) -> None:
    """Under the class's name and both names by which pods ask for it; the deletion is counted by the controller."""
    names = (GOLD, IMPLICIT, EXTENDED)
    hard = {COUNT: "3", **dict.fromkeys(names, "6")}
    space = Namespace(admin, hard)
    assert space.create("a", exactly(2)) == ""
    space.counts({COUNT: "1", **dict.fromkeys(names, "2")})
    assert space.create("b", either(1, 3)) == ""
    assert space.used() == {COUNT: "2", **dict.fromkeys(names, "5")}
    assert space.create("c", exactly(2)) == refused("c", dict.fromkeys(names, "2"), "5", "6")
    labels = {"metadata": {"labels": {"x": "y"}}}
    assert admin.ask("PATCH", f"{space.claims}/a", labels, headers=MERGE).status == 200
    assert space.used() == {COUNT: "2", **dict.fromkeys(names, "5")}

    assert admin.ask("DELETE", f"{space.claims}/b").status == 200

    space.counts({COUNT: "1", **dict.fromkeys(names, "2")})
    space.admits("c", exactly(2))
    assert space.used() == {COUNT: "2", **dict.fromkeys(names, "4")}


def test_creations_of_several_processes_get_exactly_the_remaining_quota(connect: Connect, admin: Connection) -> None:
    space = Namespace(admin, {COUNT: "20"})
    with connect(1) as other:
        space.followed_by(other)

    def some(part: int) -> Sequence[str]:
        with connect(part % 2) as own:
            return [space.create(f"c-{part}-{number}", admin=own) for number in range(5)]

    with ThreadPoolExecutor(10) as threads:
        verdicts = [verdict for part in threads.map(some, range(10)) for verdict in part]

    assert verdicts.count("") == 20
    assert space.used() == {COUNT: "20"}
    assert len(admin.ask("GET", space.claims).json["items"]) == 20
    assert admin.ask("DELETE", space.claims).status == 200
    space.counts({COUNT: "0"})
    space.admits("again")


def test_scheduler_claim_does_not_count_the_usage_of_its_pod_again(admin: Connection) -> None:
    space = Namespace(admin, {EXTENDED: "1", COUNT: "1"})
    room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gold.example.com", "nodeName": "node-1", "pool": pool, "devices": [{"name": "gold-0"}]}
    make(admin, "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    assert admin.ask("PATCH", "/api/v1/nodes/node-1/status", room, headers=MERGE).status == 200
    make(admin, f"{V1}/resourceslices", {"metadata": {"name": "gold"}, "spec": spec})
    amounts = {"example.com/gold": "1"}
    container = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    make(admin, f"{space.path}/pods", {"metadata": {"name": "p"}, "spec": pod})
    until(
        lambda: admin.ask("GET", f"{space.path}/pods/p").json["spec"].get("nodeName") == "node-1",
        "the pod is bound",
        seconds=SECONDS,
    )
    [claim] = admin.ask("GET", space.claims).json["items"]
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert space.used() == {EXTENDED: "1", COUNT: "1"}


def test_limited_resource_needs_a_quota_that_covers_it(admin: Connection) -> None:
    """The names by which pods ask contain the name of the class as well; those are there whatever the quota says."""
    devices, implicit = (
        "platinum.deviceclass.resource.k8s.io/devices",
        "requests.deviceclass.resource.kubernetes.io/platinum",
    )
    make(admin, f"{V1}/deviceclasses", {"metadata": {"name": "platinum"}, "spec": {}})
    without, half, whole = (
        Namespace(admin, hard) for hard in ({COUNT: "9"}, {devices: "9"}, {devices: "9", implicit: "9"})
    )
    told = f'resourceclaims.{DRA_GROUP} "p" is forbidden: insufficient quota to consume: '
    wanted = exactly(1, device_class="platinum")
    assert without.create("p", wanted) == f"{told}{devices},{implicit}"
    assert half.create("p", wanted) == f"{told}{implicit}"
    assert whole.create("p", wanted) == ""
    assert without.create("g", exactly(1)) == ""
