"""Messages about a value that does not fit its type are upstream's, and cost no more than the limit of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.errors import MESSAGE_LIMIT
from structuredmerge.types import DEDUCED, UNTYPED_ATOMIC, List, Map, Member, Scalar, Type
from structuredmerge.validation import Foreign, joined, validate
from tests.unit.structuredmerge.declared import TYPE


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"name": 5}, ".name: expected string, got &value.valueUnstructured{Value:5}"),
        ({"name": 2.5e9}, ".name: expected string, got &value.valueUnstructured{Value:2.5e+09}"),
        ({"name": True}, ".name: expected string, got &value.valueUnstructured{Value:true}"),
        (
            {"name": {"b": ["x", None, 1.5], "a": 'q"'}},
            (
                ".name: expected string, got &value.valueUnstructured{Value:"
                'map[string]interface {}{"a":"q\\"", "b":[]interface {}{"x", interface {}(nil), 1.5}}}'
            ),
        ),
        ({"age": "5"}, ".age: expected numeric (int or float), got string"),
        ({"age": True}, ".age: expected numeric (int or float), got bool"),
        ({"age": {}}, ".age: expected numeric (int or float), got map[string]interface {}"),
        ({"age": []}, ".age: expected numeric (int or float), got []interface {}"),
        ({"alive": 1}, ".alive: expected boolean, got &{1}"),
        ({"alive": {"b": [None, "x"], "a": 1}}, ".alive: expected boolean, got &{map[a:1 b:[<nil> x]]}"),
        ({"tags": "x"}, ".tags: expected map, got &{x}"),
        ({"place": [1]}, ".place: expected map, got &{[1]}"),
        ({"words": {"a": 1}}, ".words: expected list, got &{map[a:1]}"),
        ({"words": ["a", 2]}, ".words[1]: expected string, got &value.valueUnstructured{Value:2}"),
        ({"tags": {"a.b/c": 2}}, ".tags.a.b/c: expected string, got &value.valueUnstructured{Value:2}"),
        ({"choice": {"a": "x"}}, ".choice.a: expected numeric (int or float), got string"),
        ({"choice": {"c": 1}}, ".choice.c: field not declared in schema"),
        ({"roles": ["a", "b", "a"]}, '.roles: duplicate entries for key [="a"]'),
        ({"roles": [{}]}, ".roles: element 0: associative list without keys has an element that's a map type"),
        ({"roles": ["a", []]}, ".roles: element 1: not supported: associative list with lists as elements"),
        ({"roles": [None]}, ".roles: element 0: associative list without keys has an element that's an explicit null"),
        ({"dates": [None]}, ".dates: element 0: associative list with keys may not have a null element"),
        ({"dates": ["x"]}, ".dates: element 0: associative list with keys may not have non-map elements"),
        (
            {"dates": [{"day": 1}, {"zone": "UTC", "day": 1.0}]},
            '.dates: duplicate entries for key [day=1,zone="UTC"]',
        ),
        ({"dates": [{"day": 1, "whom": 1}]}, '.dates[day=1,zone="UTC"].whom: field not declared in schema'),
        ([1], "expected map, got &{[1]}"),
    ],
)
def test_errors_are_reported_with_their_paths(value: Any, error: str) -> None:
    assert validate(value, TYPE) == [error]


def test_null_is_of_every_type() -> None:
    assert validate(None, TYPE) == []
    assert (
        validate(dict.fromkeys(["name", "age", "alive", "tags", "roles", "words", "place", "dates", "raw"]), TYPE) == []
    )


@pytest.mark.parametrize("value", [1, "a", True, [1, {"a": []}], {"a": {"b": [None]}}])
def test_untyped_values_are_never_invalid(value: Any) -> None:
    assert validate({"anything": value, "raw": {"a": value}}, TYPE) == []


def test_repeated_items_are_tolerated_outside_applies() -> None:
    assert validate({"roles": ["a", "a"], "dates": [{"day": 1}, {"day": 1}]}, TYPE, duplicates=True) == []


def test_one_error_stands_alone_and_several_on_a_line_each() -> None:
    errors = validate({"name": 1, "age": "x"}, TYPE)
    assert joined(errors[:1]) == ".name: expected string, got &value.valueUnstructured{Value:1}"
    assert joined(errors) == (
        "errors:\n"
        "  .name: expected string, got &value.valueUnstructured{Value:1}\n"
        "  .age: expected numeric (int or float), got string"
    )


def test_first_undeclared_member_of_a_map_ends_its_errors() -> None:
    assert validate({"name": 1, "x": 1, "y": 1, "age": "x"}, TYPE) == [
        ".name: expected string, got &value.valueUnstructured{Value:1}",
        ".x: field not declared in schema",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"tags": {f"k{i}": i for i in range(40_000)}},
        {"tags": {f"k{i}": ["x" * 1000] * 100 for i in range(400)}},
        {"roles": ["x" * 10_000] * 300},
        {"name": ["x" * (3 << 20)]},
    ],
)
def test_many_and_large_errors_are_reported_within_the_limit_of_an_answer(value: Any) -> None:
    errors = validate(value, TYPE)
    assert errors
    assert sum(map(len, errors)) < 2 * MESSAGE_LIMIT


def test_a_value_of_any_depth_is_shown() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    (error,) = validate({"name": deep}, TYPE)
    assert error.startswith(".name: expected string, got &value.valueUnstructured{Value:[]interface {}{[]interface {}{")


def test_an_item_whose_key_is_a_value_of_many_levels_is_no_item() -> None:
    uid: Any = "u"
    for _ in range(450):
        uid = [uid]
    item = Type(map=Map({"uid": Member(Type(scalar=Scalar.STRING))}))
    errors = validate([{"uid": uid}], Type(list=List(item, atomic=False, keys=("uid",))))
    assert joined(errors) == "element 0: exceeded max depth of 100"


def test_foreign_values_are_found_wherever_the_schema_is_untyped() -> None:
    found = validate({"a": [1, Foreign("uint64", "7")]}, UNTYPED_ATOMIC, foreign=True)
    assert found == [".a[1]: expected map, got &{7}"]
    assert validate({"a": [1, {"b": None}]}, DEDUCED, foreign=True) == []
