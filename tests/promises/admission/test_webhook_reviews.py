"""The AdmissionReview that a webhook receives for every sort of write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures import protobuf
from tests.promises.admission.hooks import patch
from tests.promises.admission.rig import Object, Rig
from tests.promises.api.client import ALLOCATED, JSON_PATCH, MERGE, claim, device_class

STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
ABSENT = "absent"


def options(kind: str, **members: Any) -> Object:
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **members}


def applied(rig: Rig, name: str, **metadata: Any) -> Object:
    sent = claim(name, **metadata)
    return {"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", **sent}


@dataclass(frozen=True)
class Write:
    """One request about a stored claim `c` (or a missing one `n`), and the review of it."""

    ask: Callable[[Rig], Any]
    operation: str
    options: Object
    name: str = "c"
    sub: str = ""
    dry_run: bool = False


def put(rig: Rig, **query: Any) -> Any:
    return rig.api.put(
        f"{rig.claims}/c", rig.api.get(f"{rig.claims}/c") | {"metadata": {"name": "c", "labels": {"a": "b"}}}, **query
    )


def put_status(rig: Rig) -> Any:
    return rig.api.put(
        f"{rig.claims}/c/status", rig.api.get(f"{rig.claims}/c") | {"status": ALLOCATED}, fieldManager="m"
    )


def patched(body: Any, kind: str, sub: str = "", **query: Any) -> Callable[[Rig], Any]:
    return lambda rig: rig.api.patch(f"{rig.claims}/c{sub}", body, kind=kind, **query)


def apply(name: str, code: int, **query: Any) -> Callable[[Rig], Any]:
    def ask(rig: Rig) -> None:
        headers = {"Content-Type": APPLY}
        body = json.dumps(applied(rig, name, labels={"by": "apply"}))
        reply = rig.api.ask("PATCH", f"{rig.claims}/{name}", body, headers=headers, fieldManager="f", **query)
        assert reply.status == code, reply.text

    return ask


def apply_status(rig: Rig) -> None:
    body = {"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "status": ALLOCATED}
    rig.api.patch(f"{rig.claims}/c/status", json.dumps(body), kind=APPLY, fieldManager="f", force="true")


MERGED = {"metadata": {"labels": {"a": "b"}}}
STATUS = {"status": ALLOCATED}
ADDED = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
WRITES = {
    "create": Write(lambda rig: rig.api.create(rig.claims, claim("n")), "CREATE", options("CreateOptions"), "n"),
    "create with options": Write(
        lambda rig: rig.api.create(rig.claims, claim("n"), fieldManager="m", fieldValidation="Strict"),
        "CREATE", options("CreateOptions", fieldManager="m", fieldValidation="Strict"), "n",
    ),
    "create, tried": Write(
        lambda rig: rig.api.create(rig.claims, claim("n"), dryRun="All"),
        "CREATE", options("CreateOptions", dryRun=["All"]), "n", dry_run=True,
    ),
    "put": Write(put, "UPDATE", options("UpdateOptions")),
    "put with options": Write(
        lambda rig: put(rig, fieldManager="m", fieldValidation="Warn"),
        "UPDATE", options("UpdateOptions", fieldManager="m", fieldValidation="Warn"),
    ),
    "put, tried": Write(
        lambda rig: put(rig, dryRun="All"), "UPDATE", options("UpdateOptions", dryRun=["All"]), dry_run=True
    ),
    "json patch": Write(patched(ADDED, JSON_PATCH, fieldManager="m"), "UPDATE", options("UpdateOptions", fieldManager="m")),
    "merge patch": Write(
        patched(MERGED, MERGE, fieldValidation="Ignore"), "UPDATE", options("UpdateOptions", fieldValidation="Ignore")
    ),
    "strategic merge patch": Write(patched(MERGED, STRATEGIC), "UPDATE", options("UpdateOptions")),
    "merge patch, tried": Write(
        patched(MERGED, MERGE, dryRun="All"), "UPDATE", options("UpdateOptions", dryRun=["All"]), dry_run=True
    ),
    "apply": Write(apply("c", 200, force="true"), "UPDATE", options("UpdateOptions", fieldManager="f")),
    "apply that creates": Write(apply("n", 201), "CREATE", options("CreateOptions", fieldManager="f"), "n"),
    "put of the status": Write(put_status, "UPDATE", options("UpdateOptions", fieldManager="m"), sub="status"),
    "merge patch of the status": Write(
        patched(STATUS, MERGE, "/status"), "UPDATE", options("UpdateOptions"), sub="status"
    ),
    "apply of the status": Write(apply_status, "UPDATE", options("UpdateOptions", fieldManager="f"), sub="status"),
    "delete": Write(lambda rig: rig.api.delete(f"{rig.claims}/c"), "DELETE", options("DeleteOptions")),
    "delete with options": Write(
        lambda rig: rig.api.delete(
            f"{rig.claims}/c", {"gracePeriodSeconds": 5, "propagationPolicy": "Background", "preconditions": {}}
        ),
        "DELETE", options("DeleteOptions", gracePeriodSeconds=5, propagationPolicy="Background", preconditions={}),
    ),
    "delete with a query": Write(
        lambda rig: rig.api.delete(f"{rig.claims}/c", gracePeriodSeconds=0, propagationPolicy="Background"),
        "DELETE", options("DeleteOptions", gracePeriodSeconds=0, propagationPolicy="Background"),
    ),
    "delete, tried": Write(
        lambda rig: rig.api.delete(f"{rig.claims}/c", dryRun="All"),
        "DELETE", options("DeleteOptions", dryRun=["All"]), dry_run=True,
    ),
    "delete of all": Write(lambda rig: rig.api.delete(rig.claims), "DELETE", options("DeleteOptions"), ABSENT),
    "delete of all with options": Write(
        lambda rig: rig.api.delete(rig.claims, {"gracePeriodSeconds": 3}, labelSelector="keep!=me"),
        "DELETE", options("DeleteOptions", gracePeriodSeconds=3), ABSENT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_review_of_each_write_says_what_is_asked_and_how(rig: Rig, write: str) -> None:
    told = WRITES[write]
    was = rig.api.create(rig.claims, claim("c", labels={"was": "here"}))
    rig.webhook("mutating", name="m")
    rig.webhook("validating", name="v")

    told.ask(rig)

    kind = {"group": rig.group, "version": "v1", "kind": "ResourceClaim"}
    resource = {"group": rig.group, "version": "v1", "resource": "resourceclaims"}
    expected = {
        "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "name": told.name, "namespace": rig.mine, "operation": told.operation,
        "subResource": told.sub or ABSENT, "requestSubResource": told.sub or ABSENT,
        "dryRun": told.dry_run, "options": told.options,
    }  # fmt: skip
    calls = rig.calls()
    assert [call.hook for call in calls] == ["m", "v"]
    for call in calls:
        assert {name: call.request.get(name, ABSENT) for name in expected} == expected
        assert call.request["userInfo"]["username"] == "kubernetes-admin"
        old, new = call.request["oldObject"], call.request["object"]
        assert old == (
            None if told.operation == "CREATE" else was | {"kind": "ResourceClaim", "apiVersion": f"{rig.group}/v1"}
        )
        if told.operation == "DELETE":
            assert new is None
        else:
            assert (new["kind"], new["apiVersion"]) == ("ResourceClaim", f"{rig.group}/v1")
            assert new["metadata"]["name"] == told.name
    assert calls[0].request["uid"] != calls[1].request["uid"]


def test_members_stand_in_the_order_in_which_go_writes_them(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("mutating")

    rig.api.patch(f"{rig.claims}/c/status", STATUS)

    [call] = rig.calls()
    assert list(call.review) == ["kind", "apiVersion", "request"]
    assert list(call.request) == [
        "uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace",
        "operation", "userInfo", "object", "oldObject", "dryRun", "options",
    ]  # fmt: skip
    assert list(call.request["kind"]) == ["group", "version", "kind"]
    assert list(call.request["resource"]) == ["group", "version", "resource"]
    assert list(call.request["object"]) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert list(call.request["options"])[:2] == ["kind", "apiVersion"]


def test_text_is_escaped_as_go_escapes_it(rig: Rig) -> None:
    rig.webhook("validating")

    rig.api.create(rig.claims, claim("c", annotations={"text": "a<b>&c \u2028 é \x7f"}))

    [call] = rig.calls()
    assert b'"text":"a\\u003cb\\u003e\\u0026c \\u2028 \xc3\xa9 \x7f"' in call.raw
    assert call.raw.endswith(b"}\n")


def test_mutating_webhooks_see_an_object_before_system_members(rig: Rig) -> None:
    rig.webhook("mutating", name="m")
    rig.webhook("validating", name="v")

    made = rig.api.create(rig.claims, claim("c"))

    early, late = (call.request["object"] for call in rig.calls())
    assert set(early["metadata"]) == {"name", "namespace", "managedFields"}
    assert late["metadata"]["uid"] == made["metadata"]["uid"]
    assert "resourceVersion" not in late["metadata"]
    assert early["spec"] == late["spec"] == made["spec"]


def test_objects_are_shown_with_their_defaults(rig: Rig) -> None:
    rig.webhook("mutating")

    rig.api.create(rig.claims, claim("c"))

    [call] = rig.calls()
    [request] = call.request["object"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


def test_review_contains_a_generated_name_once_it_exists(rig: Rig) -> None:
    rig.webhook("mutating", name="m")
    rig.webhook("validating", name="v")

    made = rig.api.create(rig.claims, claim(generateName="gen-"))

    first, second = rig.calls()
    assert (first.request.get("name", ABSENT), first.request["object"]["metadata"].get("name", ABSENT)) == (
        ABSENT,
        ABSENT,
    )
    assert first.request["object"]["metadata"]["generateName"] == "gen-"
    assert second.request["name"] == second.request["object"]["metadata"]["name"] == made["metadata"]["name"]


def test_an_object_of_the_cluster_has_no_namespace(rig: Rig) -> None:
    rig.webhook("validating", **rig.of_the_cluster("deviceclasses"))
    rig.later(f"{rig.classes}/{rig.mine}")

    rig.api.create(rig.classes, device_class(rig.mine, labels=rig.label))

    [call] = rig.calls()
    assert "namespace" not in call.request
    assert call.request["resource"]["resource"] == "deviceclasses"


def test_review_contains_everything_known_of_the_user(rig: Rig) -> None:
    rig.webhook("validating")
    user = rig.user("alice", "system:masters", "staff")
    user.create(rig.claims, claim("c"))

    [call] = rig.calls()
    told = call.request["userInfo"]
    assert (told["username"], told["groups"]) == ("alice", ["system:masters", "staff", "system:authenticated"])
    assert "uid" not in told
    [credential] = told["extra"].pop("authentication.kubernetes.io/credential-id")
    assert credential.startswith("X509SHA256=")
    assert told["extra"] == {}
    assert list(told) == ["username", "groups", "extra"]


def test_review_names_the_impersonated_user(rig: Rig) -> None:
    rig.webhook("validating")
    headers = {
        "Impersonate-User": "system:serviceaccount:x:y",
        "Impersonate-Group": "system:masters",
        "Impersonate-Uid": "u-1",
        "Impersonate-Extra-Scopes": "view",
    }

    reply = rig.api.ask("POST", rig.claims, claim("c"), headers=headers)

    assert reply.status == 201, reply.text
    [call] = rig.calls()
    assert call.request["userInfo"] == {
        "username": "system:serviceaccount:x:y",
        "uid": "u-1",
        "groups": ["system:masters", "system:authenticated"],
        "extra": {"scopes": ["view"]},
    }


def test_write_in_another_encoding_is_reviewed_as_json(rig: Rig) -> None:
    rig.webhook("validating", **rig.of_the_cluster())
    label = protobuf.field(
        11, *(protobuf.field(1, key.encode()) + protobuf.field(2, value.encode()) for key, value in rig.label.items())
    )
    message = protobuf.field(1, protobuf.field(1, f"{rig.mine}-p".encode()) + label)
    body = protobuf.document(f"{rig.group}/v1", "DeviceClass", message)
    yaml = f"metadata:\n  name: {rig.mine}-y\n  labels: {json.dumps(rig.label)}\nspec: {{}}\n"

    for kind, sent in (("application/vnd.kubernetes.protobuf", body), ("application/yaml", yaml)):
        reply = rig.api.ask("POST", rig.classes, sent, headers={"Content-Type": kind, "Accept": kind})
        assert reply.status == 201, reply.text

    for call, name in zip(rig.calls(), ("p", "y"), strict=True):
        rig.later(f"{rig.classes}/{rig.mine}-{name}")
        shown = call.request["object"]
        assert (shown["kind"], shown["metadata"]["name"]) == ("DeviceClass", f"{rig.mine}-{name}")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_write_in_an_older_version_is_reviewed_in_the_version_of_the_rule(rig: Rig, version: str) -> None:
    """Equivalent, unless the configuration says otherwise."""
    rig.webhook(
        "mutating",
        patch({"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}),
        rules=[rig.rule(apiVersions=["v1"])],
    )
    rig.webhook("validating", name="all")
    claims = rig.claims.replace("/v1/", f"/{version}/")
    request: Object = {"name": "gpu", "deviceClassName": "gpu"}
    if version == "v1beta2":
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    sent = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}

    made = rig.api.create(claims, sent)

    assert made["apiVersion"] == f"{rig.group}/{version}"
    assert made["metadata"]["labels"] == {"by": "webhook"}
    first, second = rig.calls()
    for call, shown, object_version in ((first, "v1", "v1"), (second, version, version)):
        told = call.request
        assert [told[name]["version"] for name in ("kind", "resource", "requestKind", "requestResource")] == [
            shown, shown, version, version,
        ]  # fmt: skip
        assert told["object"]["apiVersion"] == f"{rig.group}/{object_version}"
    assert "exactly" in first.request["object"]["spec"]["devices"]["requests"][0]
    assert ("exactly" in second.request["object"]["spec"]["devices"]["requests"][0]) == (version != "v1beta1")
    assert second.request["object"]["metadata"]["labels"] == {"by": "webhook"}


def test_a_review_in_the_older_form_says_the_same(rig: Rig) -> None:
    rig.webhook(
        "mutating",
        patch({"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}),
        name="m",
        admissionReviewVersions=["v1beta1", "v1"],
    )
    rig.webhook("validating", name="v", admissionReviewVersions=["v0", "v1beta1"])
    rig.webhook("validating", name="w", admissionReviewVersions=["v1", "v1beta1"])

    made = rig.api.create(rig.claims, claim("c"))

    assert made["metadata"]["labels"] == {"by": "webhook"}
    calls = {call.hook: call for call in rig.calls()}
    versions = {name: call.review["apiVersion"] for name, call in calls.items()}
    assert versions == {"m": "admission.k8s.io/v1beta1", "v": "admission.k8s.io/v1beta1", "w": "admission.k8s.io/v1"}
    older, newer = ({**calls[name].request, "uid": ""} for name in ("v", "w"))
    assert older == newer
    assert list(older) == list(newer)


def test_the_call_is_a_post_that_says_how_long_it_may_take(rig: Rig) -> None:
    rig.webhook("validating", timeoutSeconds=7)

    rig.api.create(rig.claims, claim("c"))

    [call] = rig.calls()
    assert (call.method, call.query, call.http) == ("POST", "timeout=7s", "1.1")
    expected = {
        "Content-Type": "application/json",
        "Accept": "application/json, */*",
        "User-Agent": "kube-apiserver-admission",
        "Content-Length": str(len(call.raw)),
        "Accept-Encoding": "gzip",
        "Host": f"localhost:{rig.cluster.hooks.port}",
    }
    assert dict(map(tuple, call.headers)) == expected  # type: ignore[arg-type]
    assert (call.sni, call.certificate) == ("localhost", "")


def test_reads_call_no_webhook(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("mutating", name="m")
    rig.webhook("validating", name="v")

    rig.api.get(f"{rig.claims}/c")
    rig.api.get(rig.claims)
    with rig.api.watch(rig.claims) as watch:
        watch.next()

    assert rig.calls() == []
