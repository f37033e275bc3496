from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.schema.shapes import CUSTOM
from apiserver.schema.structural import of
from apiserver.structural.defaulting import defaulter, filler
from apiserver.structural.pruning import pruner
from apiserver.structural.stored import adopter, converter, version_adopter

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


def versions(stored: str, **schemas: Any) -> Callable[[bytes], bytes]:
    """The reader of a definition whose versions have these properties of spec."""
    webhook = schemas.pop("webhook", False)
    made = {
        name: of({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
        for name, properties in schemas.items()
    }
    adopters = {
        name: adopter(schema, CUSTOM, prune=pruner(schema), fill=filler(schema), default=defaulter(schema))
        for name, schema in made.items()
    }
    convert = None if webhook else converter(made[stored])
    return version_adopter(stored, adopters, CUSTOM, convert=convert)


V1 = {"a": {"type": "string"}, "d": {"type": "string", "default": "x"}}
V2 = {"a": {"type": "string"}, "e": {"type": "string", "default": "y"}}


@pytest.mark.parametrize("webhook", [False, True])
def test_value_of_the_stored_version_stays_the_same_object(webhook: bool) -> None:
    value = line({"a": "s", "d": "y"}) + b"\nv1"
    assert versions("v1", v1=V1, v2=V2, webhook=webhook)(value) is value


@pytest.mark.parametrize("webhook", [False, True])
def test_value_that_names_no_version_is_in_the_stored_one(webhook: bool) -> None:
    read = versions("v1", v1=V1, v2=V2, webhook=webhook)
    assert read(line({"a": "s", "d": "y"})) == line({"a": "s", "d": "y"}) + b"\nv1"
    assert read(line({"e": "s"})) == line({"d": "x"}) + b"\nv1"


def test_webhook_gets_an_object_as_its_version_reads_it() -> None:
    read = versions("v2", v1=V1, v2=V2, webhook=True)
    assert read(line({"a": "s", "z": 1}) + b"\nv1") == line({"a": "s", "d": "x"}) + b"\nv1"


def test_without_a_webhook_an_object_gets_no_defaults_of_the_stored_version() -> None:
    read = versions("v2", v1=V1, v2=V2)
    assert read(line({"a": "s", "z": 1}) + b"\nv1") == line({"a": "s"}) + b"\nv2"


@pytest.mark.parametrize("webhook", [False, True])
def test_value_of_a_removed_version_stays_as_it_is(webhook: bool) -> None:
    value = line({"a": "s", "z": 1}) + b"\nv0"
    assert versions("v1", v1=V1, v2=V2, webhook=webhook)(value) is value


def test_a_conversion_prunes_and_fills_nothing() -> None:
    found = converter(SCHEMA)({"metadata": {"name": "n"}, "spec": {"a": None, "z": 1}, "status": {}})
    assert found == {"metadata": {"name": "n"}, "spec": {}}
