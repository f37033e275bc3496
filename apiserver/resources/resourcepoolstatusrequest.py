"""ResourcePoolStatusRequest: a question about the devices of a driver's pools, which a controller answers once, in the status.

It is served with its feature gate off too, as by upstream. The gate is for the controller.

Upstream: kubernetes/api `resource/v1alpha3/types.go`, kubernetes/kubernetes `pkg/apis/resource/v1alpha3/zz_generated.validations.go`,
`pkg/apis/resource/validation/validation_resourcepoolstatusrequest.go`, `pkg/registry/resource/resourcepoolstatusrequest/strategy.go`,
`pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import V1_36, V1_37, Release, at, since, until
from apiserver.codecs.objects import canonical
from apiserver.resources import _features, _v1alpha3
from apiserver.resources._features import Feature
from apiserver.resources._rules import _declared_formats, _formats, _shown
from apiserver.resources._v1alpha3 import MODEL
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Object, Resource, Subresource, Validate
from apiserver.schema.types import Check, Field, Integer, ListOf, ListType, Presence, Quantity, String, Struct
from apiserver.validation import report as declared
from kubetext import names

GO = _v1alpha3.NAME
Cell = Callable[[Object, float], Any]
LIMIT, MOST_POOLS, CONDITIONS, SUMMARIES = 100, 1000, 10, 32
ERROR_BYTES = 256

# --- Shape -----------------------------------------------------------------------------------------------------------

SPEC = Struct(
    name="ResourcePoolStatusRequestSpec",
    model=MODEL,
    go=GO,
    doc="Selects the pools of the answer.",
    fields=(
        Field(
            name="driver",
            number=1,
            type=String(check=_declared_formats.long_name_caseless),
            presence=Presence.ALWAYS,
            required=True,
            doc="The driver whose pools the answer has.",
        ),
        Field(
            name="poolName",
            number=2,
            type=String(check=_declared_formats.pool_name),
            presence=Presence.POINTER,
            doc="The one pool that the answer has. Without it, the answer has all pools of the driver.",
        ),
        Field(
            name="limit",
            number=3,
            type=Integer(bits=32, check=_declared_formats.between(1, MOST_POOLS)),
            presence=Presence.POINTER,
            default=LIMIT,
            doc="The most pools that the answer may have, from 1 to 1000.",
        ),
        since(
            V1_37,
            Field(
                name="defaultPartitionTypeAttribute",
                number=4,
                type=String(check=_declared_formats.fully_qualified_name),
                presence=Presence.POINTER,
                doc="The attribute, with its domain, that groups partitions in slices that name none. "
                "Alpha: needs the feature gate DRAPartitionableDevicesType.",
            ),
        ),
    ),
)

PARTITION_TYPE = Struct(
    name="PartitionTypeStatus",
    model=MODEL,
    go=GO,
    doc="How many devices of one type of partition can be allocated.",
    fields=(
        Field(
            name="attribute",
            number=4,
            type=String(),
            required=True,
            doc="The attribute that groups the devices.",
        ),
        Field(
            name="type",
            number=1,
            type=String(),
            required=True,
            doc="The attribute's value, which is the type.",
        ),
        Field(
            name="total",
            number=2,
            type=Integer(bits=32, check=_declared_formats.between(0)),
            presence=Presence.POINTER,
            required=True,
            doc="How many devices of the type the pool has.",
        ),
        Field(
            name="allocatable",
            number=3,
            type=Integer(bits=32, check=_declared_formats.between(0)),
            presence=Presence.POINTER,
            required=True,
            doc="How many more devices of the type could be allocated now.",
        ),
    ),
)

SHAREABLE_CAPACITY = Struct(
    name="ShareableCapacityStatus",
    model=MODEL,
    go=GO,
    doc="The amounts of one capacity, of all shareable devices of a pool together.",
    fields=(
        Field(
            name="name",
            number=1,
            type=String(),
            required=True,
            doc="The name of the capacity.",
        ),
        *(
            Field(name=name, number=number, type=Quantity(), presence=Presence.POINTER, required=True, doc=doc)
            for name, number, doc in (
                ("total", 2, "The amount that the devices have."),
                ("consumed", 3, "The amount that is allocated."),
                ("available", 4, "The amount that is left, never less than zero."),
            )
        ),
    ),
)

SHAREABLE_SUMMARY = Struct(
    name="ShareableSummaryStatus",
    model=MODEL,
    go=GO,
    doc="The state of the devices of a pool that several requests can share.",
    fields=(
        Field(
            name="fullyAvailableDevices",
            number=1,
            type=Integer(bits=32, check=_declared_formats.between(0)),
            presence=Presence.POINTER,
            required=True,
            doc="How many shareable devices nobody uses.",
        ),
        Field(
            name="partiallyAvailableDevices",
            number=2,
            type=Integer(bits=32, check=_declared_formats.between(0)),
            presence=Presence.POINTER,
            required=True,
            doc="How many shareable devices are used, but have capacity left.",
        ),
        Field(
            name="capacity",
            number=3,
            type=ListOf(SHAREABLE_CAPACITY, max_items=SUMMARIES),
            doc="The amounts of each capacity, at most 32.",
        ),
    ),
)


def _repeated(
    shape: Struct, keys: Sequence[str], value: Sequence[Object], path: Path, *, limit: int
) -> Iterator[FieldError]:
    """Report elements with the keys of an earlier one, before all errors of elements. Upstream shows the whole element."""
    if len(value) > limit:
        return
    seen: set[tuple[str, ...]] = set()
    for i, item in enumerate(value):
        identity = tuple(item.get(key, "") for key in keys)
        if identity in seen:
            yield fieldpath.duplicate(path.index(i), canonical.shown(shape, item)).at(path)
        seen.add(identity)


def _partition_types(value: list[Any], path: Path) -> Iterator[FieldError]:
    return _repeated(PARTITION_TYPE, ("attribute", "type"), value, path, limit=SUMMARIES)


def _count(name: str, number: int, doc: str, *, least: int = 0) -> Field:
    """Make a member for a number of devices or slices, which is absent for a pool with an error."""
    type_ = Integer(bits=32, check=_declared_formats.between(least))
    return Field(name=name, number=number, type=type_, presence=Presence.POINTER, doc=doc)


POOL = Struct(
    name="PoolStatus",
    model=MODEL,
    go=GO,
    doc="The state of one pool. A pool with an error may have no numbers.",
    fields=(
        Field(
            name="driver",
            number=1,
            type=String(check=_declared_formats.long_name_caseless),
            required=True,
            doc="The driver of the pool.",
        ),
        Field(
            name="poolName",
            number=2,
            type=String(check=_declared_formats.pool_name),
            required=True,
            doc="The name of the pool.",
        ),
        Field(
            name="generation",
            number=9,
            type=Integer(check=_declared_formats.between(0)),
            presence=Presence.ALWAYS,
            required=True,
            doc="The latest generation of the pool in its slices. A pool whose slices of that generation are incomplete has an error.",
        ),
        _count("resourceSliceCount", 8, "How many slices the pool has.", least=1),
        _count("totalDevices", 4, "How many devices the pool has."),
        _count("allocatedDevices", 5, "How many devices are allocated to claims."),
        _count(
            "availableDevices",
            6,
            "How many devices can be allocated: those that are neither allocated nor unavailable.",
        ),
        _count(
            "unavailableDevices",
            7,
            "How many devices are not allocated, but cannot be, because of a taint for example.",
        ),
        Field(
            name="nodeName",
            number=3,
            type=String(check=_declared_formats.long_name),
            presence=Presence.POINTER,
            doc="The node of the pool; absent for a pool of several nodes.",
        ),
        Field(
            name="validationError",
            number=10,
            type=String(max_bytes=ERROR_BYTES),
            presence=Presence.POINTER,
            doc="Why the pool's slices cannot be used, 256 bytes at most.",
        ),
        since(
            V1_37,
            Field(
                name="partitionSummary",
                number=11,
                type=ListOf(PARTITION_TYPE, max_items=SUMMARIES),
                check=_partition_types,
                doc="The types of partitions, at most 32, of a pool whose devices draw from shared counters.",
            ),
        ),
        since(
            V1_37,
            Field(
                name="shareableSummary",
                number=13,
                type=SHAREABLE_SUMMARY,
                presence=Presence.POINTER,
                doc="The state of the shareable devices of a pool that has any.",
            ),
        ),
    ),
)


def _repeated_conditions(value: list[Any], path: Path) -> Iterator[FieldError]:
    """Report repeated types, with the whole condition, as 1.36 does besides the handwritten rule."""
    return _repeated(shapes.CONDITION, ("type",), value, path, limit=CONDITIONS)


_HANDWRITTEN = "#handwritten"

STATUS = Struct(
    name="ResourcePoolStatusRequestStatus",
    model=MODEL,
    go=GO,
    doc="The answer.",
    fields=(
        Field(
            name="poolCount",
            number=6,
            type=Integer(bits=32, check=_declared_formats.between(0)),
            presence=Presence.POINTER,
            required=True,
            doc="How many pools the request selects. It exceeds the number of `pools` if the limit cut them off.",
        ),
        Field(
            name="pools",
            number=2,
            type=ListOf(POOL, max_items=MOST_POOLS),
            doc="The first of the selected pools, sorted by driver and name.",
        ),
        Field(
            name="conditions",
            number=3,
            type=ListOf(shapes.CONDITION, ListType.MAP, keys=("type",), max_items=CONDITIONS),
            check=until(V1_37, _repeated_conditions),
            patch_strategy="merge",
            patch_merge_key="type",
            doc="The state of the request, at most ten conditions. An answer has one of Complete and Failed.",
        ),
    ),
    judged=("", _HANDWRITTEN, "poolCount", "pools", "conditions"),
)

REQUEST = Struct(
    name="ResourcePoolStatusRequest",
    model=MODEL,
    go=GO,
    doc="Asks how many devices of a driver's pools are free. A controller answers once, in the status; a new answer needs a new request. "
    "Cluster-scoped.",
    fields=(
        Field(
            name="metadata",
            number=1,
            type=shapes.OBJECT_META,
            presence=Presence.ALWAYS,
            expected=True,
            doc="The object's standard metadata.",
        ),
        Field(
            name="spec",
            number=2,
            type=SPEC,
            presence=Presence.ALWAYS,
            expected=True,
            doc="The question. Cannot be changed.",
        ),
        Field(
            name="status",
            number=3,
            type=STATUS,
            presence=Presence.POINTER,
            doc="The answer. Cannot be changed once it is there. Written through the subresource status.",
        ),
    ),
)

# --- Hooks -----------------------------------------------------------------------------------------------------------

_PARTITION_TYPE_ATTRIBUTE = frozenset(("defaultPartitionTypeAttribute",))
FEATURES = (
    Feature(
        gates=(_features.PARTITIONABLE_DEVICES_TYPE,), places=lambda obj: ((obj["spec"], _PARTITION_TYPE_ATTRIBUTE),)
    ),
)


def _immutable_spec(release: Release) -> Validate:
    shape = at(release, SPEC)

    def validate(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        """Refuse any change of the spec. Upstream shows no value."""
        if old is not None and not canonical.equal(shape, new["spec"], old["spec"]):
            yield fieldpath.invalid(ROOT.child("spec"), None, "field is immutable")

    return validate


def _status_rules(release: Release, conditions: Check) -> Validate:
    """Make the check of a status: handwritten rules first, then what the shape declares. A status that does not change is not checked."""
    shape = at(release, STATUS)
    field = Field(name="status", number=3, type=shape, presence=Presence.POINTER)
    only = Struct(name=REQUEST.name, model=MODEL, fields=(field,))
    same, path = canonical.comparison(field), ROOT.child("status")

    def validate(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        status, stored = new.get("status"), (old or {}).get("status")
        if same(status, stored):
            return
        if stored is not None:
            shown = None if status is None else _shown.as_go(shape, status)
            yield fieldpath.invalid(path, shown, "field is immutable")
        elif status is not None:
            found = conditions(status.get("conditions") or (), path.child("conditions"))
            yield from (error.at(path.child(_HANDWRITTEN)) for error in found)
        yield from declared.validate(context, only, new, old)

    return validate


# --- Columns ---------------------------------------------------------------------------------------------------------

_COMPLETE, _FAILED, _PENDING = "Complete", "Failed", "Pending"
_INT32 = 1 << 32


def _status(obj: Object) -> dict[str, Any]:
    return obj.get("status") or {}


def _outcome(obj: Object) -> tuple[str, Mapping[str, Any]]:
    """Return the first condition that says how the request ended, and its type."""
    for condition in _status(obj).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in (_COMPLETE, _FAILED):
            return condition["type"], condition
    return _PENDING, {}


def _summary(obj: Object, now: float) -> str:
    outcome, _ = _outcome(obj)
    found, total = len(_status(obj).get("pools") or ()), _status(obj).get("poolCount") or 0
    return f"{_COMPLETE} ({found}/{total} pools)" if outcome == _COMPLETE and total > found else outcome


def _total(member: str) -> Cell:
    """Make a cell with the sum of a member of all pools. It wraps around as Go's int32 does."""

    def cell(obj: Object, now: float) -> str:
        if obj.get("status") is None or _outcome(obj)[0] == _FAILED:
            return "-"
        total = sum(pool.get(member) or 0 for pool in _status(obj).get("pools") or ())
        return str((total + _INT32 // 2) % _INT32 - _INT32 // 2)

    return cell


def _errors(obj: Object, now: float) -> str:
    if obj.get("status") is None or _outcome(obj)[0] == _FAILED:
        return "-"
    return str(sum("validationError" in pool for pool in _status(obj).get("pools") or ()))


def _completed(obj: Object) -> float | None:
    outcome, condition = _outcome(obj)
    text = condition.get("lastTransitionTime") if outcome == _COMPLETE else None
    return meta.instant(text) if text else None


def _since_completed(obj: Object, now: float) -> str:
    completed = _completed(obj)
    return "<none>" if completed is None else meta.age_at(completed, now)


def _numbers(name: str, cell: Cell, description: str) -> Column:
    return Column(name=name, cell=cell, reads=["status.pools", "status.conditions"], description=description)


COLUMNS = (
    columns.NAME,
    Column(
        name="Driver",
        cell=lambda obj, now: (obj.get("spec") or {}).get("driver", ""),
        reads=["spec.driver"],
        description="The driver to query pools for.",
    ),
    _numbers("Total", _total("totalDevices"), "Total number of devices across all pools."),
    _numbers("Available", _total("availableDevices"), "Number of available devices across all pools."),
    _numbers("Allocated", _total("allocatedDevices"), "Number of allocated devices across all pools."),
    _numbers("Unavailable", _total("unavailableDevices"), "Number of unavailable devices across all pools."),
    _numbers("Errors", _errors, "Number of pools with validation errors."),
    Column(
        name="Pools",
        cell=lambda obj, now: _status(obj).get("poolCount") or 0,
        reads=["status.poolCount"],
        type="integer",
        description="Total number of matching pools.",
    ),
    Column(
        name="Status",
        cell=_summary,
        reads=["status.poolCount", "status.pools", "status.conditions"],
        description="Processing status.",
    ),
    Column(
        name="Completed",
        cell=_since_completed,
        since=_completed,
        ageless="<none>",
        reads=["status.conditions"],
        description="Time since the observation completed.",
    ),
)

RESOURCE = Resource(
    kind="ResourcePoolStatusRequest",
    plural="resourcepoolstatusrequests",
    singular="resourcepoolstatusrequest",
    namespaced=False,
    version=_v1alpha3.NAME,
    home=None,
    shape=REQUEST,
    columns=COLUMNS,
    subresources=(
        Subresource(
            name="status",
            owns=("status",),
            validate=since(
                V1_37, _status_rules(V1_37, _formats.named_conditions), before=_status_rules(V1_36, _formats.conditions)
            ),
        ),
    ),
    has_status=True,
    rechecks_metadata=False,
    needs_version=True,
    validate_shape_on_update=False,
    name_check=names.subdomain_name,
    gates=_features.gates_of(FEATURES),
    prepare=_features.dropping(FEATURES),
    validate=since(V1_37, _immutable_spec(V1_37), before=_immutable_spec(V1_36)),
)
