"""ResourceSlice: the devices that a driver offers on one node, on some, or on all.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/resourceslice/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import V1_37, since
from apiserver.resources import _devices, _features, _v1beta1, _v1beta2
from apiserver.resources._features import Feature, Place
from apiserver.resources._roles import DRIVER, READ, SCHEDULER
from apiserver.resources._rules import _declarations, _declared_formats, _formats, _shown
from apiserver.resources._rules._formats import MODEL, by_name
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Grant, Object, Resource
from apiserver.schema.types import IMMUTABLE, Boolean, Field, Integer, ListOf, Presence, String, Struct
from kubetext import names, quoting

DEVICES, DEVICES_WITH_EXTRAS = 128, 64
"""The most devices of a slice, and the most if any of them has taints, consumes counters or has a list attribute."""

COUNTER_SETS = 8

# --- Shape -----------------------------------------------------------------------------------------------------------


def _node_name(value: str, path: Path) -> Iterable[FieldError]:
    if value:
        return _formats.node_name(value, path)
    return [fieldpath.invalid(path, value, "must be either unset or set to a non-empty string")]


def _one_term(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check for exactly one term: selectors of several slices are combined when a claim is allocated from them."""
    yield from _formats.node_selector(value, path)
    terms = value.get("nodeSelectorTerms")
    if len(terms or ()) != 1:
        at, shown = path.child("nodeSelectorTerms"), _shown.as_go(ListOf(shapes.NODE_SELECTOR_TERM), terms)
        yield fieldpath.invalid(at, shown, "must have exactly one node selector term").at(at.after_items())


COUNTER_SET = Struct(
    name="CounterSet",
    model=MODEL,
    doc="A named set of counters: what a physical device has to share out among the devices that are cut from it.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            required=True,
            doc="How devices of the pool refer to this set. A DNS label, unique in the pool.",
        ),
        Field(
            name="counters",
            number=2,
            type=_devices.COUNTER_MAP,
            required=True,
            doc="The counters by name, 1 to 32 of them. Names are DNS labels.",
        ),
    ),
)


def _pool(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    yield from _formats.positive(value.get("resourceSliceCount", 0), path.child("resourceSliceCount"))
    yield from _formats.not_negative(value.get("generation", 0), path.child("generation"))


RESOURCE_POOL = Struct(
    name="ResourcePool",
    model=MODEL,
    doc="Says which pool a slice belongs to, and how to tell that the pool is complete and current.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_formats.POOL,
            presence=Presence.ALWAYS,
            required=True,
            immutable=True,
            doc="The pool's name, unique for its driver; for devices of one node this is often the node's name. "
            "DNS subdomains separated by slashes, 253 characters at most. Cannot be changed.",
        ),
        Field(
            name="generation",
            number=2,
            type=Integer(),
            presence=Presence.ALWAYS,
            doc="A number that the driver raises when it changes several slices of the pool. Only slices with the highest number "
            "in the pool count; the others are leftovers.",
        ),
        Field(
            name="resourceSliceCount",
            number=3,
            type=Integer(),
            presence=Presence.ALWAYS,
            doc="How many slices the pool consists of in this generation, greater than zero. As long as fewer are seen, the pool "
            "is known to be incomplete.",
        ),
    ),
    check=_pool,
    judged=("name", "resourceSliceCount", "generation"),
)


_NODE_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_NODE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` "
    "is set to true in the ResourceSlice spec"
)
_NO_DEVICE_NODE_SELECTION = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` "
    "is set to true in the ResourceSlice spec"
)


def _selected(value: Mapping[str, Any], members: Iterable[str]) -> list[str]:
    """Return the node selections that are set. An empty name and a false flag are unset."""
    return [f"`{m}`" for m in members if m in value and value[m] not in ("", False, None)]


def _spec(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    selected = _selected(value, ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"))
    if not selected:
        yield fieldpath.required(path, _NODE_SELECTION)
    elif len(selected) > 1:
        text = f"{_NODE_SELECTION}, but multiple fields are set"
        yield fieldpath.invalid(path, f"{{{', '.join(selected)}}}", text)
    devices = value.get("devices")
    if devices is None:
        return
    if value.get("sharedCounters") is not None:
        yield fieldpath.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
    at = path.child("devices")
    if len(devices) <= _most_devices(devices):
        per_device = value.get("perDeviceNodeSelection") is True
        for i, device in enumerate(devices):
            if per_device or "nodeName" in device or "nodeSelector" in device or "allNodes" in device:
                yield from _device_nodes(device, at.index(i), per_device=per_device)


def _most_devices(devices: Sequence[Mapping[str, Any]]) -> int:
    extras = len(devices) > DEVICES_WITH_EXTRAS and any(map(_has_extras, devices))
    return DEVICES_WITH_EXTRAS if extras else DEVICES


def _has_extras(device: Mapping[str, Any]) -> bool:
    return bool(device.get("taints") or device.get("consumesCounters")) or _devices.has_list_attribute(device)


def _device_nodes(device: Mapping[str, Any], path: Path, *, per_device: bool) -> Iterator[FieldError]:
    if not per_device:
        yield fieldpath.invalid(path, None, _NO_DEVICE_NODE_SELECTION)
        return
    if "nodeName" in device:
        at = path.child("nodeName")
        yield from (
            _formats.node_name(device["nodeName"], at)
            if device["nodeName"]
            else [fieldpath.invalid(at, "", "must not be empty")]
        )
    if "nodeSelector" in device:
        yield from _formats.node_selector(device["nodeSelector"], path.child("nodeSelector"))
    if "allNodes" in device:
        yield from _formats.true_or_unset(device["allNodes"], path.child("allNodes"))
    selected = _selected(device, ("nodeName", "nodeSelector", "allNodes"))
    if not selected:
        yield fieldpath.required(path, _DEVICE_NODE_SELECTION)
    elif len(selected) > 1:
        yield fieldpath.invalid(path, f"{{{', '.join(selected)}}}", _DEVICE_NODE_SELECTION)


def _partition_type(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    name = value.get("partitionTypeAttribute")
    if name is None:
        return
    at = path.child("partitionTypeAttribute")
    malformed = list(_declared_formats.fully_qualified_name(name, at))
    consuming = [(i, d) for i, d in enumerate(value.get("devices") or ()) if d.get("consumesCounters")]
    if not consuming:
        yield fieldpath.invalid(at, name, "may only be set on a slice which declares devices that consume counters")
    elif not malformed:
        found = _untyped(value.get("driver", ""), consuming, name, path.child("devices"))
        yield from (error.at(at) for error in found)
    if old is None or old.get("partitionTypeAttribute") != name:
        if context.enabled(_features.PARTITIONABLE_DEVICES_TYPE):
            yield from malformed
        else:
            yield fieldpath.forbidden(at, "")


def _untyped(
    driver: str, devices: Iterable[tuple[int, Mapping[str, Any]]], name: str, path: Path
) -> Iterator[FieldError]:
    """Check that the devices have the attribute, as text. A name without a domain is in the domain of the driver."""
    bare = name.removeprefix(f"{driver}/")
    for i, device in devices:
        attributes, at = device.get("attributes") or {}, path.index(i).child("attributes").key(name)
        attribute = attributes.get(name, attributes.get(bare))
        if attribute is None:
            text = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            yield fieldpath.required(at, text)
        elif attribute.get("string") is None:
            text = "must be a string value because `partitionTypeAttribute` names this attribute"
            yield fieldpath.invalid(at, _shown.as_go(_devices.DEVICE_ATTRIBUTE, attribute), text)


RESOURCE_SLICE_SPEC = Struct(
    name="ResourceSliceSpec",
    model=MODEL,
    doc="What the driver publishes.",
    fields=(
        Field(
            name="driver",
            number=1,
            type=_formats.DRIVER,
            presence=Presence.ALWAYS,
            required=True,
            immutable=True,
            doc="The driver that offers these devices, a DNS subdomain of at most 63 characters in lower case, best in a domain of its "
            "vendor. Lists and watches can select by it (field selector spec.driver). Cannot be changed.",
        ),
        Field(
            name="pool",
            number=2,
            type=RESOURCE_POOL,
            presence=Presence.ALWAYS,
            doc="The pool that this slice is a part of.",
        ),
        Field(
            name="nodeName",
            number=3,
            type=String(check=_node_name),
            presence=Presence.POINTER,
            immutable=True,
            doc="The node that these devices belong to. Lists and watches can select by it (field selector spec.nodeName), which is how "
            "a node sees only its own slices; an autoscaler learns from it that another such node would bring more devices. "
            "Exactly one of `nodeName`, `nodeSelector`, `allNodes` and `perDeviceNodeSelection` has to be given. "
            "Cannot be changed.",
        ),
        Field(
            name="nodeSelector",
            number=4,
            type=shapes.NODE_SELECTOR,
            presence=Presence.POINTER,
            check=_one_term,
            doc="The nodes on which these devices can be used, for devices that are not part of one node. Has exactly one term.",
        ),
        Field(
            name="allNodes",
            number=5,
            type=Boolean(check=_formats.true_or_unset),
            presence=Presence.POINTER,
            doc="True when these devices can be used on every node.",
        ),
        Field(
            name="devices",
            number=6,
            type=ListOf(_devices.DEVICE, max_items=DEVICES, limit=_most_devices, unique=by_name),
            doc="Some or all of the pool's devices: at most 128, or 64 if any of them has taints, consumes counters or has a list "
            "attribute. Not together with `sharedCounters`. May be empty, for a driver that has nothing to offer.",
        ),
        Field(
            name="perDeviceNodeSelection",
            number=7,
            type=Boolean(check=_formats.true_or_unset),
            presence=Presence.POINTER,
            doc="True when each device says itself on which nodes it can be used.",
        ),
        Field(
            name="sharedCounters",
            number=8,
            type=ListOf(COUNTER_SET, max_items=COUNTER_SETS, unique=by_name),
            doc="Counter sets, at most eight, from which devices of the pool consume. Not together with `devices`: a pool that needs "
            "both has slices of either sort.",
        ),
        since(
            V1_37,
            Field(
                name="partitionTypeAttribute",
                number=9,
                type=String(go="v1.FullyQualifiedName"),
                presence=Presence.POINTER,
                doc="The fully qualified name of the text attribute that says what sort of partition a device is. Every device that "
                "consumes counters must have it, and devices with the same value consume the same. "
                "Alpha: needs the feature gate DRAPartitionableDevicesType.",
            ),
        ),
        since(
            V1_37,
            _formats.skipped_operations_field(
                10,
                "Calls to the driver on the node that these devices do without: NodePrepareResources, NodeUnprepareResources, "
                "or * for all. The first one needs the second. A call is skipped if all the driver's devices in a claim do without "
                "it. Alpha: needs the feature gate DRAOptionalNodeOperations.",
            ),
        ),
    ),
    check=_spec,
    rule=since(V1_37, _partition_type),
    judged=(
        "driver",
        "pool",
        IMMUTABLE,
        "nodeName",
        "nodeSelector",
        "allNodes",
        "perDeviceNodeSelection",
        "",
        "devices",
        "sharedCounters",
        since(V1_37, "partitionTypeAttribute"),
        since(V1_37, "skipNodeOperations"),
    ),
)

RESOURCE_SLICE = Struct(
    name="ResourceSlice",
    model=MODEL,
    doc="A part of a pool of devices, or of what they share, as one driver publishes it. A pool may need several slices; it is complete "
    "when as many are there as each of them says. A change that takes several slices is published under a new pool generation. "
    "Schedulers and autoscalers read slices to learn which devices there are and on which nodes they can be used.",
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
            type=RESOURCE_SLICE_SPEC,
            presence=Presence.ALWAYS,
            doc="What the driver publishes. Each change of it raises metadata.generation.",
        ),
    ),
)

# --- Hooks -----------------------------------------------------------------------------------------------------------


def _listed(obj: Object | None) -> list[dict[str, Any]]:
    """Return the devices of a slice, which the caller may change."""
    devices: list[dict[str, Any]] = (obj["spec"].get("devices") if obj is not None else None) or []
    return devices


def _of_devices(*names: str) -> Callable[[Object], Iterator[Place]]:
    """Return a function that yields these members of every device."""
    members = frozenset(names)
    return lambda obj: ((device, members) for device in _listed(obj))


_partition_devices = _of_devices("consumesCounters", "nodeName", "nodeSelector", "allNodes")
_PARTITIONS = frozenset(("sharedCounters", "perDeviceNodeSelection"))
_GROUPS, _SKIPPED = frozenset(("compatibilityGroups",)), frozenset(("skipNodeOperations",))
_PARTITION_TYPE = frozenset(("partitionTypeAttribute",))
_SHARING, _POLICY = frozenset(("allowMultipleAllocations",)), frozenset(("requestPolicy",))


def _partitions(obj: Object) -> Iterator[Place]:
    yield obj["spec"], _PARTITIONS
    yield from _partition_devices(obj)


def _sharing(obj: Object) -> Iterator[Place]:
    for device in _listed(obj):
        yield device, _SHARING
        for capacity in (device.get("capacity") or {}).values():
            yield capacity, _POLICY


def _groups(obj: Object) -> Iterator[Place]:
    return ((consumed, _GROUPS) for device in _listed(obj) for consumed in device.get("consumesCounters") or ())


def _lists(obj: Object) -> Iterator[Place]:
    """Yield list attributes. An attribute without its list has no value and fails validation, as upstream's does."""
    for device in filter(_devices.has_list_attribute, _listed(obj)):
        for attribute in device["attributes"].values():
            yield attribute, _devices.LIST_ATTRIBUTES


FEATURES = (
    Feature(gates=(_features.DEVICE_TAINTS,), places=_of_devices("taints")),
    Feature(gates=(_features.PARTITIONABLE_DEVICES,), places=_partitions),
    Feature(
        gates=(_features.BINDING_CONDITIONS, _features.DEVICE_STATUS),
        places=_of_devices("bindingConditions", "bindingFailureConditions", "bindsToNode"),
    ),
    Feature(gates=(_features.CONSUMABLE_CAPACITY,), places=_sharing),
    Feature(gates=(_features.COMPATIBILITY_GROUPS,), places=_groups),
    Feature(
        gates=(_features.NODE_ALLOCATABLE_RESOURCES,),
        places=_of_devices("nodeAllocatableResourceMappings", "nodeAllocatableResources"),
    ),
    Feature(gates=(_features.LIST_TYPE_ATTRIBUTES,), places=_lists),
    Feature(gates=(_features.PARTITIONABLE_DEVICES_TYPE,), places=lambda obj: ((obj["spec"], _PARTITION_TYPE),)),
    Feature(gates=(_features.OPTIONAL_NODE_OPERATIONS,), places=lambda obj: ((obj["spec"], _SKIPPED),)),
)


def _warnings(context: Context, new: Object, old: Object | None) -> list[str]:
    driver = new["spec"].get("driver", "")
    if driver == names.lower(driver):
        return []
    return [f"spec.driver: driver names should be lowercase; {quoting.go_quote(driver)} contains uppercase characters"]


# --- Columns and selectors -------------------------------------------------------------------------------------------


# Upstream's texts, see `schema.columns`: kubernetes/api `resource/v1/types.go`.
_NODE_COLUMN = (
    "NodeName identifies the node which provides the resources in this pool. A field selector can be used to list only ResourceSlice "
    "objects belonging to a certain node."
    "\n\nThis field can be used to limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers "
    "that adding new nodes of the same type as some old node might also make new resources available."
    "\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable."
)
_DRIVER_COLUMN = (
    "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list only ResourceSlice objects "
    "with a certain driver name."
    "\n\nMust be a DNS subdomain and should end with a DNS domain owned by the vendor of the driver. It should use only lower case "
    "characters. This field is immutable."
)
_POOL_COLUMN = (
    "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not required.{}"
    "\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated by slashes. "
    "This field is immutable."
)

_SELECT_BY_POOL = " A field selector can be used to list only ResourceSlice objects belonging to a certain pool."

COLUMNS = (
    columns.NAME,
    Column(
        name="Node",
        cell=lambda obj, now: obj["spec"].get("nodeName", ""),
        reads=["spec.nodeName"],
        description=_NODE_COLUMN,
    ),
    Column(
        name="Driver",
        cell=lambda obj, now: obj["spec"].get("driver", ""),
        reads=["spec.driver"],
        description=_DRIVER_COLUMN,
    ),
    Column(
        name="Pool",
        cell=lambda obj, now: obj["spec"].get("pool", {}).get("name", ""),
        reads=["spec.pool.name"],
        description=since(V1_37, _POOL_COLUMN.format(_SELECT_BY_POOL), before=_POOL_COLUMN.format("")),
    ),
    columns.AGE,
)

RESOURCE = Resource(
    kind="ResourceSlice",
    plural="resourceslices",
    singular="resourceslice",
    namespaced=False,
    shape=RESOURCE_SLICE,
    columns=COLUMNS,
    selectable={
        "spec.nodeName": "spec.nodeName",
        "spec.driver": "spec.driver",
        "spec.pool.name": since(V1_37, "spec.pool.name"),
    },
    listed_by=("spec.nodeName",),
    own_field_labels=True,
    node_field="spec.nodeName",
    tracks_generation=True,
    counts_dropped=True,
    rechecks_metadata=False,
    name_check=names.subdomain_name,
    grants=(
        Grant(role=SCHEDULER, verbs=READ),
        Grant(role=DRIVER, verbs=(*READ, "create", "delete", "patch", "update")),
    ),
    gates=_features.gates_of(FEATURES, _features.FRACTIONAL_CAPACITY_RANGE),
    declarations=since(V1_37, _declarations.DECLARATIONS),
    prepare=_features.dropping(FEATURES),
    warnings=_warnings,
    versions=(_v1beta2.version(RESOURCE_SLICE), _v1beta1.version(RESOURCE_SLICE, _v1beta1.SLICES)),
)
