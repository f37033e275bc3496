"""Answers of a server without a cluster to access reviews. The texts are those of a real kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.composed import ADMIN, JANE, Composed
from tests.fixtures.connection import Answer

AUTHORIZATION, AUTHENTICATION = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
PODS = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "x"}}
VERSION = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
OPENAPI = {"nonResourceAttributes": {"path": "/openapi/v2", "verb": "get"}}

BOTH = "cannot be specified in combination with resourceAttributes"
SELECTOR = "spec.resourceAttributes.fieldSelector"


async def review(
    server: Composed, kind: str, spec: Any, *, peer: Any = ADMIN.peer, namespace: str = "", metadata: Any = None
) -> Answer:
    inside = f"/namespaces/{namespace}" if namespace else ""
    document = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": metadata or {}, "spec": spec}
    return await server.ask("POST", f"{AUTHORIZATION}{inside}/{kind.lower()}s", document, peer=peer)


async def test_self_subject_review_names_the_user(alone: Composed) -> None:
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    answer = await alone.ask("POST", f"{AUTHENTICATION}/selfsubjectreviews", document, peer=JANE.peer)

    assert answer.status == 201
    assert list(answer.json["metadata"]) == ["creationTimestamp"]
    user = answer.json["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("jane", ["system:authenticated"])
    assert user["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


@pytest.mark.parametrize(
    ("peer", "spec", "allowed"),
    [(ADMIN.peer, PODS, True), (JANE.peer, PODS, False), (JANE.peer, VERSION, True), (JANE.peer, OPENAPI, True)],
)
async def test_user_may_ask_what_it_may_do(alone: Composed, peer: Any, spec: Any, allowed: bool) -> None:
    answer = await review(alone, "SelfSubjectAccessReview", spec, peer=peer)

    assert (answer.status, answer.json["status"]) == (201, {"allowed": allowed})
    assert answer.json["spec"] == spec
    assert [entry["operation"] for entry in answer.json["metadata"]["managedFields"]] == ["Update"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"user": "jane", "groups": ["system:authenticated"], **PODS}, False),
        ({"user": "jane", "groups": ["system:masters"], **PODS}, True),
        ({"groups": ["system:unauthenticated"], **VERSION}, True),
        ({"groups": ["system:unauthenticated"], **OPENAPI}, False),
        ({"user": "jane", "extra": {"Scopes": ["a", "b"]}, "uid": "1", **OPENAPI}, False),
    ],
)
async def test_masters_may_ask_what_others_may_do(alone: Composed, spec: Any, allowed: bool) -> None:
    answer = await review(alone, "SubjectAccessReview", spec)

    assert (answer.status, answer.json["status"]) == (201, {"allowed": allowed})
    assert (await review(alone, "SubjectAccessReview", spec, peer=JANE.peer)).status == 403


async def test_local_review_is_about_its_own_namespace(alone: Composed) -> None:
    answer = await review(alone, "LocalSubjectAccessReview", {"user": "jane", **PODS}, namespace="x")
    assert (answer.status, answer.json["status"]) == (201, {"allowed": False})
    assert answer.json["metadata"]["namespace"] == "x"

    elsewhere = await review(alone, "LocalSubjectAccessReview", {"user": "jane", **PODS}, namespace="y")
    assert elsewhere.json["message"] == (
        '.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "x": must match metadata.namespace'
    )


@pytest.mark.parametrize(
    ("kind", "spec", "text"),
    [
        (
            "SelfSubjectAccessReview",
            {},
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "SelfSubjectAccessReview",
            {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/a", "verb": "get"}},
            f'spec.nonResourceAttributes: Invalid value: {{"Path":"/a","Verb":"get"}}: {BOTH}',
        ),
        ("SubjectAccessReview", PODS, 'spec.user: Invalid value: "": at least one of user or group must be specified'),
        (
            "SelfSubjectAccessReview",
            {"resourceAttributes": {"verb": "list", "fieldSelector": {}}},
            f"{SELECTOR}.requirements: Required value: when {SELECTOR} is specified, requirements or rawSelector is required",
        ),
    ],
)
async def test_review_that_asks_nothing_is_invalid(alone: Composed, kind: str, spec: Any, text: str) -> None:
    answer = await review(alone, kind, spec)

    assert (answer.status, answer.json["message"]) == (422, f'.authorization.k8s.io "" is invalid: {text}')
    assert answer.json["details"]["group"] == "authorization.k8s.io"


async def test_review_has_no_metadata(alone: Composed) -> None:
    answer = await review(alone, "SelfSubjectAccessReview", PODS, metadata={"name": "x"})

    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == "metadata"
    assert answer.json["message"].endswith("must be empty")


async def test_user_may_ask_for_all_that_it_may_do(alone: Composed) -> None:
    masters = await review(alone, "SelfSubjectRulesReview", {"namespace": "default"})
    assert (masters.status, masters.json["metadata"], masters.json["spec"]) == (201, {}, {})
    assert masters.json["status"]["resourceRules"] == [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {
            "verbs": ["create"],
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    ]
    urls = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ]
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    assert masters.json["status"]["nonResourceRules"] == [
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
        {"verbs": ["get"], "nonResourceURLs": urls},
        {"verbs": ["get"], "nonResourceURLs": public},
    ]
    assert masters.json["status"]["incomplete"] is False

    others = await review(alone, "SelfSubjectRulesReview", {"namespace": "default"}, peer=JANE.peer)
    assert [rule["verbs"] for rule in others.json["status"]["resourceRules"]] == [["create"], ["create"]]

    nowhere = await review(alone, "SelfSubjectRulesReview", {})
    assert (nowhere.status, nowhere.json["message"]) == (400, "no namespace on request")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{AUTHORIZATION}/selfsubjectaccessreviews", 405),
        ("GET", f"{AUTHORIZATION}/selfsubjectaccessreviews/x", 404),
        ("PUT", f"{AUTHORIZATION}/selfsubjectaccessreviews/x", 404),
        ("GET", f"{AUTHORIZATION}/watch/selfsubjectaccessreviews", 404),
        ("POST", f"{AUTHORIZATION}/localsubjectaccessreviews", 404),
        ("GET", AUTHORIZATION, 200),
        ("GET", "/apis/authentication.k8s.io", 200),
    ],
)
async def test_reviews_can_be_created_and_nothing_else(alone: Composed, method: str, path: str, status: int) -> None:
    assert (await alone.ask(method, path)).status == status


async def test_discovery_lists_reviews_as_upstream_does(alone: Composed) -> None:
    listed = (await alone.ask("GET", AUTHENTICATION)).json["resources"]

    assert listed == [
        {
            "name": "selfsubjectreviews",
            "singularName": "selfsubjectreview",
            "namespaced": False,
            "kind": "SelfSubjectReview",
            "verbs": ["create"],
        }
    ]
