"""DeviceTaintRule: a taint that administrators put on devices, beside the taints that drivers report in slices.

It is served with its feature gate off too, as by upstream. The gate is for the scheduler and the eviction controller.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/devicetaintrule/{strategy.go,storage/storage.go}`, `pkg/kubeapiserver/default_storage_factory_builder.go` (stored
versions), `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError
from apiserver.apimachinery.releases import V1_37, since
from apiserver.resources import _devices, _v1alpha3, _v1beta2
from apiserver.resources._roles import READ, SCHEDULER
from apiserver.resources._rules import _formats
from apiserver.resources._rules._formats import MODEL
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Deprecation, Grant, Object, Resource, Subresource, Validate, Version
from apiserver.schema.types import Check, Field, ListOf, ListType, Presence, String, Struct
from apiserver.schema.variants import with_fields
from kubetext import names

CONDITIONS = 8

# --- Shape -----------------------------------------------------------------------------------------------------------


def _given(check: Check) -> Check:
    """Make `check` refuse the empty text as a missing value."""
    return lambda value, path: check(value, path) if value else [fieldpath.required(path)]


SELECTOR = Struct(
    name="DeviceTaintSelector",
    model=MODEL,
    doc="Selects devices by name. Without any member it selects all devices.",
    fields=(
        Field(
            name="driver",
            number=2,
            type=String(check=_given(_formats.driver_name)),
            presence=Presence.POINTER,
            doc="Selects the devices of this driver only, by the slice's `spec.driver`.",
        ),
        Field(
            name="pool",
            number=3,
            type=String(max_bytes=_formats.POOL_BYTES, check=_given(_formats.pool_name)),
            presence=Presence.POINTER,
            doc="Selects the devices in pools of this name only, by the slice's `spec.pool.name`. Drivers can have pools of the same name: "
            "without `driver` all of them are selected.",
        ),
        Field(
            name="device",
            number=4,
            type=_formats.LABEL,
            presence=Presence.POINTER,
            doc="Selects devices of this name only. Names are unique in a pool: without `driver` and `pool` several devices can have it.",
        ),
    ),
)

SPEC = Struct(
    name="DeviceTaintRuleSpec",
    model=MODEL,
    doc="A taint, and the devices that get it.",
    fields=(
        Field(
            name="deviceSelector",
            number=1,
            type=SELECTOR,
            presence=Presence.POINTER,
            doc="Selects the devices that get the taint: those that fit all its members. An empty selector selects all devices; without a "
            "selector no device is selected.",
        ),
        Field(
            name="taint",
            number=2,
            # A stored effect is not checked again: a later release can know more effects.
            type=with_fields(_devices.DEVICE_TAINT, effect={"ratchets": True}),
            presence=Presence.ALWAYS,
            expected=True,
            doc="The taint of the selected devices.",
        ),
    ),
)

STATUS = Struct(
    name="DeviceTaintRuleStatus",
    model=MODEL,
    doc="How far the eviction of pods has come.",
    fields=(
        Field(
            name="conditions",
            number=1,
            type=ListOf(shapes.CONDITION, ListType.MAP, keys=("type",)),
            patch_strategy="merge",
            patch_merge_key="type",
            doc="The state of the rule, at most eight conditions. EvictionInProgress is True while pods remain to be evicted. Its message "
            "says how many. With the effect None it is False, and its message says once what NoExecute would do.",
        ),
    ),
)

RULE = Struct(
    name="DeviceTaintRule",
    model=MODEL,
    doc="Adds one taint to all devices that its selector fits, as if their driver had set it. Claims that do not tolerate the taint are "
    "kept away from the devices, or the pods that use them are evicted. Cluster-scoped.",
    fields=(
        Field(
            name="metadata",
            number=1,
            type=shapes.OBJECT_META,
            presence=Presence.ALWAYS,
            doc="The object's standard metadata.",
        ),
        Field(
            name="spec",
            number=2,
            type=SPEC,
            presence=Presence.ALWAYS,
            expected=True,
            doc="The taint and its devices. Each change raises metadata.generation.",
        ),
        Field(
            name="status",
            number=3,
            type=STATUS,
            presence=Presence.ALWAYS,
            doc="How far the eviction has come. Written through the subresource status.",
        ),
    ),
)

# --- Hooks -----------------------------------------------------------------------------------------------------------


def _taint(obj: Object) -> dict[str, Any]:
    return (obj.get("spec") or {}).get("taint") or {}


def _prepare(context: Context, new: Object, old: Object | None) -> None:
    """Set the time of a changed effect, unless the client changed the time too: tolerations count from there."""
    if old is None:
        return
    taint, stored = _taint(new), _taint(old)
    changed = taint.get("effect") != stored.get("effect")
    if changed and taint and taint.get("timeAdded") == stored.get("timeAdded"):
        # A copy: a PUT is prepared again after a conflict, from the same taint.
        new["spec"] = {**new["spec"], "taint": {**taint, "timeAdded": context.now}}


def _status_rules(conditions: Check) -> Validate:
    """Make the check of a status. Conditions are checked even if there are too many, as upstream does."""

    def validate(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        value, path = (new.get("status") or {}).get("conditions") or (), ROOT.child("status").child("conditions")
        yield from conditions(value, path)
        if len(value) > CONDITIONS:
            yield fieldpath.too_many(path, len(value), CONDITIONS).at(path.after_items())

    return validate


# --- Columns ---------------------------------------------------------------------------------------------------------


def _added(obj: Object) -> float | None:
    text = _taint(obj).get("timeAdded")
    return meta.instant(text) if text else None


def _since_added(obj: Object, now: float) -> str:
    added = _added(obj)
    return "" if added is None else meta.age_at(added, now)


COLUMNS = (
    columns.NAME,
    Column(
        name="Key",
        cell=lambda obj, now: _taint(obj).get("key", ""),
        reads=["spec.taint.key"],
        description="The taint key to be applied to a device. Must be a label name.",
    ),
    Column(
        name="Value",
        cell=lambda obj, now: _taint(obj).get("value", ""),
        reads=["spec.taint.value"],
        description="The taint value corresponding to the taint key. Must be a label value.",
    ),
    Column(
        name="Effect",
        cell=lambda obj, now: _taint(obj).get("effect", ""),
        reads=["spec.taint.effect"],
        description="The effect of the taint on claims that do not tolerate the taint and through such claims on the pods using them.\n\n"
        "Valid effects are None, NoSchedule and NoExecute. PreferNoSchedule as used for nodes is not valid here. More effects may get "
        "added in the future. Consumers must treat unknown effects like None.",
    ),
    Column(
        name="TimeAdded",
        cell=_since_added,
        since=_added,
        ageless="",
        reads=["spec.taint.timeAdded"],
        description="TimeAdded represents the time at which the taint was added or (only in a DeviceTaintRule) the effect was modified. "
        "Added automatically during create or update if not set.\n\n"
        "In addition, in a DeviceTaintRule a value provided during an update gets replaced with the current time if the "
        "provided value is the same as the old one and the new effect is different. Changing the key and/or value while keeping "
        "the effect unchanged is possible and does not update the time stamp because the eviction which uses it is either "
        "already started (NoExecute) or not started yet (NoEffect, NoSchedule).",
    ),
    columns.AGE,
)

# --- Versions --------------------------------------------------------------------------------------------------------

V1 = Version(name="v1", shape=RULE, returns_deleted=False, needs_version=True)
V1BETA2 = replace(_v1beta2.version(RULE), deprecation=None)
V1ALPHA3 = _v1alpha3.version(RULE, Deprecation(since="1.36", removed="1.39"))


RESOURCE = Resource(
    kind="DeviceTaintRule",
    plural="devicetaintrules",
    singular="devicetaintrule",
    namespaced=False,
    # The names of the stored form are upstream's. All versions have the same JSON, so releases read each other's objects.
    version=since(V1_37, V1BETA2.name, before=V1ALPHA3.name),
    shape=since(V1_37, V1BETA2.shape, before=V1ALPHA3.shape),
    home=since(V1_37, V1BETA2.home, before=V1ALPHA3.home),
    deprecation=since(V1_37, V1BETA2.deprecation, before=V1ALPHA3.deprecation),
    columns=COLUMNS,
    subresources=(
        Subresource(
            name="status",
            owns=("status",),
            validate=since(V1_37, _status_rules(_formats.named_conditions), before=_status_rules(_formats.conditions)),
        ),
    ),
    has_status=True,
    tracks_generation=True,
    rechecks_metadata=False,
    name_check=names.subdomain_name,
    grants=(Grant(role=SCHEDULER, verbs=READ),),
    prepare=_prepare,
    versions=(since(V1_37, V1), since(V1_37, V1ALPHA3, before=V1BETA2)),
)
