"""Find items that repeat others in lists of type `set` and `map`.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/listtype/validation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.schema.structural import Structural
from apiserver.structural.holders import Holders
from apiserver.structural.values import go_json, shown

ListTypeErrors = Callable[[Any], Iterator[FieldError]]
"""Yields the errors of an object."""

_Check = Callable[[Any, Path], Iterator[FieldError]]


def list_types(schema: Structural) -> ListTypeErrors | None:
    """Return what finds the repeated items of an object; None if the schema has no such lists."""
    check = _check_of(schema, Holders(schema, lambda node: node.list_type in _OWN))
    return None if check is None else lambda value: check(value, ROOT)


def _check_of(schema: Structural | None, holders: Holders) -> _Check | None:
    """Return the check of values of a schema; None if no list below has a type that counts."""
    if schema is None:
        return None
    own = _OWN.get(schema.list_type)
    if own is None and schema not in holders:
        return None
    members = {
        name: found for name, below in schema.properties.items() if (found := _check_of(below, holders)) is not None
    }
    other, items = _check_of(schema.additional, holders), _check_of(schema.items, holders)

    def check(value: Any, path: Path) -> Iterator[FieldError]:
        if isinstance(value, dict):
            yield from _member_errors(value, path, members, other)
        elif isinstance(value, list):
            if own is not None:
                yield from own(value, schema, path)
            if items is not None:
                for index, item in enumerate(value):
                    if isinstance(item, dict | list):
                        yield from items(item, path.index(index))

    return check


def _member_errors(
    value: dict[str, Any], path: Path, members: Mapping[str, _Check], other: _Check | None
) -> Iterator[FieldError]:
    for name in value if other is not None else members:
        member = value.get(name)
        if isinstance(member, dict | list):
            if other is not None:
                yield from other(member, path.key(name))
            if name in members:
                yield from members[name](member, path.child(name))


def _set_errors(value: list[Any], _schema: Structural, path: Path) -> Iterator[FieldError]:
    for index in _repeated(list(map(_identity, value))):
        yield fieldpath.duplicate(path.index(index), shown(value[index]))


def _map_errors(value: list[Any], schema: Structural, path: Path) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            detail = "must be an object for an array of list-type map"
            yield fieldpath.invalid(path.index(index), shown(item), detail)
            return
    names = schema.list_keys
    # Null is an object without keys.
    keys = [{name: item[name] for name in names if name in item} if item else {} for item in value]
    if len(names) == 1:
        identities = [_identity(key[names[0]]) if key else () for key in keys]
    else:
        identities = list(map(_identity, keys))
    for index in _repeated(identities):
        yield fieldpath.duplicate(path.index(index), shown(keys[index]))


_OWN = {"set": _set_errors, "map": _map_errors}


def _identity(value: Any) -> Hashable:
    """Return what two values have in common if Go takes them for equal: 1 and 1.0 differ as items, but not within objects and lists."""
    return go_json(value) if isinstance(value, dict | list) else (type(value), value)


def _repeated(identities: Sequence[Hashable]) -> Iterator[int]:
    """Yield the first index at which an earlier element is repeated, for each element that is."""
    if len(set(identities)) == len(identities):
        return
    times: dict[Hashable, int] = {}
    for index, identity in enumerate(identities):
        times[identity] = times.get(identity, 0) + 1
        if times[identity] == 2:
            yield index
