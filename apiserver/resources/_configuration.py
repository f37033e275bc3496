"""Selectors and settings of devices, which classes and claims both have.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.resources._rules import _formats
from apiserver.resources._rules._formats import MODEL, itself
from apiserver.schema.context import Context
from apiserver.schema.types import Field, ListOf, Presence, RawJSON, String, Struct
from apiserver.validation import verdict

SELECTORS, CONFIGS, REQUESTS = 32, 32, 32
EXPRESSION_BYTES = 10240


def _judged(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    """Yield the compiler's errors of the expression. An expression that is too long is not compiled."""
    expression = value.get("expression", "")
    if context.cel is not None and not verdict.too_long(expression, EXPRESSION_BYTES):
        context.checkpoint()
        yield from context.cel.problems(expression, path.child("expression"), stored=old is not None)


CEL_SELECTOR = Struct(
    name="CELDeviceSelector",
    model=MODEL,
    doc="A condition in the Common Expression Language that a device has to meet.",
    fields=(
        Field(
            name="expression",
            number=1,
            type=String(max_bytes=EXPRESSION_BYTES),
            presence=Presence.ALWAYS,
            doc="A CEL expression that says true for the devices that fit and false for the others. The variable `device` "
            "offers `driver` (text), `attributes` and `capacity` (maps from a domain to a map from a name to the value) and "
            "`allowMultipleAllocations`. An attribute that was published without a domain is found under the name of its "
            'driver, for example device.attributes["gpu.example.com"].model. Looking up a name that the device does not '
            "have is an error, and a device for which the evaluation fails is not chosen. At most 10 KiB long; expressions "
            "whose worst case would cost too much are refused.",
        ),
    ),
    rule=_judged,
)

DEVICE_SELECTOR = Struct(
    name="DeviceSelector",
    model=MODEL,
    doc="One condition on devices. Exactly one kind of condition has to be given; there is only CEL so far.",
    fields=(
        Field(
            name="cel",
            number=1,
            go="CEL",
            type=CEL_SELECTOR,
            presence=Presence.POINTER,
            required=True,
            doc="The condition as a CEL expression.",
        ),
    ),
)

SELECTOR_LIST = ListOf(DEVICE_SELECTOR, max_items=SELECTORS)
"""All its expressions count as new."""
STORED_SELECTOR_LIST = ListOf(DEVICE_SELECTOR, max_items=SELECTORS, as_a_whole=True)
"""Its expressions count as stored while none of them changes."""


def expressions(owner: Mapping[str, Any]) -> Iterator[str]:
    """Yield the expressions of a member `selectors`."""
    for selector in owner.get("selectors") or ():
        yield (selector.get("cel") or {}).get("expression", "")


def opaque_configuration(*, checked: bool) -> Struct:
    """Return the shape of `opaque`; without the check of `parameters` for a kind that must compare with the stored value first."""
    return Struct(
        name="OpaqueDeviceConfiguration",
        model=MODEL,
        doc="Settings in a format that only the named driver understands.",
        fields=(
            Field(
                name="driver",
                number=1,
                type=_formats.DRIVER,
                presence=Presence.ALWAYS,
                required=True,
                doc="The driver that these settings are for; the others ignore them, so that settings for several drivers "
                "may be given together. A DNS subdomain of at most 63 characters, best in a domain of the driver's vendor.",
            ),
            Field(
                name="parameters",
                number=2,
                type=RawJSON(),
                presence=Presence.ALWAYS,
                required=True,
                check=_formats.opaque if checked else None,
                doc="The settings, a JSON object of at most 10 KiB. Its content is the driver's business; drivers are advised "
                "to mark it with `kind` and `apiVersion` as Kubernetes objects are, so that they can change the format later.",
            ),
        ),
    )


def device_configuration(opaque: Struct) -> Struct:
    return Struct(
        name="DeviceConfiguration",
        model=MODEL,
        doc="Settings for devices. Exactly one kind of settings has to be given; there are only opaque ones so far.",
        fields=(
            Field(
                name="opaque",
                number=1,
                type=opaque,
                presence=Presence.POINTER,
                required=True,
                doc="Settings that are handed to a driver as they are.",
            ),
        ),
    )


DEVICE_CONFIGURATION = device_configuration(opaque_configuration(checked=True))


def inlined(number: int, configuration: Struct = DEVICE_CONFIGURATION) -> Field:
    """Return the configuration as a member whose own members stand directly in the parent's JSON."""
    return Field(
        name="deviceConfiguration",
        number=number,
        type=configuration,
        presence=Presence.ALWAYS,
        inline=True,
        doc="The settings themselves.",
    )


def request_names(doc: str, *, number: int) -> Field:
    """Return the member `requests`, which limits a setting or constraint to some of the claim's requests."""
    return Field(name="requests", number=number, type=ListOf(String(), max_items=REQUESTS, unique=itself), doc=doc)
