"""Merge: what becomes of a live value when somebody applies another.

Upstream: kubernetes-sigs/structured-merge-diff `typed/merge.go`.
"""

from __future__ import annotations

from typing import Any

from structuredmerge.items import namer
from structuredmerge.paths import Element
from structuredmerge.types import List, Map, Scalar, Type, choose
from structuredmerge.values import ABSENT, equal

__all__ = ["merge"]


def merge(live: Any, applied: Any, type_: Type) -> Any:
    """The live value with what is applied put into it. Neither is changed; the result shares their parts.

    Laws: what is applied is in the result, at the same paths; whatever else the live value has stays. merge(a, a) is a, and where the
    applied value changes nothing the result is the live value itself.

    A leaf (scalar, atomic list or map) is the applied one. Of maps and lists the members are merged one by one; null or nothing applied
    to one that has members changes none of them. What both have in a list stands in the order in which it is applied, what only the live
    list has stays before the item that it precedes, and what is only applied stands before the next item that both have, or at the end.
    """
    if applied is live or live is ABSENT:
        return applied
    if applied is ABSENT:
        return live
    alternative = choose(type_, applied)
    if not isinstance(alternative, Scalar) and not alternative.atomic:
        kind = dict if isinstance(alternative, Map) else list
        left, right = _members(live, kind), _members(applied, kind)
        if left and right:
            return _maps(left, right, alternative) if isinstance(alternative, Map) else _lists(left, right, alternative)
        if left or right:
            return live if left else applied
    return live if equal(live, applied) else applied


def _members(value: Any, kind: type) -> Any:
    """The value, if it is of this kind and has any; None or what is empty otherwise."""
    return value if isinstance(value, kind) else None


def _maps(live: dict[str, Any], applied: dict[str, Any], map_: Map) -> dict[str, Any]:
    merged = live
    declared = map_.members
    for name, right in applied.items():
        left = live.get(name, ABSENT)
        if left is right:
            continue
        if left is not ABSENT:
            member = declared.get(name)
            type_ = member.type if member is not None else map_.element
            if type_ is not None:
                right = merge(left, right, type_)
                if right is left:
                    continue
        if merged is live:
            merged = dict(live)
        merged[name] = right
    return merged


def _lists(live: list[Any], applied: list[Any], list_: List) -> list[Any]:
    name = namer(list_)
    lefts, rights = list(map(name, live)), list(map(name, applied))
    if len(set(rights)) != len(rights):
        raise ValueError("the applied list has an item twice")
    partners = dict(zip(lefts, live, strict=True))
    if len(partners) == len(lefts):
        if lefts == rights:
            return _same(live, [merge(left, right, list_.item) for left, right in zip(live, applied, strict=True)])
    else:
        # Which of the items that are there several times would the applied one be merged into? It takes the place of them all.
        partners.update(dict.fromkeys(_repeated(lefts), ABSENT))
    merged = {
        element: merge(partners.get(element, ABSENT), right, list_.item)
        for element, right in zip(rights, applied, strict=True)
    }
    return _same(live, _ordered(live, merged, lefts=lefts, rights=rights))


def _repeated(elements: list[Element]) -> set[Element]:
    seen: set[Element] = set()
    return {element for element in elements if element in seen or seen.add(element)}  # type: ignore[func-returns-value]


def _same(live: list[Any], merged: list[Any]) -> list[Any]:
    """The live list, if what was merged holds its very items."""
    if len(live) == len(merged) and all(left is right for left, right in zip(live, merged, strict=True)):
        return live
    return merged


def _ordered(live: list[Any], merged: dict[Element, Any], *, lefts: list[Element], rights: list[Element]) -> list[Any]:
    """`merged` in its order (that of `rights`), with the items between that only `live` has."""
    known = set(lefts)
    shared = iter([element for element in rights if element in known])
    following = next(shared, None)
    result: list[Any] = []
    done: set[Element] = set()
    i = j = 0
    while i < len(lefts) or j < len(rights):
        if i < len(lefts):
            left = lefts[i]
            if j < len(rights):
                if left == rights[j]:
                    result.append(merged[left])
                    done.add(left)
                    i, j, following = i + 1, j + 1, next(shared, None)
                    continue
                if left in merged and following is not None and left != following:
                    # Both have it, but others of those come first.
                    i += 1
                    continue
            if left not in merged:
                result.append(live[i])
                i += 1
                continue
            if left in done:
                i += 1
        if j < len(rights):
            right = rights[j]
            result.append(merged[right])
            done.add(right)
            j += 1
            if right == following:
                following = next(shared, None)
    return result
