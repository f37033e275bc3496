"""Check what a version's types declare as Kubernetes 1.37 does: after the kind's own checks, whose errors it can replace.

Upstream generates this validation from tags of the types of each version. An update checks only what differs from the stored value.
Errors stand behind those of the kind's own checks. An error replaces those of them that have its reason and its path.

Upstream: kubernetes/kubernetes `pkg/apis/*/v*/zz_generated.validations.go`, kubernetes/apimachinery `pkg/api/validate/`,
kubernetes/apiserver `pkg/registry/rest/validate.go` (ValidateDeclarativelyWithMigrationChecks).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import MOST_COUNTED, ROOT, FieldError, FieldErrors, Path
from apiserver.codecs.objects import canonical, conversion
from apiserver.schema import types
from apiserver.schema.declarations import Declarations, Member, Tags
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Field, ListOf, MapOf, String, Struct, Type
from apiserver.validation import verdict


def satisfied(resource: Resource, new: Object, old: Object | None) -> bool:
    """Return whether a stored object satisfies the tags that repeat no rule of its kind."""
    if resource.declarations is None:
        return True
    reader = _reader(resource.shape, resource.declarations, "alone")
    return reader is None or next(reader(new, old, ROOT), None) is None


def combined(resource: Resource, found: FieldErrors, new: Object, old: Object | None) -> FieldErrors:
    """Return the errors that upstream reports for a request in this version. `found` are those of the kind's own checks of the stored
    objects `new` and `old`."""
    declarations = resource.stored.declarations
    reader = _reader(resource.shape, declarations, "all") if declarations is not None else None
    if declarations is None or reader is None or found.full:
        return found
    stored = None if old is None else _in_version(resource, old)
    declared = list(itertools.islice(reader(_in_version(resource, new), stored, ROOT), MOST_COUNTED))
    path = declarations.normalized
    replaced = {(error.reason, path(error.field)) for error in declared}
    result = FieldErrors(error for error in found if (error.reason, path(error.field)) not in replaced)
    result.more += found.more
    result += declared
    return result


def _in_version(resource: Resource, obj: Object) -> Object:
    return obj if resource.conversion is None else conversion.served(resource, conversion.copied(obj))


_Mode = Literal["all", "alone"]
_Reader = Callable[[Any, Any, Path], Iterator[FieldError]]
"""Yields the errors of one value, which is not None. `old` is the stored value that corresponds to it, or None."""


@functools.lru_cache(maxsize=512)
def _reader(type_: Type, declarations: Declarations, mode: _Mode) -> _Reader | None:
    match type_:
        case Struct():
            return _struct_reader(type_, declarations, mode)
        case MapOf():
            return _map_reader(type_, declarations, mode)
    return None


def _map_reader(type_: MapOf, declarations: Declarations, mode: _Mode) -> _Reader | None:
    inner = _reader(type_.value, declarations, mode)
    if inner is None:
        return None
    same = canonical.equality(type_.value)

    def read(value: Object, old: Any, path: Path) -> Iterator[FieldError]:
        for key, x in value.items():
            former = (old or {}).get(key)
            if former is None or not same(x, former):
                yield from inner(x, former, path.key(key))

    return read


def _struct_reader(struct: Struct, declarations: Declarations, mode: _Mode) -> _Reader | None:
    tags = declarations.types.get(struct.name, Tags())
    steps = [step for field in struct.fields if (step := _step(field, tags, declarations, mode)) is not None]
    own = tags if mode == "all" or tags.alone else Tags()
    if not steps and not own.union:
        return None

    def read(value: Object, old: Any, path: Path) -> Iterator[FieldError]:
        yield from _union(own, value, old, path)
        for step in steps:
            yield from step(value, old, path)

    return read


def _is_set(value: Any) -> bool:
    """Return whether a member counts as set: a pointer when it is present, a list when it has elements."""
    return value is not None and value != []


def _members_set(names: Sequence[str], value: Object | None) -> list[str]:
    return [name for name in names if _is_set((value or {}).get(name))]


def _union(tags: Tags, value: Object, old: Object | None, path: Path) -> Iterator[FieldError]:
    if not tags.union:
        return
    given = _members_set(tags.union, value)
    if len(given) == 1 or (old is not None and given == _members_set(tags.union, old)):
        return
    names = ", ".join(f"`{name}`" for name in tags.union)
    shown, text = (f"{{{', '.join(given)}}}", "must specify exactly one of") if given else ("", "must specify one of")
    yield fieldpath.invalid(path, shown, f"{text}: {names}")


def _step(field: Field, tags: Tags, declarations: Declarations, mode: _Mode) -> _Reader | None:
    if field.inline:
        return _reader(field.type, declarations, mode)
    member = tags.members.get(field.name, Member())
    if mode == "alone" and not member.alone:
        member = Member(unique=member.unique)
    inner = _inner(field.type, member, declarations, mode)
    repeats = member.unique and (mode == "all" or member.alone)
    own = (member.checks, member.parts, member.required, member.keys, member.limited, member.update, repeats)
    return _MemberReader(field, member, inner, repeats=repeats).read if inner is not None or any(own) else None


def _inner(type_: Type, member: Member, declarations: Declarations, mode: _Mode) -> _Reader | None:
    """Return the reader of the elements of a member, or of what it points to."""
    if not isinstance(type_, ListOf):
        return _reader(type_, declarations, mode)
    item = _item_reader(_reader(type_.item, declarations, mode), member)
    if item is None:
        return None
    identity = _identity(type_) if member.unique else None
    same = canonical.equality(type_.item)

    def read(value: Sequence[Any], old: Any, path: Path) -> Iterator[FieldError]:
        known = {} if identity is None else {identity(x): x for x in reversed(old or ())}
        for i, x in enumerate(value):
            former = known.get(identity(x)) if identity is not None else None
            if former is None or not same(x, former):
                yield from item(x, former, path.index(i))

    return read


def _item_reader(inner: _Reader | None, member: Member) -> _Reader | None:
    if not member.items:
        return inner

    def read(value: Any, old: Any, path: Path) -> Iterator[FieldError]:
        for check in member.items:
            yield from check(value, path)

    return read


def _identity(type_: ListOf) -> Callable[[Any], Any]:
    return type_.unique or (lambda item: item)


class _MemberReader:
    """Reads one member of a struct."""

    def __init__(self, field: Field, member: Member, inner: _Reader | None, *, repeats: bool) -> None:
        self._field, self._member, self._inner = field, member, inner
        self._same = canonical.comparison(field)
        self._repeats = repeats
        self._by_value = isinstance(field.type, Struct) and not types.is_pointer(field)

    def read(self, parent: Object, old_parent: Object | None, path: Path) -> Iterator[FieldError]:
        member = self._member
        value = parent.get(self._field.name)
        old = None if old_parent is None else old_parent.get(self._field.name)
        if self._by_value:
            value, old = value or {}, old if old_parent is None else old or {}
        if old_parent is not None and self._same(value, old):
            return
        at = path.child(self._field.name)
        if (
            old_parent is not None
            and member.update
            and (not member.once_set or (value is not None and old is not None))
        ):
            yield fieldpath.invalid(at, None, member.update)
            return
        if value is None or not (value or self._by_value or types.is_pointer(self._field)):
            if member.required:
                yield fieldpath.required(at)
            return
        kind = self._field.type
        if member.limited and isinstance(kind, ListOf) and len(value) > kind.max_items:
            yield fieldpath.too_many(at, len(value), kind.max_items)
            return
        if member.limited and isinstance(kind, String) and verdict.too_long(value, kind.max_bytes):
            yield fieldpath.too_long(at, kind.max_bytes)
        if self._repeats and isinstance(kind, ListOf):
            yield from self._repeated(kind, value, at)
        for key in value if member.keys else ():
            for check in member.keys:
                yield from check(key, at)
        for check in member.checks:
            yield from check(value, at)
        for name, check in member.parts.items():
            part = value.get(name)
            if part and part != (old or {}).get(name):
                yield from check(part, at.child(name))
        if self._inner is not None:
            yield from self._inner(value, old, at)

    def _repeated(self, kind: ListOf, value: Sequence[Any], path: Path) -> Iterator[FieldError]:
        identity, seen = _identity(kind), set()
        for i, x in enumerate(value):
            if (found := identity(x)) in seen:
                shown = canonical.shown(kind.item, x) if isinstance(kind.item, Struct) else x
                yield fieldpath.duplicate(path.index(i), shown)
            seen.add(found)
