"""ResourceClaim: a request for devices, with the answer in its status.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/resourceclaim/strategy.go`, `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.codecs.objects import canonical
from apiserver.resources import _allocation, _consumption, _device_requests, _features, _v1beta1, _v1beta2
from apiserver.resources._features import Feature, Place
from apiserver.resources._roles import DRIVER, READ, SCHEDULER
from apiserver.resources._rules import _declarations, _formats, _immutability, _shown, _status_writers
from apiserver.resources._rules._formats import MODEL, itself
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Grant, Object, Permission, Resource, Subresource
from apiserver.schema.types import Check, Field, ListOf, ListType, Presence, RawJSON, String, Struct
from apiserver.validation import report as declared
from kubetext import names

CONSUMERS, CONDITIONS, ADDRESSES = 256, 8, 16
INTERFACE_NAME_BYTES, HARDWARE_ADDRESS_BYTES = 256, 128

# --- Shape -----------------------------------------------------------------------------------------------------------

CONSUMER = Struct(
    name="ResourceClaimConsumerReference",
    model=MODEL,
    doc="An object, in the claim's namespace, that may use the claim.",
    fields=(
        Field(
            name="apiGroup",
            number=1,
            go="APIGroup",
            type=String(),
            doc="The API group of the consumer; empty for the core group.",
        ),
        Field(
            name="resource",
            number=3,
            type=String(),
            presence=Presence.ALWAYS,
            required=True,
            doc="The consumer's resource, such as pods.",
        ),
        Field(
            name="name",
            number=4,
            type=String(),
            presence=Presence.ALWAYS,
            required=True,
            doc="The consumer's name.",
        ),
        Field(
            name="uid",
            number=5,
            go="UID",
            type=String(go="types.UID"),
            presence=Presence.ALWAYS,
            required=True,
            doc="The consumer's uid: a later object of the same name is another consumer.",
        ),
    ),
)


NETWORK_DATA = Struct(
    name="NetworkDeviceData",
    model=MODEL,
    doc="What a driver tells of a network device: a form that other components can rely on.",
    fields=(
        Field(
            name="interfaceName",
            number=1,
            type=String(max_bytes=INTERFACE_NAME_BYTES),
            doc="The name of the interface as the pod sees it. 256 characters at most.",
        ),
        Field(
            name="ips",
            number=2,
            go="IPs",
            type=ListOf(String(check=_formats.interface_address), max_items=ADDRESSES, unique=itself),
            doc="The addresses of the interface, each with the length of its network's prefix and in canonical form, such as "
            "192.0.2.5/24 or 2001:db8::5/64. At most 16.",
        ),
        Field(
            name="hardwareAddress",
            number=3,
            type=String(max_bytes=HARDWARE_ADDRESS_BYTES),
            doc="The hardware address of the interface, such as a MAC address. 128 characters at most.",
        ),
    ),
    judged=("interfaceName", "hardwareAddress", "ips"),
)


def _conditions(each: Check) -> Check:
    """Return the check of a device's conditions. They are checked even if there are too many, as upstream does."""

    def check(value: list[Any], path: Path) -> Iterator[FieldError]:
        if len(value) > CONDITIONS:
            yield fieldpath.too_many(path, len(value), CONDITIONS)
        yield from each(value, path)

    return check


_ALLOCATED, _RESERVED = "#allocated", "#reserved"

DEVICE_STATUS = Struct(
    name="AllocatedDeviceStatus",
    model=MODEL,
    doc="What a driver reports of one allocated device.",
    fields=(
        Field(
            name="driver",
            number=1,
            type=_formats.DRIVER,
            presence=Presence.ALWAYS,
            required=True,
            doc="The driver of the device, which is also who reports.",
        ),
        Field(
            name="pool",
            number=2,
            type=_formats.POOL,
            presence=Presence.ALWAYS,
            required=True,
            doc="The pool of the device.",
        ),
        Field(
            name="device",
            number=3,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            doc="The device's name in its pool. It has to be one of the claim's allocated devices.",
        ),
        Field(
            name="shareID",
            number=7,
            type=String(check=_formats.uid),
            presence=Presence.POINTER,
            doc="The share of the device that is reported on, as in the allocation result.",
        ),
        Field(
            name="conditions",
            number=4,
            type=ListOf(shapes.CONDITION, ListType.MAP, keys=("type",)),
            presence=Presence.ALWAYS,
            check=since(V1_37, _conditions(_formats.named_conditions), before=_conditions(_formats.conditions)),
            doc="The state of the device in the pod, at most eight conditions. Once it is set up and usable for the claim, the condition "
            "Ready should be True.",
        ),
        Field(
            name="data",
            number=5,
            type=RawJSON(),
            presence=Presence.POINTER,
            check=_formats.opaque,
            doc="Anything else, in the driver's own format: a JSON object of at most 10 KiB.",
        ),
        Field(
            name="networkData",
            number=6,
            type=NETWORK_DATA,
            presence=Presence.POINTER,
            doc="What is to be known of a network device.",
        ),
    ),
    judged=("driver", "pool", "device", "shareID", _ALLOCATED),
)


class _DeviceID(NamedTuple):
    """Has the names of Go's struct, because messages show them."""

    Driver: str
    Pool: str
    Device: str
    ShareID: str


def _device_id(item: Mapping[str, Any]) -> _DeviceID:
    return _DeviceID(item.get("driver", ""), item.get("pool", ""), item.get("device", ""), item.get("shareID", ""))


_ALLOCATION = Field(
    name="allocation",
    number=1,
    type=_allocation.ALLOCATION,
    presence=Presence.POINTER,
    doc="The devices that were allocated; absent while nothing is. It can be set and unset, but not changed.",
)
_RESERVED_FOR = Field(
    name="reservedFor",
    number=2,
    type=ListOf(
        CONSUMER,
        ListType.MAP,
        keys=("uid",),
        max_items=CONSUMERS,
        unique=lambda item: fieldpath.Typed(item.get("uid", "")),
    ),
    patch_strategy="merge",
    patch_merge_key="uid",
    doc="Who may use the claim, at most 256 consumers. A pod that is not listed is not started, and a claim that is reserved is not "
    "deallocated. Several pods can share a claim; schedulers that reserve it at the same time notice by the "
    "resourceVersion, and only one of them succeeds.",
)
_DEVICES = Field(
    name="devices",
    number=4,
    type=ListOf(DEVICE_STATUS, ListType.MAP, keys=("driver", "device", "pool", "shareID"), unique=_device_id),
    doc="What the drivers report of the allocated devices, each driver of its own ones. Entries of a device go when it is deallocated.",
)

STATUS = Struct(
    name="ResourceClaimStatus",
    model=MODEL,
    doc="What was allocated for a claim, who uses it, and how the devices are.",
    fields=(_ALLOCATION, _RESERVED_FOR, _DEVICES),
    judged=("reservedFor", "devices", _RESERVED, "allocation"),
)

RESOURCE_CLAIM = Struct(
    name="ResourceClaim",
    model=MODEL,
    doc="Asks for devices for the pods of a namespace. The scheduler allocates devices that fit and says in the status which; pods refer "
    "to the claim to use them.",
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
            type=_device_requests.RESOURCE_CLAIM_SPEC,
            presence=Presence.ALWAYS,
            expected=since(V1_37, False, what="OpenAPI does not list it as required"),  # noqa: FBT003 - the value
            doc="What is asked for. Cannot be changed.",
        ),
        Field(
            name="status",
            number=3,
            type=STATUS,
            presence=Presence.ALWAYS,
            doc="Whether the claim can be used, and what was allocated for it. Written through the subresource status.",
        ),
    ),
)

# --- Hooks -----------------------------------------------------------------------------------------------------------


def _validate(context: Context, new: Object, old: Object | None) -> Iterable[FieldError]:
    if old is None:
        return _device_requests.admin_access(context, new["spec"], meta.namespace(new))
    shape = at(context.gates.release, _device_requests.RESOURCE_CLAIM_SPEC)
    return _immutability.immutable(shape, new["spec"], old["spec"], ROOT.child("spec"))


# --- Status ----------------------------------------------------------------------------------------------------------


def _only(*members: Field) -> Struct:
    """Return the claim's shape with only these members of the status, which are then validated."""
    status = Field(name="status", number=3, type=Struct(name=STATUS.name, model=MODEL, fields=members))
    return Struct(name=RESOURCE_CLAIM.name, model=MODEL, fields=(status,))


_BOUND = Struct(name=STATUS.name, model=MODEL, fields=(_ALLOCATION, _RESERVED_FOR))
_ALWAYS_CHECKED = _only(_RESERVED_FOR, _DEVICES)
_CHECKED_WHEN_NEW = _only(_ALLOCATION)


def _status(obj: Object | None) -> dict[str, Any]:
    """Return the status of a claim, which the caller may change; an empty one if it has none."""
    return (obj.get("status") if obj is not None else None) or {}


def _results(status: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()


def _allocated(status: Mapping[str, Any]) -> set[_DeviceID]:
    return set(map(_device_id, _results(status)))


_REPORTS, _SHARE = frozenset(("devices",)), frozenset(("shareID",))
_SHARED = _SHARE | {"consumedCapacity"}
_SKIPPED = frozenset(("skipNodeOperations",))
_BINDING = frozenset(("bindingConditions", "bindingFailureConditions"))


def _reports(obj: Object) -> Iterator[Place]:
    yield _status(obj), _REPORTS


def _sharing(obj: Object) -> Iterator[Place]:
    status = _status(obj)
    for result in _results(status):
        yield result, _SHARED
    for device in status.get("devices") or ():
        yield device, _SHARE


def _bindings(obj: Object) -> Iterator[Place]:
    return ((result, _BINDING) for result in _results(_status(obj)))


def _skipped(obj: Object) -> Iterator[Place]:
    return ((result, _SKIPPED) for result in _results(_status(obj)))


FEATURES = _device_requests.features(lambda obj: obj["spec"])
STATUS_FEATURES = (
    Feature(gates=(_features.DEVICE_STATUS,), places=_reports),
    Feature(
        gates=(_features.CONSUMABLE_CAPACITY,),
        places=_sharing,
        elsewhere=lambda obj: _device_requests.shared_capacity(obj["spec"]),
    ),
    Feature(gates=(_features.BINDING_CONDITIONS,), places=_bindings),
    Feature(gates=(_features.OPTIONAL_NODE_OPERATIONS,), places=_skipped),
)

_drop_from_status = _features.dropping(STATUS_FEATURES)


def _prepare_status(context: Context, new: Object, old: Object | None) -> None:
    """Drop the fields of disabled features, then the reports about devices that this write deallocates."""
    _drop_from_status(context, new, old)
    status, stored = _status(new), _status(old)
    gone = _allocated(stored) - _allocated(status)
    if not gone or not status.get("devices"):
        return
    kept = [device for device in status["devices"] if _device_id(device) not in gone]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


def _required(context: Context, new: Object, old: Object) -> Iterator[FieldError | Permission]:
    """Yield the permissions that a writer of the status needs, beyond writing it."""
    status, stored = _status(new), _status(old)
    yield from _granted(context, new, status, stored)
    if not context.enabled(_features.GRANULAR_STATUS):
        return
    if not canonical.equal(at(context.gates.release, _BOUND), status, stored):
        yield _status_writers.binding(context)
    allocation = status.get("allocation")
    if allocation is not None and context.enabled(_features.DEVICE_STATUS):
        drivers = _reporting(
            at(context.gates.release, DEVICE_STATUS), status.get("devices") or (), stored.get("devices") or ()
        )
        yield from _status_writers.reports(context, drivers, allocation)


def _reporting(shape: Struct, devices: Iterable[Object], stored: Iterable[Object]) -> set[str]:
    """Return the drivers of entries that are new, changed or removed."""
    left = {_device_id(device): device for device in stored}
    found = set()
    for device in devices:
        former = left.pop(_device_id(device), None)
        if former is None or not canonical.equal(shape, device, former):
            found.add(device.get("driver", ""))
    return found | {device.get("driver", "") for device in left.values()}


def _validate_status(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
    status, stored, path = _status(new), _status(old), ROOT.child("status")
    release = context.gates.release
    yield from declared.validate(context, at(release, _ALWAYS_CHECKED), new, old)
    yield from _unallocated(status, path.child("devices"))
    reserved = _reservations(new, status, stored, path.child("reservedFor"))
    yield from (error.at(path.child(_RESERVED)) for error in reserved)
    allocation, former = status.get("allocation"), stored.get("allocation")
    if allocation is None:
        return
    place, shape = path.child("allocation"), at(release, _allocation.ALLOCATION)
    if former is None:
        yield from declared.validate(context, at(release, _CHECKED_WHEN_NEW), new, old)
        yield from _references(allocation.get("devices") or {}, place.child("devices"), new)
    elif not canonical.equal(shape, allocation, former):
        yield fieldpath.invalid(place, _shown.as_go(shape, allocation), "field is immutable")


def _granted(
    context: Context, new: Object, status: Mapping[str, Any], stored: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Check administrative access in an allocation, but only when it is first granted."""
    if any(result.get("adminAccess") is True for result in _results(stored)):
        return
    path = ROOT.child("status").child("allocation").child("devices").child("results")
    for i, result in enumerate(_results(status)):
        if result.get("adminAccess") is True:
            place = path.index(i).child("adminAccess")
            yield from _device_requests.admin_namespace(context, meta.namespace(new), place)
            return


def _unallocated(status: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    allocated = _allocated(status)
    for i, device in enumerate(status.get("devices") or ()):
        identity = _device_id(device)
        if identity not in allocated:
            place, text = path.index(i), "must be an allocated device in the claim"
            yield fieldpath.invalid(place, identity, text).at(place.child(_ALLOCATED))


def _consumer_id(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return item.get("apiGroup", ""), item.get("resource", ""), item.get("name", ""), item.get("uid", "")


def _reservations(
    new: Object, status: Mapping[str, Any], stored: Mapping[str, Any], path: Path
) -> Iterator[FieldError]:
    consumers = status.get("reservedFor") or []
    if not consumers:
        return
    if status.get("allocation") is None:
        yield fieldpath.forbidden(path, "may not be specified when `allocated` is not set")
    elif "deletionTimestamp" in new["metadata"]:
        former = set(map(_consumer_id, stored.get("reservedFor") or ()))
        if not former.issuperset(map(_consumer_id, consumers)):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield fieldpath.forbidden(path, text)


def _references(devices: Mapping[str, Any], path: Path, new: Object) -> Iterator[FieldError]:
    """Check the references of a new allocation to the claim's requests. A list over its limit was refused as a whole before."""
    known = _device_requests.requests_of(new["spec"].get("devices") or {})
    results, configs = devices.get("results") or (), devices.get("config") or ()
    if len(results) <= _allocation.RESULTS:
        for i, result in enumerate(results):
            place = path.child("results").index(i).child("request")
            yield from _device_requests.request_reference(result.get("request", ""), place, known)
    if len(configs) <= _allocation.CONFIGS:
        yield from _device_requests.references(configs, path.child("config"), known)


# --- Columns ---------------------------------------------------------------------------------------------------------


def _state(obj: Object, now: float) -> str:
    status, deleting = obj.get("status") or {}, "deletionTimestamp" in obj["metadata"]
    words = ["deleted"] if deleting else []
    if status.get("allocation") is not None:
        words.append("allocated")
        if status.get("reservedFor"):
            words.append("reserved")
    elif not deleting:
        words.append("pending")
    return ",".join(words)


STATE = Column(
    name="State",
    cell=_state,
    reads=["metadata.deletionTimestamp", "status.allocation", "status.reservedFor"],
    description="A summary of the current state (allocated, pending, reserved, etc.).",
)

RESOURCE = Resource(
    kind="ResourceClaim",
    plural="resourceclaims",
    singular="resourceclaim",
    namespaced=True,
    shape=RESOURCE_CLAIM,
    columns=(columns.NAME, STATE, columns.AGE),
    subresources=(
        Subresource(
            name="status", owns=("status",), prepare=_prepare_status, requires=_required, validate=_validate_status
        ),
    ),
    has_status=True,
    grants=(
        # It makes and deletes claims for extended resources.
        Grant(role=SCHEDULER, verbs=(*READ, "create", "delete", "patch", "update")),
        Grant(role=SCHEDULER, verbs=(*READ, "patch", "update"), subresource="status"),
        Grant(role=SCHEDULER, verbs=_status_writers.VERBS, subresource=_status_writers.BINDING),
        Grant(role=DRIVER, verbs=("get",)),
        Grant(role=DRIVER, verbs=_status_writers.VERBS, subresource="status"),
        # Only on the node of the allocation: a driver that reports from elsewhere needs a role of its own.
        Grant(
            role=DRIVER,
            verbs=[f"{_status_writers.ASSOCIATED_NODE}{verb}" for verb in _status_writers.VERBS],
            subresource=_status_writers.DRIVER,
        ),
    ),
    consumption=_consumption.CLAIMS,
    name_check=names.subdomain_name,
    validate_shape_on_update=False,
    gates=_features.gates_of((*FEATURES, *STATUS_FEATURES), *_features.SELECTOR_GATES, _features.GRANULAR_STATUS),
    declarations=since(V1_37, _declarations.DECLARATIONS),
    prepare=_features.dropping(FEATURES),
    validate=_validate,
    expressions=lambda obj: _device_requests.expressions(obj["spec"]),
    versions=(_v1beta2.version(RESOURCE_CLAIM), _v1beta1.version(RESOURCE_CLAIM, _v1beta1.CLAIMS)),
)
