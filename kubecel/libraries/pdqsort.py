"""Go's way to sort, which is not stable: where elements end up that are equal is part of what a client sees.

Upstream: Go `sort.Slice` (`sort/zsortfunc.go`, pattern-defeating quicksort).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_INSERTION = 12
_NINTHER = 50
_MASK = (1 << 64) - 1


def order(keys: Sequence[Any]) -> list[int]:
    """The indices of keys in the order in which Go puts them. Keys are compared by `<` alone."""
    return _Sort(keys).indices


class _Sort:
    """One sort: indices that are moved about."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self.keys = keys
        self.indices = list(range(len(keys)))
        # Smaller parts first, so that few wait: from, to, and how many bad pivots are left until heap sort.
        todo = [(0, len(keys), len(keys).bit_length())]
        while todo:
            self._part(*todo.pop(), todo)

    def less(self, one: int, other: int) -> bool:
        return bool(self.keys[self.indices[one]] < self.keys[self.indices[other]])

    def swap(self, one: int, other: int) -> None:
        indices = self.indices
        indices[one], indices[other] = indices[other], indices[one]

    def _part(self, a: int, b: int, limit: int, todo: list[tuple[int, int, int]]) -> None:
        """Sorts from a to b. Parts do not touch each other, so what is left of one can wait."""
        balanced = partitioned = True
        while True:
            length = b - a
            if length <= _INSERTION:
                self._insertion(a, b)
                return
            if limit == 0:
                self._heap(a, b)
                return
            if not balanced:
                self._break_patterns(a, b)
                limit -= 1
            pivot, swaps = self._pivot(a, b)
            increasing = swaps == 0
            if swaps == _INSERTION:
                self.indices[a:b] = self.indices[a:b][::-1]
                pivot, increasing = b - 1 - (pivot - a), True
            if balanced and partitioned and increasing and self._nearly_sorted(a, b):
                return
            if a > 0 and not self.less(a - 1, pivot):
                a = self._partition_equal(a, b, pivot)
                continue
            middle, partitioned = self._partition(a, b, pivot)
            left, right = middle - a, b - middle
            if left < right:
                balanced = left >= length // 8
                todo.append((a, middle, limit))
                a = middle + 1
            else:
                balanced = right >= length // 8
                todo.append((middle + 1, b, limit))
                b = middle

    def _insertion(self, a: int, b: int) -> None:
        for end in range(a + 1, b):
            at = end
            while at > a and self.less(at, at - 1):
                self.swap(at, at - 1)
                at -= 1

    def _sift_down(self, root: int, end: int, first: int) -> None:
        while (child := 2 * root + 1) < end:
            if child + 1 < end and self.less(first + child, first + child + 1):
                child += 1
            if not self.less(first + root, first + child):
                return
            self.swap(first + root, first + child)
            root = child

    def _heap(self, a: int, b: int) -> None:
        for root in range((b - a - 1) // 2, -1, -1):
            self._sift_down(root, b - a, a)
        for end in range(b - a - 1, -1, -1):
            self.swap(a, a + end)
            self._sift_down(0, end, a)

    def _partition(self, a: int, b: int, pivot: int) -> tuple[int, bool]:
        """Where the pivot ends up, and whether nothing had to be moved."""
        self.swap(a, pivot)
        i, j = self._narrow(a, a + 1, b - 1)
        if i > j:
            self.swap(j, a)
            return j, True
        while i <= j:
            self.swap(i, j)
            i, j = self._narrow(a, i + 1, j - 1)
        self.swap(j, a)
        return j, False

    def _narrow(self, a: int, i: int, j: int) -> tuple[int, int]:
        while i <= j and self.less(i, a):
            i += 1
        while i <= j and not self.less(j, a):
            j -= 1
        return i, j

    def _partition_equal(self, a: int, b: int, pivot: int) -> int:
        """The elements that equal the pivot come first; where the others begin."""
        self.swap(a, pivot)
        i, j = a + 1, b - 1
        while True:
            while i <= j and not self.less(a, i):
                i += 1
            while i <= j and self.less(a, j):
                j -= 1
            if i > j:
                return i
            self.swap(i, j)
            i, j = i + 1, j - 1

    def _nearly_sorted(self, a: int, b: int) -> bool:
        """Whether a few shifts sorted it."""
        i = a + 1
        for _ in range(5):
            while i < b and not self.less(i, i - 1):
                i += 1
            if i == b:
                return True
            if b - a < _NINTHER:
                return False
            self.swap(i, i - 1)
            if i - a >= 2:
                at = i - 1
                while at >= 1 and self.less(at, at - 1):
                    self.swap(at, at - 1)
                    at -= 1
            if b - i >= 2:
                at = i + 1
                while at < b and self.less(at, at - 1):
                    self.swap(at, at - 1)
                    at += 1
        return False

    def _break_patterns(self, a: int, b: int) -> None:
        length = b - a
        random = length
        modulus = 1 << length.bit_length()
        for index in range(a + length // 4 * 2 - 1, a + length // 4 * 2 + 2):
            random ^= random << 13 & _MASK
            random ^= random >> 7
            random ^= random << 17 & _MASK
            other = random & (modulus - 1)
            self.swap(index, a + (other - length if other >= length else other))

    def _pivot(self, a: int, b: int) -> tuple[int, int]:
        """A pivot, and how many swaps it took to find: none when it looks sorted, 12 when it looks reversed."""
        length = b - a
        quarter = length // 4
        i, j, k = a + quarter, a + quarter * 2, a + quarter * 3
        total = 0
        if length >= _NINTHER:
            (i, more), (j, others), (k, last) = (self._median(at - 1, at, at + 1) for at in (i, j, k))
            total = more + others + last
        median, swaps = self._median(i, j, k)
        return median, total + swaps

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        swaps = 0
        if self.less(b, a):
            a, b, swaps = b, a, swaps + 1
        if self.less(c, b):
            b, c, swaps = c, b, swaps + 1
        if self.less(b, a):
            a, b, swaps = b, a, swaps + 1
        return b, swaps
