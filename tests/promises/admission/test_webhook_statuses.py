"""Members of a webhook's Status that reach the client, and the messages about malformed reviews."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.promises.admission.hooks import deny
from tests.promises.admission.rig import Object, Rig
from tests.promises.api.client import claim

DENIED = 'admission webhook "hook.MINE.example.com" denied the request'
STATUSES: Mapping[str, tuple[Object, Object]] = {
    "a cause that is null": (
        {"message": "no", "details": {"causes": [None, {"message": "m"}]}},
        {"message": f"{DENIED}: no", "details": {"causes": [{}, {"message": "m"}]}},
    ),
    "metadata": (
        {"metadata": {"selfLink": "/x", "resourceVersion": "x", "continue": "c", "remainingItemCount": 3}},
        {
            "message": f"{DENIED} without explanation",
            "metadata": {"selfLink": "/x", "resourceVersion": "VERSION-1", "continue": "c", "remainingItemCount": 3},
        },
    ),
    "nothing that remains": (
        {"metadata": {"remainingItemCount": 0, "selfLink": ""}},
        {"message": f"{DENIED} without explanation", "metadata": {"remainingItemCount": 0}},
    ),
    "an outcome of its own": ({"status": "Undecided"}, {"message": f"{DENIED} without explanation", "status": "Undecided"}),
}  # fmt: skip
OTHER = {"apiVersion": "admission.k8s.io/v1beta1"}
UNLIKE: Mapping[str, tuple[Object, str]] = {
    "a kind of the status": (
        {"response": {"status": {"kind": 1}}},
        "number into Go struct field Status.response.status.TypeMeta.kind of type string",
    ),
    "a version of the status": (
        {"response": {"status": {"apiVersion": []}}},
        "array into Go struct field Status.response.status.TypeMeta.apiVersion of type string",
    ),
    "another version, and no bool": (
        {**OTHER, "response": {"allowed": 1}},
        "number into Go struct field AdmissionResponse.response.allowed of type bool",
    ),
    "a user": (
        {"request": {"userInfo": 3}},
        "number into Go struct field AdmissionRequest.request.userInfo of type v1.UserInfo",
    ),
    "groups": (
        {"request": {"userInfo": {"groups": ["a", 1]}}},
        "number into Go struct field UserInfo.request.userInfo.groups of type string",
    ),
    "what is known beyond": (
        {"request": {"userInfo": {"extra": {"a": "b"}}}},
        "string into Go struct field UserInfo.request.userInfo.extra of type v1.ExtraValue",
    ),
    "a kind of the request": (
        {"request": {"kind": {"group": True}}},
        "bool into Go struct field GroupVersionKind.request.kind.group of type string",
    ),
    "a resource of the request": (
        {"request": {"requestResource": "x"}},
        "string into Go struct field AdmissionRequest.request.requestResource of type v1.GroupVersionResource",
    ),
    "an operation": (
        {"request": {"operation": {}}},
        "object into Go struct field AdmissionRequest.request.operation of type v1.Operation",
    ),
}


@pytest.mark.parametrize("what", STATUSES)
def test_the_status_of_a_denial_is_passed_on_with_all_that_it_says(rig: Rig, what: str) -> None:
    status, expected = STATUSES[what]
    rig.webhook("validating", deny(**status))

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    usual = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400}
    assert rig.normal(reply.json) == usual | expected


@pytest.mark.parametrize("what", UNLIKE)
def test_first_misfit_of_a_review_is_reported(rig: Rig, what: str) -> None:
    review, said = UNLIKE[what]
    rig.webhook("validating", {"review": review})

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    failed = 'Internal error occurred: failed calling webhook "hook.MINE.example.com": failed to call webhook: '
    assert rig.normal(refusal.message) == f"{failed}json: cannot unmarshal {said}"


def test_request_of_a_review_answer_is_not_compared(rig: Rig) -> None:
    request = {"uid": "other", "object": 7, "operation": "CONNECT", "options": [], "kind": None, "userInfo": {"x": 1}}
    rig.webhook("validating", {"review": {"request": request}})
    rig.api.create(rig.claims, claim("c"))
