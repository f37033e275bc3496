"""Correlation of new and old values."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema import structural
from apiserver.structural.correlation import Correlated

INTEGER = {"type": "integer"}
OBJECT = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}}


def keyed(*keys: str) -> dict[str, Any]:
    item = {"type": "object", "properties": dict.fromkeys((*keys, "v"), INTEGER)}
    return {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def correlated(source: dict[str, Any], new: Any, old: Any) -> Correlated:
    return Correlated(structural.of(source), new, old)


def test_members_correlate_by_name() -> None:
    node = correlated(OBJECT, {"a": 1, "b": 2}, {"a": 1})
    a = node.member("a")
    assert a is not None
    assert (a.new, a.old, a.unchanged) == (1, 1, True)
    assert node.member("a") is a
    assert node.member("b") is None
    assert not node.unchanged


def test_members_without_a_schema_correlate_with_nothing() -> None:
    source = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    node = correlated(source, {"a": 1}, {"a": 1})
    assert node.member("a") is None
    assert not node.unchanged


def test_values_of_maps_correlate_by_name() -> None:
    node = correlated({"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 2})
    a = node.member("a")
    assert a is not None
    assert not a.unchanged


def test_items_of_list_maps_correlate_by_their_keys() -> None:
    node = correlated(keyed("a"), [{"a": 2, "v": 1}, {"a": 1}, {"a": 3}], [{"a": 1}, {"a": 2, "v": 1}])
    first, second = node.item(0), node.item(1)
    assert first is not None
    assert first.unchanged
    assert second is not None
    assert second.unchanged
    assert node.item(2) is None
    assert node.item(3) is None


def test_order_of_list_maps_does_not_count() -> None:
    assert correlated(keyed("a"), [{"a": 2}, {"a": 1}], [{"a": 1}, {"a": 2}]).unchanged


@pytest.mark.parametrize("other", [1.0, True, "1", None, [1], {"x": 1}])
def test_key_of_another_type_is_another_key(other: Any) -> None:
    assert correlated(keyed("a"), [{"a": 1}], [{"a": other}]).item(0) is None


def test_several_keys_compare_floats_with_six_digits() -> None:
    new, old = [{"a": 0.12345678, "b": 1}], [{"a": 0.12345679, "b": 1}]
    assert correlated(keyed("a", "b"), new, old).item(0) is not None
    assert correlated(keyed("a"), new, old).item(0) is None


@pytest.mark.parametrize("kind", ["", "atomic", "set"])
def test_items_of_other_lists_correlate_with_nothing(kind: str) -> None:
    source = {"type": "array", "items": INTEGER, "x-kubernetes-list-type": kind}
    node = correlated(source, [1, 2], [1, 2])
    assert node.item(0) is None
    assert node.unchanged
    assert not correlated(source, [2, 1], [1, 2]).unchanged
