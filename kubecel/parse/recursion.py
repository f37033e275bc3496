"""Room on Python's stack for expressions that are nested deeply: closures follow the tree by recursion.

The parser bounds the depth (some thousand nodes with all that macros add), but not below what Python allows by default. Calls between
functions written in Python occupy none of the C stack, so more of them can be allowed safely while they are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from kubecel.parse.ast import Expr, children

# Up to this height an expression fits into what Python allows by default.
SHALLOW = 40
# Calls that planning one level takes at most; evaluating it takes fewer.
_CALLS = 16


def height(expr: Expr) -> int:
    """How deeply an expression is nested."""
    deepest = 0
    level = [expr]
    while level:
        deepest += 1
        level = [child for node in level for child in children(node)]
    return deepest


class _Stack:
    """Who needs how many calls now, and what is allowed when nobody needs more."""

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
def room(levels: int) -> Iterator[None]:
    """Allow as many calls as an expression of that height needs, for the time being."""
    calls = levels * _CALLS
    _STACK.enter(calls)
    try:
        yield
    finally:
        _STACK.leave(calls)
