"""Check each node of a schema: what kube-apiserver supports of OpenAPI, list types and map types, defaults, and the texts of rules.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`
ValidateCustomResourceDefinitionOpenAPISchema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.apiextensions import internal, structural_checks
from apiserver.apiextensions.sharing import Sharing
from apiserver.apiextensions.structural_checks import (
    EMBEDDED,
    JUNCTORS,
    LEAF,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    Schema,
)
from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors, Path
from apiserver.structural import rule_checks

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_TYPES = ("", *TYPES)
LIST_TYPES = ("atomic", "set", "map")
MAP_TYPES = ("atomic", "granular")
RESOURCE_MEMBERS = ("metadata", "kind", "apiVersion")

_NOT_SUPPORTED = (
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
)
_EMPTY_IS_ABSENT = ("id", "patternProperties", "definitions")


class _Scope(NamedTuple):
    """The context of a node, from the nodes around it. `no_default` says why it must not have a default, None if it may."""

    path: Path
    root: bool = False
    inside_meta: bool = False
    no_default: str | None = None


class Check:
    """One check of one schema. `errors` are bounded."""

    def __init__(self, shared: Sharing) -> None:
        self.errors = FieldErrors()
        self._sound = shared.sound
        self._flawed: set[int] = set()
        """The nodes with an error at or below them, by identity."""

    def flawed(self, schema: Schema) -> bool:
        """Return whether the check found an error at a node or below it."""
        return id(schema) in self._flawed

    def run(self, schema: Schema, path: Path) -> None:
        self._node(schema, _Scope(path, root=True))

    def _node(self, schema: Schema, scope: _Scope) -> None:
        plain = not scope.inside_meta and scope.no_default is None
        if self.errors.full or (plain and id(schema) in self._sound):
            return
        before = len(self.errors) + self.errors.more
        self.errors.extend(_unsupported(schema, scope))
        self._members(schema, scope)
        for junctor, inner in _parts(schema, scope.path):
            self._node(inner, scope._replace(path=junctor, root=False))
        self._items(schema, scope)
        self.errors.extend(_extensions(schema, scope.path))
        if schema.get(RULES):
            self.errors.extend(_rules(schema, scope.path))
        if len(self.errors) + self.errors.more > before:
            self._flawed.add(id(schema))
        elif plain and not scope.root:
            self._sound.add(id(schema))

    def _members(self, schema: Schema, scope: _Scope) -> None:
        additional = schema.get("additionalProperties")
        if schema.get("properties") and (additional is False or isinstance(additional, dict)):
            at = scope.path.child("additionalProperties")
            self.errors.append(fieldpath.forbidden(at, "additionalProperties and properties are mutual exclusive"))
        if isinstance(additional, dict):
            inner = scope._replace(path=scope.path.child("additionalProperties"), root=False)
            if scope.inside_meta:
                inner = inner._replace(no_default=" inside additionalProperties applying to object metadata")
            self._node(additional, inner)
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        resource, at = scope.root or schema.get(EMBEDDED), scope.path.child("properties")
        for name, member in properties.items():
            if member.keys() <= LEAF and member.get("type", "") in _TYPES and "default" not in member:
                continue
            inner = scope._replace(path=at.key(name), root=False)
            if resource and name in RESOURCE_MEMBERS:
                no_default = f" in top-level {name}" if scope.root else scope.no_default
                inner = inner._replace(inside_meta=True, no_default=no_default)
            self._node(member, inner)

    def _items(self, schema: Schema, scope: _Scope) -> None:
        items, at = schema.get("items"), scope.path.child("items")
        if isinstance(items, dict):
            self._node(items, scope._replace(path=at, root=False))
        elif isinstance(items, list):
            for i, inner in enumerate(items):
                self._node(inner, scope._replace(path=at.index(i), root=False))
        for name, inner in (schema.get("dependencies") or {}).items():
            if isinstance(inner, dict):
                self._node(inner, scope._replace(path=scope.path.child("dependencies").key(name), root=False))


def _parts(schema: Schema, path: Path) -> Iterator[tuple[Path, Schema]]:
    if schema.get("not") is not None:
        yield path.child("not"), schema["not"]
    for junctor in JUNCTORS:
        for i, inner in enumerate(schema.get(junctor) or ()):
            yield path.child(junctor).index(i), inner
    for name, inner in (schema.get("definitions") or {}).items():
        yield path.child("definitions").key(name), inner


def _unsupported(schema: Schema, scope: _Scope) -> Iterator[FieldError]:
    path, type_ = scope.path, schema.get("type", "")
    if type_ and type_ not in TYPES:
        yield fieldpath.not_supported(path.child("type"), type_, TYPES)
    if scope.no_default is not None and schema.get("default") is not None:
        yield fieldpath.forbidden(path.child("default"), f"must not be set{scope.no_default}")
    for name, detail in _NOT_SUPPORTED:
        if name in schema and (schema[name] or name not in _EMPTY_IS_ABSENT):
            yield fieldpath.forbidden(path.child(name), detail)
    if type_ == "null":
        yield fieldpath.forbidden(path.child("type"), "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list) and schema["items"]:
        yield fieldpath.forbidden(path.child("items"), "items must be a schema object and not an array")
    if scope.inside_meta and schema.get(EMBEDDED):
        yield fieldpath.forbidden(path.child(EMBEDDED), "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield fieldpath.forbidden(path.child("uniqueItems"), detail)


def _extensions(schema: Schema, path: Path) -> Iterator[FieldError]:
    if schema.get(PRESERVE) is False:
        yield fieldpath.invalid(path.child(PRESERVE), False, "must be true or undefined")  # noqa: FBT003
    map_type, list_type, list_keys = schema.get(MAP_TYPE), schema.get(LIST_TYPE), schema.get(LIST_KEYS) or ()
    if map_type is not None:
        yield from _wrong_type(schema, path, "object", MAP_TYPE)
        if map_type not in MAP_TYPES:
            yield fieldpath.not_supported(path.child(MAP_TYPE), map_type, MAP_TYPES)
    if list_type is not None:
        yield from _wrong_type(schema, path, "array", LIST_TYPE)
        if list_type == "set" and schema.get("type") == "array":
            yield from _set(schema.get("items"), path.child("items"))
        if list_type not in LIST_TYPES:
            yield fieldpath.not_supported(path.child(LIST_TYPE), list_type, LIST_TYPES)
    if list_keys and list_type != "map":
        at, detail = path.child(LIST_TYPE), f"must be map if {LIST_KEYS} is non-empty"
        yield fieldpath.required(at, detail) if list_type is None else fieldpath.invalid(at, list_type, detail)
    if list_type == "map":
        yield from _map(schema, list_keys, path)
    if list_type in ("map", "set") and isinstance(schema.get("items"), dict):
        yield from _distinct_items(schema["items"], list_type, list_keys, path.child("items"))


def _rules(schema: Schema, path: Path) -> Iterator[FieldError]:
    found = rule_checks.text_problems(schema, path)
    if not structural_checks.unsupported(schema):
        return found
    # No path can be looked up in such a schema.
    return (error for error in found if not error.body.endswith(": must be a valid path"))


def _wrong_type(schema: Schema, path: Path, wanted: str, extension: str) -> Iterator[FieldError]:
    at, type_, detail = path.child("type"), schema.get("type", ""), f"must be {wanted} if {extension} is specified"
    if not type_:
        yield fieldpath.required(at, detail)
    elif type_ != wanted:
        yield fieldpath.invalid(at, type_, detail)


def _set(items: Any, path: Path) -> Iterator[FieldError]:
    """Yield an error for items of a set that have parts of their own."""
    if not isinstance(items, dict):
        return
    detail, said = f"must be atomic as item of a list with {LIST_TYPE}=set", items.get(LIST_TYPE)
    shown = None if said is None else fieldpath.Typed(said)
    if items.get("type") == "array" and said not in (None, "atomic"):
        yield fieldpath.invalid(path.child(LIST_TYPE), shown, detail)
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        # As upstream, which shows the list type.
        yield fieldpath.invalid(path.child(MAP_TYPE), shown, detail)


def _map(schema: Schema, keys: Sequence[str], path: Path) -> Iterator[FieldError]:
    at, items = path.child("items"), schema.get("items")
    if not keys:
        yield fieldpath.required(path.child(LIST_KEYS), f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        yield fieldpath.required(at, f"must have a schema if {LIST_TYPE} is map")
    elif not isinstance(items, dict):
        detail = f"must only have a single schema if {LIST_TYPE} is map"
        yield fieldpath.invalid(at, internal.shown_items(items), detail)
    elif items.get("type") != "object":
        detail = f"must be object if parent array's {LIST_TYPE} is map"
        yield fieldpath.invalid(at.child("type"), items.get("type", ""), detail)
    else:
        yield from _keys(items.get("properties") or {}, keys, path)


def _keys(properties: Mapping[str, Schema], keys: Sequence[str], path: Path) -> Iterator[FieldError]:
    seen = set()
    for key in keys:
        if key not in properties:
            yield fieldpath.invalid(path.child(LIST_KEYS), list(keys), "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            at = path.child("items").child("properties").key(key).child("type")
            # As upstream, which shows the type of the items.
            yield fieldpath.invalid(at, "object", f"must be a scalar type if parent array's {LIST_TYPE} is map")
        if key in seen:
            yield fieldpath.invalid(path.child(LIST_KEYS), list(keys), "must not contain duplicate entries")
        seen.add(key)


def _distinct_items(items: Schema, list_type: str, keys: Sequence[str], path: Path) -> Iterator[FieldError]:
    """Yield errors of items and keys that might be null or absent, so that they identify nothing."""
    if items.get("nullable"):
        yield fieldpath.forbidden(path.child("nullable"), f"cannot be nullable when {LIST_TYPE} is {list_type}")
    if list_type != "map":
        return
    properties, required = items.get("properties") or {}, set(items.get("required") or ())
    for key in keys:
        if key not in properties:
            continue
        at, member = path.child("properties").key(key), properties[key]
        if key not in required and member.get("default") is None:
            detail = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            yield fieldpath.required(at.child("default"), detail)
        if member.get("nullable"):
            detail = f"this property is in {LIST_KEYS}, so it cannot be nullable"
            yield fieldpath.forbidden(at.child("nullable"), detail)
