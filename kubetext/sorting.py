"""Sort texts and path elements without blocking other threads for long.

Python's sort and its sets hold the GIL until they finish: some tenths of a second for the elements of one request. So
large collections are sorted in chunks. C code of other packages (msgspec's encoders) sorts a map in quadratic time when
its members come in a bad order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T", str, tuple[int, Any])
E = TypeVar("E")

RUN = 4 << 10
"""Elements that are sorted at a time."""
LONG = 64
"""Larger maps are not left to msgspec's sorting."""


def in_order(elements: Collection[T]) -> Iterable[T]:
    """Return the elements, sorted."""
    if len(elements) <= RUN:
        return sorted(elements)
    return merge(*map(sorted, runs(elements)))


def by_key(elements: Collection[E], key: Callable[[E], str]) -> Iterable[E]:
    """Return the elements, sorted by `key`. The sort is stable."""
    if len(elements) <= RUN:
        return sorted(elements, key=key)
    return merge(*(sorted(run, key=key) for run in runs(elements)), key=key)


def runs(elements: Collection[E]) -> Iterable[list[E]]:
    """Yield the elements in their order, in chunks."""
    every = list(elements)
    return (every[start : start + RUN] for start in range(0, len(every), RUN))


def members(elements: Collection[str]) -> AbstractSet[str]:
    """Return the set of the elements."""
    found: set[str] = set()
    add(elements, to=found)
    return found


def add(elements: Collection[str], *, to: set[str]) -> None:
    """Add the elements to a set."""
    for run in runs(elements):
        to.update(run)


def by_name(members: dict[str, Any]) -> dict[str, Any]:
    """Return the same members, sorted by name as Go writes a map."""
    return {name: members[name] for name in in_order(members)}
