"""Unreachable webhooks and malformed answers: the client's error, and the effect of failurePolicy."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.promises.admission.cluster import CALLER
from tests.promises.admission.hooks import add, patch
from tests.promises.admission.rig import Object, Phase, Rig, warnings
from tests.promises.api.client import claim

CALL = "failed to call webhook: "
POST = f'{CALL}Post "https://localhost:PORT/MINE/fail?timeout=30s": '
INVALID = "received invalid webhook response: "
UNDECODABLE = "received undecodable patch in webhook response: "
WRONG_KIND = INVALID + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}"
NO_META = (
    CALL + "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ "
    'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }}'
)
STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": "Conflict", "code": 409}
TEXT = {"Content-Type": "text/plain"}


def answer(**response: Any) -> Object:
    return {"review": {"response": response}}


def encoded(value: Any) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode()


FAULTS: Mapping[str, tuple[Object, str]] = {
    "hangs up": ({"close": True}, POST + "EOF"),
    "speaks no HTTP": (
        {"raw": "hello\r\n\r\n"},
        POST + 'net/http: HTTP/1.x transport connection broken: malformed HTTP response "hello"',
    ),
    "breaks off": (
        {"raw": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"},
        CALL + "unexpected error when reading response body. Please retry. Original error: unexpected EOF",
    ),
    "is broken": (
        {"status": 500, "body": "sorry", "headers": TEXT},
        CALL + 'an error on the server ("sorry") has prevented the request from succeeding',
    ),
    "is broken, says nothing": (
        {"status": 500, "body": "", "headers": TEXT},
        CALL + 'an error on the server ("") has prevented the request from succeeding',
    ),
    "knows no such path": (
        {"status": 404, "body": "404 page not found\n", "headers": TEXT},
        CALL + "the server could not find the requested resource",
    ),
    "asks for credentials": (
        {"status": 401, "body": "who?", "headers": TEXT},
        CALL + "the server has asked for the client to provide credentials",
    ),
    "forbids": ({"status": 403, "body": "you?", "headers": TEXT}, CALL + "you?"),
    "answers a Status": (
        {"status": 409, "body": json.dumps(STATUS)},
        CALL + "m",
    ),
    "redirects nowhere": (
        {"status": 302, "body": ""},
        CALL + "the server responded with the status code 302 but did not return more information",
    ),
    "answers nothing": (
        {"body": ""},
        CALL + "0-length response with status code: 200 and content type: application/json",
    ),
    "answers no JSON": ({"body": "<html>"}, NO_META.format("string")),
    "answers another thing": ({"body": "[]"}, NO_META.format("array")),
    "answers an empty object": ({"body": "{}"}, INVALID + "webhook response was absent"),
    "answers another kind": (
        {"review": {"kind": "Review"}},
        CALL + 'no kind "Review" is registered for version "admission.k8s.io/v1" in scheme "SCHEME"',
    ),
    "answers in another version": (
        {"review": {"apiVersion": "admission.k8s.io/v1beta1"}},
        CALL + "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "answers in an unknown version": (
        {"review": {"apiVersion": "admission.k8s.io/v7"}},
        CALL + 'no kind "AdmissionReview" is registered for version "admission.k8s.io/v7" in scheme "SCHEME"',
    ),
    "answers without a kind": ({"review": {"kind": None}}, WRONG_KIND.format("admission.k8s.io/v1, Kind=")),
    "answers without a version": ({"review": {"apiVersion": None}}, WRONG_KIND.format("/, Kind=AdmissionReview")),
    "answers without a response": ({"review": {"response": None}}, INVALID + "webhook response was absent"),
    "answers another uid": (answer(uid="other"), INVALID + 'expected response.uid="UID-1", got "other"'),
    "answers without a uid": (answer(uid=None), INVALID + 'expected response.uid="UID-1", got ""'),
    "answers a text for a bool": (
        answer(allowed="yes"),
        CALL + "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
    ),
    "answers a number for warnings": (
        answer(warnings=7),
        CALL
        + "json: cannot unmarshal number into Go struct field AdmissionResponse.response.warnings of type []string",
    ),
}
OF_PATCHES: Mapping[str, tuple[Object, str]] = {
    "no type": (
        {**patch(add("/metadata/labels", {})), **answer(patchType=None)},
        INVALID + "webhook returned response.patch but not response.patchType",
    ),
    "a type alone": (
        answer(patchType="JSONPatch"),
        INVALID + "webhook returned response.patchType but not response.patch",
    ),
    "an empty type": (
        answer(patch=encoded([]), patchType=""),
        INVALID + 'webhook returned invalid response.patchType of ""',
    ),
    "an unknown type": (
        answer(patch=encoded([add("/a", {})]), patchType="MergePatch"),
        'unsupported patch type "MergePatch"',
    ),
    "no base64": (answer(patch="%%%", patchType="JSONPatch"), CALL + "illegal base64 data at input byte 0"),
    "no JSON": (answer(patch=encoded(b"{"), patchType="JSONPatch"), UNDECODABLE + "unexpected end of JSON input"),
    "an object": (
        answer(patch=encoded({"op": "add"}), patchType="JSONPatch"),
        UNDECODABLE + "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    ),
    "a list of texts": (
        answer(patch=encoded(["add"]), patchType="JSONPatch"),
        UNDECODABLE + "json: cannot unmarshal string into Go value of type jsonpatch.Operation",
    ),
}
OF_VALIDATORS: Mapping[str, tuple[Object, str]] = {
    "a patch": (answer(patch=encoded([])), INVALID + "validating webhook may not return response.patch"),
    "a type": (answer(patchType="JSONPatch"), INVALID + "validating webhook may not return response.patchType"),
    "both": (patch(add("/metadata/labels", {})), INVALID + "validating webhook may not return response.patch"),
}


def held(rig: Rig, phase: Phase, given: Object, **entry: Any) -> str:
    """The object after a webhook that must not fail, behind one that may and was ignored."""
    hooks = [
        rig.hook(
            given,
            name=policy.lower(),
            failurePolicy=policy,
            objectSelector={"matchLabels": {"policy": policy}},
            **entry,
        )
        for policy in ("Fail", "Ignore")
    ]
    rig.webhooks(phase, *hooks)
    ignored = rig.api.ask("POST", rig.claims, claim("ignored", labels={"policy": "Ignore"}))
    assert (ignored.status, warnings(ignored)) == (201, []), ignored.text

    refusal = rig.api.refusal("POST", rig.claims, claim("failed", labels={"policy": "Fail"}))

    assert (refusal.code, refusal.reason) == (500, "InternalError")
    assert [item["metadata"]["name"] for item in rig.api.get(rig.claims)["items"]] == ["ignored"]
    text: str = rig.normal(refusal.message).replace(str(rig.cluster.hooks.port), "PORT")
    said = 'failed calling webhook "fail.MINE.example.com": '
    assert text.startswith(f"Internal error occurred: {said}")
    [cause] = refusal.details["causes"]
    assert (
        f"Internal error occurred: {rig.normal(cause['message'])}".replace(str(rig.cluster.hooks.port), "PORT") == text
    )
    return text.partition(said)[2]


@pytest.mark.parametrize("what", FAULTS)
def test_failing_webhook_is_reported_or_ignored(rig: Rig, what: str) -> None:
    given, text = FAULTS[what]
    assert held(rig, "validating", given) == text


@pytest.mark.parametrize("what", OF_PATCHES)
def test_a_patch_that_cannot_be_read_is_a_failure(rig: Rig, what: str) -> None:
    given, text = OF_PATCHES[what]
    assert held(rig, "mutating", given) == text


@pytest.mark.parametrize("what", OF_VALIDATORS)
def test_validating_webhook_must_not_patch(rig: Rig, what: str) -> None:
    given, text = OF_VALIDATORS[what]
    assert held(rig, "validating", given) == text


def test_a_webhook_has_its_own_time_and_no_more(rig: Rig) -> None:
    text = held(rig, "validating", {"hold": True}, timeoutSeconds=1)
    assert text == POST.replace("=30s", "=1s") + "context deadline exceeded"


def test_unreachable_server_is_reported(rig: Rig) -> None:
    text = held(rig, "validating", {}, clientConfig={"url": "https://127.0.0.1:1/x"})
    assert text == f'{CALL}Post "https://127.0.0.1:1/x?timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused'


def test_a_certificate_of_another_authority_is_not_believed(rig: Rig) -> None:
    bundle = base64.b64encode(rig.cluster.bed.plane.pki.sluice.pem).decode()
    text = held(rig, "validating", {}, clientConfig={"url": rig.cluster.hooks.url("/x"), "caBundle": bundle})
    reason = "x509: certificate signed by unknown authority"
    assert text == f'{CALL}Post "https://localhost:PORT/x?timeout=30s": tls: failed to verify certificate: {reason}'


def test_a_certificate_of_another_name_is_not_believed(rig: Rig) -> None:
    config = {"url": rig.cluster.hooks.url("/x", "127.0.0.1"), "caBundle": rig.cluster.hooks.ca_bundle}
    text = held(rig, "validating", {}, clientConfig=config)
    reason = "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
    assert text == f'{CALL}Post "https://127.0.0.1:PORT/x?timeout=30s": tls: failed to verify certificate: {reason}'


def test_a_redirect_is_followed(rig: Rig) -> None:
    path = f"/{rig.mine}/moved"
    rig.cluster.hooks.program(path, [])
    rig.webhook("validating", {"status": 307, "body": "", "headers": {"Location": path}})

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert reply.status == 201, reply.text
    first, second = rig.calls()
    assert (second.hook, second.method, second.raw) == ("moved", "POST", first.raw)


def test_a_server_that_asks_for_patience_is_asked_again(rig: Rig) -> None:
    busy = {"status": 429, "body": "", "headers": {"Retry-After": "0"}}
    rig.webhook("validating", busy, {**busy, "status": 503}, {})

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert reply.status == 201, reply.text
    assert len({call.request["uid"] for call in rig.calls(count=3)}) == 1


def test_service_is_called_by_its_name_with_its_configured_credentials(rig: Rig) -> None:
    rig.webhook("validating", name="v", service=True)
    rig.webhook("mutating", name="m", service=True)

    rig.api.create(rig.claims, claim("c"))

    for call in rig.calls(count=2):
        assert (call.sni, call.certificate) == ("recorder.hooks.svc", CALLER)
        assert call.header("Host") == f"recorder.hooks.svc:{rig.cluster.hooks.port}"
