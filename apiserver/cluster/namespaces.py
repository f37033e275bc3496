"""The namespaces of the cluster. Knows nothing of admission.

Upstream: kubernetes/apiserver `pkg/admission/plugin/namespace/lifecycle/admission.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from apiserver import metrics
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Refused
from apiserver.cluster.reflector import Reflector
from kubetext import names

COLLECTION = "/api/v1/namespaces"
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that API servers give to every namespace."""

Namespace = Mapping[str, Any]


class EveryNamespace:
    """Stands for namespaces without a cluster: each exists, and its only label is its name, which all have."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.ready.set()
        self.problem = ""

    def lookup(self, name: str) -> Namespace | None:
        metadata = {"name": name, "labels": {NAME_LABEL: name}}
        status = {"phase": "Active"}
        return {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": status}

    async def ask(self, name: str) -> Namespace | None:
        return self.lookup(name)

    def labels(self, name: str) -> Mapping[str, str] | None:
        return {NAME_LABEL: name}

    async def newest_labels(self, name: str) -> Mapping[str, str] | None:
        return self.labels(name)


class Namespaces:
    """A copy of all namespaces, kept by `run` and usable once `ready`. `ask` looks up a namespace that the copy lacks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reflector = Reflector(client, COLLECTION)
        metrics.COPY_AGE_SECONDS.labels(COLLECTION).set_function(lambda: self._reflector.age)

    @property
    def ready(self) -> asyncio.Event:
        return self._reflector.ready

    @property
    def problem(self) -> str:
        """Why they are not followed at the moment, empty while they are."""
        return self._reflector.problem

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    def lookup(self, name: str) -> Namespace | None:
        """Return a namespace from the copy, which may be a moment old."""
        return self._reflector.get(name)

    def labels(self, name: str) -> Mapping[str, str] | None:
        """Return a namespace's labels from the copy, or None."""
        return _labels(self.lookup(name))

    async def newest_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a namespace's present labels from the API server, or None. Raises ClusterError."""
        return _labels(await self.ask(name))

    async def ask(self, name: str) -> Namespace | None:
        """Return a namespace from the API server, or None. Raises ClusterError."""
        if names.dns_label(name):
            return None  # not a valid name, and it must not become another path
        try:
            return await self._client.ask("GET", f"{COLLECTION}/{name}")
        except Refused as error:
            if error.code == 404:
                return None
            raise


def _labels(namespace: Namespace | None) -> Mapping[str, str] | None:
    return None if namespace is None else (namespace.get("metadata") or {}).get("labels") or {}
