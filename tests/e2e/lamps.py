"""Servers of lamps, whose versions only a webhook converts (`tests/fixtures/lamps.py`): here, and in kube-apiserver."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from tests.e2e.controlplane.connection import Connection
from tests.fixtures.conversion_hook import Hook
from tests.fixtures.definitions import write
from tests.fixtures.lamps import GROUP, definition
from tests.fixtures.server import DevServer, Reply, dev_server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "converted"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/{NAMESPACE}/lamps" for version in ("v1", "v2"))
MERGE, JSON_PATCH, APPLY = (
    {"Content-Type": f"application/{media}"} for media in ("merge-patch+json", "json-patch+json", "apply-patch+yaml")
)
VARYING = (
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    (r'"resourceVersion":"\d*"', '"resourceVersion":"RV"'),
    (r"revision=\d+", "revision=RV"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"127\.0\.0\.1:\d+/convert", "HOOK"),
)


class Server:
    """Lamps on one server, with a webhook of their own."""

    def __init__(self, kubeconfig: pathlib.Path, user: Connection, hook: Hook) -> None:
        self.kubeconfig = kubeconfig
        self.user = user
        self.hook = hook

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return self.user.ask(method, path, body, headers=headers)

    def shown(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        reply = self.user.ask(method, path, body, headers=headers or {})
        text = reply.text
        for pattern, word in VARYING:
            text = re.sub(pattern, word, text)
        return reply.status, _comparable(json.loads(text))


def _comparable(value: Any) -> Any:
    """Without what depends on the second in which it happens, and on the order of members in what a webhook sent back."""
    if isinstance(value, dict):
        made = {name: _comparable(x) for name, x in value.items()}
        if "managedFields" in made:
            made["managedFields"] = sorted(made["managedFields"], key=_sorted_json)
        return made
    return list(map(_comparable, value)) if isinstance(value, list) else value


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@contextlib.contextmanager
def here(folder: pathlib.Path, hook: Hook, *flags: str) -> Iterator[tuple[Server, DevServer]]:
    folder.mkdir(exist_ok=True)
    file = write(folder / "lamps.yaml", definition(hook.conversion()))
    with dev_server(folder, f"--crds={file}", *flags) as server, Connection(server.kubeconfig) as user:
        made = Server(server.kubeconfig, user, hook)
        made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield made, server
