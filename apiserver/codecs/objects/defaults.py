"""Fill in declared defaults. Knows shapes, no kinds; the time is an argument.

Runs right after decoding, as upstream's defaulting functions do, so that hooks, admission and validation see complete objects.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from apiserver.schema import types
from apiserver.schema.resource import Object
from apiserver.schema.types import UNSET, Field, ListOf, MapOf, Struct, Type


def apply(shape: Struct, obj: Object, *, now: str) -> None:
    """Fill the defaults of `obj` in place.

    Absent members get their default, and so do empty members where absent and empty are the same. Members are visited in declared order, so
    a default may depend on an earlier one. A default inside an absent struct does nothing.
    """
    fill = _filler(shape)
    if fill is not None:
        fill(obj, now)


_Filler = Callable[[Any, str], None]


@functools.cache
def _filler(type_: Type) -> _Filler | None:
    """Return the filler of a type; None if nothing below declares a default."""
    match type_:
        case Struct():
            return _struct_filler(type_)
        case ListOf():
            inner = _filler(type_.item)
            return inner and _list_filler(inner)
        case MapOf():
            inner = _filler(type_.value)
            return inner and _map_filler(inner)
    return None


def _list_filler(inner: _Filler) -> _Filler:
    def fill(value: list[Any], now: str) -> None:
        for x in value:
            inner(x, now)

    return fill


def _map_filler(inner: _Filler) -> _Filler:
    def fill(value: Object, now: str) -> None:
        for x in value.values():
            inner(x, now)

    return fill


def _struct_filler(struct: Struct) -> _Filler | None:
    steps = [(f, _filler(f.type)) for f in types.members(struct)]
    steps = [(f, inner) for f, inner in steps if inner is not None or f.default is not UNSET]
    if not steps:
        return None

    def fill(value: Object, now: str) -> None:
        for field, inner in steps:
            x = value.get(field.name)
            if field.default is not UNSET and (x is None or (not x and not types.is_pointer(field))):
                x = _default(field, value, now)
                if x is not None:
                    value[field.name] = x
            if inner is not None and x is not None:
                inner(x, now)

    return fill


def _default(field: Field, value: Object, now: str) -> Any:
    """Return the declared value, or the result of the declared function for the struct and the time. None means no default."""
    if callable(field.default):
        return field.default(value, now)
    return copy.copy(field.default) if isinstance(field.default, list | dict) else field.default
