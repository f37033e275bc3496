"""Adapt the paths of a manager to a type that has become atomic.

Upstream: kubernetes-sigs/structured-merge-diff `typed/reconcile_schema.go`.
"""

from __future__ import annotations

from structuredmerge.paths import Element
from structuredmerge.sets import Set
from structuredmerge.types import DEDUCED, UNTYPED_ATOMIC, List, Map, Scalar, Type

__all__ = ["reconcile"]


def reconcile(paths: Set, type_: Type) -> Set:
    """Return the paths that a manager would own if it wrote the same values now.

    Law: no path of the result leads through an atomic list or map. A set without such paths is returned unchanged.

    A manager of parts of a value that is atomic now owns the whole value. A manager of a whole value that has parts now
    still owns only that path. Maps without declared members, and members that are no longer declared, stay unchanged.
    """
    if paths.reconciled is type_:
        return paths
    match _alternative(type_):
        case Map() as map_ if not map_.atomic and not _is_free(map_):
            types = {element: _type_in(map_, element) for element in paths.children}
        case List() as list_ if not list_.atomic:
            types = dict.fromkeys(paths.children, list_.item)
        case _:
            return paths
    whole: list[Element] = []
    children: dict[Element, Set] | None = None
    for element, below in paths.children.items():
        type_below = types[element]
        if type_below is None:
            continue
        if _is_atomic(type_below):
            children = dict(paths.children) if children is None else children
            del children[element]
            whole.append(element)
        elif below.children and (found := reconcile(below, type_below)) is not below:
            children = dict(paths.children) if children is None else children
            children[element] = found
    found = paths if children is None else Set(paths.members.union(whole), children)
    found.reconciled = type_
    return found


def _alternative(type_: Type) -> Scalar | List | Map | None:
    """Return the alternative of a type when there is no value to choose by."""
    return type_.map or type_.scalar or type_.list


def _is_atomic(type_: Type) -> bool:
    alternative = _alternative(type_)
    if isinstance(alternative, Map):
        return alternative.atomic and not _is_free(alternative)
    return isinstance(alternative, List) and alternative.atomic


def _is_free(map_: Map) -> bool:
    """Return whether the map declares no members and accepts any value. Upstream's deduced types have no atomic parts."""
    element = map_.element
    if map_.members or element is None or element is UNTYPED_ATOMIC:
        return False
    return element is DEDUCED or element.scalar is Scalar.UNTYPED


def _type_in(map_: Map, element: Element) -> Type | None:
    member = map_.members.get(element[1]) if element[0] == 0 else None
    return member.type if member is not None else map_.element
