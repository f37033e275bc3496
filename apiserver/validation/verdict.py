"""Whether a value obeys what its shape declares: yes or no, without places and texts.

Nearly every object that is validated is in order. This is the answer for those; `validate` words what is wrong with the others. And
nearly every write leaves most of an object as it is: of what takes the place of a value that obeys, only what is different is looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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
ChangeTest = Callable[[Any, Any], bool]
"""The same, with one beside it that obeys."""

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
    inner, few, distinct = test(type_.item), _few(type_), _distinct(type_)
    if inner is None and few is None and distinct is None:
        return None

    def passes(value: list[Any]) -> bool:
        if few is not None and not few(value):
            return False
        return (inner is None or all(map(inner, value))) and (distinct is None or distinct(value))

    return passes


def _few(type_: ListOf) -> Test | None:
    max_items, limit = type_.max_items, type_.limit
    if not max_items:
        return None
    return lambda value: len(value) <= max_items and (limit is None or len(value) <= limit(value))


def _distinct(type_: ListOf) -> Test | None:
    """Of items each of which obeys."""
    unique = type_.unique
    return None if unique is None else lambda value: len(value) < 2 or len(set(map(unique, value))) == len(value)


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
    owed, own = _owed(rows), _own_test(struct)
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


def _owed(rows: Mapping[str, tuple[Any, bool, bool]]) -> set[str]:
    return {name for name, (_, _, needed) in rows.items() if needed}


def _own_test(struct: Struct) -> Test | None:
    return functools.reduce(_both, map(_check_test, struct_checks(struct)), None)


def _member_test(field: Field) -> tuple[Test | None, bool, bool] | None:
    """The test, whether an empty value is a value, and whether the member's absence is an error."""
    inner = test(field.type)
    if field.check is not None:
        inner = _both(inner, _field_test(field, field.check))
    absent = absent_value(field)
    needed = field.required or (inner is not None and absent is not ABSENT and not inner(absent))
    return None if inner is None and not needed else (inner, may_be_empty(field), needed)


def _field_test(field: Field, check: Check) -> Test:
    return _text_test(check) if isinstance(field.type, String) else _check_test(check)


def _both(first: Test | None, second: Test) -> Test:
    return second if first is None else lambda value: first(value) and second(value)


@functools.cache
def change_test(type_: Type) -> ChangeTest | None:
    """None when nothing is declared here or below. Law: `change_test(t)(new, old)` is `test(t)(new)` wherever `test(t)(old)`."""
    whole = test(type_)
    if whole is None:
        return None
    match type_:
        case Struct():
            return _struct_change_test(type_)
        case ListOf():
            return _list_change_test(type_)
    return lambda value, _: whole(value)


def _list_change_test(type_: ListOf) -> ChangeTest:
    """Items are compared with those that stood in their places."""
    inner, few, distinct = test(type_.item), _few(type_), _distinct(type_)

    def passes(value: list[Any], stored: list[Any]) -> bool:
        if few is not None and not few(value):
            return False
        if inner is not None:
            count = len(stored)
            for i, x in enumerate(value):
                if (i >= count or x != stored[i]) and not inner(x):
                    return False
        return distinct is None or distinct(value)

    return passes


def _struct_change_test(struct: Struct) -> ChangeTest:
    rows = {
        f.name: (row, _member_change_test(f)) for f in types.members(struct) if (row := _member_test(f)) is not None
    }
    owed, own = _owed({name: row for name, (row, _) in rows.items()}), _own_test(struct)

    def passes(value: Object, stored: Object) -> bool:
        for name, x in value.items():
            found = rows.get(name)
            if found is None:
                continue
            (inner, may_be_empty, needed), change = found
            if x is None or not (x or may_be_empty):
                if needed:
                    return False
            elif inner is not None:
                former = stored.get(name)
                if former is None:
                    if not inner(x):
                        return False
                elif x != former and not change(x, former):
                    return False
        if owed and not value.keys() >= owed:
            return False
        return own is None or own(value)

    return passes


def _member_change_test(field: Field) -> ChangeTest:
    inner = change_test(field.type)
    own = None if field.check is None else _field_test(field, field.check)

    def passes(value: Any, stored: Any) -> bool:
        return (inner is None or inner(value, stored)) and (own is None or own(value))

    return passes


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
