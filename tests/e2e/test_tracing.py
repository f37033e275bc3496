"""One trace of a request: in Sluice, its webhooks and its store. The collector is a receiver of OTLP over gRPC."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.conversion_hook import Hook, Object
from tests.fixtures.otlp import Receiver, Span, tree
from tests.fixtures.server import DevServer, dev_server

CLASSES = "/apis/resource.sluice.dev/v1/deviceclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
Tree = dict[str, Any]
CHAIN = ("constrainedimpersonation", "priorityandfairness", "authorization")
WEBHOOKS: Tree = {"Call mutating webhook": {"HTTP POST": {}}, "Call validating webhook": {"HTTP POST": {}}}


def allowed(review: Object, _: Any) -> Object:
    answer = {"uid": review["request"]["uid"], "allowed": True}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def webhooks(hook: Hook) -> str:
    client = {"url": f"https://127.0.0.1:{hook.port}/hook", "caBundle": base64.b64encode(hook.ca.cert_pem).decode()}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deviceclasses"]}
    webhook = {
        "name": "hook.example.com",
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    found = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "traced"},
            "webhooks": [webhook],
        }
        for kind in kinds
    ]
    return "\n---\n".join(map(json.dumps, found))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Receiver, Hook]]:
    """Ask a server, and stop it. Return its collector and its webhook. Request N is in trace N."""
    folder = tmp_path_factory.mktemp("traced")
    with Receiver() as receiver, Hook(folder, lambda obj, _: obj) as hook:
        hook.answer = allowed
        file, rules = folder / "tracing.yaml", folder / "webhooks.yaml"
        file.write_text(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"
            f"endpoint: 127.0.0.1:{receiver.port}\n"
        )
        rules.write_text(webhooks(hook))
        with dev_server(folder, "--tracing-config-file", str(file), "--admission", str(rules)) as server:
            ask_all(server)
        yield receiver, hook


def ask_all(server: DevServer) -> None:
    made = {"apiVersion": "resource.sluice.dev/v1", "kind": "DeviceClass", "metadata": {"name": "x"}, "spec": {}}
    changed = {"metadata": {"labels": {"a": "b"}}}
    asked: list[tuple[int, str, str, Any, dict[str, str]]] = [
        (201, "POST", CLASSES, made, {}),
        (200, "GET", f"{CLASSES}/x", None, {}),
        (200, "GET", f"{CLASSES}?limit=5", None, {}),
        (200, "PATCH", f"{CLASSES}/x", json.dumps(changed), MERGE),
        (200, "DELETE", f"{CLASSES}/x", None, {}),
        (404, "GET", f"{CLASSES}/x", None, {}),
    ]
    for number, (code, method, path, body, headers) in enumerate(asked, start=1):
        stated = {"traceparent": f"00-{number:032x}-00000000000000aa-01"}
        assert server.request(method, path, body, headers={**headers, **stated}).status == code
    assert server.request("GET", CLASSES).status == 200  # is not sampled


def of(receiver: Receiver, number: int) -> list[Span]:
    return receiver.of_trace(f"{number:032x}")


def inside(spans: list[Span], name: str) -> Tree:
    """The spans inside the one of the verb."""
    found = tree(spans)
    for step in (name, *CHAIN):
        assert list(found) == [step]
        found = found[step]
    return found


def test_trace_of_a_write_has_its_webhooks_and_the_store(traced: tuple[Receiver, Hook]) -> None:
    receiver, hook = traced
    spans = of(receiver, 1)
    stored: Tree = {"Create redis": {"FCALL": {}}, "SerializeObject": {}}
    assert inside(spans, f"POST {CLASSES}") == {"Create": {**WEBHOOKS, **stored}}
    outermost = next(span for span in spans if span.name == f"POST {CLASSES}")
    assert outermost.parent_id == "00000000000000aa"
    sent = {headers["traceparent"] for _, headers in hook.requests[:2]}
    assert sent == {f"00-{1:032x}-{span.span_id}-01" for span in spans if span.name == "HTTP POST"}


def test_spans_of_verbs_have_upstreams_names(traced: tuple[Receiver, Hook]) -> None:
    receiver, _ = traced
    named = f"{CLASSES}/{{:name}}"
    answered: Tree = {"SerializeObject": {}}
    assert inside(of(receiver, 2), f"GET {named}") == {"Get": {"cacher.Get": {}, **answered}}
    assert inside(of(receiver, 3), f"GET {CLASSES}") == {"List": {"cacher.GetList": {}, **answered}}
    changed = {**WEBHOOKS, "GuaranteedUpdate redis": {"FCALL": {}}, **answered}
    assert inside(of(receiver, 4), f"PATCH {named}") == {"Patch": changed}
    assert inside(of(receiver, 5), f"DELETE {named}") == {"Delete": {**WEBHOOKS, "FCALL": {}, **answered}}
    assert inside(of(receiver, 6), f"GET {named}") == {"Get": {"cacher.Get": {}}}


def test_request_without_a_trace_is_not_sampled_by_default(traced: tuple[Receiver, Hook]) -> None:
    receiver, _ = traced
    assert {span.trace_id for span in receiver.spans} == {f"{number:032x}" for number in range(1, 7)}
