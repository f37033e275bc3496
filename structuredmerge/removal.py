"""Remove paths from a value.

Upstream: kubernetes-sigs/structured-merge-diff `typed/remove.go`.
"""

from __future__ import annotations

from typing import Any

from structuredmerge.items import namer
from structuredmerge.paths import Element
from structuredmerge.sets import Set
from structuredmerge.types import List, Map, Scalar, Type, choose

__all__ = ["remove"]


def remove(value: Any, paths: Set, type_: Type) -> Any:
    """Return the value without the paths. It is not changed; the result shares its parts.

    The result is the value itself when no path matches.

    Laws: the result has none of the paths, and everything else is unchanged. remove(remove(v, a), a) is remove(v, a).

    A map or list that becomes empty, or was empty before, becomes null. So does an atomic one when a path leads below
    it. A list item that becomes empty is removed.
    """
    if not paths:
        return value
    alternative = choose(type_, value)
    if isinstance(alternative, Scalar):
        return value
    if alternative.atomic or not value:
        return None
    if isinstance(alternative, Map):
        return _from_map(value, paths, alternative) if isinstance(value, dict) else None
    return _from_list(value, paths, alternative) if isinstance(value, list) else None


def _from_map(value: dict[str, Any], paths: Set, map_: Map) -> dict[str, Any] | None:
    left = value
    for element in paths.members:
        if element[0] == 0 and element[1] in value:
            left = dict(value) if left is value else left
            del left[element[1]]
    for element, below in paths.children.items():
        name = element[1]
        if element[0] != 0 or name not in left:
            continue
        member = map_.members.get(name)
        type_ = member.type if member is not None else map_.element
        part = left[name]
        if type_ is not None and (rest := remove(part, below, type_)) is not part:
            left = dict(value) if left is value else left
            left[name] = rest
    return left or None


def _from_list(items: list[Any], paths: Set, list_: List) -> list[Any] | None:
    left: list[Any] = []
    changed = False
    for element, item in zip(map(namer(list_), items), items, strict=True):
        rest = _from_item(item, element, paths, list_.item)
        changed = changed or rest is not item
        if rest is not None:
            left.append(rest)
    return (left if changed else items) or None


def _from_item(item: Any, element: Element, paths: Set, type_: Type) -> Any:
    if element in paths.members:
        return None
    below = paths.children.get(element)
    return item if below is None else remove(item, below, type_)
