"""Write shapes as OpenAPI definitions, in version 2 and version 3. Knows only the kinds that it is given, and no paths.

The versions differ where upstream's do. Version 3 writes defaults, also the zero value of members that are always present. It puts a
reference with siblings into `allOf`, and lets a quantity be a number.

They also differ in names. kube-apiserver passes documents of version 3 on unchanged, but merges those of version 2 into one. There it
renames a definition that has the name of one of its own and differs from it. A kind that two definitions claim breaks clients that build
parsers of them. So in version 2 only the kinds of a group bear its names. Definitions shared with other groups stand below `OWN` and claim
no kind of upstream's.
Upstream: kubernetes/kube-openapi `pkg/generators/openapi.go`, `pkg/aggregator/aggregator.go`, kubernetes/apimachinery
`pkg/util/managedfields/gvkparser.go`, kubernetes/kubernetes `api/openapi-spec/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Any

from apiserver.apimachinery.releases import NEWEST, V1_37, Release, at, until
from apiserver.schema import machinery, shapes
from apiserver.schema.resource import Resource
from apiserver.schema.types import (
    UNSET,
    Boolean,
    Field,
    Integer,
    ListOf,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
    is_pointer,
    members,
)

Schema = dict[str, Any]

TELLS_ELEMENTS = until(
    V1_37,
    True,  # noqa: FBT003 - the value
    after=False,
    what="OpenAPI documents of version 3 give the zero value as the default of elements in lists and maps",
)
Kind = tuple[str, str, str]
"""Group, version, kind."""


class Dialect(Enum):
    """The version of OpenAPI. The value is the prefix of references."""

    V2 = "#/definitions/"
    V3 = "#/components/schemas/"


UPSTREAM, OWN = "io.k8s.", "dev.sluice."
"""The prefix of kube-apiserver's definitions, and its replacement for definitions of ours that have their names."""
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
PATCH = f"{shapes.META}.Patch"
_TIME, _MICRO_TIME = f"{shapes.META}.Time", f"{shapes.META}.MicroTime"

_DOCS = {
    QUANTITY: "An exact amount: a decimal number, optionally followed by a power of ten as a suffix (n, u, m, k, M, G, T, P, E) or as an "
    "exponent (e3), or by a power of 1024 as a suffix (Ki, Mi, Gi, Ti, Pi, Ei). It is kept in canonical form: no fraction, the largest "
    "suffix that fits.",
    PATCH: "A change to an object, in the format that the Content-Type of the request names.",
    _TIME: "A point in time: RFC 3339, in UTC, to the second.",
    _MICRO_TIME: "A point in time: RFC 3339, in UTC, to the microsecond.",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "Any JSON object. What is in it is known to those who read it, not to this API.",
    f"{shapes.META}.FieldsV1": "A set of fields as a trie: a member named f:<name> stands for a field of a struct or map, k:<keys> for "
    "an item of a list with keys, v:<value> for an item of a set, i:<index> for an item by its position, and . for the field itself.",
}
_KIND_DOC = "The kind of this object, in CamelCase. Servers may take it from the path of a request. It never changes."
_API_VERSION_DOC = (
    "The group and version in which this object is written. Servers may take it from the path of a request."
)

_KINDS = "x-kubernetes-group-version-kind"
_UNMARKED_LISTS = frozenset({(machinery.API_RESOURCE, "verbs")})
"""Members whose Go type is a named list: upstream gives them no list type."""


_ORDER = (
    "description",
    "$ref",
    "type",
    "format",
    "default",
    "enum",
    "required",
    "items",
    "allOf",
    "oneOf",
    "properties",
    "additionalProperties",
)
"""The members of a schema in Go's order, which code generators depend on. Extensions follow by name.

Upstream: kubernetes/kube-openapi `pkg/validation/spec/schema.go` (SchemaProps); a description precedes its reference.
"""
_PLACES = {name: place for place, name in enumerate(_ORDER)}


def in_order(schema: Schema) -> Schema:
    """Return the schema with its members in upstream's order, and properties by name, as Go writes maps."""
    written: Schema = {}
    for name in sorted(schema, key=lambda name: (_PLACES.get(name, len(_ORDER)), name)):
        value = schema[name]
        match name:
            case "properties":
                value = {called: in_order(inner) for called, inner in sorted(value.items())}
            case "items" | "additionalProperties" | "not" if isinstance(value, dict):
                value = in_order(value)
            case "allOf" | "oneOf" | "anyOf":
                value = [in_order(inner) for inner in value]
        written[name] = value
    return written


_CONVENTIONS = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
CUSTOM_DOCS = {
    "apiVersion": "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized "
    f"schemas to the latest internal value, and may reject unrecognized values. {_CONVENTIONS}#resources",
    "kind": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint "
    f"the client submits requests to. Cannot be updated. In CamelCase. {_CONVENTIONS}#types-kinds",
    "metadata": f"Standard object's metadata. {_CONVENTIONS}#metadata",
}
"""Descriptions of the members that every custom resource has. They replace those of the definition, so they are upstream's."""
_LIST_META_DOC = f"Standard list metadata. {_CONVENTIONS}#types-kinds"


class Definitions:
    """The definitions of one document, collected when they are referred to.

    A name has one schema. Two different ones are an error in a declaration, and raise ValueError.
    """

    def __init__(self, dialect: Dialect, *, release: Release = NEWEST) -> None:
        self.dialect = dialect
        self._tells_elements = dialect is Dialect.V3 and at(release, TELLS_ELEMENTS)
        self._model = ""
        self._of_kinds: Collection[str] = ()
        self._schemas: dict[str, Schema] = {}
        self._shapes: dict[str, Struct] = {}

    def within(self, group: str, version: str, members: Iterable[Resource]) -> None:
        """Set group and version of further references, and the kinds in them."""
        self._model = model(group, version)
        self._of_kinds = {resource.shape.model for resource in members}

    def all(self) -> dict[str, Schema]:
        """Return every definition referred to so far, by name, in Go's order."""
        return {name: in_order(schema) for name, schema in sorted(self._schemas.items())}

    def object(self, resource: Resource) -> Schema:
        """Return a reference to the kind itself."""
        if resource.custom is not None:
            name = _custom_name(resource, resource.kind)
            if name not in self._schemas:
                schema = resource.custom.published(self._own(), v2=self.dialect is Dialect.V2)
                self._schemas[name] = schema | _selectable(resource)
            return self._of_kind(name, [(resource.group, resource.version, resource.kind)])
        name = self._name(resource.shape)
        self._struct(name, resource.shape, typed=True)
        return self._of_kind(name, [(resource.group, resource.version, resource.kind)])

    def list(self, resource: Resource) -> Schema:
        """Return a reference to the list of the kind."""
        if resource.custom is not None:
            return self._custom_list(resource)
        name = f"{self._name(resource.shape)}List"
        if name not in self._schemas:
            items = Field(name="items", number=2, type=ListOf(resource.shape), doc="The objects.")
            meta = Field(
                name="metadata", number=1, type=shapes.LIST_META, presence=Presence.ALWAYS, doc="Metadata of the list."
            )
            self.object(resource)
            properties = _typed() | {"metadata": self._member(meta), "items": self._member(items, marked=False)}
            self._schemas[name] = {
                "description": f"A list of {resource.kind} objects.",
                "type": "object",
                "required": ["items"],
                "properties": properties,
            }
        return self._of_kind(name, [(resource.group, resource.version, resource.list_kind)])

    def _custom_list(self, resource: Resource) -> Schema:
        name = _custom_name(resource, resource.list_kind)
        if name not in self._schemas:
            metadata = Field(name="metadata", number=1, type=shapes.LIST_META, doc=_LIST_META_DOC)
            described = self._member(metadata)
            described.pop("default", None)
            items = {
                "description": f"List of {resource.plural}. {_CONVENTIONS}",
                "type": "array",
                "items": self.object(resource),
            }
            self._schemas[name] = {
                "description": f"{resource.list_kind} is a list of {resource.kind}",
                "type": "object",
                "required": ["items"],
                "properties": self._own() | {"metadata": described, "items": items},
                **_selectable(resource),
            }
        return self._of_kind(name, [(resource.group, resource.version, resource.list_kind)])

    def _own(self) -> dict[str, Schema]:
        """Return the schemas of the members that every custom resource has."""
        metadata = Field(name="metadata", number=1, type=shapes.OBJECT_META, doc=CUSTOM_DOCS["metadata"])
        described = self._member(metadata)
        described.pop("default", None)
        typed = {name: {"description": CUSTOM_DOCS[name], "type": "string"} for name in ("apiVersion", "kind")}
        return typed | {"metadata": described}

    def message(self, shape: Struct, kinds: Sequence[Kind]) -> Schema:
        """Return a reference to a message with kind and apiVersion that is not a resource. `kinds` are the names that it has."""
        name = self._name(shape)
        self._struct(name, shape, typed=True)
        return self._of_kind(name, self._claimed(kinds))

    def event(self, shape: Struct, kinds: Sequence[Kind]) -> Schema:
        """Return the same for a message without a kind of its own."""
        name = self._name(shape)
        self._struct(name, shape, typed=False)
        return self._of_kind(name, self._claimed(kinds))

    def patch(self) -> Schema:
        return self._plain(PATCH, {"type": "object"})

    def _claimed(self, kinds: Iterable[Kind]) -> Sequence[Kind]:
        """Return those of a message's kinds that this document may claim. kube-apiserver claims all of its own groups, served or not."""
        return [kind for kind in kinds if self.dialect is Dialect.V3 or not _is_upstreams(kind[0])]

    def _of_kind(self, name: str, kinds: Sequence[Kind]) -> Schema:
        schema = self._schemas[name]
        for group, version, kind in kinds:
            known = schema.setdefault(_KINDS, [])
            entry = {"group": group, "kind": kind, "version": version}
            if entry not in known:
                known.append(entry)
        return self._ref(name)

    def _ref(self, name: str) -> Schema:
        return {"$ref": self.dialect.value + name}

    def _name(self, shape: Struct) -> str:
        found = shape.model or self._model
        return self._published(f"{found}.{shape.name}" if found else shape.name)

    def _published(self, name: str) -> str:
        """Return the name that the definition with upstream's `name` has in this document."""
        if self.dialect is Dialect.V3 or not name.startswith(UPSTREAM):
            return name
        found, _, last = name.rpartition(".")
        return f"{self._model}.{last}" if found in self._of_kinds else OWN + name.removeprefix(UPSTREAM)

    def _plain(self, name: str, schema: Schema) -> Schema:
        published = self._published(name)
        self._schemas.setdefault(published, {"description": _DOCS[name], **schema} if name in _DOCS else schema)
        return self._ref(published)

    def _struct(self, name: str, shape: Struct, *, typed: bool) -> Schema:
        if self._shapes.get(name) is not shape:
            schema = self._object(name, shape, typed=typed)
            # Two shapes may share a name when they differ in rules only.
            known = {k: v for k, v in self._schemas.get(name, schema).items() if k != _KINDS}
            if known != schema:
                raise ValueError(f"two different shapes are named {name}")
            self._shapes.setdefault(name, shape)
            self._schemas.setdefault(name, schema)
        return self._ref(name)

    def _object(self, name: str, shape: Struct, *, typed: bool) -> Schema:
        schema: Schema = {"description": shape.doc} if shape.doc else {}
        fields = members(shape)
        schema["type"] = "object"
        if required := [field.name for field in fields if _is_required(field)]:
            schema["required"] = required
        properties = _typed() if typed else {}
        for field in fields:
            properties[field.name] = self._member(field, marked=(shape, field.name) not in _UNMARKED_LISTS)
        schema["properties"] = properties
        if shape.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _member(self, field: Field, *, marked: bool = True) -> Schema:
        value = self._value(field.type, marked=marked)
        described: Schema = {"description": field.doc} if field.doc else {}
        if self.dialect is Dialect.V3:
            default = _default(field)
            alone = "$ref" in value and not described and not default
            value = (value if alone or "$ref" not in value else {"allOf": [value]}) | default
        if field.patch_strategy:
            value["x-kubernetes-patch-strategy"] = field.patch_strategy
        if field.patch_merge_key:
            value["x-kubernetes-patch-merge-key"] = field.patch_merge_key
        return described | value

    def _element(self, type_: Type) -> Schema:
        """Return the schema of a value in a list or a map."""
        value = self._value(type_)
        zero = _zero(type_) if self._tells_elements else None
        if not zero:
            return value
        return ({"allOf": [value]} if "$ref" in value else value) | zero

    def _value(self, type_: Type, *, marked: bool = True) -> Schema:
        match type_:
            case String():
                listed = sorted(type_.enum or type_.known)
                return {"type": "string"} | ({"enum": listed} if listed else {})
            case Integer():
                return {"type": "integer", "format": f"int{type_.bits}"}
            case Boolean():
                return {"type": "boolean"}
            case Quantity():
                either = {"oneOf": [{"type": "string"}, {"type": "number"}]}
                return self._plain(QUANTITY, either if self.dialect is Dialect.V3 else {"type": "string"})
            case Time():
                return self._plain(_MICRO_TIME if type_.micro else _TIME, {"type": "string", "format": "date-time"})
            case RawJSON():
                return self._plain(type_.model, {"type": "object"})
            case ListOf():
                return {"type": "array", "items": self._element(type_.item), **(_list_type(type_) if marked else {})}
            case MapOf():
                return {"type": "object", "additionalProperties": self._element(type_.value)}
            case Struct():
                return self._struct(self._name(type_), type_, typed=False)


def _selectable(resource: Resource) -> Schema:
    """Return the extension that names the selectable fields."""
    paths = [{"fieldPath": label} for label in resource.selectable]
    return {"x-kubernetes-selectable-fields": paths} if paths else {}


def _custom_name(resource: Resource, kind: str) -> str:
    """Return the name of the definition of a custom resource or its list."""
    return ".".join([*reversed(resource.group.split(".")), resource.version, kind])


def model(group: str, version: str) -> str:
    """Return the package of the definitions of a group's kinds. Upstream's groups are packages of k8s.io/api. The names of all others are
    reversed, as those of custom resources are."""
    if _is_upstreams(group):
        return f"{UPSTREAM}api.{group.partition('.')[0] or 'core'}.{version}"
    return ".".join([*reversed(group.split(".")), version])


def _is_upstreams(group: str) -> bool:
    return not group or group.endswith(".k8s.io")


def _typed() -> Schema:
    return {
        "apiVersion": {"description": _API_VERSION_DOC, "type": "string"},
        "kind": {"description": _KIND_DOC, "type": "string"},
    }


def _list_type(type_: ListOf) -> Schema:
    marks: Schema = {"x-kubernetes-list-type": type_.list_type.value}
    if type_.keys:
        marks["x-kubernetes-list-map-keys"] = list(type_.keys)
    return marks


def _zero(type_: Type) -> Schema:
    """Return the default that version 3 gives to a value that is never absent; empty for types whose zero value upstream leaves out."""
    match type_:
        case String():
            return {"default": ""}
        case Integer():
            return {"default": 0}
        case Boolean():
            return {"default": False}
        case Struct():
            return {"default": {}}
        case _:
            return {}


def _default(field: Field) -> Schema:
    """Return the default that version 3 gives to a member: the declared one, otherwise the zero value if it is always present."""
    if field.tells_default and field.default is not UNSET and not callable(field.default):
        return {"default": field.default}
    return _zero(field.type) if _has_zero(field) else {}


def _has_zero(field: Field) -> bool:
    if isinstance(field.type, Struct):
        return not is_pointer(field)
    return field.presence is Presence.ALWAYS


def _is_required(field: Field) -> bool:
    """Return whether OpenAPI lists the member as required.

    Upstream marks each member by hand. Here it follows from the shape. A member is required if it may not be empty or is always written.
    Lists, maps (null without a value) and structs without required members are exceptions. A `spec` is always required.
    """
    if field.expected is not None:
        return field.expected
    if is_pointer(field):
        return False
    if field.required:
        return True
    if field.presence is not Presence.ALWAYS or isinstance(field.type, ListOf | MapOf):
        return False
    if isinstance(field.type, Struct):
        return field.name == "spec" or any(map(_is_required, members(field.type)))
    return True
