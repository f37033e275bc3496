"""Build msgspec types from shapes, which read, check and order whole objects in C.

The types accept exactly the regular values of a shape. A value that they refuse may still be valid: `decoding` and `canonical` then walk it
in Python. Only these two modules and `indexed` see the generated classes; objects are dictionaries everywhere else.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import msgspec

from apiserver.codecs.json import rawjson, surrogates
from apiserver.codecs.objects import times
from apiserver.schema import types
from apiserver.schema.types import (
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
)
from kubetext import strconv, utf8
from kubetext.sorting import LONG, in_order

_NONZERO_TIME = Annotated[str, msgspec.Meta(pattern=f"^(?!{times.ZERO[:-1]})")]


# As values, because the type checker would take a subscript with a variable for an annotation.
_annotated: Any = Annotated
_list: Any = list
_dict: Any = dict
_typed_dict: Any = TypedDict

TYPE_META = ("kind", "apiVersion")
"""Members of every document."""


@functools.cache
def parser(shape: Struct, float_hook: Callable[[str], Any] | None = None) -> Callable[[bytes | str], Any]:
    """Return a decoder for the JSON of a document of that shape. It returns dictionaries, lists, and `msgspec.Raw` for raw JSON, whose
    bytes are not copied.

    If the shape holds raw JSON, unknown members are left out. The decoder raises msgspec.ValidationError for another structure, and the
    errors of msgspec's decoder.
    """
    if shape.open:
        return _open_parser(shape, float_hook)
    return surrogates.kept(
        msgspec.json.Decoder(_parsing(shape, holds_raw, extra=TYPE_META), float_hook=float_hook).decode
    )


def _open_parser(shape: Struct, float_hook: Callable[[str], Any] | None) -> Callable[[bytes | str], Any]:
    """Return the same for an open struct. The text is read once more if it may hold raw JSON, the fields of managers."""
    whole = surrogates.kept(msgspec.json.Decoder(float_hook=float_hook or strconv.parse_float).decode)
    declared = parser(types.closed(shape))

    def parse(data: bytes | str) -> Any:
        value = whole(data)
        text = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
        if rawjson.may_exceed_int64(text):
            # Go writes a float of 1e20 as an integer, and reads it as a float.
            value = rawjson.as_go(value, text)
        if isinstance(value, dict) and b"fieldsV1" in text:
            value |= {name: x for name, x in declared(data).items() if name not in TYPE_META}
        return value

    return parse


@functools.cache
def splitter(shape: Struct, kept: Callable[[Type], bool]) -> Callable[[bytes], Any]:
    """Return a parser that also keeps as text the values of all types for which `kept` returns True."""

    def holds(type_: Type) -> bool:
        match type_:
            case Struct():
                return holds_raw(type_) or any(holds(f.type) for f in type_.fields)
            case ListOf():
                return holds(type_.item)
            case MapOf():
                return kept(type_) or holds(type_.value)
        return kept(type_) or holds_raw(type_)

    return surrogates.kept(msgspec.json.Decoder(_parsing(shape, holds, kept, extra=TYPE_META)).decode)


def _nothing(_: Type) -> bool:
    return False


@functools.cache
def _parsing(
    type_: Type, holds: Callable[[Type], bool], kept: Callable[[Type], bool] = _nothing, extra: tuple[str, ...] = ()
) -> Any:
    """Return the type that parses `type_`. `holds` tells whether values that are kept as text lie below; the result is Any if none do."""
    if kept(type_):
        return msgspec.Raw
    match type_:
        case Struct() if holds(type_):
            members = {f.name: _or_null(_parsing(f.type, holds, kept)) for f in types.members(type_)}
            return _typed_dict(type_.name, {**dict.fromkeys(extra, Any), **members}, total=False)
        case ListOf() if holds(type_):
            return _list[_or_null(_parsing(type_.item, holds, kept))]
        case MapOf() if holds(type_):
            return _dict[str, _or_null(_parsing(type_.value, holds, kept))]
        case RawJSON():
            return msgspec.Raw
    return Any


def _or_null(parsing: Any) -> Any:
    return parsing if parsing in (Any, msgspec.Raw) else parsing | None


def has_no_others(shape: Struct, document: bytes) -> bool:
    """Return whether the JSON of a document of that shape has only members of the shape. False means unknown.

    Maps and lists without structs are not read, so they cost nothing at any length.
    """
    try:
        _knowing(shape)(document)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


@functools.cache
def _knowing(shape: Struct) -> Callable[[bytes], Any]:
    return surrogates.replaced(msgspec.json.Decoder(_known(shape, TYPE_META)).decode)


@functools.cache
def _known(type_: Type, extra: tuple[str, ...] = ()) -> Any:
    """Return a type whose structs refuse unknown members. Values without structs below stay text."""
    match type_:
        case Struct() if type_.open:
            return msgspec.Raw
        case Struct():
            members = [(field.name, _or_null(_known(field.type))) for field in types.members(type_)]
            named = [*((name, msgspec.Raw) for name in extra), *members]
            fields = [(f"m{i}", known, msgspec.field(default=None, name=name)) for i, (name, known) in enumerate(named)]
            return msgspec.defstruct(type_.name, fields, forbid_unknown_fields=True, gc=False)
        case ListOf():
            item = _known(type_.item)
            return item if item is msgspec.Raw else _list[item | None]
        case MapOf():
            member = _known(type_.value)
            return member if member is msgspec.Raw else _dict[str, member | None]
    return msgspec.Raw


@functools.cache
def holds_raw(type_: Type) -> bool:
    """Return whether the type has raw JSON below."""
    match type_:
        case Struct():
            return any(holds_raw(f.type) for f in types.members(type_))
        case ListOf():
            return holds_raw(type_.item)
        case MapOf():
            return holds_raw(type_.value)
    return isinstance(type_, RawJSON)


Replacer = Callable[[Any, Callable[[Any], Any]], Any]
"""Replaces each raw JSON below a value by the result of a function, in place. Removes the member if the result is UNSET. Returns the value
or its replacement."""


@functools.cache
def raw_replacer(type_: Type) -> Replacer | None:
    """Return the replacer of a type; None if it has no raw JSON below."""
    match type_:
        case RawJSON():
            return lambda value, step: step(value)
        case ListOf():
            item = raw_replacer(type_.item)
            return item and _list_replacer(item)
        case MapOf():
            member = raw_replacer(type_.value)
            return member and _map_replacer(member)
        case Struct():
            found = [(f.name, replace) for f in types.members(type_) if (replace := raw_replacer(f.type))]
            return _struct_replacer(found) if found else None
    return None


def _list_replacer(item: Replacer) -> Replacer:
    def replace(value: list[Any] | None, step: Callable[[Any], Any]) -> Any:
        if value is not None:
            value[:] = [None if (replaced := item(x, step)) is msgspec.UNSET else replaced for x in value]
        return value

    return replace


def _map_replacer(member: Replacer) -> Replacer:
    def replace(value: dict[str, Any] | None, step: Callable[[Any], Any]) -> Any:
        if value is not None:
            for key, x in value.items():
                replaced = member(x, step)
                value[key] = None if replaced is msgspec.UNSET else replaced
        return value

    return replace


def _struct_replacer(members: list[tuple[str, Replacer]]) -> Replacer:
    def replace(value: dict[str, Any] | None, step: Callable[[Any], Any]) -> Any:
        for name, inner in members:
            if value is not None and name in value:
                replaced = inner(value[name], step)
                if replaced is msgspec.UNSET:
                    del value[name]
                else:
                    value[name] = replaced
        return value

    return replace


Mapper = Callable[[Any, Callable[[Any], Any]], Any]
"""Returns the value with each raw JSON below it replaced by the result of a function, in the order in which they are written. Returns the
value itself if all stay the same. Never changes its argument."""


@functools.cache
def raw_mapper(type_: Type, *, verbatim: bool) -> Mapper | None:
    """Return the mapper of the raw JSON that is kept verbatim, or of the other; None if nothing below is such raw JSON."""
    match type_:
        case RawJSON() if type_.verbatim is verbatim:
            return lambda value, step: step(value)
        case ListOf():
            item = raw_mapper(type_.item, verbatim=verbatim)
            return item and _list_mapper(item)
        case MapOf():
            member = raw_mapper(type_.value, verbatim=verbatim)
            return member and _map_mapper(member)
        case Struct():
            mappers = [(f.name, raw_mapper(f.type, verbatim=verbatim)) for f in types.members(type_)]
            found = [(name, mapper) for name, mapper in mappers if mapper is not None]
            return _struct_mapper(found) if found else None
    return None


def _list_mapper(item: Mapper) -> Mapper:
    def mapped(value: list[Any], step: Callable[[Any], Any]) -> list[Any]:
        made = [x if x is None else item(x, step) for x in value]
        return value if all(map(operator.is_, made, value)) else made

    return mapped


def _map_mapper(member: Mapper) -> Mapper:
    def mapped(value: dict[str, Any], step: Callable[[Any], Any]) -> dict[str, Any]:
        # Keys that have the same written form are written once.
        whole = {utf8.whole(name): x for name, x in value.items()}
        made = {name: x if (x := whole[name]) is None else member(x, step) for name in in_order(whole)}
        return value if made.keys() == value.keys() and all(x is value[name] for name, x in made.items()) else made

    return mapped


def _struct_mapper(members: list[tuple[str, Mapper]]) -> Mapper:
    def mapped(value: dict[str, Any], step: Callable[[Any], Any]) -> dict[str, Any]:
        changed = {}
        for name, inner in members:
            x = value.get(name)
            if x is not None and (made := inner(x, step)) is not x:
                changed[name] = made
        return {**value, **changed} if changed else value

    return mapped


@functools.cache
def reading(type_: Type) -> Any:
    """Return a type for input: null and absent members are None, unknown members are refused. Structs that are not pointers are always
    present."""
    match type_:
        case Struct():
            fields = [(f"m{i}", *_read_member(f)) for i, f in enumerate(types.members(type_))]
            return msgspec.defstruct(type_.name, fields, omit_defaults=True, forbid_unknown_fields=True, gc=False)
        case ListOf():
            return _list[reading(type_.item)]
        case MapOf():
            return _dict[str, reading(type_.value)]
        case Quantity():
            return str | int | float
    return _leaf(type_)


def _read_member(field: Field) -> tuple[Any, Any]:
    inner = reading(field.type)
    if isinstance(field.type, Struct) and not types.is_pointer(field):
        return inner, msgspec.field(default_factory=inner, name=field.name)
    return inner | None, msgspec.field(default=None, name=field.name)


def _leaf(type_: Type) -> Any:
    match type_:
        case String() | Time() | Quantity():
            return str
        case Boolean():
            return bool
        case Integer():
            low, high = types.bounds(type_)
            return Annotated[int, msgspec.Meta(ge=low, le=high)]
    return Any


@functools.cache
def writing(type_: Type) -> Any:
    """Return a type for output, with the presence rules as defaults. Refuses long maps: only `canonical` may sort them.

    Returns None if the shape needs more: a struct that is left out when empty must be written before that is known.
    """
    match type_:
        case Struct():
            members = [_write_member(f) for f in types.members(type_)]
            fields = [(f"m{i}", *m) for i, m in enumerate(members) if m is not None]
            if len(fields) < len(members):
                return None
            return msgspec.defstruct(type_.name, fields, omit_defaults=True, gc=False)
        case ListOf():
            inner = writing(type_.item)
            return None if inner is None else _list[inner]
        case MapOf():
            inner = writing(type_.value)
            return None if inner is None else _annotated[_dict[str, inner], msgspec.Meta(max_length=LONG)]
        case RawJSON():
            return msgspec.Raw
        case Time():
            return _NONZERO_TIME
    return _leaf(type_)


def _write_member(field: Field) -> tuple[Any, Any] | None:
    """Return type and default of a member. msgspec leaves out members that equal their default, unless the default comes from a function.

    Empty lists and maps are refused here: `canonical` writes such objects in Python.
    """
    inner = writing(field.type)
    if inner is None:
        # Objects without the member are still regular.
        optional = field.presence in (Presence.POINTER, Presence.OMIT_EMPTY)
        return (None, msgspec.field(default=None, name=field.name)) if optional else None
    match field.presence, field.type:
        case Presence.POINTER | Presence.OMIT_EMPTY, RawJSON():
            # In a union msgspec would not recognize `Raw`.
            return inner, msgspec.field(default=None, name=field.name)
        case _, RawJSON():
            return inner, msgspec.field(default_factory=lambda: None, name=field.name)
        case Presence.POINTER, _:
            return inner | None, msgspec.field(default=None, name=field.name)
        case Presence.OMIT_EMPTY, Struct():
            return None
        case Presence.ALWAYS, Struct():
            return inner, msgspec.field(default_factory=inner, name=field.name)
        case Presence.ALWAYS, String() | Integer() | Boolean() | Quantity():
            return inner, msgspec.field(default_factory=_zero_factory(field.type), name=field.name)
        case Presence.ALWAYS, ListOf() | MapOf():
            filled = _annotated[inner, msgspec.Meta(min_length=1)]
            return filled | None, msgspec.field(default_factory=lambda: None, name=field.name)
        case Presence.ALWAYS | Presence.NULLABLE, _:
            return inner | None, msgspec.field(default_factory=lambda: None, name=field.name)
        case Presence.OMIT_EMPTY, ListOf() | MapOf():
            return _annotated[inner, msgspec.Meta(min_length=1)] | None, msgspec.field(default=None, name=field.name)
    return inner, msgspec.field(default=_empty(field.type), name=field.name)


def _zero_factory(type_: Type) -> Any:
    return (lambda: "0") if isinstance(type_, Quantity) else lambda: _empty(type_)


def _empty(type_: Type) -> Any:
    match type_:
        case Integer():
            return 0
        case Boolean():
            return False
    return ""
