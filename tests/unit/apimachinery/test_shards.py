"""Shards: the hash as upstream computes it, and what a selector covers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery import shards
from apiserver.apimachinery.shards import NAMESPACE, UID, Range, ShardSelector

# As recorded from k8s.io/apimachinery v0.36.3 `pkg/sharding` HashField.
HASHES = {
    "": 0xCBF29CE484222325,
    "a": 0xAF63DC4C8601EC8C,
    "default": 0xEBADA5168620C5FE,
    "foobar": 0x85944171F73967E8,
    "ecba2ad4-dbb9-4767-bdde-28ace544031c": 0x17E59992EC7AE4D4,
    "é": 0x0AC21707B7181E01,
}
NUMBERS = st.integers(0, shards.END - 1)


@pytest.mark.parametrize("value", HASHES)
def test_the_hash_is_fnv_1a(value: str) -> None:
    assert shards.hash_of(value.encode()) == HASHES[value]


@given(st.lists(NUMBERS, unique=True, max_size=20), st.lists(st.binary(max_size=40), max_size=20))
def test_shards_that_part_the_hashes_part_the_objects(cuts: list[int], values: list[bytes]) -> None:
    bounds = sorted({0, *cuts, shards.END})
    parts = [ShardSelector([Range(UID, start, end)]) for start, end in itertools.pairwise(bounds)]

    for value in values:
        assert sum(part.covers(shards.hash_of(value)) for part in parts) == 1


@given(
    st.lists(st.tuples(NUMBERS, st.integers(1, shards.END)).filter(lambda r: r[0] < r[1]), min_size=1, max_size=8),
    st.data(),
)
def test_a_selector_covers_what_one_of_its_ranges_covers(ranges: list[tuple[int, int]], data: st.DataObject) -> None:
    selector = ShardSelector([Range(NAMESPACE, start, end) for start, end in ranges])
    edges = [n for bounds in ranges for edge in bounds for n in (edge - 1, edge) if 0 <= n < shards.END]

    for number in (*edges, data.draw(NUMBERS)):
        assert selector.covers(number) == any(start <= number < end for start, end in ranges)


def test_selector_is_shown_as_it_would_be_written() -> None:
    ranges = [Range(UID, 255, 256), Range(UID, 0, shards.END)]

    assert str(ShardSelector(ranges)) == (
        "shardRange(object.metadata.uid, '0x00000000000000ff', '0x0000000000000100') || "
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"
    )
