"""The types of a CustomResourceDefinition in v1, as Go declares them.

A schema contains schemas, so these types do. That is why they are no shapes of `schema.types`.
Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1/{types,types_jsonschema,marshal}.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Scalar(Enum):
    """Types without parts, each with the name that Go's decoder gives it. BYTES are base64 in JSON."""

    TEXT = "string"
    BOOLEAN = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float64"
    BYTES = "[]uint8"
    TIME = "v1.Time"
    ANY = "v1.JSON"


@dataclass(frozen=True, slots=True, eq=False)
class NamedText:
    """A text of a type of its own."""

    go: str


@dataclass(frozen=True, slots=True, eq=False)
class ListOf:
    """A list. `go` is the name of the list's type, if it has one."""

    item: Type
    go: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MapOf:
    """A map of texts to values. `go` is the name of the map's type, if it has one."""

    value: Type
    go: str = ""


class Variant(Enum):
    """A value that JSON of several types decodes to. Its own decoder reports no unknown members."""

    SCHEMA_OR_LIST = "v1.JSONSchemaPropsOrArray"
    SCHEMA_OR_BOOLEAN = "v1.JSONSchemaPropsOrBool"
    SCHEMA_OR_TEXTS = "v1.JSONSchemaPropsOrStringArray"


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A member of a struct. `pointer`: absent and zero differ."""

    type: Type
    pointer: bool = False


@dataclass(slots=True, eq=False)
class Struct:
    """An object with named members. `name` is the Go type."""

    name: str
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def go(self) -> str:
        return f"v1.{self.name}"


Type = Scalar | NamedText | ListOf | MapOf | Variant | Struct

_TEXT, _BOOLEAN = Member(Scalar.TEXT), Member(Scalar.BOOLEAN)
_TEXTS = Member(ListOf(Scalar.TEXT))
_INT64, _FLOAT = Member(Scalar.INT64, pointer=True), Member(Scalar.FLOAT, pointer=True)
_OPTIONAL_TEXT, _OPTIONAL_BOOLEAN = Member(Scalar.TEXT, pointer=True), Member(Scalar.BOOLEAN, pointer=True)


def _pointer(type_: Type) -> Member:
    return Member(type_, pointer=True)


SCHEMA = Struct("JSONSchemaProps")
_SCHEMAS = Member(ListOf(SCHEMA))
_NAMED_SCHEMAS = Member(MapOf(SCHEMA))
_RULE = Struct(
    "ValidationRule",
    {
        "rule": _TEXT,
        "message": _TEXT,
        "messageExpression": _TEXT,
        "reason": _pointer(NamedText("v1.FieldValueErrorReason")),
        "fieldPath": _TEXT,
        "optionalOldSelf": _OPTIONAL_BOOLEAN,
    },
)
SCHEMA.members = {
    "id": _TEXT,
    "$schema": Member(NamedText("v1.JSONSchemaURL")),
    "$ref": _OPTIONAL_TEXT,
    "description": _TEXT,
    "type": _TEXT,
    "format": _TEXT,
    "title": _TEXT,
    "default": _pointer(Scalar.ANY),
    "maximum": _FLOAT,
    "exclusiveMaximum": _BOOLEAN,
    "minimum": _FLOAT,
    "exclusiveMinimum": _BOOLEAN,
    "maxLength": _INT64,
    "minLength": _INT64,
    "pattern": _TEXT,
    "maxItems": _INT64,
    "minItems": _INT64,
    "uniqueItems": _BOOLEAN,
    "multipleOf": _FLOAT,
    "enum": Member(ListOf(Scalar.ANY)),
    "maxProperties": _INT64,
    "minProperties": _INT64,
    "required": _TEXTS,
    "items": _pointer(Variant.SCHEMA_OR_LIST),
    "allOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "not": _pointer(SCHEMA),
    "properties": _NAMED_SCHEMAS,
    "additionalProperties": _pointer(Variant.SCHEMA_OR_BOOLEAN),
    "patternProperties": _NAMED_SCHEMAS,
    "dependencies": Member(MapOf(Variant.SCHEMA_OR_TEXTS, "v1.JSONSchemaDependencies")),
    "additionalItems": _pointer(Variant.SCHEMA_OR_BOOLEAN),
    "definitions": Member(MapOf(SCHEMA, "v1.JSONSchemaDefinitions")),
    "externalDocs": _pointer(Struct("ExternalDocumentation", {"description": _TEXT, "url": _TEXT})),
    "example": _pointer(Scalar.ANY),
    "nullable": _BOOLEAN,
    "x-kubernetes-preserve-unknown-fields": _OPTIONAL_BOOLEAN,
    "x-kubernetes-embedded-resource": _BOOLEAN,
    "x-kubernetes-int-or-string": _BOOLEAN,
    "x-kubernetes-list-map-keys": _TEXTS,
    "x-kubernetes-list-type": _OPTIONAL_TEXT,
    "x-kubernetes-map-type": _OPTIONAL_TEXT,
    "x-kubernetes-validations": Member(ListOf(_RULE, "v1.ValidationRules")),
}

_NAMES = Struct(
    "CustomResourceDefinitionNames",
    {
        "plural": _TEXT,
        "singular": _TEXT,
        "shortNames": _TEXTS,
        "kind": _TEXT,
        "listKind": _TEXT,
        "categories": _TEXTS,
    },
)
_SCALE = Struct(
    "CustomResourceSubresourceScale",
    {"specReplicasPath": _TEXT, "statusReplicasPath": _TEXT, "labelSelectorPath": _OPTIONAL_TEXT},
)
_SUBRESOURCES = Struct(
    "CustomResourceSubresources",
    {"status": _pointer(Struct("CustomResourceSubresourceStatus")), "scale": _pointer(_SCALE)},
)
_COLUMN = Struct(
    "CustomResourceColumnDefinition",
    {
        "name": _TEXT,
        "type": _TEXT,
        "format": _TEXT,
        "description": _TEXT,
        "priority": Member(Scalar.INT32),
        "jsonPath": _TEXT,
    },
)
VERSION = Struct(
    "CustomResourceDefinitionVersion",
    {
        "name": _TEXT,
        "served": _BOOLEAN,
        "storage": _BOOLEAN,
        "deprecated": _BOOLEAN,
        "deprecationWarning": _OPTIONAL_TEXT,
        "schema": _pointer(Struct("CustomResourceValidation", {"openAPIV3Schema": _pointer(SCHEMA)})),
        "subresources": _pointer(_SUBRESOURCES),
        "additionalPrinterColumns": Member(ListOf(_COLUMN)),
        "selectableFields": Member(ListOf(Struct("SelectableField", {"jsonPath": _TEXT}))),
    },
)
_SERVICE = Struct(
    "ServiceReference",
    {"namespace": _TEXT, "name": _TEXT, "path": _OPTIONAL_TEXT, "port": _pointer(Scalar.INT32)},
)
_CLIENT_CONFIG = Struct(
    "WebhookClientConfig",
    {"url": _OPTIONAL_TEXT, "service": _pointer(_SERVICE), "caBundle": Member(Scalar.BYTES)},
)
_WEBHOOK = Struct("WebhookConversion", {"clientConfig": _pointer(_CLIENT_CONFIG), "conversionReviewVersions": _TEXTS})
_CONVERSION = Struct(
    "CustomResourceConversion",
    {"strategy": Member(NamedText("v1.ConversionStrategyType")), "webhook": _pointer(_WEBHOOK)},
)
_SPEC = Struct(
    "CustomResourceDefinitionSpec",
    {
        "group": _TEXT,
        "names": Member(_NAMES),
        "scope": Member(NamedText("v1.ResourceScope")),
        "versions": Member(ListOf(VERSION)),
        "conversion": _pointer(_CONVERSION),
        "preserveUnknownFields": _BOOLEAN,
    },
)
_CONDITION = Struct(
    "CustomResourceDefinitionCondition",
    {
        "type": Member(NamedText("v1.CustomResourceDefinitionConditionType")),
        "status": Member(NamedText("v1.ConditionStatus")),
        "lastTransitionTime": Member(Scalar.TIME),
        "reason": _TEXT,
        "message": _TEXT,
        "observedGeneration": Member(Scalar.INT64),
    },
)
_STATUS = Struct(
    "CustomResourceDefinitionStatus",
    {
        "conditions": Member(ListOf(_CONDITION)),
        "acceptedNames": Member(_NAMES),
        "storedVersions": _TEXTS,
        "observedGeneration": Member(Scalar.INT64),
    },
)
DEFINITION = Struct("CustomResourceDefinition", {"spec": Member(_SPEC), "status": Member(_STATUS)})
"""Without its metadata, which has a shape."""


def go_name(type_: Type) -> str:
    """Return the name of a type in errors of Go's decoder."""
    match type_:
        case ListOf():
            return type_.go or f"[]{go_name(type_.item)}"
        case MapOf():
            return type_.go or f"map[string]{go_name(type_.value)}"
        case Scalar() | Variant():
            return str(type_.value)
        case NamedText() | Struct():
            return type_.go
