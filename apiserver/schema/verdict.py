"""Whether a value obeys what its shape declares: yes or no, without places and texts.

Nearly every object that is validated is in order. This is the answer for those; `validate` words what is wrong with the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from apiserver.apimachinery.fieldpath import Path
from apiserver.schema import types
from apiserver.schema.resource import Object
from apiserver.schema.types import (
    Boolean,
    Check,
    Field,
    Integer,
    ListOf,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Type,
)

Test = Callable[[Any], bool]
"""Looks at one value, which is not None."""

REMEMBERED_TEXTS, REMEMBERED_LENGTH = 2048, 96
"""Per format, so that a cache cannot be filled with much. The length is that of the longest qualified name."""


class _Nowhere(Path):
    """Stands in for the path where nobody will read it: building real ones would be half of the work."""

    __slots__ = ()

    def child(self, name: str) -> Path:
        return self

    def index(self, i: int) -> Path:
        return self

    def key(self, k: str) -> Path:
        return self


_NOWHERE = _Nowhere("")
ABSENT = object()
"""What a member that is not there counts as, when that is not a value."""


@functools.cache
def test(type_: Type) -> Test | None:
    """None when nothing is declared here or below."""
    match type_:
        case Struct():
            return _struct_test(type_)
        case ListOf():
            return _list_test(type_)
        case MapOf():
            return _map_test(type_)
        case String():
            return _string_test(type_)
        case Integer() | Boolean() if type_.check is not None:
            return _check_test(type_.check)
    return None


def _check_test(check: Check) -> Test:
    def passes(value: Any) -> bool:
        for _ in check(value, _NOWHERE):
            return False
        return True

    return passes


def _text_test(check: Check) -> Test:
    """A format is a pure function of the text, and the names and versions in one fleet are few: verdicts are remembered."""
    passes = _check_test(check)
    remembered = functools.lru_cache(maxsize=REMEMBERED_TEXTS)(passes)
    return lambda text: remembered(text) if len(text) <= REMEMBERED_LENGTH else passes(text)


def _string_test(type_: String) -> Test | None:
    enum, max_bytes = type_.enum, type_.max_bytes
    passes = None if type_.check is None else _text_test(type_.check)
    if not enum and not max_bytes:
        return passes

    def within(value: str) -> bool:
        if (max_bytes and too_long(value, max_bytes)) or (enum and value not in enum):
            return False
        return passes is None or passes(value)

    return within


def too_long(text: str, max_bytes: int) -> bool:
    # No character takes more than four bytes.
    return len(text) * 4 > max_bytes and len(text.encode(errors="replace")) > max_bytes


def _list_test(type_: ListOf) -> Test | None:
    inner, max_items, unique = test(type_.item), type_.max_items, type_.unique
    if inner is None and not max_items and unique is None:
        return None

    limit = type_.limit

    def passes(value: list[Any]) -> bool:
        if max_items and (len(value) > max_items or (limit is not None and len(value) > limit(value))):
            return False
        if inner is not None and not all(map(inner, value)):
            return False
        return unique is None or len(value) < 2 or len(set(map(unique, value))) == len(value)

    return passes


def _map_test(type_: MapOf) -> Test | None:
    inner, max_items = test(type_.value), type_.max_items
    key = None if type_.key_check is None else _text_test(type_.key_check)
    if inner is None and not max_items and key is None:
        return None

    def passes(value: Object) -> bool:
        if max_items and len(value) > max_items:
            return False
        return (key is None or all(map(key, value))) and (inner is None or all(map(inner, value.values())))

    return passes


def _struct_test(struct: Struct) -> Test | None:
    members = {f.name: _member_test(f) for f in types.members(struct)}
    rows = {name: row for name, row in members.items() if row is not None}
    owed = {name for name, (_, _, needed) in rows.items() if needed}
    own = functools.reduce(_both, map(_check_test, struct_checks(struct)), None)
    if not rows and own is None:
        return None

    def passes(value: Object) -> bool:
        for name, x in value.items():
            row = rows.get(name)
            if row is None:
                continue
            inner, may_be_empty, needed = row
            if x is None or not (x or may_be_empty):
                if needed:
                    return False
            elif inner is not None and not inner(x):
                return False
        if owed and not value.keys() >= owed:
            return False
        return own is None or own(value)

    return passes


def _member_test(field: Field) -> tuple[Test | None, bool, bool] | None:
    """The test, whether an empty value is a value, and whether the member's absence is an error."""
    inner = test(field.type)
    if field.check is not None:
        own = _text_test(field.check) if isinstance(field.type, String) else _check_test(field.check)
        inner = _both(inner, own)
    absent = absent_value(field)
    needed = field.required or (inner is not None and absent is not ABSENT and not inner(absent))
    return None if inner is None and not needed else (inner, may_be_empty(field), needed)


def _both(first: Test | None, second: Test) -> Test:
    return second if first is None else lambda value: first(value) and second(value)


def struct_checks(struct: Struct) -> list[Check]:
    """The struct's own check, after those of the structs that stand inline in it."""
    checks: list[Check] = []
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            checks += struct_checks(field.type)
    return checks if struct.check is None else [*checks, struct.check]


def absent_value(field: Field) -> Any:
    """Text, numbers and structs that are always written are there, with Go's zero value, when the client sent none."""
    if field.presence is not Presence.ALWAYS or field.required:
        return ABSENT
    if isinstance(field.type, Struct):
        return {}
    value = zero_value(field.type)
    return ABSENT if value is None else value


def may_be_empty(field: Field) -> bool:
    """Where absent and empty differ, empty is a value to look at; so it is where a member is always there and nobody requires more."""
    if types.is_pointer(field) or isinstance(field.type, RawJSON | Struct):
        return True
    return field.presence is Presence.ALWAYS and not field.required


def zero_value(type_: Type) -> Any:
    """Go's zero value of a text, a number or a boolean; None for all else."""
    match type_:
        case String():
            return ""
        case Integer():
            return 0
        case Boolean():
            return False
        case Quantity():
            return "0"
    return None
