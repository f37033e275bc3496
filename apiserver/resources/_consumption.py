"""Measure the quota usage of claims: devices of a class, under the name of the class and under that of its extended resource.

Upstream: kubernetes/kubernetes `pkg/quota/v1/evaluator/core/resource_claims.go`, `pkg/apis/core/v1/helper/helpers.go`,
kubernetes/dynamic-resource-allocation `deviceclass/extendedresourcecache/extendedresourcecache.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver.resources._allocation import RESULTS
from apiserver.resources._features import EXTENDED_RESOURCE
from apiserver.schema.resource import Around, Consumption, Object, Owner
from kubetext.quantity import Quantity

DEVICES = ".deviceclass.resource.k8s.io/devices"
REQUESTS = "requests."
IMPLICIT = "deviceclass.resource.kubernetes.io/"
FOR_A_POD = "resource.kubernetes.io/extended-resource-claim"

ZERO = Quantity(0)


def _extended_resource(device_class: Object) -> str:
    """Return the name by which pods request devices of the class; "" if it has none."""
    name: str = (device_class.get("spec") or {}).get("extendedResourceName") or ""
    return name


def _measures(name: str, around: Around) -> bool:
    if name.endswith(DEVICES):
        return True
    if not name.startswith(REQUESTS) or not around.gates.enabled(EXTENDED_RESOURCE):
        return False
    name = name.removeprefix(REQUESTS)
    if name.startswith(IMPLICIT):
        return name.removeprefix(IMPLICIT) in around.facts
    return "/" in name and "kubernetes.io/" not in name and name in around.facts.values()


def _usage(claim: Object, around: Around) -> Mapping[str, Quantity]:
    """Return the most devices that each request may get. For devices that a pod has counted already, the names that pods use count only the
    excess."""
    used: dict[str, Quantity] = {}
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        for name, number in _devices(request):
            used[name] = used.get(name, ZERO) + Quantity(number)
    if not around.gates.enabled(EXTENDED_RESOURCE):
        return {f"{name}{DEVICES}": amount for name, amount in used.items()}
    for_pods: dict[str, Quantity] = {}
    for name in sorted(used.keys() - {""}):
        for_pods[f"{REQUESTS}{IMPLICIT}{name}"] = used[name]
        if extended := around.facts.get(name):
            for_pods[f"{REQUESTS}{extended}"] = used[name]
    left = {name: amount - around.taken.get(name, ZERO) for name, amount in for_pods.items()}
    return {f"{name}{DEVICES}": amount for name, amount in used.items()} | {
        name: amount for name, amount in left.items() if amount.sign() > 0
    }


def _devices(request: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield classes and their numbers of devices; of alternatives those that ask for the most of a class."""
    alternatives = request.get("firstAvailable") or ()
    if alternatives:
        most: dict[str, int] = {}
        for alternative in alternatives:
            name, number = alternative.get("deviceClassName", ""), _number(alternative)
            if number > most.get(name, 0):
                most[name] = number
        yield from most.items()
    elif request.get("exactly") is not None:
        exactly = request["exactly"]
        yield exactly.get("deviceClassName", ""), _number(exactly)


def _number(asked: Mapping[str, Any]) -> int:
    """Return the number of devices. A request for all devices gets at most as many as one claim can hold."""
    if asked.get("allocationMode") == "All":
        return RESULTS
    return asked.get("count", 0) if asked.get("allocationMode") == "ExactCount" else 0


def _pod(claim: Object) -> Owner | None:
    """Return the pod that requested the devices as extended resources. The scheduler made the claim for it."""
    metadata = claim["metadata"]
    if (metadata.get("annotations") or {}).get(FOR_A_POD) != "true":
        return None
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            is_pod = reference.get("kind") == "Pod" and reference.get("apiVersion") == "v1"
            return Owner(reference.get("name", ""), reference.get("uid", "")) if is_pod else None
    return None


CLAIMS = Consumption(
    home="resource.k8s.io",
    beside="deviceclasses",
    reads=_extended_resource,
    measures=_measures,
    usage=_usage,
    owner=_pod,
)
