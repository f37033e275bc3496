"""What a node may do with objects that belong to nodes: read and change its own, and list no others.

kube-apiserver's node authorizer knows its own groups only; in another one the roles of the group system:nodes would open every node's
objects to each of them. So what it asks is asked here as well, of every group, before the roles are.
Upstream: kubernetes/kubernetes `plugin/pkg/auth/authorizer/node/node_authorizer.go`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from apiserver.apimachinery import selectors
from apiserver.apimachinery.errors import StatusError
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
SETTLE_SECONDS = 10.0
"""How long a question waits for memory that is being filled."""


class NodeAuthorizer:
    """Refuses what a node may not do, whatever its roles say; another authorizer decides all else, and all for `system:masters`."""

    def __init__(self, inner: Authorizer, served: Kinds, stores: Mapping[str, Store]) -> None:
        self._inner = inner
        self._stores = stores
        self._restricted = {(r.group, r.plural): r for r in served.stored if r.node_field}

    def authorize(self, user: User, info: RequestInfo) -> Coroutine[Any, Any, Decision]:
        """Raises ClusterError when nobody can say."""
        node = node_name(user) if info.is_resource else None
        resource = self._restricted.get((info.group, info.resource)) if node is not None else None
        if node is None or resource is None or MASTERS in user.groups:
            return self._inner.authorize(user, info)
        return self._as_node(resource, node, user, info)

    async def _as_node(self, resource: Resource, node: str, user: User, info: RequestInfo) -> Decision:
        why = await self._why_not(resource, node, user, info)
        return await self._inner.authorize(user, info) if why is None else Decision(allowed=False, reason=why)

    async def _why_not(self, resource: Resource, node: str, user: User, info: RequestInfo) -> str | None:
        if not node:
            return f"unknown node for user {go_quote(user.name)}"
        if info.subresource:
            return f"cannot authorize {resource.kind} subresources"
        if info.verb == "create":
            return None  # what it creates is for admission to judge
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
        """The node to which the named object belongs, None when there is no such object, however late our memory is."""
        store, named = (
            self._stores[resource.storage_name],
            key(info.namespace if resource.namespaced else "", info.name),
        )
        try:
            if store.filling:
                await store.settle(seconds=SETTLE_SECONDS)
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
    """Whether a selector asks for the objects of this node alone. One that is long enough to be read in a thread, or cannot be read,
    narrows nothing."""
    if given.large:
        return False
    try:
        return (label, selectors.EQUALS, node) in given.fields.terms
    except StatusError:
        return False
