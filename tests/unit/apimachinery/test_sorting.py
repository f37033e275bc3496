"""Order, however many elements there are."""

from __future__ import annotations

import pytest

from apiserver.apimachinery import sorting


@pytest.mark.parametrize("count", [0, 1, 10, sorting.RUN, sorting.RUN + 1, 20_000])
def test_elements_come_out_sorted_however_many_they_are(count: int) -> None:
    elements = [(1, f"u{i * 7919 % 20_011}") for i in range(count)]
    assert list(sorting.in_order(elements)) == sorted(elements)
    assert list(sorting.in_order(frozenset(elements))) == sorted(elements)
    names = {name: i for i, (_, name) in enumerate(elements)}
    assert list(sorting.by_name(names).items()) == sorted(names.items())
