"""The ResourceQuotas of the cluster: those of a namespace from the copy, and the requests that a copy cannot answer.

Knows nothing of what they limit. Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/resource_access.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.cluster.by_namespace import ByNamespace
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Refused, Unreadable
from apiserver.cluster.reflector import Reflector
from kubetext import names

SECONDS = 10.0

Quota = Mapping[str, Any]


class Quotas:
    """`copy` holds all of them, by namespace. Requests to kube-apiserver wait in the flow of their namespace, and raise ClusterError."""

    def __init__(self, client: Client, copy: Reflector) -> None:
        self._client = client
        self._copy = copy

    @property
    def ready(self) -> asyncio.Event:
        return self._copy.ready

    def within(self, namespace: str) -> Sequence[Quota]:
        """Return the quotas of a namespace from the copy."""
        items = self._copy.items
        assert isinstance(items, ByNamespace)
        return tuple(items.of(namespace).values())

    async def list(self, namespace: str) -> Sequence[Quota]:
        if names.dns_label(namespace):
            return ()  # not a valid name, and it must not become another path
        found = await self._ask("GET", _path(namespace), flow=namespace)
        items = found.get("items") or []
        if not isinstance(items, list):
            raise Unreadable(f"{_path(namespace)}: the answer is no list")
        return items

    async def get(self, namespace: str, name: str) -> Quota | None:
        try:
            return await self._ask("GET", f"{_path(namespace)}/{name}", flow=namespace)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def update_status(self, quota: Quota) -> Quota:
        metadata = quota["metadata"]
        namespace = metadata["namespace"]
        return await self._ask("PUT", f"{_path(namespace)}/{metadata['name']}/status", flow=namespace, body=quota)

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod, or None."""
        if names.dns_subdomain(name):
            return None  # not a valid name, and it must not become another path
        try:
            return await self._ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", flow=namespace)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def _ask(self, method: str, path: str, *, flow: str, body: Quota | None = None) -> Mapping[str, Any]:
        return await self._client.ask(method, path, body=body, seconds=SECONDS, within=SECONDS, flow=flow)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/resourcequotas"
