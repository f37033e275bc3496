"""The version v1beta1: devices have their content in a member `basic`, and a request for one kind of devices has its wishes in itself.

Distinctions that it cannot express are lost, as upstream loses them. An empty node name and false for all nodes are unset. A device always
has a `basic`. An empty list of taints, counters or tolerations is absent.
Upstream: kubernetes/api `resource/v1beta1/types.go`, kubernetes/kubernetes `pkg/apis/resource/v1beta1/{conversion,defaults}.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from apiserver.apimachinery.releases import changed
from apiserver.resources._rules._formats import CORE_NAMES, HOME, MODEL
from apiserver.schema.resource import Conversion, Deprecation, Object, Version
from apiserver.schema.types import UNSET, Boolean, Field, Presence, String, Struct
from apiserver.schema.variants import Variant, with_fields

NAME = "v1beta1"
_MODEL = f"io.k8s.api.resource.{NAME}"

# --- Shapes ----------------------------------------------------------------------------------------------------------


def _renumbered(field: Field) -> Field:
    """Return a member of a device. Its number is that of v1 less one, but the last one has the same in both."""
    return field if field.name == "nodeAllocatableResources" else replace(field, number=field.number - 1)


def _device(struct: Struct) -> Struct:
    name, *content = struct.fields
    basic = Struct(
        name="BasicDevice",
        model=_MODEL,
        go=NAME,
        doc="What a device is, what it has, where it can be used and what is wrong with it.",
        fields=tuple(changed(field, _renumbered) for field in content),
    )
    member = Field(
        name="basic",
        number=2,
        type=basic,
        presence=Presence.POINTER,
        doc="The content of the device, which is of the one sort that there is.",
    )
    return Struct(name=struct.name, model=_MODEL, go=NAME, doc=struct.doc, fields=(name, member))


WANTED: Mapping[str, int] = {
    "deviceClassName": 2,
    "selectors": 3,
    "allocationMode": 4,
    "count": 5,
    "adminAccess": 6,
    "tolerations": 8,
    "capacity": 9,
    "derivedAttributes": 10,
}
"""The members of a v1 request's `exactly`, which stand in the request itself here, with their numbers."""


def _mode(parent: Mapping[str, Any], now: str) -> Any:
    """Return the default mode. Only a request without alternatives names a class."""
    return "ExactCount" if parent.get("deviceClassName") else None


def _count(parent: Mapping[str, Any], now: str) -> Any:
    exact = parent.get("allocationMode") == "ExactCount"
    return 1 if exact and parent.get("deviceClassName") else None


_WANTED_DEFAULTS: Mapping[str, Any] = {"allocationMode": _mode, "count": _count}
_REQUEST_DOC = (
    "Asks for devices, either for one kind of them, of which the request names the class, or for the first of several alternatives that "
    "can be had (`firstAvailable`). With alternatives none of the members may be set that say what is wanted."
)


def _wanted(field: Field) -> Field:
    return replace(field, number=WANTED[field.name], default=_WANTED_DEFAULTS.get(field.name, UNSET))


def _request(struct: Struct) -> Struct:
    name, exactly, alternatives = struct.fields
    assert isinstance(exactly.type, Struct)
    wanted = [changed(field, _wanted) for field in exactly.type.fields]
    wanted[0] = replace(wanted[0], required=False, expected=False)
    # In the order of their numbers, which the alternatives interrupt.
    fields = [name, *wanted[:5], replace(alternatives, number=7), *wanted[5:]]
    return Struct(name=struct.name, model=_MODEL, go=NAME, doc=_REQUEST_DOC, fields=tuple(fields))


def _alternative(struct: Struct) -> Struct:
    return with_fields(struct, tolerations={"number": 7}, capacity={"number": 8}, derivedAttributes={"number": 9})


def _slice_spec(struct: Struct) -> Struct:
    plain = {"presence": Presence.OMIT_EMPTY, "check": None}
    return with_fields(struct, nodeName=plain | {"type": String()}, allNodes=plain | {"type": Boolean()})


_variant = Variant(
    of=MODEL,
    made=_MODEL,
    foreign=CORE_NAMES,
    changes={
        "Device": _device,
        "DeviceRequest": _request,
        "DeviceSubRequest": _alternative,
        "ResourceSliceSpec": _slice_spec,
    },
)


def version(shape: Struct, conversion: Conversion | None = None) -> Version:
    """Return this version of the kind with the v1 shape."""
    return Version(
        name=NAME,
        shape=_variant(shape),
        conversion=conversion,
        home=HOME,
        deprecation=Deprecation(since="1.35", removed="1.38"),
    )


# --- Slices ----------------------------------------------------------------------------------------------------------

_NOT_EMPTY = ("attributes", "capacity", "consumesCounters", "taints")
"""Members of a device that conversion removes when they are empty."""


def _slice_to_storage(obj: Object) -> Object:
    spec = obj["spec"]
    for name in ("nodeName", "allNodes"):
        if not spec.get(name):
            spec.pop(name, None)
    for device in spec.get("devices") or ():
        device.update(_without_empty(device.pop("basic", None) or {}))
    return obj


def _slice_from_storage(obj: Object) -> Object:
    spec = obj["spec"]
    if devices := spec.get("devices"):
        spec["devices"] = [_basic(**device) for device in devices]
    return obj


def _basic(*, name: str = "", **content: Any) -> Object:
    return {"name": name, "basic": _without_empty(content)}


def _without_empty(content: Object) -> Object:
    for name in _NOT_EMPTY:
        if not content.get(name):
            content.pop(name, None)
    return content


SLICES = Conversion(_slice_to_storage, _slice_from_storage)

# --- Claims and templates --------------------------------------------------------------------------------------------


def _is_set(name: str, value: Any) -> bool:
    """Return whether a member is set: a text or number if it is not zero, any other if it is present, even empty."""
    return bool(value) if name in ("deviceClassName", "allocationMode", "count") else value is not None


def _requests_to_storage(spec: Object) -> None:
    for request in spec["devices"].get("requests") or ():
        wanted = {name: request.pop(name) for name in WANTED if name in request}
        if any(_is_set(name, value) for name, value in wanted.items()):
            request["exactly"] = _with_tolerations(wanted)


def _requests_from_storage(spec: Object) -> None:
    for request in spec["devices"].get("requests") or ():
        exactly, alternatives = request.pop("exactly", None), request.pop("firstAvailable", None)
        # It is always written, and patches find it there.
        request["deviceClassName"] = ""
        request.update(_with_tolerations(exactly or {}))
        if alternatives is not None:
            request["firstAvailable"] = alternatives


def _with_tolerations(wanted: Object) -> Object:
    if not wanted.get("tolerations"):
        wanted.pop("tolerations", None)
    return wanted


def _claim_to_storage(obj: Object) -> Object:
    _requests_to_storage(obj["spec"])
    return obj


def _claim_from_storage(obj: Object) -> Object:
    _requests_from_storage(obj["spec"])
    return obj


def _template_to_storage(obj: Object) -> Object:
    _requests_to_storage(obj["spec"]["spec"])
    return obj


def _template_from_storage(obj: Object) -> Object:
    _requests_from_storage(obj["spec"]["spec"])
    return obj


CLAIMS = Conversion(_claim_to_storage, _claim_from_storage)
TEMPLATES = Conversion(_template_to_storage, _template_from_storage)
