"""Field set of a value: the paths that whoever applies the value owns.

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
    """The paths that the value spells out. The value must be valid (see `validation`), but for items that are there twice.

    Law: every path has a value, and with all of them removed nothing of the value is left but its declared structs.

    A leaf (scalar, atomic list or map) is its path; so is null, an empty map, and any entry of a map that is no declared member. An item
    of a list is the path of the item and what it holds, one that is there several times the path alone. Nothing else is owned: no
    declared struct, no list.
    """
    return _below(value, type_) or EMPTY


def _below(value: Any, type_: Type) -> Set | None:
    """What is owned below this place; None: the place itself is, because it is a leaf."""
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
            # A leaf without further questions, as most are.
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
