"""Enlarge Python's stack for deeply nested expressions: closures follow the tree by recursion.

The parser limits the depth to some thousand nodes, macros included, which is more than Python allows by default. Calls
between Python functions take no C stack. So it is safe to allow more of them for a while.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from kubecel.parse.ast import Expr, children

# Expressions up to this height fit into Python's default limit.
SHALLOW = 40
# The most calls that planning one level takes. Evaluation takes fewer.
_CALLS = 16


def height(expr: Expr) -> int:
    """Return the nesting depth of an expression."""
    deepest = 0
    level = [expr]
    while level:
        deepest += 1
        level = [child for node in level for child in children(node)]
    return deepest


class _Stack:
    """Counts the calls that the running evaluations need, and restores the default limit afterwards."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._needs: list[int] = []
        self._usual = 0

    def enter(self, calls: int) -> None:
        with self._lock:
            if not self._needs:
                self._usual = sys.getrecursionlimit()
            self._needs.append(calls)
            sys.setrecursionlimit(self._usual + max(self._needs))

    def leave(self, calls: int) -> None:
        with self._lock:
            self._needs.remove(calls)
            sys.setrecursionlimit(self._usual + max(self._needs, default=0))


_STACK = _Stack()


@contextmanager
def deep_stack(levels: int) -> Iterator[None]:
    """Raise the recursion limit for an expression of this height while the context lasts."""
    calls = levels * _CALLS
    _STACK.enter(calls)
    try:
        yield
    finally:
        _STACK.leave(calls)
