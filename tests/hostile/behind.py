"""A server behind a real kube-apiserver, which it asks who sends a request and what they may do."""

from __future__ import annotations

import contextlib
import pathlib
import ssl
from collections.abc import Iterator
from typing import Any

from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection
from tests.fixtures.server import Reply
from tests.hostile.campaign import FLAGS
from tests.hostile.generator import GROUP
from tests.hostile.rules import REGISTRATION, configured


class Behind:
    """The first replica of a bed, asked at its own port."""

    def __init__(self, bed: Bed) -> None:
        process = bed.replicas[0].process
        assert process is not None
        self.port = bed.replicas[0].port
        self.log = process.log
        self.pid = process.popen.pid
        self._authority = bed.plane.pki.sluice.pem.decode()
        self._admin = bed.straight(bed.admin)

    def context(self, *, certificate: bool = True) -> ssl.SSLContext:
        if certificate:
            return Connection(self._admin).context
        return ssl.create_default_context(cadata=self._authority)

    def request(self, method: str, path: str, body: Any = None) -> Reply:
        with Connection(self._admin) as admin:
            return admin.ask(method, path, body)


def _limit(admin: Connection) -> None:
    """A quota of the namespace, as the quota controller would have counted it: each claim is claimed there, up to a limit that is met."""
    quotas, hard = "/api/v1/namespaces/hostile/resourcequotas", {f"count/resourceclaims.{GROUP}": "200"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "claims"}, "spec": {"hard": hard}}
    reply = admin.ask("POST", quotas, quota)
    assert reply.status == 201, reply.body
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    reply = admin.ask("PUT", f"{quotas}/claims/status", {**reply.json, "status": status})
    assert reply.status == 200, reply.body


@contextlib.contextmanager
def behind(folder: pathlib.Path, definitions: pathlib.Path) -> Iterator[Behind]:
    """In a cluster of its own, with the namespace that hostile requests name, the rules for them, and a quota."""
    with configured(folder) as rules, Bed(folder, serve_flags=[*FLAGS, f"--crds={definitions}"]) as bed:
        with bed.connect() as admin:
            assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "hostile"}}).status == 201
            for rule in rules:
                plural = rule["kind"].lower().removesuffix("y") + ("ies" if rule["kind"].endswith("y") else "s")
                reply = admin.ask("POST", f"/apis/{REGISTRATION}/{plural}", rule)
                assert reply.status == 201, reply.body
            _limit(admin)
        yield Behind(bed)
