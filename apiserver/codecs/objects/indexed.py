"""Read the few attributes that selectors use from a stored object's bytes, without decoding the rest. Knows no kind."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver.apimachinery import long_labels
from apiserver.codecs.json import rawjson, surrogates
from apiserver.schema import types
from apiserver.schema.custom import Custom
from apiserver.schema.resource import Resource
from apiserver.schema.types import Boolean, Field, Integer, Struct

LONG = 64 << 10
"""Bytes of an object, and of its labels, above which these are not decoded."""
NO_LABELS: Mapping[str, str] = MappingProxyType({})
"""Shared by all objects without labels."""

Reader = Callable[[bytes], tuple[Mapping[str, str], tuple[str, ...]]]
"""Returns the labels of a stored object's bytes, and the values of its selectable fields in declared order ("" for absent ones)."""

_LABELS = ("metadata", "labels")


def reader(resource: Resource) -> Reader:
    """Return the reader of a kind.

    Values are interned: the same few drivers and nodes stand in thousands of objects. Raises msgspec.DecodeError for bytes that no object
    of the kind can have.
    """
    if resource.custom is not None and resource.custom.indexed:
        return _custom_reader(resource, resource.custom)
    return _reader(resource)


def _custom_reader(resource: Resource, custom: Custom) -> Reader:
    """Return the reader of a custom resource with selectable fields: only the members that they are in are decoded."""
    read_labels = _reader(resource)
    wanted, values_of = custom.fields_in, custom.fields

    def read(data: bytes) -> tuple[Mapping[str, str], tuple[str, ...]]:
        found = {name: rawjson.parsed(raw) for name, raw in rawjson.members(data).items() if name in wanted}
        return read_labels(data)[0], tuple(map(sys.intern, values_of(found)))

    return read


def _reader(resource: Resource) -> Reader:
    selectable = resource.selectable if resource.custom is None else {}
    paths = [tuple(path.split(".")) for path in selectable.values()]
    decode, decode_long = (
        surrogates.skipped(msgspec.json.Decoder(_partial(resource.shape, [_LABELS, *paths], labels=labels)).decode)
        for labels in (dict[str, str] | None, msgspec.Raw)
    )
    labels_of = operator.attrgetter(_attribute(_LABELS))
    values_of = _values_getter(paths)
    as_text = sys.intern if all(_is_text(resource.shape, path) for path in paths) else _text

    def read(data: bytes) -> tuple[Mapping[str, str], tuple[str, ...]]:
        if len(data) > LONG:
            found = decode_long(data)
            text = bytes(labels_of(found) or b"null")
            labels = long_labels.of(text) if len(text) > LONG else long_labels.decode(text)
        else:
            found = decode(data)
            labels = labels_of(found)
        return labels or NO_LABELS, tuple([as_text(x) for x in values_of(found)])

    return read


def is_selectable(shape: Struct, path: str) -> bool:
    """Return whether a selector can use the value at this path: a text, number or boolean, below structs only."""
    here: types.Type = shape
    for name in path.split("."):
        if not isinstance(here, Struct) or name not in (f.name for f in types.members(here)):
            return False
        here = _field(here, name).type
    return isinstance(here, types.String | Integer | Boolean)


def _values_getter(paths: list[tuple[str, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    names = [_attribute(path) for path in paths]
    if len(names) == 1:
        only = operator.attrgetter(names[0])
        return lambda found: (only(found),)
    return operator.attrgetter(*names) if names else lambda _: ()


def _attribute(path: tuple[str, ...]) -> str:
    """Return the attribute path in the generated classes. Their names must not be Python keywords."""
    return ".".join(f"m_{name}" for name in path)


def _partial(struct: Struct, paths: list[tuple[str, ...]], *, labels: Any) -> Any:
    """Return a class with only the members on the way to `paths`, and the labels as type `labels`. Absent structs are one shared empty
    instance, which frozen classes allow."""
    members: list[tuple[str, Any, Any]] = []
    for name in dict.fromkeys(path[0] for path in paths):
        field = _field(struct, name)
        below = [path[1:] for path in paths if path[0] == name and path[1:]]
        if isinstance(field.type, Struct) and below:
            inner = _partial(field.type, below, labels=labels)
            members.append((f"m_{name}", inner, msgspec.field(default=inner(), name=name)))
        else:
            type_, default = _leaf(field, labels)
            members.append((f"m_{name}", type_, msgspec.field(default=default, name=name)))
    return msgspec.defstruct(struct.name, members, frozen=True, gc=False)


def _leaf(field: Field, labels: Any = None) -> tuple[Any, Any]:
    match field.type:
        case types.MapOf():
            return labels, msgspec.Raw() if labels is msgspec.Raw else None
        case Boolean():
            return bool | None, None
        case Integer():
            return int | None, None
    return str, ""


def _field(struct: Struct, name: str) -> Field:
    return next(f for f in types.members(struct) if f.name == name)


def _is_text(struct: Struct, path: tuple[str, ...]) -> bool:
    field = _field(struct, path[0])
    if isinstance(field.type, Struct) and path[1:]:
        return _is_text(field.type, path[1:])
    return _leaf(field)[0] is str


def _text(value: Any) -> str:
    """Return a value as a field selector spells it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return sys.intern(str(value))
