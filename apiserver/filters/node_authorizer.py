"""Restrict what a node may do with objects that belong to nodes: read and change its own, and list no others.

kube-apiserver's node authorizer knows only its own groups. In any other group, the roles of system:nodes would open every node's
objects to each node. So the same checks are made here for every group, before the roles count. Upstream: kubernetes/kubernetes
`plugin/pkg/auth/authorizer/node/node_authorizer.go`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from apiserver.apimachinery import selectors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.apimachinery.request import MASTERS, Decision, RequestInfo, User, node_name
from apiserver.cluster.errors import ClusterError
from apiserver.filters.authorize import Authorizer
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Resource
from apiserver.storage.store import Store
from apiserver.watchcache.entry import Entry
from apiserver.watchcache.errors import StorageError
from apiserver.watchcache.keys import key
from kubetext.quoting import go_quote

OF_ONE, OF_MANY = ("get", "update", "patch", "delete"), ("watch", "list", "deletecollection")
PREFIX = since(V1_37, "node: ", before="", what="reasons of the node authorizer begin with its name")
FILL_SECONDS = 10.0
"""How long a check waits for memory that is being filled."""


class NodeAuthorizer:
    """Refuses what a node may not do, whatever its roles say. Another authorizer decides all else, and all for `system:masters`."""

    def __init__(self, inner: Authorizer, served: Kinds, stores: Mapping[str, Store]) -> None:
        self._inner = inner
        self._stores = stores
        self._prefix = at(served.release, PREFIX)
        self._restricted = {(r.group, r.plural): r for r in served.stored if r.node_field}

    def authorize(self, user: User, info: RequestInfo) -> Coroutine[Any, Any, Decision]:
        """Decide about a request. Raises ClusterError if nobody can tell."""
        node = node_name(user) if info.is_resource else None
        resource = self._restricted.get((info.group, info.resource)) if node is not None else None
        if node is None or resource is None or MASTERS in user.groups:
            return self._inner.authorize(user, info)
        return self._as_node(resource, node, user, info)

    async def _as_node(self, resource: Resource, node: str, user: User, info: RequestInfo) -> Decision:
        why = await self._why_not(resource, node, user, info)
        if why is None:
            return await self._inner.authorize(user, info)
        return Decision(allowed=False, reason=f"{self._prefix}{why}")

    async def _why_not(self, resource: Resource, node: str, user: User, info: RequestInfo) -> str | None:
        if not node:
            return f"unknown node for user {go_quote(user.name)}"
        if info.subresource:
            return f"cannot authorize {resource.kind} subresources"
        if info.verb == "create":
            return None  # admission judges what it creates
        if info.verb in OF_MANY:
            if _is_narrowed(info.selectors, resource.node_field, node):
                return None
            field = resource.node_field.rpartition(".")[2]
            return f"can only list/watch/deletecollection {resource.plural} with {field} field selector"
        if info.verb in OF_ONE:
            if not info.name:
                return "No Object name found"
            related = await self._owner(resource, info) == node
            return None if related else f"no relationship found between node '{node}' and this object"
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return f"only the following verbs are allowed for a {resource.kind}: {verbs}"

    async def _owner(self, resource: Resource, info: RequestInfo) -> str | None:
        """Return the node of the named object; None if the object does not exist, even if this server's memory is late."""
        store, named = (
            self._stores[resource.storage_name],
            key(info.namespace if resource.namespaced else "", info.name),
        )
        try:
            if store.filling:
                await store.wait_until_filled(seconds=FILL_SECONDS)
            entry = store.view().get(named)
            if entry is None:
                await store.barrier()
                entry = store.view().get(named)
        except StorageError as e:
            raise ClusterError(str(e)) from e
        return None if entry is None else _node_of(resource, entry)


def _node_of(resource: Resource, entry: Entry) -> str:
    return entry.fields[list(resource.selectable).index(resource.node_field)]


def _is_narrowed(given: selectors.Given, label: str, node: str) -> bool:
    """Return whether a selector selects only this node's objects. False for an unreadable one, and for one that needs a thread to parse."""
    if given.large:
        return False
    try:
        return (label, selectors.EQUALS, node) in given.fields.terms
    except StatusError:
        return False
