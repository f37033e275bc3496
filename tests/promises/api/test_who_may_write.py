"""Rights to write a claim's status, to ask for devices with admin access, and to slices of a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_37, Release
from tests.e2e.controlplane.plane import until
from tests.fixtures.server import Reply
from tests.promises.api.client import (
    ALLOCATED,
    JSON_PATCH,
    MERGE,
    NAMESPACES,
    RESULT,
    Client,
    Object,
    Refusal,
    claim,
    names,
    resource_slice,
)

pytestmark = pytest.mark.only("aggregated", "upstream", reason="without a cluster there are no roles")

RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REPORT = {"driver": "gpu.example.com", "pool": "node", "device": "gpu-0"}
Rule = tuple[str, list[str], list[str]]


class Writer:
    """A user whom the administrator impersonates."""

    def __init__(self, api: Client, name: str, *, groups: tuple[str, ...] = (), node: str = "") -> None:
        self.api = api
        self.name = name
        self.groups = groups
        self._headers = {"Impersonate-User": name}
        if groups:
            self._headers["Impersonate-Group"] = groups[0]
        if node:
            self._headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node

    def granted(self, *rules: Rule) -> Writer:
        """With these rights in the whole cluster: resource, verbs, names. Returns when they count."""
        role = "".join(c if c.isalnum() else "-" for c in self.name)
        served = [
            {"apiGroups": [self.api.group], "resources": [resource], "verbs": verbs, "resourceNames": allowed}
            for resource, verbs, allowed in rules
        ]
        kind, whom = ("Group", self.groups[0]) if self.groups else ("User", self.name)
        subject = {"apiGroup": RBAC, "kind": kind, "name": whom}
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        path = f"/apis/{RBAC}/v1/clusterrole"
        self.api.create(f"{path}s", {"metadata": {"name": role}, "rules": served})
        self.api.create(f"{path}bindings", {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference})
        until(lambda: all(map(self._may, rules)), f"{self.name} has its rights")
        return self

    def _may(self, rule: Rule) -> bool:
        """As kube-apiserver would say if it was asked; nothing of it is remembered."""
        resource, verbs, allowed = rule
        plural, _, subresource = resource.partition("/")
        attributes = {"group": self.api.group, "resource": plural, "subresource": subresource, "verb": verbs[0]}
        attributes["name"] = allowed[0] if allowed else ""
        review = {"spec": {"user": self.name, "groups": list(self.groups), "resourceAttributes": attributes}}
        return bool(self.api.create(REVIEWS, review)["status"]["allowed"])

    def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: Any) -> Reply:
        return self.api.ask(method, path, body, headers={**self._headers, "Content-Type": kind}, **query)

    def refused(self, method: str, path: str, body: Any = None, **more: Any) -> Refusal:
        reply = self.ask(method, path, body, **more)
        assert reply.status >= 400, reply.text
        return Refusal(reply)


STATUS: Rule = ("resourceclaims/status", ["update", "patch"], [])
BINDING: Rule = ("resourceclaims/binding", ["update", "patch"], [])


def driver(*verbs: str, names: tuple[str, ...] = ("gpu.example.com",)) -> Rule:
    return ("resourceclaims/driver", list(verbs), list(names))


ARBITRARY = driver("arbitrary-node:update", "arbitrary-node:patch")
ASSOCIATED = driver("associated-node:update", "associated-node:patch")


def binding_refused(api: Client, user: str, verb: str) -> str:
    return (
        f'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
        f'verb="{verb}" permission: '
        f'resourceclaims.{api.group} is forbidden: User "{user}" cannot {verb} resource "resourceclaims/binding" '
        f'in API group "{api.group}" at the cluster scope'
    )


def driver_refused(api: Client, user: str, namespace: str, *verbs: str, name: str = "gpu.example.com") -> str:
    return (
        f'Forbidden: changing status.devices requires resource="resourceclaims/driver", '
        f'verb="[{" ".join(verbs)}]" permission: '
        f'resourceclaims.{api.group} "{name}" is forbidden: User "{user}" cannot {verbs[0]} resource "resourceclaims/driver" '
        f'in API group "{api.group}" in the namespace "{namespace}"'
    )


@pytest.fixture
def stored(api: Client, mine: str) -> Object:
    return api.create(api.claims(mine), claim("one"))


@pytest.fixture
def status(api: Client, mine: str, stored: Object) -> str:
    return f"{api.claims(mine)}/one/status"


def account(mine: str) -> str:
    return f"system:serviceaccount:{mine}:driver"


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
def test_right_to_write_the_status_permits_no_binding_and_no_reports(
    api: Client, mine: str, stored: Object, status: str, query: Mapping[str, str]
) -> None:
    user = Writer(api, account(mine)).granted(STATUS)
    full = {**ALLOCATED, "devices": [REPORT]}
    operations = [{"op": "add", "path": "/status", "value": full}]
    sent: list[tuple[str, Any, str, str]] = [
        ("PUT", {**stored, "status": full}, "application/json", "update"),
        ("PATCH", {"status": full}, MERGE, "patch"),
        ("PATCH", operations, JSON_PATCH, "patch"),
    ]
    for method, body, kind, verb in sent:
        refusal = user.refused(method, status, body, kind=kind, **query)
        bound, reported = (
            binding_refused(api, user.name, verb),
            driver_refused(api, user.name, mine, f"arbitrary-node:{verb}"),
        )
        assert refusal.causes == [("status.allocation", bound), ("status.devices", reported)]
        assert refusal == (
            422,
            "Invalid",
            f'ResourceClaim.{api.group} "one" is invalid: [status.allocation: {bound}, status.devices: {reported}]',
        )
        assert {cause["reason"] for cause in refusal.details["causes"]} == {"FieldValueForbidden"}
    assert user.ask("PUT", status, stored, **query).status == 200, "what changes nothing requires nothing"
    assert user.ask("PATCH", status, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE, **query).status == 200


def test_refusals_stand_before_what_is_wrong_with_the_object(
    api: Client, mine: str, stored: Object, status: str
) -> None:
    user = Writer(api, account(mine)).granted(STATUS)
    bad = {**ALLOCATED, "devices": [{**REPORT, "device": "other"}], "reservedFor": [{"resource": "pods", "name": "p"}]}
    refusal = user.refused("PUT", status, {**stored, "status": bad})
    assert [field for field, _ in refusal.causes] == [
        "status.allocation",
        "status.devices",
        "status.reservedFor[0].uid",
        "status.devices[0]",
    ]


def test_refusals_stand_between_the_checks_of_metadata(
    api: Client, mine: str, stored: Object, status: str, release: Release
) -> None:
    """Since 1.37, an error that two checks find stands where the first one found it."""
    user = Writer(api, account(mine)).granted(STATUS)
    refusal = user.refused("PATCH", status, {"metadata": {"uid": "x"}, "status": ALLOCATED}, kind=MERGE)
    again = [] if release >= V1_37 else ["metadata.uid"]
    assert [field for field, _ in refusal.causes] == ["metadata.uid", "status.allocation", *again]


def test_right_to_bind_permits_allocation_reservation_and_release(
    api: Client, mine: str, stored: Object, status: str
) -> None:
    user = Writer(api, account(mine)).granted(STATUS, BINDING)
    assert user.ask("PUT", status, {**stored, "status": ALLOCATED}).status == 200
    refusal = user.refused("PATCH", status, {"status": {"devices": [REPORT]}}, kind=MERGE)
    assert refusal.causes == [("status.devices", driver_refused(api, user.name, mine, "arbitrary-node:patch"))]
    api.patch(status, {"status": {"devices": [REPORT]}})
    taken = user.ask("PATCH", status, {"status": {"reservedFor": None, "allocation": None}}, kind=MERGE)
    assert taken.status == 200, "reports of a device go with it, and require nothing"
    assert taken.json["status"] == {}


def test_a_driver_reports_of_its_own_devices_only(api: Client, mine: str, stored: Object, status: str) -> None:
    user = Writer(api, account(mine)).granted(STATUS, ARBITRARY)
    net = {**RESULT, "driver": "net.example.com"}
    api.patch(status, {"status": {"allocation": {"devices": {"results": [RESULT, net]}}}})
    assert user.ask("PATCH", status, {"status": {"devices": [REPORT]}}, kind=MERGE).status == 200
    theirs = {**REPORT, "driver": "net.example.com"}
    refusal = user.refused("PATCH", status, {"status": {"devices": [theirs, REPORT]}}, kind=MERGE)
    told = driver_refused(api, user.name, mine, "arbitrary-node:patch", name="net.example.com")
    assert refusal.causes == [("status.devices", told)]
    api.patch(status, {"status": {"devices": [theirs, REPORT]}})
    assert user.refused("PATCH", status, {"status": {"devices": [REPORT]}}, kind=MERGE).causes == [
        ("status.devices", told)
    ]
    changed = [{**theirs, "data": {"a": 1}}, REPORT]
    assert user.refused("PATCH", status, {"status": {"devices": changed}}, kind=MERGE).causes == [
        ("status.devices", told)
    ]
    assert (
        user.ask("PATCH", status, {"status": {"devices": [theirs, {**REPORT, "data": {"a": 1}}]}}, kind=MERGE).status
        == 200
    )
    refusal = user.refused(
        "PATCH", status, {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}, kind=MERGE
    )
    assert refusal.causes == [("status.allocation", binding_refused(api, user.name, "patch"))]


def test_a_driver_on_the_node_of_the_allocation_needs_less(api: Client, mine: str, stored: Object, status: str) -> None:
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    allocation = {**ALLOCATED["allocation"], "nodeSelector": {"nodeSelectorTerms": [named]}}
    api.patch(status, {"status": {"allocation": allocation}})
    here, there = (Writer(api, account(mine), node=node) for node in ("node-1", "node-2"))
    here.granted(STATUS, ASSOCIATED)
    report = {"status": {"devices": [REPORT]}}
    assert here.ask("PATCH", status, report, kind=MERGE, dryRun="All").status == 200
    for user, report_ in ((there, report), (Writer(api, account(mine)), report)):
        refusal = user.refused("PATCH", status, report_, kind=MERGE)
        assert refusal.causes == [("status.devices", driver_refused(api, user.name, mine, "arbitrary-node:patch"))]
    other = Writer(api, f"{account(mine)}-2", node="node-1").granted(STATUS)
    refusal = other.refused("PATCH", status, report, kind=MERGE)
    verbs = ("associated-node:patch", "arbitrary-node:patch")
    assert refusal.causes == [("status.devices", driver_refused(api, other.name, mine, *verbs))]


# --- Administrators' devices -----------------------------------------------------------------------------------------

LABEL = "resource.kubernetes.io/admin-access"
NEEDED = f"Forbidden: admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def test_administrative_access_is_for_namespaces_with_the_label(
    api: Client, mine: str, stored: Object, status: str
) -> None:
    exactly = {"deviceClassName": "gpu", "adminAccess": True}
    plain = {"name": "a", "exactly": {"deviceClassName": "gpu"}}
    spec = {"devices": {"requests": [plain, {"name": "b", "exactly": exactly}, {"name": "c", "exactly": exactly}]}}
    given = {"status": {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}}

    def tries() -> list[Reply]:
        patch = {"Content-Type": MERGE}
        return [
            api.ask("POST", api.claims(mine), {"metadata": {"name": "x"}, "spec": spec}, dryRun="All"),
            api.ask("POST", api.templates(mine), {"metadata": {"name": "x"}, "spec": {"spec": spec}}, dryRun="All"),
            api.ask("PATCH", status, given, headers=patch, dryRun="All"),
        ]

    places = ["spec.devices.requests[1].adminAccess"] * 2 + ["status.allocation.devices.results[0].adminAccess"]
    for value in (None, "True", ""):
        api.patch(f"{NAMESPACES}/{mine}", {"metadata": {"labels": {LABEL: value}}})
        assert [Refusal(reply).causes for reply in tries()] == [[(place, NEEDED)] for place in places]
    api.patch(f"{NAMESPACES}/{mine}", {"metadata": {"labels": {LABEL: "true"}}})
    assert [reply.status for reply in tries()] == [201, 201, 200], "at once"
    api.patch(status, given)
    api.patch(f"{NAMESPACES}/{mine}", {"metadata": {"labels": {LABEL: None}}})
    assert [reply.status for reply in tries()] == [422, 422, 200], "what was given is not judged again"


# --- Nodes -----------------------------------------------------------------------------------------------------------

NODES = ("system:nodes",)
UPSTREAM = "resource.k8s.io"
"""The group in which kube-apiserver itself gives every node its rights."""
EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RELATED = "no relationship found between node '{}' and this object"
NARROWED = "can only list/watch/deletecollection resourceslices with nodeName field selector"


@pytest.fixture(scope="package")
def nodes(api: Client) -> Callable[[str], Writer]:
    """A node by its name, with the rights that nodes have."""
    if api.group != UPSTREAM:
        Writer(api, "system:node:any", groups=NODES).granted(("resourceslices", EVERYTHING, []))
    return lambda name: Writer(api, f"system:node:{name}", groups=NODES)


def node_refused(api: Client, node: Writer, verb: str, name: str, why: str) -> tuple[int, str, str]:
    whom = f'resourceslices.{api.group} "{name}"' if name else f"resourceslices.{api.group}"
    who = f'User "{node.name}" cannot {verb} resource "resourceslices" in API group "{api.group}" at the cluster scope'
    # The node authorizer's PREFIX.
    named = "node: " if api.get("/version")["minor"] >= "37" else ""
    return 403, "Forbidden", f"{whom} is forbidden: {who}: {named}{why}"


def test_a_node_creates_slices_of_its_own_only(api: Client, mine: str, nodes: Callable[[str], Writer]) -> None:
    node = nodes(f"{mine}-1")
    own = resource_slice(f"{mine}-own", node=f"{mine}-1")
    theirs = resource_slice(f"{mine}-theirs", node=f"{mine}-2")
    everywhere = {**theirs, "spec": {**theirs["spec"], "nodeName": None, "allNodes": True}}
    why = "can only create ResourceSlice with the same NodeName as the requesting node"
    for foreign in (theirs, everywhere):
        told = f'resourceslices.{api.group} "{mine}-theirs" is forbidden: {why}'
        assert node.refused("POST", api.slices, foreign) == (403, "Forbidden", told)
    unnamed = {**theirs, "metadata": {"generateName": f"{mine}-"}}
    told = f'resourceslices.{api.group} "{mine}-" is forbidden: {why}'
    assert node.refused("POST", api.slices, unnamed, dryRun="All") == (403, "Forbidden", told)
    owners = [{"apiVersion": "v1", "kind": "Node", "name": f"{mine}-2", "uid": "u", "controller": True}]
    owned = {**own, "metadata": {**own["metadata"], "ownerReferences": owners}}
    assert node.ask("POST", api.slices, owned).status == 201, "whoever the owner is"


def test_a_node_reads_and_changes_slices_of_its_own_only(
    api: Client, mine: str, nodes: Callable[[str], Writer]
) -> None:
    node, other = nodes(f"{mine}-1"), nodes(f"{mine}-2")
    name = f"{mine}-own"
    own = api.create(api.slices, resource_slice(name, node=f"{mine}-1"))
    path = f"{api.slices}/{name}"
    until(lambda: node.ask("GET", path).status == 200, "the node is known to own its slice")
    for method, verb, body, kind in (
        ("GET", "get", None, ""),
        ("PUT", "update", own, "application/json"),
        ("PATCH", "patch", {}, MERGE),
        ("DELETE", "delete", None, ""),
    ):
        for absent in (name, f"{mine}-none"):
            refusal = other.refused(method, f"{api.slices}/{absent}", body, kind=kind)
            assert refusal == node_refused(api, other, verb, absent, RELATED.format(f"{mine}-2"))
    assert node.ask("PUT", path, own).status == 200
    assert node.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE).status == 200
    given_away = node.refused("PATCH", path, {"spec": {"nodeName": f"{mine}-2"}}, kind=MERGE)
    assert (given_away.code, given_away.causes[0][0]) == (422, "spec.nodeName")
    assert node.ask("DELETE", path).status == 200


def test_a_node_selects_slices_of_its_own_only(api: Client, mine: str, nodes: Callable[[str], Writer]) -> None:
    node = nodes(f"{mine}-1")
    for number in (1, 2):
        api.create(api.slices, resource_slice(f"{mine}-{number}", node=f"{mine}-{number}"))
    foreign = (
        "",
        f"spec.nodeName={mine}-2",
        f"spec.nodeName!={mine}-1",
        "spec.driver=gpu.example.com",
        "spec.nodeName=",
    )
    for method, verb, query in (
        ("GET", "list", {}),
        ("GET", "watch", {"watch": "1", "timeoutSeconds": "1"}),
        ("DELETE", "deletecollection", {}),
    ):
        for selector in foreign:
            refusal = node.refused(method, api.slices, fieldSelector=selector or None, **query)
            assert refusal == node_refused(api, node, verb, "", NARROWED)
    for selector in (f"spec.nodeName={mine}-1", f"spec.driver=gpu.example.com,spec.nodeName=={mine}-1"):
        assert names(node.ask("GET", api.slices, fieldSelector=selector).json) == [f"{mine}-1"]
        assert node.ask("GET", api.slices, fieldSelector=selector, watch="1", timeoutSeconds="1").status == 200
    one = node.refused("GET", api.slices, fieldSelector=f"metadata.name={mine}-1")
    assert one == node_refused(api, node, "list", f"{mine}-1", NARROWED)
    assert node.ask("DELETE", api.slices, fieldSelector=f"spec.nodeName={mine}-1").status == 200
    assert json.loads(api.ask("GET", f"{api.slices}/{mine}-1").body)["code"] == 404
    assert api.get(f"{api.slices}/{mine}-2")
