"""All errors of a definition, as kube-apiserver words them."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver.apiextensions import checks, decoding, defaults
from apiserver.apimachinery.fieldpath import MOST_COUNTED
from apiserver.apimachinery.releases import SUPPORTED, V1_36, V1_37, Release
from tests.fixtures.cases import each_case
from tests.unit.apiextensions.definitions import CASES, definition


def complete(source: dict[str, Any]) -> dict[str, Any]:
    found = decoding.decode(source).object
    defaults.fill(found)
    return found


def problems(source: dict[str, Any], release: Release = V1_36) -> list[str]:
    return [str(error) for error in checks.problems(complete(source), release)]


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
def test_definition_has_the_errors_that_kube_apiserver_reports(release: Release) -> None:
    @each_case("case", CASES, ids=lambda case: case["name"])
    def judged(case: Mapping[str, Any]) -> None:
        change = {name: value for name, value in case.items() if name not in ("name", "errors")}
        assert sorted(problems(definition(**change), release)) == sorted(case["errors"])

    judged()


def versions(*schemas: Mapping[str, Any]) -> dict[str, Any]:
    found = definition()
    found["spec"]["versions"] = [
        {
            "name": f"v{i}",
            "served": True,
            "storage": i == 1,
            "schema": {"openAPIV3Schema": {"type": "object", **schema}},
        }
        for i, schema in enumerate(schemas, start=1)
    ]
    return found


def test_errors_of_versions_that_are_alike_stand_at_the_top() -> None:
    wrong = {"nullable": True}
    assert problems(versions(wrong, wrong)) == [
        "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"
    ]


def test_errors_of_versions_that_differ_name_the_version() -> None:
    assert problems(versions({}, {"nullable": True})) == [
        "spec.versions[1].schema.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"
    ]


@pytest.mark.parametrize(("first", "second"), [(1, True), (1, 1.5), ([], None), ({}, {"a": None})])
def test_defaults_of_different_json_types_are_not_alike(first: Any, second: Any) -> None:
    one, other = ({"nullable": True, "properties": {"a": {"type": "x", "default": x}}} for x in (first, second))
    assert all(".versions[" in text for text in problems(versions(one, other)))


def test_unknown_formats_are_warnings() -> None:
    properties = {
        "a": {"type": "string", "format": "uint8"},
        "b": {"type": "integer", "format": "date"},
        "c": {"type": "string", "format": "date-time"},
        "d": {"type": "array", "items": {"type": "string", "format": "uint8"}},
        "e": {"type": "string", "format": "k8s-short-name"},
    }
    found = complete(definition(properties))
    assert checks.warnings(found, V1_36) == ['unrecognized format "uint8"', 'unrecognized format "date"']


def test_sets_of_objects_are_warnings_from_1_37_on() -> None:
    items = {"type": "object", "x-kubernetes-map-type": "atomic"}
    found = complete(definition({"a": {"type": "array", "items": items, "x-kubernetes-list-type": "set"}}))
    assert checks.warnings(found, V1_36) == []
    assert checks.warnings(found, V1_37) == [
        'x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules'
    ]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 2):
        schema = {"type": "array", "items": schema}
    return definition({"a": schema})


def test_schema_of_the_most_levels_is_taken() -> None:
    assert problems(nested(decoding.MOST_LEVELS)) == []


def test_deeper_schema_is_refused() -> None:
    with pytest.raises(decoding.DecodeError, match="a schema nests more than 100 levels deep"):
        decoding.decode(nested(decoding.MOST_LEVELS + 1))


def test_many_errors_are_counted_and_not_kept() -> None:
    found = checks.problems(complete(definition({f"a{i}": {} for i in range(50_000)})), V1_36)
    assert len(found) < MOST_COUNTED
    assert found.full


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "enum": [f"value-{i}" for i in range(100_000)], "default": "value-99999"}},
        {f"a{i}": {"type": "string", "pattern": f"^[a-z]{{{i % 900}}}$"} for i in range(2_000)},
        {
            f"a{i}": {"type": "object", "properties": {f"b{j}": {"type": "string"} for j in range(100)}}
            for i in range(500)
        },
    ],
    ids=["enum", "patterns", "members"],
)
def test_large_schema_is_checked_in_seconds(properties: Mapping[str, Any]) -> None:
    found = complete(definition(properties))
    before = cpu()
    assert checks.problems(found, V1_36) == []
    assert cpu() - before < 10
