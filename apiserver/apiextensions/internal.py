"""The internal form of a CustomResourceDefinition, whose paths and values upstream's errors show.

Members that are equal in all versions stand at the top: `spec.validation` in place of `spec.versions[*].schema`. In a definition of one
version that is each member.
Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/{types,types_jsonschema,v1/conversion}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apiextensions import decoding
from apiserver.apiextensions.sharing import Sharing

Object = Mapping[str, Any]

SCHEMA, SUBRESOURCES, COLUMNS, SELECTABLE = (
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
)
MOVED = (SCHEMA, SUBRESOURCES, COLUMNS, SELECTABLE)
"""The members of a version that move to the top if all versions have them alike."""


@dataclass(frozen=True, slots=True)
class Internal:
    """`top` has the members that moved, `versions` the versions without these. Both keep the names of v1."""

    spec: Object
    top: Object
    versions: Sequence[Object]


def of(spec: Object, shared: Sharing | None = None) -> Internal:
    """Return the internal form of a decoded spec."""
    versions: Sequence[Object] = spec.get("versions") or ()
    # As `equality.Semantic.DeepEqual` compares: an empty list is like an absent one.
    compared = [decoding.compact_version(version, shared) for version in versions] if len(versions) > 1 else versions
    moved = {
        name for name in MOVED if versions and all(_alike(compared[0].get(name), v.get(name)) for v in compared[1:])
    }
    top = {name: versions[0][name] for name in moved if name in versions[0]}
    return Internal(spec, top, [{k: v for k, v in version.items() if k not in moved} for version in versions])


def _alike(one: Any, other: Any) -> bool:
    """Compare values: 1 is not 1.0, and not true."""
    left = [(one, other)]
    while left:
        a, b = left.pop()
        if a is b:
            continue
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            left += [(a[name], b[name]) for name in a]
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            left += zip(a, b, strict=True)
        elif a != b:
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------- values in errors


def _same(value: Any) -> Any:
    return value


def _schema(value: Any) -> Any:
    return shown_schema(value)


def _schemas(value: Any) -> Any:
    return [shown_schema(inner) for inner in value]


def _named_schemas(value: Any) -> Any:
    return {name: shown_schema(inner) for name, inner in sorted(value.items())}


def shown_items(value: Any) -> Any:
    if isinstance(value, dict):
        return {"Schema": shown_schema(value), "JSONSchemas": None}
    return {"Schema": None, "JSONSchemas": _schemas(value)}


def _schema_or_boolean(value: Any) -> Any:
    if isinstance(value, dict):
        return {"Allows": True, "Schema": shown_schema(value)}
    return {"Allows": value, "Schema": None}


def _dependencies(value: Any) -> Any:
    return {
        name: {"Schema": shown_schema(inner), "Property": None}
        if isinstance(inner, dict)
        else {"Schema": None, "Property": inner or None}
        for name, inner in sorted(value.items())
    }


def _documentation(value: Any) -> Any:
    return {"Description": value.get("description", ""), "URL": value.get("url", "")}


def shown_rule(value: Object) -> Any:
    return {
        "Rule": value.get("rule", ""),
        "Message": value.get("message", ""),
        "MessageExpression": value.get("messageExpression", ""),
        "Reason": value.get("reason"),
        "FieldPath": value.get("fieldPath", ""),
        "OptionalOldSelf": value.get("optionalOldSelf"),
    }


def _rules(value: Any) -> Any:
    return [shown_rule(rule) for rule in value]


_Convert = Callable[[Any], Any]
SCHEMA_FIELDS: Sequence[tuple[str, str, Any, _Convert]] = (
    ("ID", "id", "", _same),
    ("Schema", "$schema", "", _same),
    ("Ref", "$ref", None, _same),
    ("Description", "description", "", _same),
    ("Type", "type", "", _same),
    ("Nullable", "nullable", False, _same),
    ("Format", "format", "", _same),
    ("Title", "title", "", _same),
    ("Default", "default", None, _same),
    ("Maximum", "maximum", None, _same),
    ("ExclusiveMaximum", "exclusiveMaximum", False, _same),
    ("Minimum", "minimum", None, _same),
    ("ExclusiveMinimum", "exclusiveMinimum", False, _same),
    ("MaxLength", "maxLength", None, _same),
    ("MinLength", "minLength", None, _same),
    ("Pattern", "pattern", "", _same),
    ("MaxItems", "maxItems", None, _same),
    ("MinItems", "minItems", None, _same),
    ("UniqueItems", "uniqueItems", False, _same),
    ("MultipleOf", "multipleOf", None, _same),
    ("Enum", "enum", None, _same),
    ("MaxProperties", "maxProperties", None, _same),
    ("MinProperties", "minProperties", None, _same),
    ("Required", "required", None, _same),
    ("Items", "items", None, shown_items),
    ("AllOf", "allOf", None, _schemas),
    ("OneOf", "oneOf", None, _schemas),
    ("AnyOf", "anyOf", None, _schemas),
    ("Not", "not", None, _schema),
    ("Properties", "properties", None, _named_schemas),
    ("AdditionalProperties", "additionalProperties", None, _schema_or_boolean),
    ("PatternProperties", "patternProperties", None, _named_schemas),
    ("Dependencies", "dependencies", None, _dependencies),
    ("AdditionalItems", "additionalItems", None, _schema_or_boolean),
    ("Definitions", "definitions", None, _named_schemas),
    ("ExternalDocs", "externalDocs", None, _documentation),
    ("Example", "example", None, _same),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", None, _same),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", False, _same),
    ("XIntOrString", "x-kubernetes-int-or-string", False, _same),
    ("XListMapKeys", "x-kubernetes-list-map-keys", None, _same),
    ("XListType", "x-kubernetes-list-type", None, _same),
    ("XMapType", "x-kubernetes-map-type", None, _same),
    ("XValidations", "x-kubernetes-validations", None, _rules),
)
"""Go's fields in their order: name, JSON name, zero value, conversion."""


def shown_schema(schema: Object) -> dict[str, Any]:
    """Return a schema as errors show it."""
    return {go: convert(schema[name]) if name in schema else zero for go, name, zero, convert in SCHEMA_FIELDS}


def _shown_columns(columns: Any) -> Any:
    members = (
        ("Name", "name", ""),
        ("Type", "type", ""),
        ("Format", "format", ""),
        ("Description", "description", ""),
        ("Priority", "priority", 0),
        ("JSONPath", "jsonPath", ""),
    )
    return [{go: column.get(name, zero) for go, name, zero in members} for column in columns]


def _shown_scale(scale: Object) -> Any:
    return {
        "SpecReplicasPath": scale.get("specReplicasPath", ""),
        "StatusReplicasPath": scale.get("statusReplicasPath", ""),
        "LabelSelectorPath": scale.get("labelSelectorPath"),
    }


def _shown_subresources(found: Object) -> Any:
    return {"Status": found.get("status"), "Scale": _shown_scale(found["scale"]) if "scale" in found else None}


def _shown_validation(found: Object) -> Any:
    schema = found.get("openAPIV3Schema")
    return {"OpenAPIV3Schema": None if schema is None else shown_schema(schema)}


def _shown_selectable(found: Any) -> Any:
    return [{"JSONPath": each.get("jsonPath", "")} for each in found]


def shown_versions(internal: Internal) -> Any:
    """Return the versions as errors show them."""
    if internal.spec.get("versions") is None:
        return None
    return [
        {
            "Name": version.get("name", ""),
            "Served": version.get("served", False),
            "Storage": version.get("storage", False),
            "Deprecated": version.get("deprecated", False),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": _shown_validation(version[SCHEMA]) if SCHEMA in version else None,
            "Subresources": _shown_subresources(version[SUBRESOURCES]) if SUBRESOURCES in version else None,
            "AdditionalPrinterColumns": _shown_columns(version[COLUMNS]) if COLUMNS in version else None,
            "SelectableFields": _shown_selectable(version[SELECTABLE]) if SELECTABLE in version else None,
        }
        for version in internal.versions
    ]
