"""Return the field set of a value: the paths that its applier owns.

Upstream: kubernetes-sigs/structured-merge-diff `typed/tofieldset.go`.
"""

from __future__ import annotations

from typing import Any

from structuredmerge.items import namer
from structuredmerge.paths import FIELD, Element
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import SCALARS, List, Map, Scalar, Type, choose

__all__ = ["fields_of"]


def fields_of(value: Any, type_: Type) -> Set:
    """Return the paths of a value. The value must be valid (see `validation`), except that items may be repeated.

    Law: every path has a value. When all paths are removed, only declared structs are left of the value.

    A leaf (scalar, atomic list or map) has one path. So do null, an empty map, and any entry of a map that is not a
    declared member. A list item has its own path and the paths below it; a repeated item has only its own path.
    Declared structs and lists have no path themselves.
    """
    return _below(value, type_) or EMPTY


def _below(value: Any, type_: Type) -> Set | None:
    """Return the paths below this place; None when the place is a leaf and its own path."""
    alternative = choose(type_, value)
    if isinstance(alternative, Scalar) or alternative.atomic:
        return None
    if not value:
        return EMPTY
    if isinstance(alternative, Map):
        return _of_map(value, alternative) if isinstance(value, dict) else EMPTY
    return _of_list(value, alternative) if isinstance(value, list) else EMPTY


def _of_map(value: dict[str, Any], map_: Map) -> Set:
    members: list[Element] = []
    children: dict[Element, Set] = {}
    declared = map_.members
    for name, part in value.items():
        member = declared.get(name)
        type_ = member.type if member is not None else map_.element
        element = (FIELD, name)
        if type_ is None or (type_.scalar is not None and part.__class__ in SCALARS):
            # The commonest case: certainly a leaf.
            members.append(element)
            continue
        below = _below(part, type_)
        if below:
            children[element] = below
        if below is None or member is None or part is None or part == {}:
            members.append(element)
    return Set(frozenset(members), children)


def _of_list(items: list[Any], list_: List) -> Set:
    name = namer(list_)
    once: dict[Element, Any] = {}
    several: set[Element] = set()
    for item in items:
        element = name(item)
        if element in once:
            several.add(element)
        once[element] = item
    children: dict[Element, Set] = {}
    for element, item in once.items():
        if element not in several and (below := _below(item, list_.item)):
            children[element] = below
    return Set(frozenset(once), children)
