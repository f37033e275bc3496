"""Cells of printer columns, as kube-apiserver's table convertor shows them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apiextensions.columns import columns
from apiserver.apiextensions.definition import DefinedVersion, PrinterColumn
from apiserver.schema import structural
from apiserver.schema.resource import Column

OBJECT: dict[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {
        "null": None,
        "text": "t",
        "count": 3,
        "share": 2.75,
        "huge": 1e30,
        "on": True,
        "list": [{"b": 1e21, "a": "<"}],
        "texts": ["a", "b"],
    },
    "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "yes"}]},
    "at": ["2024-01-01T00:00:00Z", "", "null", "soon", 5, "0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z"],
}


def of(*paths: tuple[str, str]) -> list[Column]:
    found = [PrinterColumn(name="C", type=type_, json_path=path) for path, type_ in paths]
    version = DefinedVersion(
        name="v1", served=True, storage=True, schema=structural.of({"type": "object"}), columns=found
    )
    return list(columns(version, "g/v1", "K"))


@pytest.mark.parametrize(
    ("path", "type_", "cell"),
    [
        (".spec.text", "string", "t"),
        (".spec.null", "string", "<no value>"),
        (".spec.absent", "string", None),
        (".spec.count", "string", "3"),
        (".spec.huge", "string", "1e+30"),
        (".spec.on", "string", "true"),
        (".spec.list", "string", '[{"a":"\\u003c","b":1e+21}]'),
        (".spec.texts[*]", "string", "a"),
        (".spec.count", "integer", 3),
        (".spec.share", "integer", 2),
        (".spec.huge", "integer", -(1 << 63)),
        (".spec.text", "integer", None),
        (".spec.on", "integer", None),
        (".spec.share", "number", 2.75),
        (".spec.on", "boolean", True),
        (".spec.count", "boolean", None),
        (".spec.texts[5]", "string", None),
        ('.status.conditions[?(@.type=="Ready")].status', "string", "yes"),
        (".kind", "string", "K"),
        (".apiVersion", "string", "g/v1"),
    ],
)
def test_cell_has_the_columns_type_or_is_null(path: str, type_: str, cell: Any) -> None:
    assert of((path, type_))[1].cell(OBJECT, 0.0) == cell


@pytest.mark.parametrize(
    ("index", "since"),
    [(0, 1704067200.0), (1, "<unknown>"), (2, "<unknown>"), (3, "<invalid>"), (4, None), (5, "<unknown>"), (6, -1e12)],
)
def test_date_counts_from_its_time_or_says_why_not(index: int, since: Any) -> None:
    column = of((f".at[{index}]", "date"))[1]
    assert column.since is not None
    assert (column.since(OBJECT), column.ageless) == (since, None)


def test_column_reads_the_members_before_the_first_filter() -> None:
    found = of(('.status.conditions[?(@.type=="Ready")].status', "string"), (".metadata.labels.a\\.b", "string"))
    assert [column.reads for column in found[1:]] == [("status.conditions",), ("metadata.labels",)]


def test_path_that_does_not_parse_drops_its_column_and_those_after_it() -> None:
    assert len(of((".a", "string"), (".b[", "string"), (".c", "string"))) == 2


def test_version_without_columns_has_name_and_age() -> None:
    assert [column.name for column in of()] == ["Name", "Age"]


def test_cell_that_needs_too_many_steps_is_null() -> None:
    assert of(("..a", "string"))[1].cell({"l": [[[1]]] * 20_000, "a": 1}, 0.0) is None
