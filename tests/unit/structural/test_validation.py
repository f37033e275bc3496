"""Errors of values by their schema. Every text was seen from kube-apiserver 1.36.3."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldErrors
from apiserver.apimachinery.releases import V1_36, V1_37, at
from apiserver.schema import structural
from apiserver.structural.correlation import Correlated
from apiserver.structural.numbers import IS_INTEGRAL
from apiserver.structural.validation import validator

INT_OR_STRING = {"x-kubernetes-int-or-string": True}
A_AND_B = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
RANGE = '<nil>: Invalid value: "": Checked value must be of type integer'


def within(source: dict[str, Any]) -> structural.Structural:
    return structural.of({"type": "object", "properties": {"f": source}})


def errors(source: dict[str, Any], value: Any, *old: Any) -> list[str]:
    schema = within(source)
    correlated = Correlated(schema, {"f": value}, {"f": old[0]}) if old else None
    return [str(error) for error in validator(schema).errors({"f": value}, correlated)]


@pytest.mark.parametrize(
    ("source", "value", "texts"),
    [
        ({"type": "string"}, 1, ['f: Invalid value: "integer": f in body must be of type string: "integer"']),
        ({"type": "string"}, None, ['f: Invalid value: "null": f in body must be of type string: "null"']),
        (
            INT_OR_STRING,
            1.5,
            ['f: Invalid value: "number": f in body must be of type integer,string: "number"'],
        ),
        (
            {"type": "integer"},
            1.5,
            [
                'f: Invalid value: "number": f in body must be of type integer: "number"',
                f"{RANGE} (default format) in f",
            ],
        ),
        (
            {"type": "integer", "format": "int32"},
            1.5,
            [
                'f: Invalid value: "float64": f in body must be of type int32: "float64"',
                f"{RANGE} with format int32 in f",
            ],
        ),
        ({"type": "integer", "format": "int32"}, 1 << 31, [f"{RANGE} with format int32 in f"]),
        (
            {"type": "number", "format": "float"},
            1e39,
            ['<nil>: Invalid value: "": Checked value must be of type number with format float in f'],
        ),
        (
            {"type": "string", "format": "ipv4"},
            "x",
            ['f: Invalid value: "x": f in body must be of type ipv4: "x"'],
        ),
        ({"type": "string", "pattern": "^a"}, "\x01", ["f: Invalid value: \"\\x01\": f in body should match '^a'"]),
        ({"type": "string", "minLength": 2}, "ü", ['f: Invalid value: "ü": f in body should be at least 2 chars long']),
        ({"type": "string", "maxLength": 1}, "ab", ["f: Too long: may not be more than 1 byte"]),
        ({"type": "integer", "minimum": 3}, 2, ["f: Invalid value: 2: f in body should be greater than or equal to 3"]),
        (
            {"type": "number", "maximum": 7.5, "exclusiveMaximum": True},
            8,
            ["f: Invalid value: 8: f in body should be less than 7"],
        ),
        (
            {"type": "number", "maximum": 1000000000},
            2e9,
            ["f: Invalid value: 2e+09: f in body should be less than or equal to 1e+09"],
        ),
        ({"type": "integer", "multipleOf": 3}, 4, ["f: Invalid value: 4: f in body should be a multiple of 3"]),
        (
            {"type": "number", "multipleOf": 0.5},
            4,
            ["f: Invalid value: 0: factor MultipleOf declared for f must be positive: 0"],
        ),
        ({"type": "string", "enum": ["a", "b"]}, "A", ['f: Unsupported value: "A": supported values: "a", "b"']),
        (
            {"type": "string", "nullable": True, "enum": [None]},
            None,
            ['f: Unsupported value: null: supported values: "null"'],
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
            ["a"],
            ["f: Invalid value: 1: f in body should have at least 2 items"],
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            ["f: Too many: 2: must have at most 1 item"],
        ),
        (
            {**A_AND_B, "minProperties": 1},
            {},
            ["f: Invalid value: 0: f in body should have at least 1 properties"],
        ),
        ({**A_AND_B, "maxProperties": 1}, {"a": "", "b": ""}, ["f: Too many: 2: must have at most 1 item"]),
        ({**A_AND_B, "required": ["a"]}, {}, ["f.a: Required value"]),
        (
            {**A_AND_B, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {},
            [
                '<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid',
                "f.a: Required value",
            ],
        ),
        (
            {**A_AND_B, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": "", "b": ""},
            ['<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
        ),
        (
            {**A_AND_B, "anyOf": [{"required": ["a"]}, {"required": ["b"], "minProperties": 0}]},
            {},
            [
                '<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)',
                "f.a: Required value",
            ],
        ),
        (
            {**A_AND_B, "allOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {},
            [
                "f.a: Required value",
                "f.b: Required value",
                '<nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated',
            ],
        ),
        (
            {**A_AND_B, "not": {"required": ["a"]}},
            {"a": ""},
            ['<nil>: Invalid value: "": "f" must not validate the schema (not)'],
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"": "x"},
            ['f.: Invalid value: "string": f. in body must be of type integer: "string"'],
        ),
    ],
)
def test_errors_have_the_texts_of_upstream(source: dict[str, Any], value: Any, texts: list[str]) -> None:
    assert errors(source, value) == texts


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        (INT_OR_STRING, "1"),
        (INT_OR_STRING, 1),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "unknown"}, "x"),
        ({"type": "string", "maxLength": 2}, "üü"),
        ({"type": "string", "pattern": "b"}, "abc"),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [1]}),
        ({"type": "object", "additionalProperties": True}, {"a": [1]}),
    ],
)
def test_valid_values_have_no_errors(source: dict[str, Any], value: Any) -> None:
    assert errors(source, value) == []


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"type": "number", "enum": [1, 2]}, 1.5),
        ({**INT_OR_STRING, "enum": ["A"]}, 65),
        ({"type": "number", "enum": [1.0]}, 1.5),
        ({"type": "string", "format": "date"}, ["x"]),
        ({**INT_OR_STRING}, 1.0000000001),
    ],
)
def test_values_pass_that_only_go_takes_for_equal(source: dict[str, Any], value: Any) -> None:
    assert errors(source, value) == []


@pytest.mark.parametrize("value", [-1.0000000000001, 0.9999999999999, 2.9999999999996])
def test_float_near_a_whole_number_is_an_integer_from_1_37_on(value: float) -> None:
    check = validator(structural.of(INT_OR_STRING))
    assert not check.fits(value, V1_36)
    assert check.fits(value, V1_37)
    assert [at(release, IS_INTEGRAL)(value) for release in (V1_36, V1_37)] == [False, True]


def test_equal_errors_of_branches_are_reported_once() -> None:
    branch = {"maxLength": 1}
    assert errors({"type": "string", "maxLength": 1, "allOf": [branch, branch]}, "ab") == [
        "f: Too long: may not be more than 1 byte",
        '<nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated',
    ]


def test_unchanged_leaf_is_forgiven_although_its_neighbour_changed() -> None:
    source = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 1}, "b": {"type": "integer"}}}
    assert errors(source, {"a": 2, "b": 2}, {"a": 2, "b": 1}) == []
    assert errors(source, {"a": 3, "b": 1}, {"a": 2, "b": 1}) != []


def test_error_of_a_parent_is_forgiven_only_if_all_of_it_is_unchanged() -> None:
    source = {**A_AND_B, "minProperties": 2}
    assert errors(source, {"a": "x"}, {"a": "x"}) == []
    assert errors(source, {"a": "y"}, {"a": "x"}) != []


def test_bad_items_of_atomic_lists_are_errors_when_one_changes() -> None:
    source = {"type": "array", "items": {"type": "integer", "maximum": 1}}
    assert errors(source, [5, 6], [5, 6]) == []
    assert len(errors(source, [5, 7], [5, 6])) == 2


def test_many_errors_are_not_all_looked_for() -> None:
    schema = within({"type": "array", "items": {"type": "string"}})
    found = FieldErrors(validator(schema).errors({"f": [1] * 50_000}))
    assert found.full
    assert len(found) + found.more == fieldpath.MOST_COUNTED


def test_long_key_is_cut_in_paths() -> None:
    source = {"type": "object", "additionalProperties": {"type": "string"}}
    (text,) = errors(source, {"k" * 100_000: 1})
    assert "… 98976 more characters" in text
    assert len(text) < 10_000


def test_many_allowed_values_are_shown_in_part() -> None:
    source = {"type": "string", "enum": [f"v{i}" for i in range(100_000)]}
    assert errors(source, "v99999") == []
    (text,) = errors(source, "x")
    assert text.startswith('f: Unsupported value: "x": supported values: "v0", "v1", ')
    assert len(text) < 100_000


def test_deep_values_and_schemas_are_validated() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = {"a": [deep]}
    assert errors({"x-kubernetes-preserve-unknown-fields": True, "enum": [{"a": [1]}]}, deep) != []
    source: dict[str, Any] = {"type": "string"}
    value: Any = 1
    for _ in range(60):
        source, value = {"type": "object", "properties": {"a": source}}, {"a": value}
    assert len(errors(source, value)) == 1
    assert errors(source, value, value) == []
