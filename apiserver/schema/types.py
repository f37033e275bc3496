"""The types from which a kind builds its shape.

A shape is a tree of frozen values. Everything else is derived from it: JSON names and order, protobuf numbers, list and map semantics for
server-side apply, patch strategies, defaults, limits, immutability and descriptions.

Lengths are bytes of UTF-8, as upstream counts them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema.context import Context

Check = Callable[[Any, Path], Iterable[FieldError]]
"""A rule for one value: yields its errors, nothing for a valid value.

Runs only when there is a value: not for an absent pointer, nor where empty and absent are the same. A member that is always written always
has a value, Go's zero value if necessary.

It must be a pure function: results for short texts are cached. For an invalid value it runs twice, the first time with a path that leads
nowhere.
"""

Rule = Callable[[Context, Any, Any, Path], Iterable[FieldError]]
"""A check of a struct that needs more than its value: `rule(context, value, stored, path)`.

`stored` is the value at the same place of the stored object; None on create and if the place is empty. Elements of a list correspond by
their `unique` identity, or by index if the list is stored `as_a_whole`. Otherwise they have no stored value.
"""


class Presence(Enum):
    """When a member is written, in the terms of upstream's Go tags. Reading keeps `[]` and `{}` apart from absent."""

    POINTER = "pointer"  # written when it was given, also when empty or zero (`*T,omitempty`)
    OMIT_EMPTY = "omitempty"  # left out when empty or zero (`T,omitempty`)
    ALWAYS = "always"  # written also when absent: "", 0, false, "0" (quantity); null for lists, maps, times, raw JSON; `{…}` for structs
    NULLABLE = "nullable"  # a pointer that is always written: null when absent (`*T` without omitempty)


class ListType(Enum):
    """`x-kubernetes-list-type`."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class _Unset(Enum):
    UNSET = 0


UNSET = _Unset.UNSET
"""No default declared."""

ACCESS, UPDATE, IMMUTABLE, KEY = "#access", "#update", "#immutable", "#key"
"""Places in `Struct.judged` that every kind shares: permissions of the user, errors of changed metadata, refused changes of members, errors
of an entry's key (which always come first)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class String:
    """Text. `go` is the Go type that decoding errors name. `max_bytes` 0 means no limit. `enum` lists the legal values in the order in
    which the error prints them. `check` is the format. `known` are the values that OpenAPI lists, without a check of the shape (upstream:
    `+enum` of a Go type)."""

    go: str = "string"
    max_bytes: int = 0
    enum: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Integer:
    """A whole number of 32 or 64 bits."""

    bits: Literal[32, 64] = 64
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boolean:
    """true or false."""

    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantity:
    """A resource quantity; read from text or number, kept and written in canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Time:
    """RFC 3339; written in UTC with whole seconds, or with microseconds when `micro`."""

    micro: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawJSON:
    """Any JSON value (runtime.RawExtension, FieldsV1). Its text is kept byte by byte, or compact without `verbatim`."""

    verbatim: bool = True
    go: str = "runtime.RawExtension"
    model: str = "io.k8s.apimachinery.pkg.runtime.RawExtension"


@dataclass(frozen=True, slots=True, eq=False)
class ListOf:
    """A list. `unique` returns an item's identity for the uniqueness check. `keys` are the keys of a MAP list.

    Checked as by upstream's list helper. More than `max_items` is one TooMany and nothing else. Otherwise every item is checked, then each
    repeated identity is a Duplicate on the later element.

    With `as_a_whole` an item has a stored value, the one at its index, only if the whole list equals the stored one. `limit` returns the
    maximum for a list with these elements, if lower than `max_items`. `go` is the name of a Go type of its own, which protobuf makes a
    message.
    """

    item: Type
    list_type: ListType = ListType.ATOMIC
    keys: tuple[str, ...] = ()
    max_items: int = 0
    unique: Callable[[Any], Any] | None = None
    go: str = ""
    as_a_whole: bool = False
    limit: Callable[[Sequence[Any]], int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MapOf:
    """A map from text to `value`.

    Checked like a list: more than `max_items` is one TooMany and nothing else; otherwise every key, then its value. `key_check` gets the
    key and the map's own path. Keys longer than `shown_key_bytes` are shortened in the paths of their values (0: never). `go_key` is the Go
    type of the key.
    """

    value: Type
    max_items: int = 0
    key_check: Check | None = None
    go_key: str = "string"
    shown_key_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One member of a struct.

    * `number` is the protobuf field number.
    * `required` reports an absent or empty value (of a pointer: an absent one) as `Required value`, and nothing else about it.
    * `default` fills an absent or empty value (of a pointer: an absent one). It is a value, or a function of the struct around it and the
      request's time that may return None.
    * `tells_default`: OpenAPI has the default if it is a value (upstream: `+default`, which Go code's defaults do not have).
    * `immutable` refuses a change on update.
    * `ratchets`: a stored value with the same meaning is not checked again.
    * `inline` puts the members of a struct field directly into the parent's JSON, while protobuf nests it.
    * `doc` is the description in OpenAPI, in our own words.
    * `expected` is OpenAPI's `required` where that does not follow from the rest.
    * `go` is the Go name for protobuf's errors, if it is not the name with a capital.
    """

    name: str
    number: int
    type: Type
    doc: str = ""
    go: str = ""
    presence: Presence = Presence.OMIT_EMPTY
    required: bool = False
    default: Any = UNSET
    tells_default: bool = True
    immutable: bool = False
    ratchets: bool = False
    inline: bool = False
    patch_strategy: str = ""
    patch_merge_key: str = ""
    expected: bool | None = None
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Struct:
    """An object with named members, in the order in which they are written.

    `name` is the Go type name, `model` its OpenAPI package (definition name = `<model>.<name>`), `go` the package prefix that decoding
    errors print. `atomic` is `x-kubernetes-map-type: atomic`.

    `check` holds rules over several members, and `rule` those that need more than the value. They run after the members' own checks, in
    this order.

    `judged` is the order of reported errors, if it is not that of the members. It has names of members, "" for the struct's own errors
    (otherwise last), and names that begin with `#`, to which a check moves errors with `FieldError.at`. IMMUTABLE among them takes the
    refused changes of all members below. Objects begin with ACCESS, metadata and UPDATE unless they declare otherwise.

    `alternatives` are members of which at most one may be given. If several are, their contents are not checked.

    `open`: the struct keeps further members, any JSON. They are written behind the declared ones, sorted at every level as Go writes maps.
    """

    name: str
    fields: Sequence[Field]
    doc: str = ""
    model: str = ""
    go: str = "v1"
    atomic: bool = False
    check: Check | None = None
    rule: Rule | None = None
    judged: Sequence[str] = ()
    alternatives: Sequence[str] = ()
    open: bool = False


Type = String | Integer | Boolean | Quantity | Time | RawJSON | ListOf | MapOf | Struct


def members(struct: Struct) -> tuple[Field, ...]:
    """Return the members as they stand in JSON: those of an inline struct in its place."""
    found: list[Field] = []
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            found += members(field.type)
        else:
            found.append(field)
    return tuple(found)


def structs(type_: Type) -> Iterator[Struct]:
    """Yield every struct below a type, each once, outer ones first."""
    seen: set[Struct] = set()
    left: list[Type] = [type_]
    while left:
        match left.pop(0):
            case ListOf(item=inner) | MapOf(value=inner):
                left.append(inner)
            case Struct() as struct if struct not in seen:
                seen.add(struct)
                left += [field.type for field in struct.fields]
                yield struct


@functools.cache
def closed(struct: Struct) -> Struct:
    """Return an open struct without its further members."""
    return dataclasses.replace(struct, open=False)


def is_pointer(field: Field) -> bool:
    """Return whether absent and empty differ for this member."""
    return field.presence in (Presence.POINTER, Presence.NULLABLE)


def bounds(integer: Integer) -> tuple[int, int]:
    """Return the least and the greatest value."""
    half = 1 << (integer.bits - 1)
    return -half, half - 1
