"""One device of a slice: attributes, capacities, consumed counters, nodes and taints.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import V1_37, since, until
from apiserver.codecs.objects import canonical
from apiserver.resources import _features
from apiserver.resources._rules import _capacity, _declared_formats, _formats, _shown
from apiserver.resources._rules._formats import MODEL
from apiserver.schema import shapes
from apiserver.schema.context import Context
from apiserver.schema.types import Boolean, Field, Integer, ListOf, MapOf, Presence, Quantity, String, Struct, Time
from kubetext import quantity

COUNTERS, CONSUMED_SETS, COMPATIBILITY_GROUPS = 32, 2, 2
ATTRIBUTES_AND_CAPACITIES, ATTRIBUTE_VALUES, ATTRIBUTE_BYTES = 32, 48, 64
TAINTS = 16
SHOWN_NAME_BYTES, SHOWN_COUNTER_BYTES = 96, 63

LIST_ATTRIBUTES = frozenset(("ints", "bools", "strings", "versions"))

COUNTER = Struct(
    name="Counter",
    model=MODEL,
    doc="An amount that several devices draw from.",
    fields=(
        Field(
            name="value",
            number=1,
            type=Quantity(),
            presence=Presence.ALWAYS,
            doc="How much there is, or how much is consumed.",
        ),
    ),
)

COUNTER_MAP = MapOf(COUNTER, max_items=COUNTERS, key_check=_formats.label, shown_key_bytes=SHOWN_COUNTER_BYTES)

COUNTER_CONSUMPTION = Struct(
    name="DeviceCounterConsumption",
    model=MODEL,
    doc="What a device takes from one counter set while it is allocated.",
    fields=(
        Field(
            name="counterSet",
            number=1,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            required=True,
            doc="The name of a counter set of the same pool.",
        ),
        Field(
            name="counters",
            number=2,
            type=COUNTER_MAP,
            required=True,
            doc="How much is taken from which counter of the set, 1 to 32 of them.",
        ),
        since(
            V1_37,
            Field(
                name="compatibilityGroups",
                number=3,
                type=ListOf(
                    String(check=_declared_formats.short_name), max_items=COMPATIBILITY_GROUPS, unique=_formats.itself
                ),
                doc="Names of groups, at most two, each a DNS label. Devices that draw from the same counter set are allocated together "
                "only if one group is common to all of them; devices without groups only with others without. "
                "Alpha: needs the feature gate DRADeviceCompatibilityGroups.",
            ),
        ),
    ),
)


def _attribute(name: str, number: int, kind: Any, doc: str) -> Field:
    return Field(
        name=name, number=number, go=f"{name.capitalize()}Value", type=kind, presence=Presence.POINTER, doc=doc
    )


_TEXT_VALUE = String(max_bytes=ATTRIBUTE_BYTES)
_VERSION_VALUE = String(check=_formats.semantic_version)


def _one_value(value: Mapping[str, Any], path: Path) -> Iterable[FieldError]:
    # There can be thousands of attributes in a slice, and nearly all are single scalars.
    if len(value) == 1 and LIST_ATTRIBUTES.isdisjoint(value):
        return ()
    found = [
        fieldpath.invalid(path.child(name), value[name], "must not be empty if specified")
        for name in value
        if name in LIST_ATTRIBUTES and not value[name]
    ]
    if len(value) != 1:
        shown = _shown.as_go(DEVICE_ATTRIBUTE, value) if value else ""
        found.append(fieldpath.invalid(path, shown, "exactly one value must be specified"))
    return found


DEVICE_ATTRIBUTE = Struct(
    name="DeviceAttribute",
    model=MODEL,
    doc="The value of an attribute. Exactly one of the members has to be set: it gives the type.",
    fields=(
        _attribute("int", 2, Integer(), "A whole number."),
        _attribute("bool", 3, Boolean(), "True or false."),
        _attribute("string", 4, _TEXT_VALUE, "A text of at most 64 bytes."),
        _attribute("version", 5, _VERSION_VALUE, "A version as semver.org 2.0.0 defines it, 64 bytes at most."),
        Field(
            name="ints",
            number=6,
            go="IntValues",
            type=ListOf(Integer()),
            doc="Whole numbers, at least one. Alpha: needs the feature gate DRAListTypeAttributes.",
        ),
        Field(
            name="bools",
            number=7,
            go="BoolValues",
            type=ListOf(Boolean()),
            doc="Truth values, at least one. Alpha: needs the feature gate DRAListTypeAttributes.",
        ),
        Field(
            name="strings",
            number=8,
            go="StringValues",
            type=ListOf(_TEXT_VALUE),
            doc="Texts of at most 64 bytes each, at least one. Alpha: needs the feature gate DRAListTypeAttributes.",
        ),
        Field(
            name="versions",
            number=9,
            go="VersionValues",
            type=ListOf(_VERSION_VALUE),
            doc="Versions as semver.org 2.0.0 defines them, 64 bytes at most each, at least one. "
            "Alpha: needs the feature gate DRAListTypeAttributes.",
        ),
    ),
    check=_one_value,
    judged=("string", "version", "bools", "ints", "strings", "versions"),
)

NODE_ALLOCATABLE_MAPPING = Struct(
    name="NodeAllocatableResourceMapping",
    model=MODEL,
    doc="How an allocation of the device counts against a resource of the node, such as cpu or memory.",
    fields=(
        Field(
            name="capacityKey",
            number=1,
            type=String(go="v1.QualifiedName"),
            presence=Presence.POINTER,
            doc="The capacity of the device whose consumed amount is counted, times the multiplier. Without it the multiplier itself "
            "is counted for each allocated device.",
        ),
        Field(
            name="allocationMultiplier",
            number=2,
            type=Quantity(),
            presence=Presence.POINTER,
            default="1",
            tells_default=False,
            doc="The factor for the consumed capacity or, without `capacityKey`, the amount for each device. Positive; 1 if absent.",
        ),
    ),
)


def _multiplied(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check that the amount counts by capacity or by device.

    Upstream: kubernetes/apimachinery `pkg/api/validate/union.go`.
    """
    given = [name for name in _MULTIPLIED if value.get(name) is not None]
    if not given:
        yield fieldpath.invalid(path, "", f"must specify one of: {', '.join(f'`{name}`' for name in _MULTIPLIED)}")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        text = f"must specify exactly one of: {', '.join(f'`{name}`' for name in _MULTIPLIED)}"
        yield fieldpath.invalid(path, shown, text)


_MULTIPLIED = ("capacityKey", "deviceMultiplier")

NODE_ALLOCATABLE_CONVERSION = Struct(
    name="NodeAllocatableMapping",
    model=MODEL,
    doc="How much of the node's resource an allocation stands for: by consumed capacity, or by number of devices.",
    fields=(
        Field(
            name="capacityKey",
            number=1,
            type=String(go="v1.QualifiedName"),
            presence=Presence.POINTER,
            doc="The capacity of the device whose consumed amount is counted, times `capacityMultiplier`.",
        ),
        Field(
            name="capacityMultiplier",
            number=2,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The factor for the consumed capacity. Positive, and only together with `capacityKey`.",
        ),
        Field(
            name="deviceMultiplier",
            number=3,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The amount for each allocated device. Positive, and never together with `capacityKey`.",
        ),
    ),
    check=_multiplied,
)

NODE_ALLOCATABLE_OVERHEAD = Struct(
    name="NodeAllocatableOverhead",
    model=MODEL,
    doc="How much of the node's resource the use of the device takes, beside what the device is.",
    fields=(
        Field(
            name="perPod",
            number=1,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The amount for each pod on the node that refers to the claim. Not negative.",
        ),
        Field(
            name="perContainer",
            number=2,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The amount for each container that refers to the claim, on top of `perPod`. Not negative.",
        ),
    ),
)

NODE_ALLOCATABLE_RESOURCE = Struct(
    name="NodeAllocatableResource",
    model=MODEL,
    doc="How allocations of the device count against one resource of the node. Has a mapping, an overhead, or both.",
    fields=(
        Field(
            name="mapping",
            number=3,
            type=NODE_ALLOCATABLE_CONVERSION,
            presence=Presence.POINTER,
            doc="For a device that is a part of the resource itself, such as a group of CPUs. Counted once for each claim, which only one "
            "pod can use.",
        ),
        Field(
            name="overhead",
            number=4,
            type=NODE_ALLOCATABLE_OVERHEAD,
            presence=Presence.POINTER,
            doc="For a device whose use takes from the resource, such as host memory for a GPU. Counted for each pod that refers to the "
            "claim, and taken off the resource of the node even with a mapping.",
        ),
    ),
)


def _effect(value: str, path: Path) -> Iterator[FieldError]:
    if value not in _formats.EFFECTS:
        yield fieldpath.not_supported(path, fieldpath.Typed(value), _formats.EFFECTS)


DEVICE_TAINT = Struct(
    name="DeviceTaint",
    model=MODEL,
    doc="Keeps claims away from a device unless they tolerate it, and can end its use.",
    fields=(
        Field(
            name="key",
            number=1,
            type=String(check=_formats.label_key),
            presence=Presence.ALWAYS,
            doc="What the taint is about. Has the form of a label key.",
        ),
        Field(
            name="value",
            number=2,
            type=String(check=_formats.label_value),
            doc="More about it, in the form of a label value.",
        ),
        Field(
            name="effect",
            number=3,
            type=String(go="v1.DeviceTaintEffect", known=_formats.EFFECTS, check=_effect),
            presence=Presence.ALWAYS,
            required=True,
            doc="What happens to claims that do not tolerate the taint: NoSchedule keeps new ones away, NoExecute also stops the "
            "pods that use the device already, None does nothing and only informs. There may be more effects later; "
            "consumers should treat those that they do not know as None.",
        ),
        Field(
            name="timeAdded",
            number=4,
            type=Time(),
            presence=Presence.POINTER,
            default=lambda parent, now: now,
            doc="When the taint was added. Set by the server to the current time when it is absent.",
        ),
    ),
)


_TOTAL = "#total"


def has_list_attribute(device: Mapping[str, Any]) -> bool:
    attributes = device.get("attributes")
    return attributes is not None and not all(map(LIST_ATTRIBUTES.isdisjoint, attributes.values()))


def _values(attribute: Mapping[str, Any]) -> int:
    """Return the number of values that an attribute counts: those of its lists; one for a scalar or an empty list."""
    return sum(len(value) for name, value in attribute.items() if name in LIST_ATTRIBUTES) or 1


def _device(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    attributes, capacities = value.get("attributes") or {}, value.get("capacity") or {}
    total = len(attributes) + len(capacities)
    if total > ATTRIBUTES_AND_CAPACITIES:
        text = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES}"
        yield fieldpath.invalid(path, total, text).at(path.child(_TOTAL))
    total = sum(map(_values, attributes.values())) if has_list_attribute(value) else len(attributes)
    if total > ATTRIBUTE_VALUES:
        text = f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES}"
        yield fieldpath.invalid(path, total, text).at(path.child(_TOTAL))
    if "bindingConditions" in value or "bindingFailureConditions" in value:
        yield from _formats.binding_conditions(value, path)
    for name, mapping in (value.get("nodeAllocatableResourceMappings") or {}).items():
        at = path.child("nodeAllocatableResourceMappings").key(name)
        yield from _node_allocatable(name, mapping, at, capacities)
    for name, counted in (value.get("nodeAllocatableResources") or {}).items():
        at = path.child("nodeAllocatableResources").key(name)
        yield from _node_allocatable_resource(name, counted, at, capacities)


def _policies(value: Mapping[str, Any], path: Path) -> Iterator[tuple[Mapping[str, Any], Path, bool]]:
    """Yield the capacities that have a request policy, with its path, and whether several allocations share the device."""
    for name, capacity in (value.get("capacity") or {}).items():
        if "requestPolicy" in capacity:
            at = path.child("capacity").key(name).child("requestPolicy")
            yield capacity, at, value.get("allowMultipleAllocations") is True


def _older_device(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    yield from _device(value, path)
    for capacity, at, shared in _policies(value, path):
        yield from _capacity.request_policy(capacity, at, shared=shared)


def _new_policies(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    """Check the request policies, unless all capacities are as they are stored."""
    if old is not None and _same_capacities(value.get("capacity"), old.get("capacity")):
        return
    fractional = context.enabled(_features.FRACTIONAL_CAPACITY_RANGE)
    for capacity, at, shared in _policies(value, path):
        yield from _capacity.new_request_policy(capacity, at, shared=shared, fractional=fractional)


_CAPACITY = Field(
    name="capacity",
    number=3,
    type=MapOf(
        _capacity.DEVICE_CAPACITY,
        key_check=_formats.qualified_name,
        go_key="v1.QualifiedName",
        shown_key_bytes=SHOWN_NAME_BYTES,
    ),
    doc="How much the device has of what can be counted, such as memory. Names are built like those of attributes. "
    "At most 32 attributes and capacities together.",
    ratchets=since(V1_37, value=True, before=False, what="capacities that are stored already are not checked again"),
)
_same_capacities = canonical.comparison(_CAPACITY)


def _node_allocatable(
    name: str, mapping: Mapping[str, Any], path: Path, capacities: Mapping[str, Any]
) -> Iterator[FieldError]:
    if "/" in name and "kubernetes.io/" not in name:
        yield fieldpath.invalid(path, fieldpath.Typed(name), "must be a node allocatable resource name")
    key, multiplier = mapping.get("capacityKey"), mapping.get("allocationMultiplier")
    if key is None and multiplier is None:
        yield fieldpath.invalid(path, "", "at least one of allocationMultiplier or capacityKey must be set")
    if multiplier is not None and quantity.parse(multiplier).sign() <= 0:
        yield fieldpath.invalid(path.child("allocationMultiplier"), multiplier, "must be positive")
    if key is None:
        return
    at = path.child("capacityKey")
    if not key:
        yield fieldpath.invalid(at, "", "capacityKey must not be an empty string")
    elif key not in capacities:
        yield fieldpath.not_found(at, fieldpath.Typed(key))


def _node_allocatable_resource(
    name: str, counted: Mapping[str, Any], path: Path, capacities: Mapping[str, Any]
) -> Iterator[FieldError]:
    if name not in _NODE_RESOURCES and not name.startswith(_HUGE_PAGES):
        yield fieldpath.invalid(path, fieldpath.Typed(name), "must be a node allocatable resource name")
    mapping, overhead = counted.get("mapping"), counted.get("overhead")
    if mapping is None and overhead is None:
        yield fieldpath.required(path, "at least one of mapping or overhead must be set")
    if mapping is not None:
        yield from _mapping(mapping, path.child("mapping"), capacities)
    if overhead is not None:
        yield from _overhead(overhead, path.child("overhead"))


def _mapping(mapping: Mapping[str, Any], path: Path, capacities: Mapping[str, Any]) -> Iterator[FieldError]:
    key, factor, amount = (mapping.get(name) for name in ("capacityKey", "capacityMultiplier", "deviceMultiplier"))
    if key is not None:
        at = path.child("capacityKey")
        if not key:
            yield fieldpath.invalid(at, "", "capacityKey must not be an empty string")
        elif key not in capacities:
            yield fieldpath.not_found(at, fieldpath.Typed(key))
        at = path.child("capacityMultiplier")
        if factor is None:
            yield fieldpath.required(at, "capacityMultiplier is required when capacityKey is set")
        elif quantity.parse(factor).sign() <= 0:
            yield fieldpath.invalid(at, factor, "must be positive")
    if amount is not None and quantity.parse(amount).sign() <= 0:
        yield fieldpath.invalid(path.child("deviceMultiplier"), amount, "must be positive")
    if factor is not None and key is None:
        yield fieldpath.required(path.child("capacityKey"), "capacityKey is required when capacityMultiplier is set")


def _overhead(overhead: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if not any(overhead.get(name) is not None for name in _OVERHEADS):
        yield fieldpath.invalid(path, "", "at least one of perPod or perContainer must be set")
    for name in _OVERHEADS:
        amount = overhead.get(name)
        if amount is not None and quantity.parse(amount).sign() < 0:
            yield fieldpath.invalid(path.child(name), amount, "must be non-negative")


_OVERHEADS = ("perPod", "perContainer")
_NODE_RESOURCES, _HUGE_PAGES = ("cpu", "memory"), "hugepages-"
_NODE_ALLOCATABLE_DOC = (
    "How allocations of the device count against resources of the node, by resource name, such as cpu, memory or hugepages-2Mi. "
    "Alpha: needs the feature gate DRANodeAllocatableResources."
)


DEVICE = Struct(
    name="Device",
    model=MODEL,
    doc="One device that can be allocated: what it is, what it has, where it can be used and what is wrong with it.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            doc="The device's name, a DNS label, unique in its pool. Driver, pool and device name together identify a device.",
        ),
        Field(
            name="attributes",
            number=2,
            type=MapOf(
                DEVICE_ATTRIBUTE,
                key_check=_formats.qualified_name,
                go_key="v1.QualifiedName",
                shown_key_bytes=SHOWN_NAME_BYTES,
            ),
            doc="What the device is like, for selectors and constraints. A name is a C identifier of at most 32 characters, "
            "optionally behind a domain of at most 63 and a slash; without a domain, that of the driver is meant. "
            "At most 32 attributes and capacities together.",
        ),
        _CAPACITY,
        Field(
            name="consumesCounters",
            number=4,
            type=ListOf(COUNTER_CONSUMPTION, max_items=CONSUMED_SETS, unique=lambda item: item.get("counterSet", "")),
            doc="What the device takes, while it is allocated, from counter sets of its pool. It can be allocated only as long as "
            "the counters suffice. At most two counter sets.",
        ),
        Field(
            name="nodeName",
            number=5,
            type=String(),
            presence=Presence.POINTER,
            doc="The one node on which the device can be used. Only with `perDeviceNodeSelection` in the slice; then exactly one of "
            "`nodeName`, `nodeSelector` and `allNodes` has to be given for each device.",
        ),
        Field(
            name="nodeSelector",
            number=6,
            type=shapes.NODE_SELECTOR,
            presence=Presence.POINTER,
            doc="The nodes on which the device can be used. Only with `perDeviceNodeSelection` in the slice; best kept to one term.",
        ),
        Field(
            name="allNodes",
            number=7,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="True when the device can be used on every node. Only with `perDeviceNodeSelection` in the slice.",
        ),
        Field(
            name="taints",
            number=8,
            type=ListOf(DEVICE_TAINT, max_items=TAINTS),
            ratchets=True,
            doc="The taints that the driver puts on the device, at most 16. A slice in which any device has taints can have no more "
            "than 64 devices.",
        ),
        Field(
            name="bindsToNode",
            number=9,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="True when allocating the device ties the claim to the node that was chosen, whatever the slice's own node selection "
            "allows. The allocation's node selector says so then.",
        ),
        _formats.binding_conditions_field(
            "bindingConditions",
            10,
            "Conditions, at most four, that the claim's device status has to report as True before a pod that uses the device is "
            "bound to its node: the device is still being made ready. Have the form of label keys.",
        ),
        _formats.binding_conditions_field(
            "bindingFailureConditions",
            11,
            "Conditions, at most four, of which a single True one in the claim's device status means that the device cannot be made "
            "ready; the pod is scheduled anew. Have the form of label keys, differ from `bindingConditions` and need them.",
        ),
        Field(
            name="allowMultipleAllocations",
            number=12,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="True when the device may be allocated to several requests at a time, which then share its capacity.",
        ),
        until(
            V1_37,
            Field(
                name="nodeAllocatableResourceMappings",
                number=13,
                type=MapOf(NODE_ALLOCATABLE_MAPPING, go_key="v1.ResourceName"),
                doc=_NODE_ALLOCATABLE_DOC,
            ),
        ),
        since(
            V1_37,
            Field(
                name="nodeAllocatableResources",
                number=14,
                type=MapOf(NODE_ALLOCATABLE_RESOURCE, go_key="v1.ResourceName"),
                doc=_NODE_ALLOCATABLE_DOC,
            ),
        ),
    ),
    check=since(V1_37, _device, before=_older_device),
    rule=since(
        V1_37,
        _new_policies,
        what="request policies are checked without overflow, in thousandths with DRAFractionalCapacityRange",
    ),
    judged=(
        "name",
        _TOTAL,
        "attributes",
        "capacity",
        "taints",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "allNodes",
        "",
        "bindingConditions",
        "bindingFailureConditions",
        _formats.BINDING,
        until(V1_37, "nodeAllocatableResourceMappings"),
        since(V1_37, "nodeAllocatableResources"),
    ),
)
