"""Report violations of what a shape declares: required members, limits, enumerations, formats, uniqueness, immutability.

Errors come in declared order: per struct its members, then its own check and rule; per list its items, then repeated identities. Each is
found only when the caller fetches it. Rules over several members of different structs belong to the kind.
Upstream: kubernetes/kubernetes `pkg/apis/resource/validation/validation.go` (validateSlice, validateSet, validateMap).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import AFTER_ITEMS, ROOT, FieldError, Path
from apiserver.codecs.objects import canonical
from apiserver.schema import types
from apiserver.schema.context import Context
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Check, Field, Integer, ListOf, MapOf, Rule, String, Struct, Type
from apiserver.validation import verdict

IMMUTABLE = "field is immutable"
ELLIPSIS = "..."
MIN_SHOWN_KEY_BYTES = 16


def validate(context: Context, shape: Struct, new: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield all errors of a decoded and defaulted object. `old` is the stored one, None on create."""
    rules, reader = _rules(shape), _reader(shape)
    if reader is None:
        return
    if old is not None and context.old_obeys:
        change = verdict.change_test(shape)
        fine = change is None or change(new, old)
    else:
        passes = verdict.test(shape)
        fine = passes is None or passes(new)
    if not fine or (rules is not None and next(rules(context, new, old, ROOT), None) is not None):
        yield from reader(context, new, old, ROOT)


def validate_update(shape: Struct, new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of changed immutable members, also between set and unset."""
    reader = _change_reader(shape)
    return iter(()) if reader is None else reader(new, old, ROOT)


def in_order(shape: Struct, errors: Iterable[FieldError]) -> list[FieldError]:
    """Sort errors into upstream's order: by their places, in the order in which structs are `judged`. Errors of one place keep their
    order."""
    return sorted(errors, key=lambda error: _rank(shape, error.place))


def _rank(type_: Type | None, place: Path | None) -> list[Any]:
    """Return a key that sorts places of one type: numbers for members and elements, texts for entries. Errors of metadata have no place."""
    rank: list[Any] = []
    for segment in ["metadata"] if place is None else place.segments():
        match type_:
            case Struct():
                order, of = _judged(type_)
                name = segment.removeprefix(".")
                rank.append(order.get(name, len(order)))
                type_ = of.get(name)
            case ListOf():
                rank.append(math.inf if segment == AFTER_ITEMS else int(segment[1:-1]))
                type_ = type_.item
            case MapOf():
                rank.append(segment)
                type_ = type_.value
            case _:
                return rank
    match type_:
        case Struct():
            rank.append(_judged(type_)[0][""])
        case ListOf():
            rank.append(-1)
        case MapOf():
            rank.append("")
    return rank


@functools.cache
def _judged(struct: Struct) -> tuple[Mapping[str, int], Mapping[str, Type]]:
    """Return the rank of each member's errors and of the struct's own, and the members' types."""
    of = {field.name: field.type for field in types.members(struct)}
    first = struct.judged or ((types.ACCESS, "metadata", types.UPDATE) if "metadata" in of else ())
    names = dict.fromkeys([types.KEY, *first, *of, ""])
    return {name: i for i, name in enumerate(names)}, of


_Reader = Callable[[Context, Any, Any, Path], Iterator[FieldError]]
"""Yields the errors of one value, which is not None. `old` is the stored value at its place, or None."""


@functools.cache
def _reader(type_: Type, *, rules_only: bool = False) -> _Reader | None:
    """Return the reader of a type; None if nothing is declared here or below. `rules_only` leaves out checks that need the value alone."""
    match type_:
        case Struct():
            return _struct_reader(type_, rules_only=rules_only)
        case ListOf():
            return _list_reader(type_, rules_only=rules_only)
        case MapOf():
            return _map_reader(type_, rules_only=rules_only)
        case String() if not rules_only:
            return _string_reader(type_)
        case Integer() | Boolean() if type_.check is not None and not rules_only:
            return _check_reader(type_.check)
    return None


def _rules(type_: Type) -> _Reader | None:
    """Return the reader of the rules that `verdict` cannot check."""
    return _reader(type_, rules_only=True)


@functools.cache
def _compares(type_: Type) -> bool:
    """Return whether anything here or below compares with the stored value."""
    match type_:
        case Struct():
            return type_.rule is not None or any(f.ratchets or _compares(f.type) for f in types.members(type_))
        case ListOf():
            return _compares(type_.item)
        case MapOf():
            return _compares(type_.value)
    return False


def _check_reader(check: Check) -> _Reader:
    return lambda context, value, old, path: iter(check(value, path))


def _string_reader(type_: String) -> _Reader | None:
    if not type_.enum and not type_.max_bytes and type_.check is None:
        return None

    def read(context: Context, value: str, old: Any, path: Path) -> Iterator[FieldError]:
        if type_.enum and value not in type_.enum:
            yield fieldpath.not_supported(path, value if type_.go == "string" else fieldpath.Typed(value), type_.enum)
        if type_.max_bytes and verdict.too_long(value, type_.max_bytes):
            yield fieldpath.too_long(path, type_.max_bytes)
        if type_.check is not None:
            yield from type_.check(value, path)

    return read


def _list_reader(type_: ListOf, *, rules_only: bool) -> _Reader | None:
    inner, max_items, unique = _reader(type_.item, rules_only=rules_only), type_.max_items, type_.unique
    if inner is None and (rules_only or (not max_items and unique is None)):
        return None
    limit = type_.limit or (lambda value: max_items)
    identity, repeated = unique if _compares(type_) else None, None if rules_only else unique
    same = canonical.equality(type_) if type_.as_a_whole else None

    def read(context: Context, value: list[Any], old: Any, path: Path) -> Iterator[FieldError]:
        if max_items and len(value) > (most := limit(value)):
            yield fieldpath.too_many(path, len(value), most)
            return
        if inner is not None:
            stored = _by_identity(identity, old)
            unchanged = same is not None and old is not None and same(value, old)
            for i, x in enumerate(value):
                former = old[i] if unchanged else stored.get(identity(x)) if identity is not None else None
                yield from inner(context, x, former, path.index(i))
        if repeated is not None:
            yield from _repeated(map(repeated, value), path)

    return read


def _by_identity(identity: Callable[[Any], Hashable] | None, items: list[Any] | None) -> Mapping[Hashable, Any]:
    """Return the stored items by identity; the first one of equal identities."""
    return {} if identity is None or not items else {identity(x): x for x in reversed(items)}


def _repeated(identities: Iterable[Any], path: Path) -> Iterator[FieldError]:
    seen: set[Any] = set()
    for i, identity in enumerate(identities):
        if identity in seen:
            yield fieldpath.duplicate(path.index(i), identity).at(path.after_items())
        seen.add(identity)


def _map_reader(type_: MapOf, *, rules_only: bool) -> _Reader | None:
    inner, max_items = _reader(type_.value, rules_only=rules_only), type_.max_items
    key_check = None if rules_only else type_.key_check
    if inner is None and (rules_only or (not max_items and key_check is None)):
        return None

    def read(context: Context, value: Object, old: Any, path: Path) -> Iterator[FieldError]:
        if max_items and len(value) > max_items:
            yield fieldpath.too_many(path, len(value), max_items)
            return
        stored = old or {}
        for key, x in value.items():
            at = path.key(_shown_key(key, type_.shown_key_bytes))
            if key_check is not None:
                yield from (error.at(at.child(types.KEY)) for error in key_check(key, path))
            if inner is not None:
                yield from inner(context, x, stored.get(key), at)

    return read


def _shown_key(key: str, limit: int) -> str:
    """Return a key with its middle cut out if it is longer than `limit` bytes; 0 is no limit."""
    text = key.encode(errors="replace")
    limit = max(limit, MIN_SHOWN_KEY_BYTES) if limit else len(text)
    if len(text) <= limit:
        return key
    kept = limit - len(ELLIPSIS)
    return (text[: (kept + 1) // 2] + ELLIPSIS.encode() + text[len(text) - kept // 2 :]).decode(errors="replace")


def _struct_reader(struct: Struct, *, rules_only: bool) -> _Reader | None:
    steps = [_step(field, rules_only=rules_only) for field in types.members(struct)]
    steps = [step for step in steps if step.readers or step.required]
    checks = [] if rules_only else verdict.struct_checks(struct)
    rules = _struct_rules(struct)
    if not steps and not checks and not rules:
        return None
    alternatives = struct.alternatives

    def read(context: Context, value: Object, old: Any, path: Path) -> Iterator[FieldError]:
        stored = old or {}
        unread = alternatives if sum(map(_is_chosen, map(value.get, alternatives))) > 1 else ()
        for step in steps:
            if step.name in unread:
                continue
            x, former = value.get(step.name), stored.get(step.name)
            if step.same is not None and old is not None and step.same(x, former):
                continue
            x = step.absent if x is None else x
            if x is not verdict.ABSENT and (x or step.may_be_empty):
                for inner in step.readers:
                    yield from inner(context, x, former, path.child(step.name))
            elif step.required:
                yield fieldpath.required(path.child(step.name))
        for check in checks:
            yield from check(value, path)
        for rule in rules:
            yield from rule(context, value, old, path)

    return read


def _is_chosen(value: Any) -> bool:
    """Return whether an alternative of a union is set: an empty list is not, an empty struct is."""
    return value is not None and value != []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One member, as it is read. `same` is set if an unchanged value is not validated again."""

    name: str
    readers: Sequence[_Reader]
    required: bool
    absent: Any
    may_be_empty: bool
    same: Callable[[Any, Any], bool] | None


def _step(field: Field, *, rules_only: bool) -> _Step:
    """Return the step of a member: first the checks of its type, then its own."""
    readers = [reader for reader in [_reader(field.type, rules_only=rules_only)] if reader is not None]
    if field.check is not None and not rules_only:
        readers.append(_check_reader(field.check))
    return _Step(
        name=field.name,
        readers=readers,
        required=field.required and not rules_only,
        absent=verdict.absent_value(field),
        may_be_empty=verdict.may_be_empty(field),
        same=canonical.comparison(field) if field.ratchets else None,
    )


def _struct_rules(struct: Struct) -> list[Rule]:
    """Return the struct's own rule, after those of its inline structs."""
    rules: list[Rule] = []
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            rules += _struct_rules(field.type)
    return rules if struct.rule is None else [*rules, struct.rule]


def _shown(field: Field, value: Any) -> Any:
    """Return the value that an error shows: the zero value for an absent one; JSON for a text behind a pointer."""
    if types.is_pointer(field):
        return fieldpath.Typed(value) if isinstance(value, str) else value
    return verdict.zero_value(field.type) if value is None else value


_ChangeReader = Callable[[Object, Object, Path], Iterator[FieldError]]


@functools.cache
def _change_reader(struct: Struct) -> _ChangeReader | None:
    """Return the reader of changes; None if nothing below is immutable. Elements of lists and maps have no identity here, so their members
    are not compared."""
    steps = []
    for field in types.members(struct):
        inner = _change_reader(field.type) if isinstance(field.type, Struct) else None
        same = canonical.comparison(field) if field.immutable else None
        if inner is not None or same is not None:
            steps.append((field, same, inner))
    if not steps:
        return None

    own_place = types.IMMUTABLE in struct.judged

    def read(new: Object, old: Object, path: Path) -> Iterator[FieldError]:
        found = changes(new, old, path)
        place = path.child(types.IMMUTABLE)
        return (error.at(place) for error in found) if own_place else found

    def changes(new: Object, old: Object, path: Path) -> Iterator[FieldError]:
        """Yield errors of deeper members first."""
        for field, _, inner in steps:
            if inner is not None:
                yield from inner(new.get(field.name) or {}, old.get(field.name) or {}, path.child(field.name))
        for field, same, _ in steps:
            x, y = new.get(field.name), old.get(field.name)
            if same is not None and not same(x, y):
                yield fieldpath.invalid(path.child(field.name), _shown(field, x), IMMUTABLE)

    return read
