"""Shapes of the types that the cases of patches declare in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.schema.types import Boolean, Field, Integer, ListOf, MapOf, Presence, String, Struct, Type

_STRATEGY, _KEY = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"
_SCALARS: Mapping[str, Type] = {"string": String(), "integer": Integer(), "boolean": Boolean()}


def shape(schema: Mapping[str, Any]) -> Type:
    """The type that a schema stands for. Its structs have no names, as those that Go makes of one have none."""
    match schema["type"]:
        case "array":
            return ListOf(shape(schema["items"]))
        case "object" if "properties" not in schema:
            return MapOf(shape(schema["additionalProperties"]))
        case "object":
            return struct(schema)
    return _SCALARS[schema["type"]]


def struct(schema: Mapping[str, Any]) -> Struct:
    members = enumerate(schema["properties"].items(), start=1)
    return Struct(name="", fields=[_field(name, number, declared) for number, (name, declared) in members])


def _field(name: str, number: int, declared: Mapping[str, Any]) -> Field:
    pointer = declared["type"] == "object" and "properties" in declared
    return Field(
        name=name,
        number=number,
        type=shape(declared),
        presence=Presence.POINTER if pointer else Presence.OMIT_EMPTY,
        patch_strategy=declared.get(_STRATEGY, ""),
        patch_merge_key=declared.get(_KEY, ""),
    )
