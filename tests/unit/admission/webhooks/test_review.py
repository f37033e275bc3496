"""The review that a webhook receives, and the meaning of its answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from apiserver import resources
from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.webhooks import review
from apiserver.admission.webhooks.review import (
    BadAnswer,
    InvalidResponse,
    Response,
    Undecodable,
    UndecodablePatch,
    Version,
)
from apiserver.apimachinery.options import CreateOptions
from apiserver.apimachinery.request import Annotations, User, Warnings
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
from apiserver.runtime.offload import READ_REVIEW
from apiserver.schema.resource import Object, Resource

GROUP = "things.example.com"
KINDS = {kind.plural: kind for kind in Kinds(resources.RESOURCES, group=GROUP)}
UID = "0b4c9a2e-0000-4000-8000-000000000000"
PATCH = base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{}}]').decode()


class Views:
    async def atext(self, obj: Object, resource: Resource) -> bytes:
        return json.dumps(obj, separators=(",", ":")).encode()


class Matched:
    def __init__(self, resource: Resource) -> None:
        self.resource = resource


def attributes(operation: Operation, **changes: Any) -> Attributes:
    resource = KINDS["resourceclaims"]
    named = {
        "operation": operation,
        "options": CreateOptions(field_manager="<kubectl>"),
        "info": parse("POST", f"/apis/{GROUP}/v1/namespaces/space/resourceclaims"),
        "user": User("jane", "1", ("system:authenticated",), {"b": ("2",), "a": ("1", "3")}),
        "resource": resource,
        "name": "one",
        "object": {"metadata": {"name": "one"}},
        "old": None,
        "warnings": Warnings(),
        "annotations": Annotations(),
    }
    return Attributes(**{**named, **changes})


async def test_a_create_is_asked_as_kube_apiserver_asks() -> None:
    resource = KINDS["resourceclaims"]
    made = await review.request(attributes("CREATE"), Matched(resource), version="v1", uid=UID, views=Views())
    assert made.decode() == (
        f'{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}",'
        f'"kind":{{"group":"{GROUP}","version":"v1","kind":"ResourceClaim"}},'
        f'"resource":{{"group":"{GROUP}","version":"v1","resource":"resourceclaims"}},'
        f'"requestKind":{{"group":"{GROUP}","version":"v1","kind":"ResourceClaim"}},'
        f'"requestResource":{{"group":"{GROUP}","version":"v1","resource":"resourceclaims"}},'
        '"name":"one","namespace":"space","operation":"CREATE",'
        '"userInfo":{"username":"jane","uid":"1","groups":["system:authenticated"],"extra":{"a":["1","3"],"b":["2"]}},'
        '"object":{"metadata":{"name":"one"}},"oldObject":null,"dryRun":false,'
        '"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"\\u003ckubectl\\u003e"}}}\n'
    )


def answer(version: Version = "v1", **response: Any) -> dict[str, Any]:
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "response": {"uid": UID, "allowed": True, **response},
    }


def read(value: Any, *, version: Version = "v1", mutating: bool = True) -> Response:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return review.read(data, version=version, uid=UID, mutating=mutating)


def test_an_answer_is_read() -> None:
    found = read(answer(patch=PATCH, patchType="JSONPatch", warnings=["one"], auditAnnotations={"a": "b"}))
    assert (found.allowed, found.status, found.warnings) == (True, None, ["one"])
    assert found.audit_annotations == {"a": "b"}
    assert [operation.op for operation in found.operations().operations] == ["add"]
    denied = read(answer(allowed=False, status={"code": 402, "message": "no"}))
    assert (denied.allowed, denied.status) == (False, {"code": 402, "message": "no"})


@pytest.mark.parametrize(
    ("value", "mutating", "problem"),
    [
        (
            {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"},
            True,
            InvalidResponse("webhook response was absent"),
        ),
        (answer(uid="other"), True, InvalidResponse(f'expected response.uid="{UID}", got "other"')),
        (answer(patch=PATCH), True, InvalidResponse("webhook returned response.patch but not response.patchType")),
        (
            answer(patchType="JSONPatch"),
            True,
            InvalidResponse("webhook returned response.patchType but not response.patch"),
        ),
        (answer(patch=PATCH, patchType=""), True, InvalidResponse('webhook returned invalid response.patchType of ""')),
        (answer(patch=PATCH), False, InvalidResponse("validating webhook may not return response.patch")),
        (answer(patchType="JSONPatch"), False, InvalidResponse("validating webhook may not return response.patchType")),
        (answer(patch="AAA"), True, Undecodable("illegal base64 data at input byte 0")),
    ],
)
def test_an_answer_that_breaks_a_rule_is_refused(value: Any, mutating: bool, problem: BadAnswer) -> None:
    with pytest.raises(type(problem)) as refused:
        read(value, mutating=mutating)
    assert str(refused.value) == str(problem)


def test_a_v1beta1_answer_is_bound_to_nothing() -> None:
    found = read(answer("v1beta1", uid="other", patch=PATCH), version="v1beta1")
    assert (found.patch_type, len(found.operations().operations)) == ("JSONPatch", 1)
    assert read(answer("v1beta1", patch=PATCH), version="v1beta1", mutating=False).patch == b""


def test_malformed_patch_is_reported() -> None:
    found = read(answer(patch=base64.b64encode(b"{}").decode(), patchType="JSONPatch"))
    with pytest.raises(UndecodablePatch, match=r"json: cannot unmarshal object into Go value of type jsonpatch\.Patch"):
        found.operations()


DENSE: dict[str, Callable[[int], bytes]] = {
    "nested objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "open objects": lambda size: b'{"a":' * (size // 5),
    "open lists, as YAML has them": lambda size: b"[" * size,
    "lists of texts in YAML": lambda size: b"- a\n" * (size // 4),
    "nulls in YAML": lambda size: b"a:\n" * (size // 3),
    "a patch of open lists": lambda size: json.dumps(
        {"response": {"uid": UID, "allowed": True, "patch": base64.b64encode(b"[" * (size * 3 // 4)).decode()}}
    ).encode(),
}


@pytest.mark.parametrize("size", [2 << 10, READ_REVIEW.limit - 64, 16 << 10, 63 << 10, 250 << 10])
@pytest.mark.parametrize("shape", DENSE)
async def test_no_answer_holds_the_event_loop(shape: str, size: int) -> None:
    """The reader of the answer words its error."""
    with pytest.raises((Undecodable, InvalidResponse)):
        await review.received(DENSE[shape](size), version="v1", uid=UID, mutating=True)


def test_open_lists_in_yaml_are_refused_as_too_deep() -> None:
    with pytest.raises(Undecodable, match=r"^yaml: exceeded max depth of 10000$"):
        review.read(b"[" * (64 << 10), version="v1", uid=UID, mutating=True)


def test_names_that_are_numbers_in_yaml_are_texts() -> None:
    with pytest.raises(InvalidResponse, match=r"^webhook response was absent$"):
        review.read(b"1234: 1\n2: b\n", version="v1", uid=UID, mutating=True)
