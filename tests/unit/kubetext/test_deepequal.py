"""Equality of decoded JSON in Go."""

from __future__ import annotations

from typing import Any

import pytest

from kubetext.deepequal import deep_equal


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        ([1], [1.0], False),
        ({"a": None}, {}, False),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "x"}]}, True),
        ([1], [1, 2], False),
    ],
)
def test_values_are_equal_as_in_go(one: Any, other: Any, *, same: bool) -> None:
    assert deep_equal(one, other) is same


def test_deep_values_are_compared() -> None:
    def nested(inner: Any) -> Any:
        for _ in range(100_000):
            inner = [inner]
        return inner

    assert deep_equal(nested(1), nested(1))
    assert not deep_equal(nested(1), nested(2))
