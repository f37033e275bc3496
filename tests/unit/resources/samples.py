"""Small valid objects of each kind and the way a test takes them to a verdict."""

from __future__ import annotations

import copy
from typing import Any

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, Release, at
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource
from apiserver.validation import report

NOW = "2026-06-01T12:00:00Z"
BY_RELEASE = {release: {kind.kind: at(release, kind) for kind in resources.RESOURCES} for release in SUPPORTED}
KINDS = BY_RELEASE[NEWEST]

SLICE: dict[str, Any] = {
    "metadata": {"name": "n1-gpu"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [
            {"name": "gpu-0", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "80Gi"}}}
        ],
    },
}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c", "namespace": "team-a"},
    "spec": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
}
RESULT: dict[str, Any] = {"request": "main", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


def context_of(resource: Resource, release: Release = NEWEST, /, **switched: bool) -> Context:
    """With the kind's feature gates as they are by default, but for those that are `switched`."""
    return Context(gates=Gates(resource.gates, switched, release=release))


def all_on(resource: Resource, release: Release = NEWEST) -> dict[str, bool]:
    """Every gate of the kind, with those that they need, switched on."""
    return {
        gate.name: True for gate, _ in Gates(resource.gates, release=release).all() if not gate.name.startswith("All")
    }


def decoded(resource: Resource, sent: dict[str, Any]) -> Object:
    obj = decoding.decode(resource.shape, copy.deepcopy(sent)).object
    defaults.apply(resource.shape, obj, now=NOW)
    return obj


def created(
    resource: Resource, sent: dict[str, Any], release: Release = NEWEST, /, **switched: bool
) -> tuple[Object, list[str]]:
    """The object after the hooks of a create, and its errors beside those of its metadata, in the order of the report."""
    obj = decoded(resource, sent)
    context = context_of(resource, release, **switched)
    resource.prepare(context, obj, None)
    errors = (*report.validate(context, resource.shape, obj, None), *resource.validate(context, obj, None))
    return obj, [str(e) for e in report.in_order(resource.shape, errors)]


def updated(
    resource: Resource, sent: dict[str, Any], old: dict[str, Any], release: Release = NEWEST, /, **switched: bool
) -> tuple[Object, list[str]]:
    """The same for an update."""
    new, stored = decoded(resource, sent), decoded(resource, old)
    context = context_of(resource, release, **switched)
    resource.prepare(context, new, stored)
    errors = list(report.validate(context, resource.shape, new, stored)) if resource.validate_shape_on_update else []
    errors += report.validate_update(resource.shape, new, stored)
    errors += resource.validate(context, new, stored)
    return new, [str(e) for e in report.in_order(resource.shape, errors)]


def served(resource: Resource, obj: Object) -> str:
    return canonical.encode(resource.shape, obj).decode()


def with_spec(sample: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A copy with other members in spec; None takes one out."""
    out = copy.deepcopy(sample)
    out["spec"] = {k: v for k, v in {**out["spec"], **members}.items() if v is not None}
    return out


def with_device(**members: Any) -> dict[str, Any]:
    """The sample slice with other members in its device."""
    device = {**SLICE["spec"]["devices"][0], **members}
    return with_spec(SLICE, devices=[{k: v for k, v in device.items() if v is not None}])
