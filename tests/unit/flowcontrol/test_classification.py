"""Each request gets the FlowSchema that kube-apiserver would give it."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.request import User
from apiserver.filters.request_info import parse
from apiserver.flowcontrol import bootstrap, classification
from apiserver.flowcontrol.types import FlowSchema, Malformed, Queuing, flow_schema, priority_level

AUTHENTICATED = ("system:authenticated",)
JANE = User("jane", groups=("devs", *AUTHENTICATED))
NODE = User("system:node:n1", groups=("system:nodes", *AUTHENTICATED))
ADMIN = User("root", groups=("system:masters", *AUTHENTICATED))
NOBODY = User("system:anonymous", groups=("system:unauthenticated",))
STRANGER = User("stranger")
SCHEDULER = User("system:kube-scheduler", groups=AUTHENTICATED)
MANAGER = User("system:kube-controller-manager", groups=AUTHENTICATED)


def account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", *AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups=groups)


SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/a/leases"


@pytest.mark.parametrize(
    ("user", "method", "target", "expected"),
    [
        (ADMIN, "GET", SLICES, "exempt"),
        (ADMIN, "GET", "/healthz", "exempt"),
        (JANE, "GET", "/healthz", "probes"),
        (NOBODY, "GET", "/livez/ping", "probes"),
        (JANE, "POST", "/healthz", "global-default"),
        (JANE, "GET", "/healthzzz", "global-default"),
        (STRANGER, "GET", "/healthz", "catch-all"),
        (NODE, "GET", SLICES, "system-nodes"),
        (NODE, "GET", "/healthz", "probes"),
        (NODE, "GET", "/api/v1/nodes/n1", "system-node-high"),
        (NODE, "PATCH", "/api/v1/nodes/n1/status", "system-node-high"),
        (NODE, "GET", "/api/v1/nodes/n1/proxy", "system-nodes"),
        (NODE, "PUT", f"{LEASES}/n1", "system-node-high"),
        (NODE, "GET", "/apis/coordination.k8s.io/v1/leases", "system-nodes"),
        (SCHEDULER, "GET", f"{LEASES}/x", "system-leader-election"),
        (SCHEDULER, "GET", LEASES, "kube-scheduler"),
        (MANAGER, "DELETE", f"{LEASES}/x", "kube-controller-manager"),
        (MANAGER, "GET", SLICES, "kube-controller-manager"),
        (account("kube-system", "dns"), "GET", SLICES, "kube-system-service-accounts"),
        (account("kube-system", "dns"), "POST", LEASES, "system-leader-election"),
        (account("kube-systems", "dns"), "GET", SLICES, "service-accounts"),
        (account("default", "driver"), "GET", SLICES, "service-accounts"),
        (JANE, "GET", CLAIMS, "global-default"),
        (NOBODY, "GET", "/apis", "global-default"),
        (STRANGER, "GET", SLICES, "catch-all"),
    ],
)
def test_default_schemas_match_as_upstream(user: User, method: str, target: str, expected: str) -> None:
    schemas = classification.in_order(bootstrap.SCHEMAS, {level.name for level in bootstrap.LEVELS})
    assert classification.schema_for(schemas, user, parse(method, target)).name == expected


def schema(name: str = "tested", *rules: dict[str, Any], **spec: Any) -> FlowSchema:
    level = {"priorityLevelConfiguration": {"name": "global-default"}}
    return flow_schema(
        {"metadata": {"name": name, "uid": f"uid of {name}"}, "spec": {**level, "rules": [*rules], **spec}}
    )


ANYBODY = [{"kind": "Group", "group": {"name": "*"}}]


def resources(**changes: Any) -> dict[str, Any]:
    every: dict[str, Any] = {name: ["*"] for name in ("verbs", "apiGroups", "resources", "namespaces")}
    return {"subjects": ANYBODY, "resourceRules": [{**every, "clusterScope": True, **changes}]}


def paths(*urls: str, verbs: tuple[str, ...] = ("*",)) -> dict[str, Any]:
    return {"subjects": ANYBODY, "nonResourceRules": [{"verbs": [*verbs], "nonResourceURLs": [*urls]}]}


@pytest.mark.parametrize(
    ("rule", "method", "target", "expected"),
    [
        (resources(), "GET", CLAIMS, True),
        (resources(), "GET", "/version", False),
        (resources(verbs=["get"]), "GET", CLAIMS, False),
        (resources(verbs=["list"]), "GET", CLAIMS, True),
        (resources(verbs=["watch"]), "GET", f"{CLAIMS}?watch=1", True),
        (resources(verbs=["list", "*"]), "GET", f"{CLAIMS}/a", False),
        (resources(apiGroups=[""]), "GET", CLAIMS, False),
        (resources(apiGroups=[""]), "GET", "/api/v1/nodes", True),
        (resources(resources=["resourceclaims"]), "PUT", f"{CLAIMS}/a/status", False),
        (resources(resources=["resourceclaims/status"]), "PUT", f"{CLAIMS}/a/status", True),
        (resources(resources=["resourceclaims/*"]), "PUT", f"{CLAIMS}/a/status", False),
        (resources(namespaces=["a"]), "GET", CLAIMS, True),
        (resources(namespaces=["b"]), "GET", CLAIMS, False),
        (resources(namespaces=["a"]), "GET", SLICES, True),
        (resources(clusterScope=False), "GET", SLICES, False),
        (resources(clusterScope=False), "GET", CLAIMS, True),
        (resources(namespaces=[]), "GET", CLAIMS, False),
        (paths("*"), "GET", "/anything", True),
        (paths("*"), "GET", SLICES, False),
        (paths("/apis"), "GET", "/apis", True),
        (paths("/apis"), "GET", "/apis/a.b", True),
        (paths("/apis"), "GET", "/apisx", False),
        (paths("/apis/*"), "GET", "/apis/a.b", True),
        (paths("/apis/*"), "GET", "/apis", False),
        (paths("/apis/*"), "GET", "/apis/", True),
        (paths("/a", "/apis", verbs=("get",)), "POST", "/apis", False),
        (paths("/a", "/apis", verbs=("post",)), "POST", "/apis", True),
    ],
)
def test_rule_matches_as_upstream(rule: dict[str, Any], method: str, target: str, expected: bool) -> None:
    assert classification.matches(schema("tested", rule), JANE, parse(method, target)) is expected


@pytest.mark.parametrize(
    ("subject", "user", "expected"),
    [
        ({"kind": "User", "user": {"name": "jane"}}, JANE, True),
        ({"kind": "User", "user": {"name": "*"}}, STRANGER, True),
        ({"kind": "User", "user": {"name": "jan"}}, JANE, False),
        ({"kind": "User", "group": {"name": "devs"}}, JANE, False),
        ({"kind": "Group", "group": {"name": "devs"}}, JANE, True),
        ({"kind": "Group", "group": {"name": "*"}}, STRANGER, True),
        ({"kind": "Group", "group": {"name": "jane"}}, JANE, False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "b"}}, account("a", "b"), True),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}}, account("a", "b"), True),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "c"}}, account("a", "b"), False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "*", "name": "*"}}, account("a", "b"), False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}}, account("ab", "b"), False),
        ({"kind": "ServiceAccount"}, account("a", "b"), False),
        ({"kind": "Robot", "user": {"name": "jane"}}, JANE, False),
    ],
)
def test_subject_matches_as_upstream(subject: dict[str, Any], user: User, expected: bool) -> None:
    rule = {**resources(), "subjects": [subject]}
    assert classification.matches(schema("tested", rule), user, parse("GET", CLAIMS)) is expected


def test_lower_precedence_matches_first_then_the_name() -> None:
    schemas = [
        schema("c", resources(), matchingPrecedence=7),
        schema("b", resources(), matchingPrecedence=7),
        schema("a", resources()),
    ]
    ordered = [one.name for one in classification.in_order(schemas, {"global-default"})]
    assert ordered == ["exempt", "b", "c", "a", "catch-all"]


def test_schema_of_an_unknown_level_is_ignored() -> None:
    ordered = classification.in_order([schema("a", resources())], {"other"})
    assert [one.name for one in ordered] == ["exempt", "catch-all"]


@pytest.mark.parametrize(
    ("method", "expected"), [(None, ""), ({"type": "ByUser"}, "jane"), ({"type": "ByNamespace"}, "a")]
)
def test_distinguisher_of_the_schema_makes_the_flow(method: dict[str, str] | None, expected: str) -> None:
    one = schema("tested", resources(), distinguisherMethod=method)
    assert classification.distinguisher_of(one, JANE, parse("GET", CLAIMS)) == expected


def limited(**changes: Any) -> dict[str, Any]:
    response = {"type": "Queue", "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 5}}
    part = {"nominalConcurrencyShares": 10, "lendablePercent": 20, "limitResponse": response, **changes}
    return {"metadata": {"name": "tested", "uid": "u"}, "spec": {"type": "Limited", "limited": part}}


def test_priority_level_is_read_with_upstreams_defaults() -> None:
    found = priority_level(limited(borrowingLimitPercent=0))
    assert (found.shares, found.lendable, found.borrowing, found.queuing) == (10, 20, 0, Queuing(16, 4, 5))
    bare = priority_level(limited(nominalConcurrencyShares=None, limitResponse={"type": "Queue", "queuing": {}}))
    assert (bare.shares, bare.borrowing, bare.queuing) == (30, None, Queuing(64, 8, 50))
    refusing = priority_level(limited(nominalConcurrencyShares=0, limitResponse={"type": "Reject"}))
    assert (refusing.shares, refusing.queuing) == (0, None)
    assert schema("tested").precedence == 1000


@pytest.mark.parametrize(
    "found",
    [
        limited(limitResponse={"type": "Queue"}),
        limited(limitResponse={"type": "Reject", "queuing": {}}),
        limited(nominalConcurrencyShares="many"),
        {"metadata": {"name": "tested"}, "spec": {"type": "Limited"}},
        {"metadata": {"name": "tested"}, "spec": {"type": "Exempt", "exempt": {}}},
        {"metadata": {"name": "exempt"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
        {"metadata": {"name": "tested"}, "spec": []},
    ],
)
def test_malformed_priority_level_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        priority_level(found)


@pytest.mark.parametrize(
    "spec",
    [{"distinguisherMethod": {"type": "ByMood"}}, {"rules": [{"resourceRules": [{"verbs": "get"}]}]}, {"rules": 1}],
)
def test_malformed_flow_schema_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        flow_schema({"metadata": {"name": "tested"}, "spec": spec})
