"""The order of texts and path elements, however many there are and however they came.

Python sorts in one go, and other threads stand still meanwhile: some tenths of a second for what one request may bring; so they do while
it makes a set. What sorts in C
elsewhere (msgspec's encoders) takes a time that grows with the square of a map, if its members come in a bad order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T", str, tuple[int, Any])
E = TypeVar("E")

RUN = 4 << 10
"""What is sorted in one go."""
LONG = 64
"""Members of a map that is not left to msgspec's sorting."""


def in_order(elements: Collection[T]) -> Iterable[T]:
    """The elements, sorted."""
    if len(elements) <= RUN:
        return sorted(elements)
    return merge(*map(sorted, runs(elements)))


def by_key(elements: Collection[E], key: Callable[[E], str]) -> Iterable[E]:
    """The elements, sorted by what `key` says of each; those of which it says the same stay in their order."""
    if len(elements) <= RUN:
        return sorted(elements, key=key)
    return merge(*(sorted(run, key=key) for run in runs(elements)), key=key)


def runs(elements: Collection[E]) -> Iterable[list[E]]:
    """The elements as they came, some at a time."""
    every = list(elements)
    return (every[start : start + RUN] for start in range(0, len(every), RUN))


def members(elements: Collection[str]) -> AbstractSet[str]:
    """Those elements, to be looked up."""
    found: set[str] = set()
    add(elements, to=found)
    return found


def add(elements: Collection[str], *, to: set[str]) -> None:
    """The elements to those that are there."""
    for run in runs(elements):
        to.update(run)


def by_name(members: dict[str, Any]) -> dict[str, Any]:
    """The same members, sorted by name as Go writes a map."""
    return {name: members[name] for name in in_order(members)}
