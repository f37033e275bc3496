"""What both patches do to the members of an object."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from typing import Any

RUN = 8 << 10
"""Names that are sorted in one go: other threads stand still meanwhile."""


def in_order(container: dict[str, Any]) -> dict[str, Any]:
    """The same members, sorted by name as Go writes a map."""
    names = list(container)
    runs = [sorted(names[start : start + RUN]) for start in range(0, len(names), RUN)]
    ordered: Iterable[str] = runs[0] if len(runs) == 1 else merge(*runs)
    return {name: container[name] for name in ordered}
