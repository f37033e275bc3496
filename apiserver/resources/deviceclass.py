"""DeviceClass: a kind of device that administrators name, with selectors and settings, for claims to request.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/deviceclass/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import V1_37, since
from apiserver.codecs.objects import canonical
from apiserver.resources import _configuration, _features, _v1beta1, _v1beta2
from apiserver.resources._features import Feature
from apiserver.resources._roles import READ, SCHEDULER
from apiserver.resources._rules import _declarations, _formats
from apiserver.resources._rules._formats import MODEL
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Grant, Resource
from apiserver.schema.types import Field, ListOf, Presence, String, Struct
from kubetext import names

_EXTENDED_PREFIX = "requests."
_NATIVE_DOMAIN = "kubernetes.io/"


def _extended_resource(value: str, path: Path) -> list[FieldError]:
    """Check a name by which a pod may request an extended resource. It must also be valid in a quota, as `requests.<name>`."""
    native = "/" not in value or _NATIVE_DOMAIN in value or value.startswith(_EXTENDED_PREFIX)
    if native or names.label_key(_EXTENDED_PREFIX + value):
        return [fieldpath.invalid(path, value, "must be a valid extended resource name")]
    return []


CLASS_CONFIGURATION = Struct(
    name="DeviceClassConfiguration",
    model=MODEL,
    doc="Settings for the devices of a class.",
    fields=(
        # The rule of the spec checks the parameters: stored ones may be longer than new ones.
        _configuration.inlined(
            1, _configuration.device_configuration(_configuration.opaque_configuration(checked=False))
        ),
    ),
)

_CONFIG = Field(
    name="config",
    number=2,
    type=ListOf(CLASS_CONFIGURATION, max_items=_configuration.CONFIGS),
    doc="Settings for the drivers of devices that are allocated through this class, at most 32. A claim can add its own. "
    "They do not influence which device is chosen.",
)
_same_config = canonical.comparison(_CONFIG)


def _parameters(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    """Check the parameters. The limit on their length came late: a list that is stored like this keeps its values."""
    config = value.get("config") or []
    if len(config) > _configuration.CONFIGS:
        return
    stored = old is not None and _same_config(config, old.get("config"))
    for i, item in enumerate(config):
        if "parameters" in item.get("opaque", {}):
            at = path.child("config").index(i).child("opaque").child("parameters")
            yield from _formats.opaque(item["opaque"]["parameters"], at, stored=stored)


DEVICE_CLASS_SPEC = Struct(
    name="DeviceClassSpec",
    model=MODEL,
    doc="What the devices of the class have in common and how they are set up.",
    fields=(
        Field(
            name="selectors",
            number=1,
            type=_configuration.STORED_SELECTOR_LIST,
            doc="Conditions that a device has to meet, all of them, to belong to the class. At most 32; none means every device.",
        ),
        _CONFIG,
        Field(
            name="extendedResourceName",
            number=4,
            type=String(check=_extended_resource),
            presence=Presence.POINTER,
            doc="A name, such as example.com/gpu, under which pods can ask for devices of this class as for an extended resource, "
            "without a claim of their own. Unique among the classes; of several with one name the youngest is used.",
        ),
    ),
    rule=_parameters,
)

DEVICE_CLASS = Struct(
    name="DeviceClass",
    model=MODEL,
    doc="Made by administrators and driver vendors: gives conditions and settings for devices a name. Requests in claims refer to it. "
    "Cluster-scoped.",
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
            type=DEVICE_CLASS_SPEC,
            presence=Presence.ALWAYS,
            expected=since(V1_37, False, what="OpenAPI does not list it as required"),  # noqa: FBT003 - the value
            doc="What can be allocated through this class and how. It can be changed at any time: claims look at it while they are "
            "being allocated, so that a change does not touch those that are already. Each change raises metadata.generation.",
        ),
    ),
)


def _name_check(name: str, prefix: bool) -> list[str]:  # noqa: FBT001 - the signature of a kind's name rule
    """Check a name. This kind's newer rule speaks of bytes. It ignores generateName, but checks the generated name."""
    return [] if prefix else names.dns_subdomain(name, unit="bytes")


_EXTENDED_RESOURCE = frozenset(("extendedResourceName",))
FEATURES = (Feature(gates=(_features.EXTENDED_RESOURCE,), places=lambda obj: ((obj["spec"], _EXTENDED_RESOURCE),)),)


RESOURCE = Resource(
    kind="DeviceClass",
    plural="deviceclasses",
    singular="deviceclass",
    namespaced=False,
    shape=DEVICE_CLASS,
    columns=(columns.NAME, columns.AGE),
    tracks_generation=True,
    name_check=_name_check,
    grants=(Grant(role=SCHEDULER, verbs=READ),),
    gates=_features.gates_of(FEATURES, *_features.SELECTOR_GATES),
    declarations=since(V1_37, _declarations.DECLARATIONS),
    prepare=_features.dropping(FEATURES),
    expressions=lambda obj: _configuration.expressions(obj["spec"]),
    versions=(_v1beta2.version(DEVICE_CLASS), _v1beta1.version(DEVICE_CLASS)),
)
