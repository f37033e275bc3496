from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given

from structuredmerge import values
from tests.unit.structuredmerge.fields import VALUES

# Each is less than the next.
ASCENDING = [-1e300, -2, -0.5, 0, 1, 1.5, 2**63 - 1, 1e300, "", "a", "ab", "b", "\uffff", "😀", False, True]
ASCENDING += [[], [1], [1, 0], [2], ["a"], [None], {}, {"a": 1}, {"a": 1, "b": 0}, {"a": 2}, {"b": 0}, None]


@pytest.mark.parametrize(("less", "more"), list(itertools.pairwise(ASCENDING)), ids=repr)
def test_values_are_ordered_by_kind_and_then_by_what_they_are(less: Any, more: Any) -> None:
    assert values.key(less) < values.key(more)
    assert not values.equal(less, more)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (2, 2.0, True),
        (0, -0.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        (None, 0, False),
        ("1", 1, False),
        ([1, {"a": 1}], [1.0, {"a": 1.0}], True),
        ([1, {"a": 1}], [1, {"a": True}], False),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": None}, {}, False),
        ([None], [], False),
        ([], {}, False),
    ],
)
def test_numbers_are_equal_by_value_and_booleans_are_no_numbers(one: Any, other: Any, same: bool) -> None:
    assert values.equal(one, other) is values.equal(other, one) is same
    assert (values.key(one) == values.key(other)) is same


@given(VALUES, VALUES)
def test_values_are_equal_if_and_only_if_their_keys_are(one: Any, other: Any) -> None:
    assert values.equal(one, other) is (values.key(one) == values.key(other))


@given(VALUES)
def test_a_key_says_its_whole_value(value: Any) -> None:
    assert values.equal(values.of(values.key(value)), value)
    assert values.equal(copy.deepcopy(value), value)
