"""Check that a schema is structural: value validations add nothing to the tree of types that stands outside of them.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/{validation,complete,convert}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from apiserver.apiextensions.sharing import Sharing
from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from kubecel.values import regexes

Schema = Mapping[str, Any]
"""A JSONSchemaProps as `decoding` leaves it."""

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"

JUNCTORS = ("allOf", "anyOf", "oneOf")


LEAF = frozenset(
    ("default", "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties",
     "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "nullable", "title", "type")
)  # fmt: skip
"""The members of most nodes. A node without others holds no other node, and only its type can be wrong."""


class _Level(Enum):
    """The place of a node. The value completes the error about a missing type."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


# ---------------------------------------------------------------------------------------------------------------- convertible


_UNSUPPORTED = {
    "id": "id",
    "$schema": "schema",
    "$ref": "$ref",
    "patternProperties": "patternProperties",
    "dependencies": "dependencies",
    "additionalItems": "additionalItems",
    "definitions": "definitions",
}
"""Members that a structural schema cannot have, with their names in errors. An empty one is as if it were absent, but for
`additionalItems`."""


def unsupported(schema: Schema, convertible: set[int] | None = None) -> str:
    """Return why a schema has no structural form, "" if it has one. An error of `schema_checks` says the same with its place, except for
    `$schema`. `convertible` are schemas that have one, by identity. New ones are added."""
    convertible = set() if convertible is None else convertible
    found = next(_unsupported(schema, convertible), "")
    if found:
        convertible.clear()  # the nodes around the wrong one are in it
    return found


def _unsupported(schema: Schema, seen: set[int]) -> Iterator[str]:
    if id(schema) in seen or schema.keys() <= LEAF:
        return
    seen.add(id(schema))
    for name, shown in _UNSUPPORTED.items():
        if schema.get(name) or (name == "additionalItems" and name in schema):
            yield f"OpenAPIV3Schema '{shown}' is not supported"
    if schema.get("not") is not None:
        yield from _unsupported(schema["not"], seen)
    for junctor in JUNCTORS:
        for inner in schema.get(junctor) or ():
            yield from _unsupported(inner, seen)
    if schema.get(PRESERVE) is False:
        yield f"internal error: '{PRESERVE}' must be true or undefined"
    items = schema.get("items")
    if isinstance(items, list) and items:
        yield "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if isinstance(items, dict):
        yield from _unsupported(items, seen)
    for inner in (schema.get("properties") or {}).values():
        if not inner.keys() <= LEAF:
            yield from _unsupported(inner, seen)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _unsupported(schema["additionalProperties"], seen)


# ---------------------------------------------------------------------------------------------------------------- errors


def problems(schema: Schema, path: Path, shared: Sharing) -> list[FieldError]:
    """Return why a schema is not structural, in the order of the texts. It has a structural form (`unsupported`)."""
    found: list[FieldError] = []
    _Search(shared.structural, found).node(schema, _Level.ROOT, path)
    found += _incomplete(schema, schema, path, path)
    return sorted(found, key=str)


class _Search:
    """Appends the errors of nodes to a list, except for junctors. `sound` are the nodes without errors at and below them."""

    def __init__(self, sound: set[int], found: list[FieldError]) -> None:
        self._sound = sound
        self._found = found

    def node(self, schema: Schema, level: _Level, path: Path) -> None:
        if id(schema) in self._sound and level is not _Level.ROOT:
            return
        before = len(self._found)
        items, additional = schema.get("items"), schema.get("additionalProperties")
        if isinstance(items, dict):
            self.node(items, _Level.ITEM, path.child("items"))
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        at = path.child("properties")
        for name, inner in properties.items():
            if not inner.keys() <= LEAF or inner.get("type", "") in ("", "array"):
                self.node(inner, _Level.FIELD, at.key(name))
        if isinstance(additional, dict):
            self.node(additional, _Level.FIELD, path.child("additionalProperties"))
        self._found += _invariants(schema, level, path)
        if len(self._found) == before and level is not _Level.ROOT:
            self._sound.add(id(schema))


def _invariants(schema: Schema, level: _Level, path: Path) -> Iterator[FieldError]:
    items, type_ = schema.get("items"), schema.get("type", "")
    if not isinstance(items, dict) and type_ == "array":
        yield fieldpath.required(path.child("items"), "must be specified")
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    if level is _Level.ROOT and schema.get("additionalProperties") is not None:
        yield fieldpath.forbidden(path.child("additionalProperties"), "must not be used at the root")
    yield from _extensions(schema, path)
    yield from _values(schema, path, outermost=True)
    yield from _types(schema, level, path)
    yield from _metadata(schema, level, path)
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not properties:
        detail = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        yield fieldpath.required(path.child("properties"), detail)


def _extensions(schema: Schema, path: Path) -> Iterator[FieldError]:
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                yield fieldpath.invalid(path.child(name), True, f"must be false if {INT_OR_STRING} is true")  # noqa: FBT003


def _types(schema: Schema, level: _Level, path: Path) -> Iterator[FieldError]:
    at, type_ = path.child("type"), schema.get("type", "")
    if schema.get(EMBEDDED) and type_ != "object":
        detail = f"must be object if {EMBEDDED} is true"
        yield fieldpath.invalid(at, type_, detail) if type_ else fieldpath.required(at, detail)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield fieldpath.required(at, f"must not be empty {level.value}")
    if schema.get(EMBEDDED) and "additionalProperties" in schema:
        yield fieldpath.forbidden(path.child("additionalProperties"), f"must not be used if {EMBEDDED} is set")
    if level is _Level.ROOT and type_ not in ("", "object"):
        yield fieldpath.invalid(at, type_, "must be object at the root")


def _metadata(schema: Schema, level: _Level, path: Path) -> Iterator[FieldError]:
    """Yield errors of members that every resource has."""
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    resource = level is _Level.ROOT or bool(schema.get(EMBEDDED))
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if resource and name in properties and (type_ := properties[name].get("type", "")) != wanted:
            yield fieldpath.invalid(path.child("properties").key(name).child("type"), type_, f"must be {wanted}")
    if level is _Level.ROOT and "metadata" in properties and not _only_names(properties["metadata"]):
        yield fieldpath.forbidden(
            path.child("properties").key("metadata"),
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        )


def _only_names(metadata: Schema) -> bool:
    """Return whether a schema of metadata at the root speaks of name and generateName alone."""
    said = _said(metadata)
    properties = said.pop("properties", {})
    return said.keys() <= {"type", "default"} and properties.keys() <= {"name", "generateName"}


_UNSTRUCTURED = frozenset(("$ref", "dependencies", "definitions", "patternProperties"))
"""Members that the structural form does not have. Here they are empty."""


def _said(schema: Schema) -> dict[str, Any]:
    """Return the members of a node that are not zero in its structural form."""
    said = {}
    for name, value in schema.items():
        empty = (
            name in _UNSTRUCTURED
            or (name in ("enum", *JUNCTORS) and not value)
            or (name == "items" and not isinstance(value, dict))
        )
        if not empty:
            said[name] = value
    return said


# ---------------------------------------------------------------------------------------------------------------- value validations


def _values(schema: Schema, path: Path, *, outermost: bool = False, without_any: bool = False) -> Iterator[FieldError]:
    """Yield errors of junctors and of the pattern. `outermost`: the node is no part of a junctor, so it may have the two forms of
    int-or-string. `without_any` skips `anyOf`."""
    all_of: Sequence[Schema] = schema.get("allOf") or ()
    if not without_any and not (outermost and _is_int_or_string(schema.get("anyOf") or ())):
        for i, inner in enumerate(schema.get("anyOf") or ()):
            yield from _nested(inner, path.child("anyOf").index(i))
    first = outermost and bool(all_of) and _is_int_or_string(all_of[0].get("anyOf") or ())
    for i, inner in enumerate(all_of):
        yield from _nested(inner, path.child("allOf").index(i), without_any=first and i == 0)
    for i, inner in enumerate(schema.get("oneOf") or ()):
        yield from _nested(inner, path.child("oneOf").index(i))
    if schema.get("not") is not None:
        yield from _nested(schema["not"], path.child("not"))
    if pattern := schema.get("pattern", ""):
        try:
            regexes.compiled(pattern)
        except regexes.InvalidPattern as e:
            detail = f"must be a valid regular expression, but isn't: {e}"
            yield fieldpath.invalid(path.child("pattern"), pattern, detail)


def _is_int_or_string(junctor: Sequence[Schema]) -> bool:
    if len(junctor) != 2:
        return False
    said = [_said(inner) for inner in junctor]
    for each in said:
        if each.get("additionalProperties") is False:
            del each["additionalProperties"]
    return said == [{"type": "integer"}, {"type": "string"}]


_FORBIDDEN = (
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    (PRESERVE, "false"),
    (EMBEDDED, "false"),
    (INT_OR_STRING, "false"),
    (LIST_KEYS, "empty"),
    (LIST_TYPE, "undefined"),
    (MAP_TYPE, "undefined"),
    (RULES, "empty"),
)
"""Members that a part of a junctor must not have."""
_LISTS = (LIST_KEYS, RULES)


def _nested(schema: Schema, path: Path, *, without_any: bool = False) -> Iterator[FieldError]:
    """Yield errors of a part of a junctor."""
    yield from _values(schema, path, without_any=without_any)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], path.child("items"))
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    for name, inner in properties.items():
        yield from _nested(inner, path.child("properties").key(name))
    for name, wanted in _FORBIDDEN:
        value = schema.get(name)
        if (
            value is not None
            and not (value is False and name == "additionalProperties")
            and (value or name not in _LISTS)
        ):
            yield fieldpath.forbidden(path.child(name), f"must be {wanted} to be structural")
    if "metadata" in properties:
        yield fieldpath.forbidden(path.child("properties").key("metadata"), "must not be specified in a nested context")


def _incomplete(values: Schema, schema: Schema | None, path: Path, said: Path) -> Iterator[FieldError]:
    """Yield an error for each node that only junctors at `said` speak of. `schema` is the structural node at `path`.

    As upstream, the search begins with junctors of the root.
    """
    if schema is None:
        yield fieldpath.required(path, f"because it is defined in {said}")
        return
    if values.get("not") is not None:
        yield from _incomplete_part(values["not"], schema, path, said.child("not"))
    for junctor in JUNCTORS:
        for i, inner in enumerate(values.get(junctor) or ()):
            yield from _incomplete_part(inner, schema, path, said.child(junctor).index(i))


def _incomplete_part(values: Schema, schema: Schema | None, path: Path, said: Path) -> Iterator[FieldError]:
    if schema is None:
        yield fieldpath.required(path, f"because it is defined in {said}")
        return
    yield from _incomplete(values, schema, path, said)
    if isinstance(values.get("items"), dict):
        items = schema.get("items")
        structural = items if isinstance(items, dict) else None
        yield from _incomplete_part(values["items"], structural, path.child("items"), said.child("items"))
    for name, inner in (values.get("properties") or {}).items():
        at, there = path.child("properties").key(name), said.child("properties").key(name)
        yield from _incomplete_part(inner, (schema.get("properties") or {}).get(name), at, there)
