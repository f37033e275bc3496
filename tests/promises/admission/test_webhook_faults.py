"""Exact messages about a faulty webhook, and the fate of the write."""

from __future__ import annotations

import base64
import datetime as dt
import socket

import pytest

from apiserver.serving import pki
from tests.promises.admission.hooks import deny
from tests.promises.admission.rig import PHASES, Object, Phase, Rig
from tests.promises.api.client import claim

URL = 'Post "URL?timeout=30s": '
BROKEN = URL + "net/http: HTTP/1.x transport connection broken: "
SYNTAX = "failed to call webhook: couldn't get version/kind; json parse error: "
UNREAD = "failed to call webhook: unexpected error when reading response body. Please retry. Original error: "
FAULTS: dict[str, tuple[Object, str]] = {
    "closes": ({"close": True}, f"failed to call webhook: {URL}EOF"),
    "no HTTP": ({"raw": "garbage\r\n\r\n"}, f'failed to call webhook: {BROKEN}malformed HTTP response "garbage"'),
    "half an answer": ({"raw": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"}, UNREAD + "unexpected EOF"),
    "no JSON": (
        {"body": "{'a': 1}"},
        SYNTAX + r"invalid character '\'' looking for beginning of object key string",
    ),
    "3 MB of it": ({"body": "[" * 3_000_000}, "failed to call webhook: "),
    "nothing": (
        {"body": ""},
        "failed to call webhook: 0-length response with status code: 200 and content type: application/json",
    ),
    "refused": ({"status": 403, "body": "go away", "headers": {"Content-Type": "text/plain"}}, "failed to call webhook: go away"),
    "lost": ({"status": 404}, "failed to call webhook: the server could not find the requested resource"),
    "fails": (
        {"status": 500, "body": ""},
        'failed to call webhook: an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "wrong uid": (
        {"review": {"response": {"uid": "other"}}},
        'received invalid webhook response: expected response.uid="UID", got "other"',
    ),
    "wrong version": (
        {"review": {"apiVersion": "admission.k8s.io/v1beta1"}},
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "no response": ({"review": {"response": None}}, "received invalid webhook response: webhook response was absent"),
    "wrong type": (
        {"review": {"response": {"allowed": "yes"}}},
        "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
    ),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_fault_refuses_the_write_and_is_reported(rig: Rig, phase: Phase) -> None:
    rig.webhook(phase, *(answer for answer, _ in FAULTS.values()))
    wrong = []
    for name, (_, words) in FAULTS.items():
        refusal = rig.api.refusal("POST", rig.claims, claim("c"))
        expected = words.replace("URL", rig.cluster.hooks.url(f"/{rig.mine}/hook"))
        expected = expected.replace("UID", rig.calls("hook")[-1].request["uid"])
        start = f'Internal error occurred: failed calling webhook "hook.{rig.mine}.example.com": '
        told = (refusal.code, refusal.reason, refusal.message)
        if told[:2] != (500, "InternalError") or not told[2].startswith(start + expected):
            wrong.append((name, told, expected))
    assert not wrong


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_that_is_ignored_is_passed_over(rig: Rig, phase: Phase) -> None:
    faults = [answer for answer, _ in FAULTS.values()]
    rig.webhook(phase, *faults, deny(message="at last"), failurePolicy="Ignore")
    for i in range(len(faults)):
        rig.api.create(rig.claims, claim(f"c{i}"))
    assert rig.api.refusal("POST", rig.claims, claim("c")).message.endswith("denied the request: at last")


def test_failed_connections_are_reported(rig: Rig) -> None:
    """One webhook for each fault, for the object of that name."""
    now = dt.datetime.now(dt.UTC)
    other = base64.b64encode(pki.make_ca("others", now=now).cert_pem).decode()
    free = socket.create_server(("127.0.0.1", 0))
    at = f"127.0.0.1:{free.getsockname()[1]}"
    free.close()
    verify = "tls: failed to verify certificate: x509: "
    good = rig.cluster.hooks.ca_bundle
    where: dict[str, tuple[Object, str]] = {
        "refused": ({"url": f"https://{at}/x"}, f"dial tcp {at}: connect: connection refused"),
        "stranger": (
            {"url": rig.cluster.hooks.url("/x"), "caBundle": other},
            verify + "certificate signed by unknown authority",
        ),
        "system": ({"url": rig.cluster.hooks.url("/x")}, verify + "certificate signed by unknown authority"),
        "missing": (
            {"service": {"namespace": rig.mine, "name": "nosuch", "port": 443, "path": "/x"}, "caBundle": good},
            'service "nosuch" not found',
        ),
    }
    hooks = []
    for name, (reference, _) in where.items():
        # The members of the usual reference that are not wanted go.
        config = {"url": None, "caBundle": None, **reference}
        selector = {"matchLabels": {"fault": name}}
        hooks.append(rig.hook(name=name, clientConfig=config, objectSelector=selector))
    rig.webhooks("validating", *hooks)
    for name, (reference, words) in where.items():
        labelled = claim(name)
        labelled["metadata"]["labels"] = {"fault": name}
        url = reference.get("url", f"https://nosuch.{rig.mine}.svc:443/x")
        refusal = rig.api.refusal("POST", rig.claims, labelled)
        assert refusal.message == (
            f'Internal error occurred: failed calling webhook "{name}.{rig.mine}.example.com": '
            f'failed to call webhook: Post "{url}?timeout=30s": {words}'
        )


def test_webhook_that_exceeds_its_timeout_is_reported(rig: Rig) -> None:
    rig.webhook("validating", {"hold": True}, timeoutSeconds=1)
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    url = rig.cluster.hooks.url(f"/{rig.mine}/hook")
    assert refusal.message.endswith(f'failed to call webhook: Post "{url}?timeout=1s": context deadline exceeded')


def test_redirects_are_followed_with_the_review(rig: Rig) -> None:
    here = f"/{rig.mine}/hook"
    rig.webhook("validating", {"status": 307, "headers": {"Location": f"{here}/there"}})
    rig.cluster.hooks.program(f"{here}/there", [deny(message="there")])
    assert rig.api.refusal("POST", rig.claims, claim("c")).message.endswith("denied the request: there")
    first, second = rig.calls("hook", count=2)
    assert (second.method, second.raw) == ("POST", first.raw)


def test_a_webhook_that_is_busy_is_asked_again(rig: Rig) -> None:
    busy = {"status": 503, "headers": {"Retry-After": "0"}}
    rig.webhook("validating", busy, busy, deny(message="at last"))
    assert rig.api.refusal("POST", rig.claims, claim("c")).message.endswith("denied the request: at last")
    assert len(rig.calls("hook", count=3)) == 3
