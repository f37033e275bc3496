"""Everything that is said about a custom resource, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.schema import structural
from apiserver.schema.context import Context
from apiserver.schema.custom import Scale
from apiserver.structural.judging import NOT_CHECKED, Judge

SPEC = {
    "type": "object",
    "required": ["color"],
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "replicas": {"type": "integer", "maximum": 9},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "free": {},
    },
}
STATUS = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "kind": {"type": "string", "maxLength": 1}},
    "additionalProperties": None,
}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
SCALE = Scale(
    spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), selector=("status", "selector")
)
RULE = fieldpath.invalid("spec", "red", "no red")


class NoRed:
    """A rule that refuses red."""

    def prepare(self) -> None:
        """Nothing is to be compiled."""

    def errors(
        self,
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        *,
        api_version: str,
        kind: str,
        warn: Callable[[str], None],
        checkpoint: Callable[[], None],
    ) -> Iterator[FieldError]:
        assert (api_version, kind) == ("shop.test/v1", "Widget")
        if new["spec"].get("color") == "red":
            yield RULE


def judge(schema: dict[str, Any] = SCHEMA, *, scale: Scale | None = None) -> Judge:
    return Judge(
        structural.of(schema),
        api_version="shop.test/v1",
        kind="Widget",
        namespaced=True,
        scale=scale,
        rules=lambda release: NoRed(),
    )


def widget(**members: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": "ns", "resourceVersion": "1"}, **members}


def created(new: dict[str, Any], **options: Any) -> list[str]:
    return [str(error) for error in judge(**options).validate(Context(), new, None)]


def test_valid_object_has_no_errors() -> None:
    assert created(widget(spec={"color": "blue", "set": ["a", "b"]})) == []


def test_rules_are_checked_after_the_schema() -> None:
    assert created(widget(spec={"color": "red", "replicas": 10})) == [
        "spec.replicas: Invalid value: 10: spec.replicas in body should be less than or equal to 9",
        str(RULE),
    ]


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ({}, "spec.color: Required value"),
        ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ({"color": 1}, 'spec.color: Invalid value: "integer": spec.color in body must be of type string: "integer"'),
    ],
)
def test_rules_are_not_checked_after_errors_that_make_them_meaningless(spec: dict[str, Any], first: str) -> None:
    found = created(widget(spec=spec))
    assert found[0] == first
    assert found[-1] == str(NOT_CHECKED)


def test_repeated_items_do_not_keep_rules_from_being_checked() -> None:
    assert created(widget(spec={"color": "red", "set": ["a", "a"]})) == ['spec.set[1]: Duplicate value: "a"', str(RULE)]


def test_too_long_annotations_keep_rules_from_being_checked() -> None:
    new = widget(spec={"color": "red"})
    new["metadata"]["annotations"] = {"a": "x" * (256 << 10)}
    assert created(new) == [str(NOT_CHECKED)]


def test_bad_name_does_not_keep_rules_from_being_checked() -> None:
    new = widget(spec={"color": "red"})
    new["metadata"]["name"] = "A_B"
    assert created(new) == [str(RULE)]


def test_unchanged_errors_are_forgiven() -> None:
    old = widget(spec={"color": "blue", "replicas": 10, "set": ["a", "a"]})
    new = widget(spec={"color": "blue", "replicas": 10, "set": ["a", "a", "b", "b"]})
    assert [*judge().validate(Context(), new, old)] == []


def test_new_repeated_items_are_errors() -> None:
    old = widget(spec={"color": "blue", "set": ["a"]})
    new = widget(spec={"color": "blue", "set": ["a", "a"]})
    assert [str(error) for error in judge().validate(Context(), new, old)] == ['spec.set[1]: Duplicate value: "a"']


def test_embedded_resources_are_never_forgiven() -> None:
    old = widget(spec={"color": "blue", "template": {}})
    assert [str(error) for error in judge().validate(Context(), old, old)] == [
        "spec.template.apiVersion: Required value",
        "spec.template.kind: Required value",
        str(NOT_CHECKED),
    ]


def test_scale_is_checked_with_every_write() -> None:
    new = widget(spec={"color": "blue", "replicas": -1}, status={"replicas": 1 << 31})
    assert [str(error) for error in judge(scale=SCALE).validate(Context(), new, new)] == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        ".status.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
    ]


def test_status_is_checked_alone_with_paths_of_its_own() -> None:
    old = widget(spec={"color": "green"})
    new = widget(spec={"color": "green"}, status={"replicas": "x"})
    assert [str(error) for error in judge().validate_status(Context(), new, old)] == [
        'status.replicas: Invalid value: "string": replicas in body must be of type integer: "string"',
        str(NOT_CHECKED),
    ]


def test_status_itself_has_an_empty_path_in_messages() -> None:
    new = widget(spec={"color": "blue"}, status=1)
    assert [str(error) for error in judge().validate_status(Context(), new, widget(spec={"color": "blue"}))] == [
        'status: Invalid value: "integer":  in body must be of type object: "integer"',
        str(NOT_CHECKED),
    ]


def test_kind_at_the_root_of_status_is_never_forgiven() -> None:
    old = widget(spec={"color": "blue"}, status={"kind": "xx"})
    new = widget(spec={"color": "blue"}, status={"kind": "xx", "replicas": 1})
    assert [str(error) for error in judge().validate_status(Context(), new, old)] == [
        "status.kind: Too long: may not be more than 1 byte",
        str(NOT_CHECKED),
    ]


def test_status_write_checks_only_its_own_part_of_scale() -> None:
    new = widget(spec={"color": "blue", "replicas": -1}, status={"replicas": -1, "selector": 5})
    assert [str(error) for error in judge(scale=SCALE).validate_status(Context(), new, new)] == [
        ".status.replicas: Invalid value: -1: should be a non-negative integer",
        '.status.selector: Invalid value: "": .status.selector accessor error: 5 is of the type int64, expected string',
    ]
