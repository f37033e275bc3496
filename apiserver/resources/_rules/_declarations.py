"""The validation tags of the kinds' types: what 1.37 checks declaratively. In 1.36 only the name of a class was checked so.

Upstream: kubernetes/kubernetes `pkg/apis/resource/v1*/zz_generated.validations.go`, kubernetes/apimachinery
`pkg/api/validate/{strfmt,limits,enum}.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.resources import _device_requests, _devices
from apiserver.resources._rules import _declared_formats, _formats
from apiserver.schema.declarations import Declarations, Member, Tags
from apiserver.schema.types import Check
from kubetext import names

_QUOTA_PREFIX, _NATIVE_DOMAIN = "requests.", "kubernetes.io/"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _worded(rule: Callable[[str], Iterable[str]]) -> Check:
    return lambda value, path: [fieldpath.invalid(path, value, text) for text in rule(value)]


def _extended_resource_name(value: str) -> Iterator[str]:
    if "/" not in value:
        yield "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
    elif _NATIVE_DOMAIN in value:
        yield f'must not have "{_NATIVE_DOMAIN}" domain'
    if value.startswith(_QUOTA_PREFIX):
        yield f'must not have "{_QUOTA_PREFIX}" prefix'
    yield from names.label_key(_QUOTA_PREFIX + value)


def _uuid(value: str, path: Path) -> Iterator[FieldError]:
    if not _UUID.fullmatch(value):
        yield fieldpath.invalid(path, value, "must be a lowercase UUID in 8-4-4-4-12 format")


def _max_characters(most: int) -> Check:
    def check(value: str, path: Path) -> Iterator[FieldError]:
        if len(value) > most:
            yield fieldpath.too_long(path, most, unit="character")

    return check


def _max_bytes(most: int) -> Check:
    def check(value: str, path: Path) -> Iterator[FieldError]:
        if names.byte_length(value) > most:
            yield fieldpath.too_long(path, most)

    return check


def _one_of(*values: str) -> Check:
    def check(value: str, path: Path) -> Iterator[FieldError]:
        if value not in values:
            yield fieldpath.not_supported(path, fieldpath.Typed(value), sorted(values))

    return check


_SHORT_NAME, _LABEL_KEY = _declared_formats.short_name, _worded(names.label_key)
_DRIVER = Member(required=True, checks=(_declared_formats.long_name_caseless, _max_characters(_formats.DRIVER_BYTES)))
_EFFECT = _one_of(*_formats.EFFECTS)
_SKIPPED = Member(unique=True, items=(_one_of(*_formats.OPERATIONS),))
_REQUESTS = Member(limited=True, unique=True)
_BINDING_CONDITIONS = Member(limited=True)
_SHARE = Member(checks=(_uuid,))
_COUNTERS = Member(required=True, keys=(_SHORT_NAME,))
_WANTED = {
    "selectors": Member(limited=True),
    "allocationMode": Member(checks=(_one_of(*_device_requests.MODES),)),
}
_DEVICE = {
    "consumesCounters": Member(limited=True, unique=True),
    "bindingConditions": _BINDING_CONDITIONS,
    "bindingFailureConditions": _BINDING_CONDITIONS,
}
_ALTERNATIVES = {"firstAvailable": Member(limited=True, unique=True)}

_TYPES = {
    "AllocatedDeviceStatus": Tags(members={"shareID": _SHARE}),
    "BasicDevice": Tags(members=_DEVICE),
    "CounterSet": Tags(members={"name": Member(required=True, checks=(_SHORT_NAME,)), "counters": _COUNTERS}),
    "Device": Tags(members=_DEVICE),
    "DeviceAllocationConfiguration": Tags(
        members={"source": Member(required=True, checks=(_one_of("FromClaim", "FromClass"),)), "requests": _REQUESTS}
    ),
    "DeviceAllocationResult": Tags(members={"results": Member(limited=True), "config": Member(limited=True)}),
    "DeviceAttribute": Tags(
        members={"strings": Member(items=(_max_bytes(_devices.ATTRIBUTE_BYTES),))},
        union=("int", "bool", "string", "version", "ints", "bools", "strings", "versions"),
    ),
    "DeviceClaim": Tags(
        members={
            "requests": _REQUESTS,
            "constraints": Member(limited=True),
            "config": Member(limited=True),
        }
    ),
    "DeviceClaimConfiguration": Tags(members={"requests": _REQUESTS}),
    "DeviceClass": Tags(members={"metadata": Member(parts={"name": _declared_formats.long_name})}),
    "DeviceClassSpec": Tags(
        members={
            "selectors": Member(limited=True),
            "config": Member(limited=True),
            "extendedResourceName": Member(checks=(_worded(_extended_resource_name),)),
        }
    ),
    "DeviceConstraint": Tags(
        members={
            "requests": _REQUESTS,
            # The kind's own rule takes domains with upper case letters.
            "matchAttribute": Member(checks=(_declared_formats.fully_qualified_name,), alone=True),
            # The kind's own rule does not look at it beside `matchAttribute`.
            "distinctAttribute": Member(checks=(_declared_formats.fully_qualified_name,), alone=True),
        }
    ),
    "DeviceCounterConsumption": Tags(
        members={"counterSet": Member(required=True, checks=(_SHORT_NAME,)), "counters": _COUNTERS}
    ),
    "DeviceRequest": Tags(members={**_WANTED, **_ALTERNATIVES}),
    "DeviceRequestAllocationResult": Tags(
        members={
            "driver": _DRIVER,
            "pool": Member(required=True, checks=(_declared_formats.pool_name,)),
            "bindingConditions": _BINDING_CONDITIONS,
            "bindingFailureConditions": _BINDING_CONDITIONS,
            "shareID": _SHARE,
            "skipNodeOperations": _SKIPPED,
        }
    ),
    "DeviceSubRequest": Tags(
        members={"deviceClassName": Member(required=True, checks=(_declared_formats.long_name,)), **_WANTED}
    ),
    "DeviceTaint": Tags(members={"effect": Member(required=True, checks=(_EFFECT,))}),
    "DeviceToleration": Tags(
        members={
            "key": Member(checks=(_LABEL_KEY,)),
            "operator": Member(required=True, checks=(_one_of("Equal", "Exists"),)),
            "effect": Member(checks=(_EFFECT,)),
        }
    ),
    "ExactDeviceRequest": Tags(members=_WANTED),
    "NetworkDeviceData": Tags(
        members={
            "interfaceName": Member(limited=True),
            "ips": Member(limited=True, unique=True),
            "hardwareAddress": Member(limited=True),
        }
    ),
    "OpaqueDeviceConfiguration": Tags(members={"driver": _DRIVER}),
    "ResourceClaim": Tags(members={"spec": Member(update="field is immutable")}),
    "ResourceClaimStatus": Tags(
        members={
            "allocation": Member(update="field cannot be modified once set", once_set=True),
            "reservedFor": Member(limited=True, unique=True),
            "devices": Member(unique=True),
        }
    ),
    "ResourceSliceSpec": Tags(
        members={"sharedCounters": Member(limited=True, unique=True), "skipNodeOperations": _SKIPPED}
    ),
}

_WANTED_PATH = re.compile(
    r"((?:spec\.)?spec\.devices\.requests\[\d+\])"
    r"\.(deviceClassName|selectors|allocationMode|count|adminAccess|tolerations|derivedAttributes)"
)
_BASIC_PATH = re.compile(r"(spec\.devices\[\d+\])\.basic\.")


def _normalized(path: str) -> str:
    """Return the path of an error of v1beta1 as it is in v1. Upstream: ResourceNormalizationRules."""
    return _BASIC_PATH.sub(r"\1.", _WANTED_PATH.sub(r"\1.exactly.\2", path))


DECLARATIONS = Declarations(types=_TYPES, normalized=_normalized)
