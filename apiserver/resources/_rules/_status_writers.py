"""Permissions for a claim's status: one for allocating and reserving, one for each driver that reports.

Upstream: kubernetes/kubernetes `pkg/registry/resource/utils.go`, kubernetes/api `resource/v1/types.go` (the names).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from apiserver.apimachinery.fieldpath import ROOT
from apiserver.apimachinery.request import NODE_NAME, User, service_account
from apiserver.schema.context import Context
from apiserver.schema.resource import Permission
from kubetext import names

VERBS = ("patch", "update")
BINDING, DRIVER = "binding", "driver"
ASSOCIATED_NODE, ARBITRARY_NODE = "associated-node:", "arbitrary-node:"
"""The verb's prefix for a driver's service account on the node of the allocation, and for all others."""

_STATUS = ROOT.child("status")


def binding(context: Context) -> Permission:
    """Return the permission for any change of `allocation` or `reservedFor`. It covers all claims."""
    text = (
        f'changing status.allocation or status.reservedFor requires resource="resourceclaims/{BINDING}", '
        f'verb="{context.verb}" permission: '
    )
    return Permission(path=_STATUS.child("allocation"), text=text, verbs=(context.verb,), subresource=BINDING)


def reports(context: Context, drivers: Iterable[str], allocation: Mapping[str, Any]) -> Iterable[Permission]:
    """Yield the permissions for the reports of these drivers about allocated devices, in the order of their names. Each driver is named
    once."""
    prefixes = [ARBITRARY_NODE]
    if _runs_on(context.user, _node(allocation)):
        prefixes.insert(0, ASSOCIATED_NODE)
    verbs = tuple(f"{prefix}{context.verb}" for prefix in prefixes)
    path = _STATUS.child("devices")
    text = (
        f'changing status.devices requires resource="resourceclaims/{DRIVER}", verb="[{" ".join(verbs)}]" permission: '
    )
    waiting = list(drivers)
    heapq.heapify(waiting)  # only the first of very many are used, and sorting all would be one long call into C
    while waiting:
        driver = heapq.heappop(waiting)
        yield Permission(path=path, text=text, verbs=verbs, subresource=DRIVER, name=driver, namespaced=True)


def _node(allocation: Mapping[str, Any]) -> str:
    """Return the one node that an allocation names; "" for an allocation with several."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1:
        return ""
    field = fields[0]
    values = field.get("values") or []
    if (field.get("key"), field.get("operator")) != ("metadata.name", "In") or len(values) != 1:
        return ""
    return str(values[0])


def _runs_on(user: User, node: str) -> bool:
    """Return whether the user is the service account of a pod on that node, according to its token."""
    return bool(
        node
        and user.extra.get(NODE_NAME) == (node,)
        and service_account(user.name) is not None
        and not names.dns_subdomain(node)
    )
