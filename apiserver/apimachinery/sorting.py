"""The order of texts and path elements, however many there are and however they came.

Python sorts in one go, and other threads stand still meanwhile: some tenths of a second for what one request may bring. What sorts in C
elsewhere (msgspec's encoders) takes a time that grows with the square of a map, if its members come in a bad order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T", str, tuple[int, Any])

RUN = 4 << 10
"""What is sorted in one go."""
LONG = 64
"""Members of a map that is not left to msgspec's sorting."""


def in_order(elements: Collection[T]) -> Iterable[T]:
    """The elements, sorted."""
    if len(elements) <= RUN:
        return sorted(elements)
    every = list(elements)
    return merge(*(sorted(every[start : start + RUN]) for start in range(0, len(every), RUN)))


def by_name(members: dict[str, Any]) -> dict[str, Any]:
    """The same members, sorted by name as Go writes a map."""
    return {name: members[name] for name in in_order(members)}
