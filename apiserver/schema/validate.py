"""Checks what a shape declares: required members, limits, enumerations, formats, uniqueness, immutability.

Errors come in declared order: per struct its members, then its own check; per list its items, then repeated identities. Rules over
several members of different structs, and rules that need the stored object, are the kind's.
Upstream: kubernetes/kubernetes `pkg/apis/resource/validation/validation.go` (validateSlice, validateSet, validateMap).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, FieldErrors, Path
from apiserver.schema import canonical, types, verdict
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Check, Field, Integer, ListOf, MapOf, String, Struct, Type

IMMUTABLE = "field is immutable"
ELLIPSIS = "..."
MIN_SHOWN_KEY_BYTES = 16


def validate(shape: Struct, obj: Object) -> FieldErrors:
    """Everything that is wrong with a decoded and defaulted object."""
    passes, report = verdict.test(shape), _reporter(shape)
    found = FieldErrors()
    if passes is not None and report is not None and not passes(obj):
        report(obj, ROOT, found)
    return found


def validate_update(shape: Struct, new: Object, old: Object) -> FieldErrors:
    """Refuses changes of members that are declared immutable, also between set and unset."""
    report = _change_reporter(shape)
    found = FieldErrors()
    if report is not None:
        report(new, old, ROOT, found)
    return found


_Reporter = Callable[[Any, Path, FieldErrors], None]
"""Looks at one value, which is not None, and adds what is wrong with it."""


@functools.cache
def _reporter(type_: Type) -> _Reporter | None:
    """None when nothing is declared here or below."""
    match type_:
        case Struct():
            return _struct_reporter(type_)
        case ListOf():
            return _list_reporter(type_)
        case MapOf():
            return _map_reporter(type_)
        case String():
            return _string_reporter(type_)
        case Integer() | Boolean() if type_.check is not None:
            return _check_reporter(type_.check)
    return None


def _check_reporter(check: Check) -> _Reporter:
    return lambda value, path, found: found.extend(check(value, path))


def _string_reporter(type_: String) -> _Reporter | None:
    if not type_.enum and not type_.max_bytes and type_.check is None:
        return None

    def report(value: str, path: Path, found: FieldErrors) -> None:
        if type_.enum and value not in type_.enum:
            found.append(fieldpath.not_supported(path, value, type_.enum))
        if type_.max_bytes and verdict.too_long(value, type_.max_bytes):
            found.append(fieldpath.too_long(path, type_.max_bytes))
        if type_.check is not None:
            found.extend(type_.check(value, path))

    return report


def _list_reporter(type_: ListOf) -> _Reporter | None:
    inner, max_items, unique = _reporter(type_.item), type_.max_items, type_.unique
    if inner is None and not max_items and unique is None:
        return None

    def report(value: list[Any], path: Path, found: FieldErrors) -> None:
        if max_items and len(value) > max_items:
            found.append(fieldpath.too_many(path, len(value), max_items))
            return
        if inner is not None:
            for i, x in enumerate(value):
                inner(x, path.index(i), found)
                if found.full:
                    return
        if unique is not None:
            found.extend(_repeated(map(unique, value), path))

    return report


def _repeated(identities: Iterable[Any], path: Path) -> Iterable[FieldError]:
    seen: set[Any] = set()
    for i, identity in enumerate(identities):
        if identity in seen:
            yield fieldpath.duplicate(path.index(i), identity)
        seen.add(identity)


def _map_reporter(type_: MapOf) -> _Reporter | None:
    inner, max_items, key_check = _reporter(type_.value), type_.max_items, type_.key_check
    if inner is None and not max_items and key_check is None:
        return None

    def report(value: Object, path: Path, found: FieldErrors) -> None:
        if max_items and len(value) > max_items:
            found.append(fieldpath.too_many(path, len(value), max_items))
            return
        for key, x in value.items():
            if key_check is not None:
                found.extend(key_check(key, path))
            if inner is not None:
                inner(x, path.key(_shown_key(key, type_.shown_key_bytes)), found)
            if found.full:
                return

    return report


def _shown_key(key: str, limit: int) -> str:
    """A key with its middle cut out when it is longer than `limit` bytes; 0 is no limit."""
    text = key.encode(errors="replace")
    limit = max(limit, MIN_SHOWN_KEY_BYTES) if limit else len(text)
    if len(text) <= limit:
        return key
    kept = limit - len(ELLIPSIS)
    return (text[: (kept + 1) // 2] + ELLIPSIS.encode() + text[len(text) - kept // 2 :]).decode(errors="replace")


def _struct_reporter(struct: Struct) -> _Reporter | None:
    steps = [(f, reporters) for f in types.members(struct) if (reporters := _member_reporters(f)) or f.required]
    checks = verdict.struct_checks(struct)
    if not steps and not checks:
        return None

    def report(value: Object, path: Path, found: FieldErrors) -> None:
        for field, reporters in steps:
            x = value.get(field.name)
            x = verdict.absent_value(field) if x is None else x
            if x is not verdict.ABSENT and (x or verdict.may_be_empty(field)):
                at = path.child(field.name)
                for inner in reporters:
                    inner(x, at, found)
            elif field.required:
                found.append(fieldpath.required(path.child(field.name)))
        for check in checks:
            found.extend(check(value, path))

    return report


def _member_reporters(field: Field) -> list[_Reporter]:
    """First what the type declares, then the member."""
    own = None if field.check is None else _check_reporter(field.check)
    return [reporter for reporter in (_reporter(field.type), own) if reporter is not None]


_ChangeReporter = Callable[[Object, Object, Path, FieldErrors], None]


@functools.cache
def _change_reporter(struct: Struct) -> _ChangeReporter | None:
    """None when nothing below is immutable. Elements of lists and maps have no identity here, so their members are not looked at."""
    steps = []
    for field in types.members(struct):
        inner = _change_reporter(field.type) if isinstance(field.type, Struct) else None
        same = canonical.comparison(field) if field.immutable else None
        if inner is not None or same is not None:
            unset = None if types.is_pointer(field) else verdict.zero_value(field.type)
            steps.append((field.name, unset, same, inner))
    if not steps:
        return None

    def report(new: Object, old: Object, path: Path, found: FieldErrors) -> None:
        for name, unset, same, inner in steps:
            x, y = new.get(name), old.get(name)
            if same is not None and not same(x, y):
                found.append(fieldpath.invalid(path.child(name), unset if x is None else x, IMMUTABLE))
            if inner is not None:
                inner(x or {}, y or {}, path.child(name), found)

    return report
