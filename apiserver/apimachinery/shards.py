"""Shards: parts of the objects, by ranges of a hash of their uid or namespace. `verbs.shard_selector` parses their selectors.

Upstream: kubernetes/apimachinery `pkg/sharding/{hash,selector,types}.go`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
FIELDS = (UID, NAMESPACE)
"""The fields that may be hashed."""
END = 1 << 64
"""One more than the last hash."""

_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3


def hash_of(value: bytes) -> int:
    """Return FNV-1a of 64 bits."""
    found = _OFFSET
    for byte in value:
        found = (found ^ byte) * _PRIME & END - 1
    return found


@dataclass(frozen=True, slots=True)
class Range:
    """The hashes of a field from `start` to `end`, exclusive."""

    field: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"shardRange({self.field}, '{bound(self.start)}', '{bound(self.end)}')"


def bound(number: int) -> str:
    """Return a bound as a selector spells it."""
    return f"0x{number:016x}"


class ShardSelector:
    """One or more ranges of one field. `covers(hash)` costs the same for any number of ranges. `str()` is the text that lists repeat."""

    __slots__ = ("covers", "field", "text")

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.field = ranges[0].field
        self.text = " || ".join(map(str, ranges))
        self.covers: Callable[[int], bool] = _compiled(ranges)

    def __str__(self) -> str:
        return self.text


def _compiled(ranges: Sequence[Range]) -> Callable[[int], bool]:
    bounds: list[int] = []
    """Starts and ends of the covered ranges, in turn."""
    for each in sorted(ranges, key=lambda r: r.start):
        if bounds and each.start <= bounds[-1]:
            bounds[-1] = max(bounds[-1], each.end)
        else:
            bounds += each.start, each.end
    if len(bounds) == 2:
        start, end = bounds
        return lambda number: start <= number < end
    return lambda number: bisect_right(bounds, number) % 2 == 1
