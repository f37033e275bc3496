"""Requests of every sort, one after the other, and what is recorded of them: played against Sluice and against a real kube-apiserver."""

from __future__ import annotations

import http.client
import json
import pathlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.controlplane.connection import SECONDS, Connection

GROUP = "resource.k8s.io"
V1 = f"/apis/{GROUP}/v1"
CLASSES, CLAIMS = f"{V1}/deviceclasses", f"{V1}/namespaces/default/resourceclaims"
JSON, YAML = "application/json", "application/yaml"
MERGE, JSON_PATCH, APPLY = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  userGroups: ["system:serviceaccounts", "system:nodes"]
- level: None
  users: ["system:apiserver"]
- level: Metadata
  verbs: ["get"]
  resources: [{group: resource.k8s.io, resources: [resourceclaims]}]
- level: Request
  resources: [{group: resource.k8s.io, resources: [resourceclaims]}]
  verbs: ["create"]
  omitStages: ["RequestReceived"]
- level: RequestResponse
  resources: [{group: resource.k8s.io, resources: [resourceclaims]}]
  omitManagedFields: true
- level: RequestResponse
"""


@dataclass
class Step:
    """A request. `body` is what becomes JSON, or text; `anonymous`: without a certificate."""

    method: str
    path: str
    body: Any = None
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    anonymous: bool = False


def named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": name, **metadata}, "spec": {}}


def claim(**metadata: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "aa"}}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [request]}},
    }


STEPS: Mapping[str, Step] = {
    "create": Step("POST", CLASSES, named("aa")),
    "create again": Step("POST", CLASSES, named("aa")),
    "create invalid": Step("POST", CLASSES, named("A A")),
    "create from what is no JSON": Step("POST", CLASSES, b"{nope"),
    "create from nothing": Step("POST", CLASSES, b""),
    "create from too much": Step("POST", CLASSES, b" " * (3 * 1024 * 1024 + 1)),
    "create with an unknown field": Step("POST", f"{CLASSES}?fieldValidation=Strict", {**named("bb"), "what": 1}),
    "create with an ignored field": Step("POST", f"{CLASSES}?fieldValidation=Ignore", {**named("bb"), "what": 1}),
    "try to create from YAML": Step(
        "POST", f"{CLASSES}?dryRun=All&fieldManager=fm", b"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n"
        b"metadata: {name: yy, annotations: {a: '<b>&\xe2\x80\xa8'}}\n", YAML,
    ),
    "create with a generated name": Step("POST", CLAIMS, claim(generateName="c-")),
    "create a claim": Step("POST", CLAIMS, claim(name="cc")),
    "write a status": Step("PUT", f"{CLAIMS}/cc/status", {**claim(name="cc"), "status": {}}),
    "get a claim": Step("GET", f"{CLAIMS}/cc"),
    "list claims": Step("GET", CLAIMS),
    "list claims as a Table": Step("GET", CLAIMS, headers={"Accept": TABLE}),
    "list claims of all namespaces in protobuf": Step("GET", f"{V1}/resourceclaims", headers={"Accept": PROTOBUF}),
    "patch a claim": Step("PATCH", f"{CLAIMS}/cc", {"metadata": {"managedFields": None, "labels": {"a": "b"}}}, MERGE),
    "get": Step("GET", f"{CLASSES}/aa"),
    "get as a Table": Step("GET", f"{CLASSES}/aa", headers={"Accept": TABLE}),
    "get the metadata": Step("GET", f"{CLASSES}/aa", headers={"Accept": PARTIAL}),
    "get in YAML": Step("GET", f"{CLASSES}/aa", headers={"Accept": YAML}),
    "get in protobuf": Step("GET", f"{CLASSES}/aa", headers={"Accept": PROTOBUF}),
    "get indented": Step("GET", f"{CLASSES}/aa?pretty=1"),
    "get what is not there": Step("GET", f"{CLASSES}/zz"),
    "get in a form that nobody has": Step("GET", f"{CLASSES}/aa", headers={"Accept": "text/csv"}),
    "head": Step("HEAD", f"{CLASSES}/aa"),
    "list": Step("GET", CLASSES),
    "list as a Table": Step("GET", CLASSES, headers={"Accept": TABLE}),
    "list some": Step("GET", f"{CLASSES}?limit=1", headers={"Accept": PROTOBUF, "Accept-Encoding": "gzip"}),
    "list one name": Step("GET", f"{CLASSES}?fieldSelector=metadata.name%3Daa"),
    "list none": Step("GET", f"{CLASSES}?labelSelector=a%3Db"),
    "list at no version": Step("GET", f"{CLASSES}?resourceVersion=x"),
    "watch": Step("GET", f"{CLASSES}?watch=1&timeoutSeconds=1"),
    "watch from no version": Step("GET", f"{CLASSES}?watch=1&resourceVersion=x"),
    "watch in a form that nobody has": Step("GET", f"{CLASSES}?watch=1", headers={"Accept": "text/csv"}),
    "put": Step("PUT", f"{CLASSES}/aa", named("aa", labels={"x": "y"})),
    "put of another uid": Step("PUT", f"{CLASSES}/aa", named("aa", resourceVersion="1", uid="u-1")),
    "put of another name": Step("PUT", f"{CLASSES}/aa", named("ab")),
    "patch with blanks": Step("PATCH", f"{CLASSES}/aa", b' { "metadata" : {"annotations":{"q":"<1>"}}} ', MERGE),
    "patch that makes it invalid": Step("PATCH", f"{CLASSES}/aa", {"metadata": {"labels": {"q": "<1>"}}}, MERGE),
    "JSON patch": Step("PATCH", f"{CLASSES}/aa", b'[{"op":"add","path":"/metadata/labels/z","value":"1"}]', JSON_PATCH),
    "JSON patch of no operation": Step("PATCH", f"{CLASSES}/aa", b'[{"op":"nope"}]', JSON_PATCH),
    "apply": Step("PATCH", f"{CLASSES}/aa?fieldManager=m1&force=true", named("aa", labels={"n": "m"}), APPLY),
    "apply in conflict": Step("PATCH", f"{CLASSES}/aa?fieldManager=m2", named("aa", labels={"n": "o"}), APPLY),
    "patch with what is for apply": Step("PATCH", f"{CLASSES}/aa?force=true", {}, MERGE),
    "patch of no sort": Step("PATCH", f"{CLASSES}/aa", {}, "text/plain"),
    "delete another uid": Step(
        "DELETE", f"{CLASSES}/aa", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}}
    ),
    "try to delete": Step(
        "DELETE", f"{CLASSES}/aa",
        {"kind": "DeleteOptions", "apiVersion": f"{GROUP}/v1", "propagationPolicy": "Background", "dryRun": ["All"]},
    ),
    "delete": Step("DELETE", f"{CLASSES}/aa?gracePeriodSeconds=0"),
    "delete what is not there": Step("DELETE", f"{CLASSES}/aa"),
    "delete none": Step("DELETE", f"{CLAIMS}?labelSelector=none", {"kind": "DeleteOptions", "apiVersion": "v1"}),
    "delete all": Step("DELETE", CLAIMS),
    "act as somebody": Step(
        "GET", CLASSES,
        headers={"Impersonate-User": "bob", "Impersonate-Group": "g1", "Impersonate-Extra-a%2fb": "c", "Impersonate-Uid": "u"},
    ),
    "act as a service account": Step("GET", CLASSES, headers={"Impersonate-User": "system:serviceaccount:default:x"}),
    "act as nobody": Step("GET", CLASSES, headers={"Impersonate-Group": "g1"}),
    "act as a master": Step("GET", CLASSES, headers={"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}),
    "nobody lists": Step("GET", CLASSES, anonymous=True),
    "a token that nobody knows": Step("GET", CLASSES, headers={"Authorization": "Bearer xyz"}, anonymous=True),
    "a timeout that is none": Step("GET", f"{CLASSES}?timeout=x"),
    "discovery": Step("GET", f"/apis/{GROUP}/v1"),
    "discovery of the group in YAML": Step("GET", f"/apis/{GROUP}", headers={"Accept": YAML}),
    "version": Step("GET", "/version"),
    "health": Step("GET", "/livez?verbose"),
    "no such path": Step("GET", "/nope/x?y=1"),
    "no such resource": Step("GET", f"{V1}/foos/x"),
    "no such subresource": Step("GET", f"{CLASSES}/x/foo"),
    "no such method": Step("PUT", CLASSES, named("aa")),
    "a long agent behind proxies": Step(
        "GET", f"{CLASSES}/q",
        headers={"User-Agent": "x" * 1100, "X-Forwarded-For": "1.2.3.4, junk, ::1, ::ffff:9.8.7.6", "X-Real-Ip": "5.6.7.8"},
    ),
    "a real address that was named": Step("GET", f"{CLASSES}/q", headers={"X-Forwarded-For": "1.2.3.4", "X-Real-Ip": "1.2.3.4"}),
    "forwarded for ourselves": Step("GET", f"{CLASSES}/q", headers={"X-Forwarded-For": "127.0.0.1"}),
    "escapes": Step("GET", f"{CLASSES}/%7Ea%2fb?a=%zz&b=<>&c='"),
}  # fmt: skip


def play(config: pathlib.Path) -> None:
    """Each step on a connection of its own, with its name as the audit ID."""
    administrator = Connection(config)
    nobody = ssl.create_default_context(cadata=administrator.authority)
    for name, step in STEPS.items():
        body = step.body if isinstance(step.body, bytes | None) else json.dumps(step.body).encode()
        headers = {"Audit-ID": name, "User-Agent": "played", **step.headers}
        if body is not None:
            headers["Content-Type"] = step.kind
        context = nobody if step.anonymous else administrator.context
        connection = http.client.HTTPSConnection(
            administrator.host, administrator.port, context=context, timeout=SECONDS
        )
        try:
            connection.request(step.method, step.path, body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.getheader("Audit-Id") == name
        finally:
            connection.close()


def recorded(log: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """The events of each step, in their order."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in STEPS}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["auditID"] in found:
            found[event["auditID"]].append(event)
    return found


_UNLIKE = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r'(?<="resourceVersion": ")[1-9]\d+'), "VERSION"),
    (re.compile(r'(?<="continue": ")[^"]+'), "TOKEN"),
    (re.compile(r"X509SHA256=[0-9a-f]{64}"), "X509SHA256"),
    (re.compile(r"Key: [^,]+"), "KEY"),
    (re.compile(r"\bc-[a-z0-9]{5}\b"), "GENERATED"),
    (re.compile(r'(?<=")\d+s(?=")'), "AGE"),
)


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from one server, and from one moment, to another."""
    event = dict(event)
    if event["user"].get("groups", [""])[0] == "system:masters":
        event["user"] = {**event["user"], "username": "ADMINISTRATOR"}
    answer = event.get("responseObject", {})
    if answer.get("kind") in ("APIResourceList", "APIGroup"):
        event["responseObject"] = {"kind": answer["kind"]}
    text = json.dumps(event)
    for unlike, stand_in in _UNLIKE:
        text = unlike.sub(stand_in, text)
    compared: dict[str, Any] = json.loads(text)
    return compared
