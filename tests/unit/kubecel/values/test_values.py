from __future__ import annotations

import math
from typing import Any

import pytest

from kubecel.values import types
from kubecel.values.errors import EvaluationError, Panic
from kubecel.values.times import Duration, Timestamp
from kubecel.values.values import (
    ABSENT,
    NONE,
    MixedMap,
    Optional,
    UInt,
    compare,
    double_text,
    equal,
    find,
    find_key,
    lookup,
    map_of,
    text,
    type_name,
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, UInt(1), True),
        (UInt(1), 1.0, True),
        (1, True, False),
        (True, 1.0, False),
        (0, None, False),
        (None, None, True),
        (math.nan, math.nan, False),
        (2**53 + 1, 2.0**53, True),
        (2**63 - 1, 2.0**63, True),
        (UInt(2**64 - 1), -1, False),
        ("a", b"a", False),
        ([1, [2.0]], [1.0, [2]], True),
        ([1], (1,), True),
        ([True], [1], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": None}, {}, False),
        ({True: 1}, {1: 1}, False),
        (Timestamp(1, 0, 3600), Timestamp(1), True),
        (Duration(1), 1, False),
        (types.list_of(types.INT), types.list_of(types.DYN), True),
        (Optional(1), Optional(1.0), True),
        (NONE, Optional(None), False),
        (NONE, NONE, True),
    ],
)
def test_values_are_equal_as_cel_has_it(one: Any, other: Any, *, same: bool) -> None:
    assert equal(one, other) is same
    assert equal(other, one) is same


def test_values_nested_ten_thousand_deep_are_compared() -> None:
    one: Any = 1
    other: Any = 1
    for _ in range(10_000):
        one, other = [one], [other]
    assert equal(one, other)
    assert not equal(one, [other])


def test_shared_parts_are_compared_once() -> None:
    one: Any = [1]
    other: Any = [1.0]
    for _ in range(200):
        one, other = [one, one], [other, other]
    assert equal(one, other)


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        (1, 1.5, -1),
        (2.5, UInt(2), 1),
        (-1, UInt(0), -1),
        ("a", "ü", -1),
        (False, True, -1),
        (Duration(5), Duration(5), 0),
    ],
)
def test_values_have_the_order_of_cel(one: Any, other: Any, order: int) -> None:
    assert compare(one, other) == order
    assert compare(other, one) == -order


def test_nan_has_no_order() -> None:
    for one, other in ((math.nan, 1), (1, math.nan), (UInt(1), math.nan), (math.nan, "a")):
        with pytest.raises(EvaluationError, match=r"^NaN values cannot be ordered$"):
            compare(one, other)


def test_keys_of_a_map_are_found_by_the_same_number_of_any_type() -> None:
    assert find_key({1: "a"}, UInt(1)) == "a"
    assert find_key({1: "a"}, 1.0) == "a"
    assert find_key({UInt(1): "a"}, 1) == "a"
    assert find_key({1: "a"}, True) is ABSENT
    assert find_key({True: "a"}, 1) is ABSENT
    assert find_key({"1": "a"}, 1) is ABSENT
    assert find_key({1: "a"}, 1.5) is ABSENT
    assert find_key({1: "a"}, math.nan) is ABSENT
    assert find_key({1: "a"}, [1]) is ABSENT


def test_keys_that_python_takes_for_one_another_are_kept_apart() -> None:
    mixed = map_of([(1, "int"), (True, "bool"), (UInt(1), "uint"), (1.0, "double")])
    assert isinstance(mixed, MixedMap)
    assert [find_key(mixed, key) for key in (1, True, UInt(1), 1.0)] == ["int", "bool", "uint", "double"]
    assert len(mixed) == 4
    assert map_of([("a", 1), ("a", 2)]) == {"a": 2}


def test_bytes_as_a_key_are_what_upstream_cannot_bear() -> None:
    with pytest.raises(Panic, match=r"^internal error: runtime error: hash of unhashable type types\.Bytes$"):
        map_of([(b"a", 1)])


def test_missing_element_is_absent_and_a_wrong_index_an_error() -> None:
    assert find([1, 2], 2) is ABSENT
    assert find([1, 2], -1) is ABSENT
    assert find([1, 2], 1.0) == 2
    assert find("text", "a") is ABSENT
    for key, problem in (
        ("a", "unsupported index type 'string' in list"),
        (1.5, "unsupported index value 1.5 in list"),
    ):
        with pytest.raises(EvaluationError, match=f"^{problem}$"):
            find([1, 2], key)
    with pytest.raises(EvaluationError, match=r"^index out of bounds: 2$"):
        lookup([1, 2], 2)
    with pytest.raises(EvaluationError, match=r"^no such key: 1e\+06$"):
        lookup({"a": 1}, 1e6)


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (1.5, "1.5"),
        (100000.0, "100000"),
        (1e6, "1e+06"),
        (12345678.9, "1.23456789e+07"),
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (-0.0, "-0"),
        (1e300, "1e+300"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_double_is_printed_as_go_prints_it(value: float, printed: str) -> None:
    assert double_text(value) == printed


def test_value_in_an_error_is_printed_as_in_go_and_never_at_length() -> None:
    value = [True, None, b"ab", {"a": Optional("b")}, Duration(90 * 10**9), Timestamp(0, 0, 3600)]
    assert text(value) == "[true, 0, [97 98], {a: optional(b)}, 1m30s, 1970-01-01 01:00:00 +0100 +0100]"
    deep: Any = ["x" * 1000]
    for _ in range(100):
        deep = [deep, deep]
    assert len(text(deep)) == 4096


def test_every_value_has_a_type() -> None:
    values: list[Any] = [None, True, 1, UInt(1), 1.0, "", b"", [], {}, Timestamp(0), Duration(0), types.INT, NONE]
    assert [type_name(value) for value in values] == [
        "null_type",
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
        "type",
        "optional_type",
    ]
