"""Published schemas of custom resources, as upstream's builder of OpenAPI documents makes them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema import structural
from apiserver.structural import openapi

OWN: dict[str, dict[str, Any]] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"$ref": "M"},
}
EITHER = [{"type": "integer"}, {"type": "string"}]


def spec(schema: dict[str, Any], *, v2: bool = False, required: bool = False) -> tuple[Any, Any]:
    """Return the published schema of a member, and the names that its parent requires."""
    root = {"type": "object", "properties": {"spec": schema}, **({"required": ["spec"]} if required else {})}
    found = openapi.published(structural.of(root), OWN, v2=v2)
    return found["properties"]["spec"], found.get("required")


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "number", "minimum": 1.0, "default": 2.0}, {"type": "number", "minimum": 1, "default": 2}),
        ({"type": "string", "nullable": True}, {"type": "string", "nullable": True}),
        ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True, "anyOf": EITHER}),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"minLength": 1}], "allOf": [{"maxLength": 4}]},
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"minLength": 1}],
                "allOf": [{"anyOf": EITHER}, {"maxLength": 4}],
            },
        ),
        (
            {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": EITHER}]},
            {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": EITHER}]},
        ),
    ],
)
def test_version_3_shows_the_schema_as_written(schema: dict[str, Any], shown: dict[str, Any]) -> None:
    assert spec(schema)[0] == shown


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string", "default": "a", "anyOf": [{"minLength": 1}]}, {"type": "string"}),
        ({"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "array", "items": {"type": "string"}, "nullable": True}, {}),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}},
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"type": "object", "additionalProperties": True}, {"type": "object", "additionalProperties": True}),
    ],
)
def test_version_2_leaves_out_what_it_cannot_express(schema: dict[str, Any], shown: dict[str, Any]) -> None:
    assert spec(schema, v2=True)[0] == shown


def test_version_2_does_not_require_a_nullable_member() -> None:
    schema = {"type": "string", "nullable": True}
    assert spec(schema, v2=True, required=True)[1] is None
    assert spec(schema, required=True)[1] == ["spec"]


def test_embedded_resource_gains_the_members_of_objects() -> None:
    found, _ = spec({"type": "object", "x-kubernetes-embedded-resource": True, "required": ["apiVersion"]})
    assert found["required"] == ["apiVersion", "kind"]
    assert set(found["properties"]) == {"apiVersion", "kind", "metadata"}
