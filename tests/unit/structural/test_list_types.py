"""Repeated items of sets and list maps."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema import structural
from apiserver.structural.list_types import list_types

FREE = {"x-kubernetes-preserve-unknown-fields": True}
SET = {"type": "array", "items": FREE, "x-kubernetes-list-type": "set"}


def keyed(*keys: str) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "object", **FREE},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


def errors(source: dict[str, Any], value: Any) -> list[str]:
    check = list_types(structural.of({"type": "object", "properties": {"f": source}}))
    assert check is not None
    return [str(error) for error in check({"f": value})]


@pytest.mark.parametrize(
    ("source", "value", "texts"),
    [
        (SET, ["a", "b"], []),
        (SET, [1, 1.0, True, "1", None], []),
        (SET, ["a", "b", "a", "a"], ['f[2]: Duplicate value: "a"']),
        (SET, [1.5, 1.5], ["f[1]: Duplicate value: 1.5"]),
        (SET, [{"b": 1, "a": "<"}, {"a": "<", "b": 1.0}], ['f[1]: Duplicate value: {"a":"\\u003c","b":1}']),
        (keyed("n"), [{"n": "a", "x": 1}, {"n": "a", "x": 2}], ['f[1]: Duplicate value: {"n":"a"}']),
        (keyed("n"), [{}, None], ["f[1]: Duplicate value: {}"]),
        (keyed("n"), [{"n": 1}, {"n": 1.0}], []),
        (keyed("n", "m"), [{"n": 1, "m": 2}, {"m": 2, "n": 1}], ['f[1]: Duplicate value: {"m":2,"n":1}']),
        (keyed("n"), ["x", {}], ['f[0]: Invalid value: "x": must be an object for an array of list-type map']),
        (
            {"type": "object", "additionalProperties": SET},
            {"l.m": ["a", "a"]},
            ['f[l.m][1]: Duplicate value: "a"'],
        ),
        ({"type": "array", "items": SET}, [[], ["a", "a"]], ['f[1][1]: Duplicate value: "a"']),
        (SET, "no list", []),
    ],
)
def test_repeated_items_are_errors(source: dict[str, Any], value: Any, texts: list[str]) -> None:
    assert errors(source, value) == texts


def test_schema_without_such_lists_needs_no_check() -> None:
    assert list_types(structural.of({"type": "array", "items": FREE, "x-kubernetes-list-type": "atomic"})) is None


def test_deep_items_are_compared() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = {"a": [deep]}
    assert len(errors(SET, [deep, deep])) == 1
