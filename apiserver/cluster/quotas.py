"""The ResourceQuotas of the cluster: those of a namespace in the copy, and the questions and writes that a copy cannot answer.

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
    """`copy` is that of all of them, by namespace. What asks kube-apiserver waits in a lane of the namespace, and raises ClusterError."""

    def __init__(self, client: Client, copy: Reflector) -> None:
        self._client = client
        self._copy = copy

    @property
    def ready(self) -> asyncio.Event:
        return self._copy.ready

    def within(self, namespace: str) -> Sequence[Quota]:
        """As the copy has them."""
        items = self._copy.items
        assert isinstance(items, ByNamespace)
        return tuple(items.of(namespace).values())

    async def list(self, namespace: str) -> Sequence[Quota]:
        if names.dns_label(namespace):
            return ()  # no namespace can be called so, and the name must not become another path
        found = await self._ask("GET", _path(namespace), lane=namespace)
        items = found.get("items") or []
        if not isinstance(items, list):
            raise Unreadable(f"{_path(namespace)}: the answer is no list")
        return items

    async def get(self, namespace: str, name: str) -> Quota | None:
        try:
            return await self._ask("GET", f"{_path(namespace)}/{name}", lane=namespace)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def update_status(self, quota: Quota) -> Quota:
        metadata = quota["metadata"]
        namespace = metadata["namespace"]
        return await self._ask("PUT", f"{_path(namespace)}/{metadata['name']}/status", lane=namespace, body=quota)

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The pod, None when there is none of that name."""
        if names.dns_subdomain(name):
            return None  # no pod can be called so, and the name must not become another path
        try:
            return await self._ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", lane=namespace)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def _ask(self, method: str, path: str, *, lane: str, body: Quota | None = None) -> Mapping[str, Any]:
        return await self._client.ask(method, path, body=body, seconds=SECONDS, within=SECONDS, lane=lane)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/resourcequotas"
