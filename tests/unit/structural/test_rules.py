"""Rules of custom resources. Texts are those of kube-apiserver 1.36.3 and 1.37.2."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.fieldpath import Path
from apiserver.apimachinery.releases import SUPPORTED, V1_36, V1_37, Release
from apiserver.schema import structural
from apiserver.structural import rule_checks, rules

INT, TEXT = {"type": "integer"}, {"type": "string"}
PATH = Path("spec").child("validation").child("openAPIV3Schema")


def schema(properties: dict[str, Any], *found: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties, "x-kubernetes-validations": list(found)}},
    }


def ruled(source: dict[str, Any], *texts: str, **more: Any) -> dict[str, Any]:
    return {**source, "x-kubernetes-validations": [{"rule": text, **more} for text in texts]}


def told(
    source: dict[str, Any], new: Any, old: Any = None, *, release: Release = V1_36, warned: list[str] | None = None
) -> list[str]:
    found = rules.compiled(structural.of(source), release=release)
    assert found is not None
    objects = [None if spec is None else {"metadata": {"name": "x"}, "spec": spec} for spec in (new, old)]
    warnings: list[str] = [] if warned is None else warned
    assert objects[0] is not None
    errors = found.errors(objects[0], objects[1], api_version="rules.test/v1", kind="K", warn=warnings.append)
    return [str(error) for error in errors]


def refused(source: dict[str, Any], *, release: Release = V1_36) -> list[str]:
    return [str(error) for error in rule_checks.problems(structural.of(source), PATH, release=release)]


def test_schema_without_rules_has_none() -> None:
    assert rules.compiled(structural.of({"type": "object", "properties": {"a": INT}}), release=V1_36) is None


@pytest.mark.parametrize("release", SUPPORTED)
def test_failed_rule_shows_scalars_and_leaves_out_objects(release: Release) -> None:
    source = schema({"a": ruled(INT, "self > 3"), "f": ruled({"type": "number"}, "self < 2.0")}, {"rule": "false"})
    assert told(source, {"a": 1, "f": 1e6}, release=release) == [
        "spec: Invalid value: failed rule: false",
        "spec.a: Invalid value: 1: failed rule: self > 3",
        "spec.f: Invalid value: 1e+06: failed rule: self < 2.0",
    ]


def test_reason_decides_what_an_error_shows() -> None:
    for reason, text in (
        ("FieldValueForbidden", "spec.a: Forbidden: m"),
        ("FieldValueRequired", "spec.a: Required value: m"),
        ("FieldValueDuplicate", "spec.a: Duplicate value: 1"),
    ):
        assert told(schema({"a": ruled(INT, "false", message=" m ", reason=reason)}), {"a": 1}) == [text]


def test_message_expression_that_fails_yields_to_the_message() -> None:
    usable = ruled(INT, "false", message="m", messageExpression="'got %d'.format([self])")
    failing = ruled(INT, "false", message="m", messageExpression="string(1 / (self - 1))")
    blank = ruled(INT, "false", message="m", messageExpression="' '")
    assert told(schema({"a": usable, "b": failing, "c": blank}), {"a": 1, "b": 1, "c": 1}) == [
        "spec.a: Invalid value: 1: got 1",
        "spec.b: Invalid value: 1: m",
        "spec.c: Invalid value: 1: m",
    ]


def test_failed_evaluation_shows_the_type() -> None:
    mixed = {"i": ruled({"x-kubernetes-int-or-string": True}, "self < 2")}
    assert told(schema({"a": INT}, {"rule": "self.a > 1"}), {}) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: self.a > 1'
    ]
    assert told(schema(mixed), {"i": "5"}) == [
        (
            "spec.i: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, "
            "function or macro signature for rule: self < 2"
        )
    ]


def test_field_path_is_appended_to_the_path() -> None:
    inner = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": TEXT}}}
    assert told(schema({"o": ruled(inner, "false", fieldPath=".m['k.k']")}), {"o": {}}) == [
        "spec.o.m[k.k]: Invalid value: failed rule: false"
    ]


def test_root_rule_sees_names_and_is_at_nil() -> None:
    source = ruled(schema({"a": INT}), "self.metadata.name == 'y' || self.kind == 'L'")
    assert told(source, {"a": 1}) == [
        "<nil>: Invalid value: failed rule: self.metadata.name == 'y' || self.kind == 'L'"
    ]


def test_transition_rule_needs_an_old_value_unless_it_is_optional() -> None:
    source = schema({"a": ruled(INT, "self == oldSelf"), "b": ruled(INT, "oldSelf.hasValue()", optionalOldSelf=True)})
    assert told(source, {"a": 1, "b": 1}) == ["spec.b: Invalid value: 1: failed rule: oldSelf.hasValue()"]
    assert told(source, {"a": 1, "b": 1}, {"a": 2, "b": 1}) == [
        "spec.a: Invalid value: 1: failed rule: self == oldSelf"
    ]


def test_items_of_list_maps_correlate_by_key() -> None:
    items = {"type": "object", "properties": {"k": TEXT, "v": ruled(INT, "self == oldSelf")}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items}
    new, old = [{"k": "n", "v": 9}, {"k": "b", "v": 2}, {"k": "a", "v": 3}], [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    assert told(schema({"l": keyed}), {"l": new}, {"l": old}) == [
        "spec.l[2].v: Invalid value: 3: failed rule: self == oldSelf"
    ]


def test_failed_rule_where_nothing_changed_is_a_warning() -> None:
    warned: list[str] = []
    source = schema({"a": ruled(INT, "self > 3"), "b": INT}, {"rule": "false"})
    errors = told(source, {"a": 1, "b": 2}, {"a": 1, "b": 1}, warned=warned)
    assert errors == ["spec: Invalid value: failed rule: false"]
    assert warned == ["spec.a: Invalid value: 1: failed rule: self > 3"]


def test_expression_above_its_cost_limit_ends_the_check() -> None:
    numbers = {"type": "array", "items": INT}
    rule = "self.all(x, self.all(y, self.all(z, x * y * z >= 0)))"
    errors = told(schema({"l": ruled(numbers, rule, "false", message="m")}), {"l": [1] * 200})
    assert errors == [
        (
            "spec.l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': "
            "no further validation rules will be run due to call cost exceeds limit for rule: m"
        )
    ]


def test_checkpoint_ends_a_long_evaluation() -> None:
    class Stopped(Exception):
        pass

    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise Stopped

    rule = "self.all(x, self.all(y, x * y >= 0))"
    found = rules.compiled(structural.of(schema({"l": ruled({"type": "array", "items": INT}, rule)})), release=V1_36)
    assert found is not None
    with pytest.raises(Stopped):
        list(found.errors({"spec": {"l": [1] * 300}}, None, api_version="a/v1", kind="K", checkpoint=checkpoint))


def test_sets_of_dates_are_equal_from_1_37_on() -> None:
    dates = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "format": "date"}}
    source = schema({"a": dates, "b": dates}, {"rule": "self.a == self.b"})
    spec = {"a": ["2020-01-01", "2020-01-02"], "b": ["2020-01-02", "2020-01-01"]}
    assert told(source, spec, release=V1_36) == ["spec: Invalid value: failed rule: self.a == self.b"]
    assert told(source, spec, release=V1_37) == []


def test_compile_error_shows_the_rule_and_a_caret() -> None:
    assert refused(schema({"a": INT}, {"rule": "self.b"})) == [
        (
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: "
            '{"Rule":"self.b","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: '
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b\n | ....^"
        )
    ]


def test_transition_rule_below_an_atomic_list_is_refused() -> None:
    listed = {"type": "array", "maxItems": 2, "items": ruled(INT, "self == oldSelf")}
    at = "spec.validation.openAPIV3Schema.properties[spec].properties[l]"
    assert refused(schema({"l": listed})) == [
        (
            f'{at}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": '
            f"oldSelf cannot be used on the uncorrelatable portion of the schema within {at}"
        )
    ]


def test_cost_of_unlimited_lists_is_refused() -> None:
    errors = refused(schema({"l": {"type": "array", "items": TEXT}}, {"rule": "self.l.all(x, self.l.all(y, x == y))"}))
    assert len(errors) == 3
    assert "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule" in errors[0]
    assert errors[1].endswith(
        "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    )


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"rule": " "}, "rule: Required value: rule is not specified"),
        ({"rule": "true", "message": " "}, 'message: Invalid value: " ": must be non-empty if specified'),
        ({"rule": "a\nb"}, "message: Required value: message must be specified if rule contains line breaks"),
        ({"rule": "true", "fieldPath": ".b"}, 'fieldPath: Invalid value: ".b": must be a valid path'),
    ],
)
def test_texts_of_a_rule_are_checked(rule: dict[str, Any], error: str) -> None:
    source = {"type": "object", "properties": {"a": INT}, "x-kubernetes-validations": [rule]}
    found = [str(each) for each in rule_checks.text_problems(source, Path("s"))]
    assert found == [f"s.x-kubernetes-validations[0].{error}"]
