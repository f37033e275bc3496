"""The table of cases of the kinds (tests/cases), judged by a kube-apiserver with the feature gates of each case."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.next.differences import Difference, shown
from tests.fixtures.processes import Died
from tests.fixtures.server import Reply
from tests.promises import resource_table
from tests.promises.resource_table import NAMESPACE, Case

V1 = "/apis/resource.k8s.io/v1"
PLURALS = {
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}
NAMESPACED = {"ResourceClaim", "ResourceClaimTemplate"}
SYSTEM = {"uid": "0b6d53b0-0000-4000-8000-000000000001", "creationTimestamp": "2026-06-01T12:00:00Z"}
KEPT = ("resourceVersion", "uid", "creationTimestamp", "generation")
"""Members that a writer has read of an object."""
TOPIC = "kinds and validation"


def play(folder: pathlib.Path, table: pathlib.Path) -> Iterator[Difference]:
    """Judge each case of the table in this folder by a kube-apiserver of the chosen version, and yield those that do not hold.

    One kube-apiserver is started for each set of gates. A set that it refuses is a difference: a gate may no longer exist, or be locked.
    """
    cases: dict[str, list[Case]] = {}
    for case in resource_table.read(table):
        cases.setdefault(_flag(case), []).append(case)
    for number, (gates, some) in enumerate(cases.items()):
        plane = ControlPlane(folder / str(number), flags=[f"--feature-gates={gates}"] if gates else [])
        try:
            plane.start()
        except Died as e:
            last = str(e).strip().splitlines()[-1]
            yield Difference("feature gates", f"{gates} ({len(some)} cases)", [f"kube-apiserver refuses: {last}"])
            continue
        with contextlib.closing(_Judge(plane)) as judge:
            try:
                yield from filter(None, map(judge.judge, some))
            finally:
                plane.kill_apiserver()
                plane.stop()


def _flag(case: Case) -> str:
    return ",".join(f"{name}={'true' if on else 'false'}" for name, on in sorted(case.gates.items()))


class _Judge:
    """Sends the request of a case. Its stored object goes straight to etcd, because no request would store some of it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._admin = plane.connect()
        self._etcd = http.client.HTTPConnection(urlsplit(plane.etcd_url).netloc, timeout=60)
        self._admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def close(self) -> None:
        self._admin.close()
        self._etcd.close()

    def judge(self, case: Case) -> Difference | None:
        self._label(case.namespace_labels)
        try:
            lines = differing(self._ask(case), case)
        finally:
            self._clean(case)
        return Difference(TOPIC, f"{case.kind} {case.name}", lines) if lines else None

    def _label(self, labels: Mapping[str, str]) -> None:
        namespace = self._admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}").json
        namespace["metadata"]["labels"] = dict(labels)
        self._admin.ask("PUT", f"/api/v1/namespaces/{NAMESPACE}", namespace)

    def _ask(self, case: Case) -> Reply:
        plural, sent = PLURALS[case.kind], {**case.object, "apiVersion": "resource.k8s.io/v1"}
        within = f"namespaces/{NAMESPACE}/" if case.kind in NAMESPACED else ""
        path, method = f"{V1}/{within}{plural}", "POST"
        if case.old is not None:
            name = case.old["metadata"]["name"]
            old = {"kind": case.kind, "apiVersion": "resource.k8s.io/v1", **case.old}
            old["metadata"] = SYSTEM | case.old["metadata"]
            key = f"{self._prefix(case)}{name}"
            self._etcd_ask("put", {"key": _encoded(key), "value": _encoded(json.dumps(old))})
            path, method = f"{path}/{name}", "PUT"
            read = self._admin.ask("GET", path).json["metadata"]
            sent["metadata"] = sent["metadata"] | {member: read[member] for member in KEPT if member in read}
            path += "/status" if case.operation == "status" else ""
        # Without blanks, as it is stored: they count in raw JSON.
        body = json.dumps(sent, separators=(",", ":"))
        return self._admin.ask(method, path, body, headers={"Content-Type": "application/json"})

    def _clean(self, case: Case) -> None:
        prefix = self._prefix(case)
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self._etcd_ask("deleterange", {"key": _encoded(prefix), "range_end": _encoded(end)})

    def _prefix(self, case: Case) -> str:
        return f"/registry/{PLURALS[case.kind]}/" + (f"{NAMESPACE}/" if case.kind in NAMESPACED else "")

    def _etcd_ask(self, method: str, message: Mapping[str, Any]) -> None:
        self._etcd.request("POST", f"/v3/kv/{method}", json.dumps(message))
        answer = self._etcd.getresponse()
        text = answer.read()
        assert answer.status == 200, text


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def differing(reply: Reply, case: Case) -> list[str]:
    """How an answer differs from what the case expects; empty if it does not."""
    said = reply.json
    causes = said.get("details", {}).get("causes", []) if reply.status >= 400 else []
    found = list(dict.fromkeys((c.get("field", ""), c.get("reason", ""), c.get("message", "")) for c in causes))
    if reply.status >= 400 and not found:
        return [f"! {reply.status} {shown(said.get('message', ''))}"]

    def matches(error: tuple[str, str, str]) -> bool:
        return any(error[:2] == (wanted.field, wanted.reason) and wanted.detail in error[2] for wanted in case.errors)

    lines = [
        f"- {wanted.field}: {wanted.reason} …{shown(wanted.detail)}"
        for wanted in case.errors
        if not any(
            (field, reason) == (wanted.field, wanted.reason) and wanted.detail in text for field, reason, text in found
        )
    ]
    lines += [
        f"+ {field}: {reason} {shown(text)}" for field, reason, text in found if not matches((field, reason, text))
    ]
    warned = [text.replace('\\"', '"') for text in reply.headers.get_all("Warning") or []]
    lines += [f"- warning …{text}" for text in case.warnings if not any(text in warning for warning in warned)]
    if reply.status < 400:
        lines += [f"+ warning {shown(text)}" for text in warned if not any(wanted in text for wanted in case.warnings)]
        lines += _missing(said, case)
    return lines


def _missing(served: Any, case: Case) -> Iterator[str]:
    for wanted in case.then:
        path = wanted["path"]
        try:
            value = resource_table.look(served, path)
        except (KeyError, IndexError):
            if not wanted.get("absent"):
                yield f"- {path} is missing"
            continue
        if wanted.get("absent"):
            yield f"+ {path}: {shown(value)}"
        elif "equals" in wanted and value != wanted["equals"]:
            yield f"! {path}: {shown(wanted['equals'])} → {shown(value)}"
