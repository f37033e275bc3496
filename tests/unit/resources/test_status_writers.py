"""Rights that a write of a claim's status requires."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.request import User
from apiserver.codecs.json import rawjson
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Permission
from tests.unit.resources import samples
from tests.unit.resources.samples import CLAIM, RESULT, decoded

KIND = samples.KINDS["ResourceClaim"]
ALLOCATION: dict[str, Any] = {"devices": {"results": [RESULT]}}
ALLOCATED: dict[str, Any] = {"allocation": ALLOCATION}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u1"}
REPORT = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
OTHER = {"driver": "net.example.com", "pool": "n1", "device": "eth-0"}
JANE = User("jane")
ACCOUNT = "system:serviceaccount:drivers:gpu"
NODE_NAME = "authentication.kubernetes.io/node-name"
ARBITRARY, ASSOCIATED = ("arbitrary-node:update",), ("associated-node:update", "arbitrary-node:update")

Question = tuple[str, str, bool, tuple[str, ...]]
BINDING: Question = ("binding", "", False, ("update",))


def driver(name: str, verbs: tuple[str, ...] = ARBITRARY) -> Question:
    return ("driver", name, True, verbs)


def required(
    status: dict[str, Any], stored: dict[str, Any], user: User = JANE, verb: str = "update", **switched: bool
) -> list[FieldError | Permission]:
    context = Context(gates=Gates(KIND.gates, switched), user=user, verb=verb, namespace_labels=dict)
    new, old = decoded(KIND, {**CLAIM, "status": status}), decoded(KIND, {**CLAIM, "status": stored})
    sub = KIND.subresource("status")
    assert sub is not None
    sub.prepare(context, new, old)
    return list(sub.requires(context, new, old))


def asked(status: dict[str, Any], stored: dict[str, Any], **more: Any) -> list[Question]:
    found = [item for item in required(status, stored, **more) if isinstance(item, Permission)]
    return [(item.subresource, item.name, item.namespaced, item.verbs) for item in found]


@pytest.mark.parametrize(
    ("status", "stored", "expected"),
    [
        ({}, {}, []),
        (ALLOCATED, {}, [BINDING]),
        ({}, ALLOCATED, [BINDING]),
        (ALLOCATED, ALLOCATED, []),
        ({**ALLOCATED, "reservedFor": [CONSUMER]}, ALLOCATED, [BINDING]),
        ({**ALLOCATED, "reservedFor": []}, ALLOCATED, []),
        ({"allocation": {}}, {}, [BINDING]),
        ({"allocation": {"devices": {"results": [RESULT], "config": []}}}, ALLOCATED, []),
        (
            {"allocation": {"devices": {"results": [{**RESULT, "consumedCapacity": {"m": "1024Mi"}}]}}},
            {"allocation": {"devices": {"results": [{**RESULT, "consumedCapacity": {"m": "1Gi"}}]}}},
            [],
        ),
        ({**ALLOCATED, "devices": [REPORT]}, ALLOCATED, [driver("gpu.example.com")]),
        ({**ALLOCATED, "devices": [REPORT]}, {**ALLOCATED, "devices": [REPORT]}, []),
        (ALLOCATED, {**ALLOCATED, "devices": [REPORT]}, [driver("gpu.example.com")]),
        (
            {**ALLOCATED, "devices": [{**REPORT, "data": rawjson.of(b'{"a":1}')}]},
            {**ALLOCATED, "devices": [REPORT]},
            [driver("gpu.example.com")],
        ),
        (
            {**ALLOCATED, "devices": [{**REPORT, "data": rawjson.of(b'{"a":1}')}]},
            {**ALLOCATED, "devices": [{**REPORT, "data": rawjson.of(b'{"a":1.0}')}]},
            [driver("gpu.example.com")],
        ),
        (
            {**ALLOCATED, "devices": [{**REPORT, "shareID": "s"}]},
            {**ALLOCATED, "devices": [REPORT]},
            [driver("gpu.example.com")],
        ),
        ({**ALLOCATED, "devices": [REPORT, REPORT]}, {**ALLOCATED, "devices": [REPORT]}, [driver("gpu.example.com")]),
        (
            {**ALLOCATED, "devices": [OTHER, REPORT]},
            {},
            [BINDING, driver("gpu.example.com"), driver("net.example.com")],
        ),
        ({"devices": [REPORT]}, {}, []),
        ({}, {**ALLOCATED, "devices": [REPORT]}, [BINDING]),
    ],
)
def test_each_changed_part_of_the_status_requires_its_permission(
    status: dict[str, Any], stored: dict[str, Any], expected: list[Question]
) -> None:
    assert asked(status, stored) == expected


def test_the_verb_is_the_requests() -> None:
    status = {**ALLOCATED, "devices": [REPORT]}
    found = required(status, {}, verb="patch")
    assert [item.text for item in found if isinstance(item, Permission)] == [
        'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: ',
        'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: ',
    ]
    assert asked(status, {}, verb="patch")[1] == driver("gpu.example.com", ("arbitrary-node:patch",))


def on(*terms: Any) -> dict[str, Any]:
    return {**ALLOCATION, "nodeSelector": {"nodeSelectorTerms": list(terms)}}


def named(*values: str, key: str = "metadata.name", operator: str = "In") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def account(*nodes: str, name: str = ACCOUNT) -> User:
    return User(name, extra={NODE_NAME: nodes} if nodes else {})


@pytest.mark.parametrize(
    ("user", "allocation", "verbs"),
    [
        (account("n1"), on(named("n1")), ASSOCIATED),
        (account("n2"), on(named("n1")), ARBITRARY),
        (account(), on(named("n1")), ARBITRARY),
        (account("n1", "n2"), on(named("n1")), ARBITRARY),
        (account("n1", name="jane"), on(named("n1")), ARBITRARY),
        (account("n1", name="system:serviceaccount:drivers"), on(named("n1")), ARBITRARY),
        (account("n1", name="system:serviceaccount:drivers:gpu:x"), on(named("n1")), ARBITRARY),
        (account("n1", name="system:serviceaccount:Drivers:gpu"), on(named("n1")), ARBITRARY),
        (account("N1"), on(named("N1")), ARBITRARY),
        (account(""), on(named("")), ARBITRARY),
        (account("n1"), ALLOCATION, ARBITRARY),
        (account("n1"), on(), ARBITRARY),
        (account("n1"), on(named("n1"), named("n1")), ARBITRARY),
        (account("n1"), on(named("n1", "n2")), ARBITRARY),
        (account("n1"), on(named("n1", key="metadata.namespace")), ARBITRARY),
        (account("n1"), on(named("n1", operator="NotIn")), ARBITRARY),
        (account("n1"), on({**named("n1"), "matchExpressions": [{"key": "a", "operator": "Exists"}]}), ARBITRARY),
        (account("n1"), on({"matchFields": named("n1")["matchFields"] * 2}), ARBITRARY),
        (account("n1"), on({"matchExpressions": named("n1")["matchFields"]}), ARBITRARY),
    ],
)
def test_service_account_is_on_the_node_of_its_token_and_the_allocation(
    user: User, allocation: dict[str, Any], verbs: tuple[str, ...]
) -> None:
    allocated = {"allocation": allocation}
    assert asked({**allocated, "devices": [REPORT]}, allocated, user=user) == [driver("gpu.example.com", verbs)]


def test_disabled_gate_requires_nothing() -> None:
    status = {**ALLOCATED, "devices": [REPORT]}
    assert required(status, {}, DRAResourceClaimGranularStatusAuthorization=False) == []


def test_administrative_access_is_refused_before_anything_is_asked() -> None:
    given = {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}
    first, second = required(given, {})
    assert isinstance(first, FieldError)
    assert first.field == "status.allocation.devices.results[0].adminAccess"
    assert isinstance(second, Permission)
