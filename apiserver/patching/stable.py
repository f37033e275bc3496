"""Sort elements by ranks, of which some are unknown, as Go's stable sort does. Its comparison is inconsistent here, so the algorithm
decides.
Upstream: golang/go `src/sort/zsortfunc.go` (stable_func), kubernetes/apimachinery `pkg/util/strategicpatch/patch.go` (normalizeSliceOrder).
"""

from __future__ import annotations

from collections.abc import Sequence

UNKNOWN = -1
_BLOCK = 20


def by_rank(ranks: Sequence[int]) -> list[int]:
    """Return the sorted indices of the elements. An element is before another if its rank is less, or if one of both ranks is unknown."""
    places = list(range(len(ranks)))
    if UNKNOWN not in ranks:
        return sorted(places, key=ranks.__getitem__)
    _Sort(ranks, places).run()
    return places


class _Sort:
    def __init__(self, ranks: Sequence[int], places: list[int]) -> None:
        self.ranks = ranks
        self.places = places

    def run(self) -> None:
        size = len(self.places)
        for start in range(0, size, _BLOCK):
            self._insertion(start, min(start + _BLOCK, size))
        block = _BLOCK
        while block < size:
            for start in range(0, size - block, 2 * block):
                self._merge(start, start + block, min(start + 2 * block, size))
            block *= 2

    def _less(self, i: int, j: int) -> bool:
        a, b = self.ranks[self.places[i]], self.ranks[self.places[j]]
        return a < b or UNKNOWN in (a, b)

    def _insertion(self, start: int, end: int) -> None:
        places = self.places
        for i in range(start + 1, end):
            j = i
            while j > start and self._less(j, j - 1):
                places[j], places[j - 1] = places[j - 1], places[j]
                j -= 1

    def _merge(self, start: int, middle: int, end: int) -> None:
        """Merge two sorted ranges: Go's symMerge."""
        places = self.places
        if middle - start == 1:
            i, j = middle, end
            while i < j:
                half = (i + j) // 2
                if self._less(half, start):
                    i = half + 1
                else:
                    j = half
            places[start:i] = [*places[middle:i], places[start]]
            return
        if end - middle == 1:
            i, j = start, middle
            while i < j:
                half = (i + j) // 2
                if not self._less(middle, half):
                    i = half + 1
                else:
                    j = half
            places[i : middle + 1] = [places[middle], *places[i:middle]]
            return
        center = (start + end) // 2
        total = center + middle
        low, high = (total - end, center) if middle > center else (start, middle)
        last = total - 1
        while low < high:
            half = (low + high) // 2
            if not self._less(last - half, half):
                low = half + 1
            else:
                high = half
        stop = total - low
        if low < middle < stop:
            places[low:stop] = places[middle:stop] + places[low:middle]
        if start < low < center:
            self._merge(start, low, center)
        if center < stop < end:
            self._merge(center, stop, end)
