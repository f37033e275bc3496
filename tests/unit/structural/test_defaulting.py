"""The outcomes were seen on kube-apiserver 1.36.3."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema.structural import of
from apiserver.structural.defaulting import defaulter, dropper, filler

STRING = {"type": "string"}
DEFAULTED = {"type": "string", "default": "d"}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "value", "filled"),
    [
        (obj(a=DEFAULTED), {}, {"a": "d"}),
        (obj(a=DEFAULTED), {"a": None}, {"a": "d"}),
        (obj(a={**DEFAULTED, "nullable": True}), {"a": None}, {"a": None}),
        (obj(a=STRING), {"a": None}, {}),
        (obj(a={"type": "string", "nullable": True, "default": None}), {}, {}),
        (obj(o=obj(a=DEFAULTED)), {}, {}),
        (obj(o={**obj(a=DEFAULTED), "default": {}}), {}, {"o": {"a": "d"}}),
        (obj(o={**obj(a=DEFAULTED), "default": {"b": None}}), {}, {"o": {"a": "d", "b": None}}),
        (obj(o={**obj(a=DEFAULTED, b=STRING), "default": {"b": "x"}}), {"o": {}}, {"o": {"a": "d"}}),
        (obj(m={"type": "object", "additionalProperties": STRING}), {"m": {"k": None}}, {"m": {}}),
        (obj(m={"type": "object", "additionalProperties": True}), {"m": {"k": None}}, {"m": {"k": None}}),
        (obj(l={"type": "array", "items": obj(a=DEFAULTED)}), {"l": [{}, None]}, {"l": [{"a": "d"}, None]}),
        (obj(l={"type": "array", "items": DEFAULTED}), {"l": [None]}, {"l": ["d"]}),
        (
            {**obj(o=obj(a=DEFAULTED)), "x-kubernetes-preserve-unknown-fields": True},
            {"o": {}, "free": {"x": None}},
            {"o": {"a": "d"}, "free": {"x": None}},
        ),
    ],
)
def test_nulls_are_dropped_and_defaults_filled(schema: Any, value: Any, filled: Any) -> None:
    before = repr(value)
    changed = filler(of(schema))(value)
    assert value == filled
    assert changed == (repr(value) != before)


def test_a_default_is_not_shared_between_objects() -> None:
    fill = filler(of(obj(o={"type": "object", "default": {"l": [1]}})))
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    fill(one)
    fill(other)
    one["o"]["l"].append(2)
    assert other == {"o": {"l": [1]}}


def test_defaults_of_an_apply_leave_nulls() -> None:
    value = {"a": None, "b": None}
    assert defaulter(of(obj(a=STRING, b=DEFAULTED)))(value)
    assert value == {"a": None, "b": "d"}


def test_a_conversion_drops_nulls_without_defaults() -> None:
    value = {"a": None, "b": None}
    assert dropper(of(obj(a=STRING, b=DEFAULTED)))(value)
    assert value == {"b": None}


def test_type_and_metadata_of_the_object_stay() -> None:
    value: dict[str, Any] = {"metadata": {"labels": None}}
    assert not filler(of(obj(kind=DEFAULTED, metadata=obj(labels=STRING))))(value)
    assert value == {"metadata": {"labels": None}}


def test_deep_defaults_are_filled() -> None:
    schema = of({**obj(), "default": {}})
    for _ in range(2_000):
        schema = type(schema)(source={}, type="object", properties={"a": schema}, default={})
    value: dict[str, Any] = {}
    assert filler(schema)(value)
    depth = 0
    while value:
        value, depth = value["a"], depth + 1
    assert depth == 2_000
