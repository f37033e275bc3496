"""Types for the tests of the engine, declared by what they are for."""

from __future__ import annotations

from typing import Any

from structuredmerge import sets
from structuredmerge.openapi import type_of
from structuredmerge.paths import Element, field
from structuredmerge.sets import Set
from structuredmerge.types import Type

STRING = {"type": "string"}
NUMBER = {"type": "integer"}

PERSON = {
    "type": "object",
    "properties": {
        "name": STRING,
        "age": NUMBER,
        "alive": {"type": "boolean"},
        "tags": {"type": "object", "additionalProperties": STRING},
        "roles": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "words": {"type": "array", "x-kubernetes-list-type": "atomic", "items": STRING},
        "place": {"type": "object", "properties": {"street": STRING, "town": STRING}},
        "dates": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["day", "zone"],
            "items": {
                "type": "object",
                "properties": {"day": NUMBER, "zone": {**STRING, "default": "UTC"}, "what": STRING},
            },
        },
        "choice": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": NUMBER, "b": NUMBER}},
        "anything": {},
        "raw": {"x-kubernetes-preserve-unknown-fields": True, "type": "object"},
    },
}

TYPE = type_of(PERSON)


def changed(**properties: Any) -> Type:
    """The type with other declarations of some members."""
    return type_of({**PERSON, "properties": {**PERSON["properties"], **properties}})  # type: ignore[dict-item]


def at(*elements: str | Element) -> tuple[Element, ...]:
    """A path; a text is a member."""
    return tuple(field(element) if isinstance(element, str) else element for element in elements)


def owned(*paths: tuple[Element, ...]) -> Set:
    return sets.of(paths)
