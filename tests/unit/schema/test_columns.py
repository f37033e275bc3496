"""Columns that show a member, as printer columns of CustomResourceDefinitions do."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema import columns

NOW = 1_700_000_000.0
OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"x": "y"}},
    "spec": {
        "text": "t",
        "count": 3,
        "share": 2.5,
        "on": True,
        "at": "2023-11-14T22:08:20Z",
        "items": [1, "<"],
        "map": {"a": None},
    },
}


@pytest.mark.parametrize(
    ("path", "type_", "cell"),
    [
        ("spec.text", "string", "t"),
        ("spec.count", "string", "3"),
        ("spec.on", "string", "true"),
        ("spec.items", "string", '[1,"\\u003c"]'),
        ("spec.map", "string", '{"a":null}'),
        ("spec.count", "integer", 3),
        ("spec.share", "integer", 2),
        ("spec.on", "integer", None),
        ("spec.text", "integer", None),
        ("spec.share", "number", 2.5),
        ("spec.on", "boolean", True),
        ("spec.count", "boolean", None),
        ("spec.at", "date", "5m"),
        ("spec.never", "date", "<unknown>"),
        ("spec.never", "integer", None),
        ("spec.text.never", "string", None),
        ("metadata.labels.x", "string", "y"),
    ],
)
def test_a_member_is_shown_in_the_columns_type(path: str, type_: Any, cell: Any) -> None:
    column = columns.member("X", path, type_)
    shown = column.cell(OBJECT, NOW)
    assert (shown, type(shown)) == (cell, type(cell))
    assert (column.type, column.reads) == (type_, [path])
    assert (column.since is not None) == (type_ == "date")
