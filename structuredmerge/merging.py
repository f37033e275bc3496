"""Merge an applied value into a live one.

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
    """Return the live value with the applied one merged into it. Neither is changed; the result shares their parts.

    Laws: the result contains the applied value, at the same paths. Everything else of the live value stays. merge(a, a)
    is a. Where the applied value changes nothing, the result is the live value itself.

    A leaf (scalar, atomic list or map) becomes the applied one. Members of maps and lists merge one by one; applying
    null or an empty value to one with members changes none of them.

    Items of both lists come in the applied order. An item of the live list alone stays before the item that it
    precedes. A new item comes before the next item of both lists, or at the end.
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
    """Return the value if it is of this kind, else None."""
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
        # It is undefined which of several equal live items an applied one merges into. So it replaces all of them.
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
    """Return the live list if the merged one holds the very same items."""
    if len(live) == len(merged) and all(left is right for left, right in zip(live, merged, strict=True)):
        return live
    return merged


def _ordered(live: list[Any], merged: dict[Element, Any], *, lefts: list[Element], rights: list[Element]) -> list[Any]:
    """Return `merged` in its order (that of `rights`), with the items of `live` alone in between."""
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
                    # Both lists have it, but other shared items come first.
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
