"""Compute the share of an object's usage that its pod has claimed already: it must not count twice.

The scheduler makes a claim for a pod that asked for extended resources. A quota has counted these when the pod was created. Upstream:
kubernetes/kubernetes `pkg/quota/v1/evaluator/core/{resource_claims,pods}.go`, kubernetes/component-helpers `resource/helpers.go`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Protocol

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.quota import resources
from apiserver.admission.quota.resources import Amounts
from apiserver.admission.quota.surroundings import Surroundings
from apiserver.schema.resource import Consumption, Object
from kubetext.quantity import QuantityError

NOTHING: Amounts = {}


class Cluster(Protocol):
    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod from kube-apiserver, or None. Raises ClusterError."""


class Pods:
    """`now` is in seconds since the epoch."""

    def __init__(self, cluster: Cluster, surroundings: Surroundings, now: Callable[[], float]) -> None:
        self._cluster = cluster
        self._surroundings = surroundings
        self._now = now

    async def taken(self, attributes: Attributes, consumption: Consumption, obj: Object) -> Amounts:
        """Return the claimed amounts by their names in a quota. Empty for an object that was not made for its pod. Raises ClusterError."""
        owner, namespace = consumption.owner(obj), attributes.namespace
        if owner is None:
            return NOTHING
        pod = await self._cluster.pod(namespace, owner.name)
        if pod is None or (pod.get("metadata") or {}).get("uid") != owner.uid:
            return NOTHING
        claimed = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if claimed is not None:
            if claimed.get("resourceClaimName") != obj["metadata"].get("name"):
                return NOTHING
        else:
            stored = attributes.resource.stored.storage_name
            others = await self._surroundings.mentioning(stored, namespace, owner.uid)
            if any(consumption.owner(other) == owner and _age(other) < _age(obj) for other in others):
                return NOTHING  # the first one is what the pod has asked for
        try:
            return _usage(pod, self._now())
        except QuantityError:
            return NOTHING


def _age(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("creationTimestamp") or "", metadata.get("name") or ""


def _usage(pod: Mapping[str, Any], now: float) -> Amounts:
    """Return its extended resources by their names in quotas, unless it has ended or is overdue."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return NOTHING
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if deleted and grace is not None and now > dt.datetime.fromisoformat(deleted).timestamp() + grace:
        return NOTHING
    return {f"requests.{name}": amount for name, amount in requests(pod).items() if "/" in name}


def requests(pod: Mapping[str, Any]) -> Amounts:
    """Return all that the pod asks for. Raises QuantityError.

    It is the larger of two amounts, plus the overhead. One is the sum of its containers, restarting init containers included. The other
    is the most demanding init container, together with the restarting ones that started before it.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    states = {
        state["name"]: state
        for state in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    }
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    total = _sum(_effective(item, states, infeasible=infeasible) for item in spec.get("containers") or ())
    restarting, most = NOTHING, NOTHING
    for item in spec.get("initContainers") or ():
        if item.get("restartPolicy") == "Always":
            amounts = _effective(item, states, infeasible=infeasible)
            total, restarting = resources.added(total, amounts), resources.added(restarting, amounts)
            amounts = restarting
        else:
            amounts = resources.added(_requests(item), restarting)
        most = _larger(most, amounts)
    return resources.added(_larger(total, most), resources.read(spec.get("overhead")))


def _effective(container: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]], *, infeasible: bool) -> Amounts:
    """Return the request, or the granted amount if that is larger."""
    asked, state = _requests(container), states.get(container["name"])
    if state is None or state.get("resources") is None:
        return asked
    granted = _larger(_requests(state), resources.read(state.get("allocatedResources")))
    return granted if infeasible else _larger(asked, granted)


def _requests(holder: Mapping[str, Any]) -> Amounts:
    return resources.read((holder.get("resources") or {}).get("requests"))


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    return reduce(resources.added, amounts, NOTHING)


def _larger(a: Amounts, b: Amounts) -> Amounts:
    return {**b, **{name: max(amount, b.get(name, amount)) for name, amount in a.items()}}
