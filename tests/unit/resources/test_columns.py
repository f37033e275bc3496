"""Columns, against the tables that a real kube-apiserver answered with."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from apiserver.apimachinery.releases import V1_36, at
from apiserver.codecs.objects import canonical
from apiserver.resources import deviceclass, resourceclaim, resourceclaimtemplate, resourceslice
from apiserver.schema.resource import Column, Object, Resource
from apiserver.watchcache.entry import split
from apiserver.wire import as_json
from tests.unit.schema import shapes_and_values

KINDS = at(
    V1_36, (deviceclass.RESOURCE, resourceclaim.RESOURCE, resourceclaimtemplate.RESOURCE, resourceslice.RESOURCE)
)


@pytest.fixture(scope="module")
def recorded(shared: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """The column definitions of each resource, by its plural."""
    golden = shared.parent / "differential" / "golden.json"
    if not golden.exists():
        pytest.skip("the corpus is not beside this checkout")
    steps = json.loads(golden.read_text())["scenarios"]["table.kinds"]
    found = {}
    for step in steps:
        for part in step["step"].partition("?")[0].split("/"):
            if part in {kind.plural for kind in KINDS} and (columns := next(_definitions(step), None)):
                found[part] = columns
    return found


def _definitions(value: Any) -> Iterator[list[dict[str, Any]]]:
    if isinstance(value, dict):
        if columns := value.get("columnDefinitions"):
            yield columns
        for inner in value.values():
            yield from _definitions(inner)


def _definition(column: Column) -> dict[str, Any]:
    return {name: getattr(column, name) for name in ("name", "type", "format", "description", "priority")}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_columns_say_about_themselves_what_upstream_says(
    kind: Resource, recorded: dict[str, list[dict[str, Any]]]
) -> None:
    assert [_definition(column) for column in kind.columns] == recorded[kind.plural]


def _shown(column: Column, obj: Object) -> tuple[Any, Any]:
    return column.cell(obj, 1_800_000_000.0), column.since(obj) if column.since is not None else None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_column_shows_the_same_of_its_declared_members_as_of_the_object(kind: Resource) -> None:
    @settings(max_examples=20)
    @given(shapes_and_values.values_of(kind.shape))
    def check(obj: Object) -> None:
        body, _ = split(canonical.encode(kind.shape, obj))
        for column in kind.columns:
            assert column.reads is not None
            part = as_json.excerpt(frozenset(column.reads))(body)
            assert _shown(column, part) == _shown(column, as_json.loads(body))

    check()
