"""Admission configuration while hostile requests come: policies that look at everything that may be long, and
webhooks with malicious answers. The administrator is trusted; anybody sends the judged objects, and answers of webhooks are foreign.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import http.server
import json
import pathlib
import re
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apiserver.serving import pki
from tests.hostile.generator import GROUP

Object = dict[str, Any]

REGISTRATION = "admissionregistration.k8s.io/v1"
TIMEOUT_SECONDS = 1
MANY = 20_000
_NAME = re.compile(rb'"name":"(h-[0-9a-f]+|standing)"')


def _constraints(*plurals: str, operations: Sequence[str] = ("CREATE", "UPDATE")) -> list[Object]:
    return [{"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": list(operations), "resources": list(plurals)}]


def _judging(name: str, plural: str, *expressions: str, **members: Any) -> list[Object]:
    spec = {
        "matchConstraints": {"resourceRules": _constraints(plural)},
        "validations": [{"expression": text} for text in expressions],
        **members,
    }
    return _bound("Validating", name, spec, {"validationActions": ["Deny", "Audit"]})


def _changing(name: str, plural: str, *mutations: Object, **members: Any) -> list[Object]:
    constraints = {"resourceRules": _constraints(plural)}
    spec = {
        "matchConstraints": constraints,
        "reinvocationPolicy": "IfNeeded",
        "mutations": list(mutations),
        **members,
    }
    return _bound("Mutating", name, spec, {})


def _bound(sort: str, name: str, spec: Object, binding: Object) -> list[Object]:
    kind = f"{sort}AdmissionPolicy"
    return [
        {"apiVersion": REGISTRATION, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": REGISTRATION,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "spec": {"policyName": name, **binding},
        },
    ]


def policies() -> list[Object]:
    """Policies that permit small, valid objects. Long ones cost them much, up to their budget."""
    return [
        *_judging(
            "metadata",
            "resourceclaims",
            "object.metadata.?annotations.orValue({}).all(k, k.size() < 200 && !k.matches('^(a+)+$'))",
            "object.metadata.?finalizers.orValue([]).all(f, object.metadata.finalizers.filter(g, g == f).size() == 1)",
            "object.metadata.?ownerReferences.orValue([]).map(o, o.uid).isSorted() || true",
            variables=[{"name": "words", "expression": "string(object.metadata.name).split('-')"}],
            matchConditions=[
                {"name": "labels", "expression": "object.metadata.?labels.orValue({}).all(k, k != 'off')"}
            ],
            auditAnnotations=[{"key": "words", "valueExpression": "variables.words.join(' ')"}],
        ),
        *_judging(
            "devices",
            "resourceslices",
            "object.spec.?devices.orValue([]).all(d, d.?attributes.orValue({}).all(k, !k.endsWith('/x')))",
            "oldObject == null || object.spec == oldObject.spec || object.spec != oldObject.spec",
            matchConditions=[{"name": "driver", "expression": "object.spec.driver.lowerAscii().find('gpu') != ''"}],
        ),
        *_changing(
            "labels",
            "resourceclaims",
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": "Object{metadata: Object.metadata{labels: {'example.com/by': 'policy'}}}"
                },
            },
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": "object.metadata.?finalizers.orValue([]).map(f, JSONPatch{op: 'add', path: '/metadata/labels/'"
                    " + jsonpatch.escapeKey(f), value: 'x'})"
                },
            },
            failurePolicy="Ignore",
        ),
    ]


def webhooks(url: str, bundle: bytes) -> list[Object]:
    """One that may change templates, and one that judges classes."""
    made = []
    for sort, plural in (("Mutating", "resourceclaimtemplates"), ("Validating", "deviceclasses")):
        webhook = {
            "name": "hostile.rules.example.com",
            "clientConfig": {"url": f"{url}/{sort}", "caBundle": base64.b64encode(bundle).decode()},
            "rules": _constraints(plural),
            "failurePolicy": "Ignore",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        kind = f"{sort}WebhookConfiguration"
        made.append({"apiVersion": REGISTRATION, "kind": kind, "metadata": {"name": "hostile"}, "webhooks": [webhook]})
    return made


# ------------------------------------------------------------------------------------------------------------- answers


def _review(uid: str, **response: Any) -> bytes:
    members = {"uid": uid, "allowed": True, **response}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": members}
    return json.dumps(review).encode()


def _patched(uid: str, operations: Sequence[Object]) -> bytes:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return _review(uid, patchType="JSONPatch", patch=patch)


def _annotations(value: Any) -> Object:
    return {"op": "add", "path": "/metadata/annotations", "value": value}


ANSWERS: Sequence[Callable[[str], bytes]] = (
    _review,
    lambda uid: _review(uid, allowed=False, status={"code": 400, "message": "no " * MANY}),
    lambda uid: _review(
        uid,
        allowed=False,
        status={"code": 422, "details": {"causes": [{"field": f"f{at}", "message": "m"} for at in range(MANY)]}},
    ),
    lambda uid: _review(uid, warnings=[f"warning {at}" for at in range(MANY)]),
    lambda uid: _review(uid, warnings=["\x01é\U0001f600" * MANY]),
    lambda uid: _review(uid, auditAnnotations={f"key-{at}": "v" for at in range(MANY)}),
    lambda uid: _review("another"),
    lambda uid: _patched(uid, [_annotations({f"k{at}": "v" for at in range(MANY)})]),
    lambda uid: _patched(
        uid,
        [
            _annotations({}),
            *({"op": "add", "path": f"/metadata/annotations/k{at}", "value": "v"} for at in range(5000)),
        ],
    ),
    lambda uid: _patched(
        uid,
        [
            _annotations({"a": "x" * 1000}),
            *(
                {"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/b{at}"}
                for at in range(40)
            ),
        ],
    ),
    lambda uid: _patched(uid, [{"op": "replace", "path": "", "value": {}}]),
    lambda uid: _patched(uid, [{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"] * MANY}]),
    lambda uid: _patched(uid, [{"op": "test", "path": "/a" * MANY, "value": 1}]),
    lambda uid: b"[" * 1_000_000,
    lambda uid: b"[" * 60_000,
    lambda uid: b"a:\n" * MANY,
    lambda uid: b'{"a":' * 5000 + b"1" + b"}" * 5000,
    lambda uid: _review(uid)[:-5],
    lambda uid: _review(uid) + b" " * (3 << 20),
    lambda uid: _review(uid)[:-1] + b',"x":' + b"9" * 100_000 + b"}",
    lambda uid: b"\xff\xfe" * 100_000,
    lambda uid: b"",
)
"""Answers of webhooks; some are valid and long, and are accepted."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        name, uid = _NAME.search(raw), re.search(rb'"uid":"([0-9a-f-]{36})"', raw)
        draw = zlib.crc32((name[1] if name else b"") + b"%d" % len(raw))
        body = ANSWERS[draw % len(ANSWERS)](uid[1].decode() if uid else "")
        with contextlib.suppress(OSError):
            self.send_response(200 if draw % 7 else 500)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) + (9 if draw % 31 == 0 else 0)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Ignore errors of connections whose server disconnects."""


@contextlib.contextmanager
def configured(folder: pathlib.Path) -> Iterator[list[Object]]:
    """All configurations, while their webhooks answer."""
    now = dt.datetime.now(dt.UTC)
    ca = pki.make_ca("webhooks", now=now)
    pair = pki.make_serving(ca, "hostile", hosts=("127.0.0.1",), now=now)
    path = folder / "webhook.pem"
    path.write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield [*policies(), *webhooks(f"https://127.0.0.1:{server.server_address[1]}", ca.cert_pem)]
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def as_files(folder: pathlib.Path) -> Iterator[list[str]]:
    """Flags of `sluice dev` that configure them."""
    with configured(folder) as objects:
        path = folder / "rules.json"
        path.write_text(json.dumps({"items": objects}))
        yield [f"--admission={path}"]
