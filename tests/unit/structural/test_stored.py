from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.schema.shapes import CUSTOM
from apiserver.schema.structural import of
from apiserver.structural.defaulting import defaulter, filler
from apiserver.structural.pruning import pruner
from apiserver.structural.stored import adopter, converter

SCHEMA = of(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "d": {"type": "string", "default": "x"},
                    "e": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": True,
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                },
            }
        },
    }
)
ADOPT = adopter(SCHEMA, CUSTOM, prune=pruner(SCHEMA), fill=filler(SCHEMA), default=defaulter(SCHEMA))


def line(spec: Any) -> bytes:
    return json.dumps({"metadata": {"name": "n"}, "spec": spec}, separators=(",", ":")).encode()


def test_a_value_that_fits_the_schema_stays_the_same_object() -> None:
    for spec in ({"a": "s", "d": "y"}, {"d": "y", "e": {"kind": "K", "metadata": {"name": "n"}}}):
        value = line(spec)
        assert ADOPT(value) is value


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"a": "s"}, {"a": "s", "d": "x"}),
        ({"d": "y", "old": {"b": 1}}, {"d": "y"}),
        ({"a": None, "d": "y"}, {"d": "y"}),
        ({"d": "y", "e": {"kind": 1, "metadata": {"zz": 1}}}, {"d": "y", "e": {"metadata": {}}}),
    ],
)
def test_a_value_of_an_older_schema_is_read_under_the_present_one(spec: Any, read: Any) -> None:
    assert json.loads(ADOPT(line(spec))) == {"metadata": {"name": "n"}, "spec": read}


def test_a_conversion_prunes_and_fills_nothing() -> None:
    found = converter(SCHEMA)({"metadata": {"name": "n"}, "spec": {"a": None, "z": 1}, "status": {}})
    assert found == {"metadata": {"name": "n"}, "spec": {}}
