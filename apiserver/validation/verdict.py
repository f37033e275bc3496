"""Decide whether a value satisfies what its shape declares: yes or no, without places and texts.

Nearly every validated object is valid, and this check is fast for it. `report` finds the errors of the others. Nearly every write leaves
most of an object unchanged, so an update checks only what differs from the valid stored value.
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
"""Tests one value, which is not None."""
ChangeTest = Callable[[Any, Any], bool]
"""Tests one value that replaces a valid one."""

REMEMBERED_TEXTS, REMEMBERED_LENGTH = 2048, 96
"""Texts that each format caches, and their longest length: that of the longest qualified name. So clients cannot fill a cache with much."""


class _Nowhere(Path):
    """Replaces a path that nobody reads: building real ones would be half of the work."""

    __slots__ = ()

    def child(self, name: str) -> Path:
        return self

    def index(self, i: int) -> Path:
        return self

    def key(self, k: str) -> Path:
        return self


_NOWHERE = _Nowhere("")
ABSENT = object()
"""Stands for a member that is absent and has no zero value."""


@functools.cache
def test(type_: Type) -> Test | None:
    """Return the test of a type; None if nothing is declared here or below."""
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
    """Cache verdicts: a format is a pure function of the text, and one fleet has few names and versions."""
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
    # A character takes at most four bytes.
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
    """Return the test of distinctness, for items that are valid."""
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
    """Return the test, whether an empty value is tested, and whether the member's absence is an error."""
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
    """Return the change test of a type; None if nothing is declared here or below.

    Invariant: if `test(t)(old)`, then `change_test(t)(new, old)` equals `test(t)(new)`.
    """
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
    """Compare items with the stored ones at the same index."""
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
    """Return the struct's own check, after those of its inline structs."""
    checks: list[Check] = []
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            checks += struct_checks(field.type)
    return checks if struct.check is None else [*checks, struct.check]


def absent_value(field: Field) -> Any:
    """Return the value of a member that the client did not send: Go's zero value for text, numbers and structs that are always written."""
    if field.presence is not Presence.ALWAYS or field.required:
        return ABSENT
    if isinstance(field.type, Struct):
        return {}
    value = zero_value(field.type)
    return ABSENT if value is None else value


def may_be_empty(field: Field) -> bool:
    """Return whether an empty value is tested: where it differs from absent, and where a member is always present without being
    required."""
    if types.is_pointer(field) or isinstance(field.type, RawJSON | Struct):
        return True
    return field.presence is Presence.ALWAYS and not field.required


def zero_value(type_: Type) -> Any:
    """Return Go's zero value of a text, a number or a boolean; None for all other types."""
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
