"""NamespaceLifecycle: reject creates in missing or terminating namespaces, and changes in missing ones.

kube-apiserver does not run its admission for requests that it passes on, so Sluice does. The module does not know how namespaces are
followed. Upstream: kubernetes/apiserver `pkg/admission/plugin/namespace/lifecycle/admission.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.admission.core.sources import Followed, synced
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import GroupResource, StatusError
from apiserver.cluster.errors import ClusterError
from apiserver.schema.resource import Object

NAMESPACES = GroupResource("", "namespaces")
IMMORTAL = ("default", "kube-system", "kube-public")
MISSING_SECONDS = 0.05
"""How long a create waits for its namespace: the watch may lag behind a client that creates a namespace and then an object in it."""

Namespace = Mapping[str, Any]


class Namespaces(Followed, Protocol):
    """The cluster's namespaces as far as they are known here, and a way to ask about others."""

    def lookup(self, name: str) -> Namespace | None:
        """Return the namespace as it is known here."""

    async def ask(self, name: str) -> Namespace | None:
        """Return the namespace from kube-apiserver. Raises ClusterError."""


@dataclass(frozen=True, slots=True)
class NamespaceLifecycle:
    """`pause` waits for that many seconds."""

    namespaces: Namespaces
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def admit(self, attributes: Attributes) -> Object | None:
        """Raise 404 for a missing namespace, 403 for a create in a terminating one. Deletions pass, except those of permanent
        namespaces.
        """
        name = attributes.namespace
        if attributes.operation == "DELETE":
            if attributes.resource.group_resource == NAMESPACES and attributes.name in IMMORTAL:
                raise forbidden(attributes, "this namespace may not be deleted")
            return None
        if not name:
            return None
        creating = attributes.operation == "CREATE"
        namespace = await self._find(attributes, name, creating=creating)
        if creating and (namespace.get("status") or {}).get("phase") == "Terminating":
            raise _terminating(attributes, name)
        return None

    async def _find(self, attributes: Attributes, name: str, *, creating: bool) -> Namespace:
        if not self.namespaces.ready.is_set():
            await synced(attributes, self.namespaces)
        namespace = self.namespaces.lookup(name)
        if namespace is None and creating:
            await self.pause(MISSING_SECONDS)
            namespace = self.namespaces.lookup(name)
        if namespace is None:
            try:
                namespace = await self.namespaces.ask(name)
            except ClusterError as e:
                raise errors.internal(str(e)) from e
        if namespace is None:
            raise errors.not_found(NAMESPACES, name)
        return namespace


def _terminating(attributes: Attributes, namespace: str) -> StatusError:
    error = forbidden(
        attributes, f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error
