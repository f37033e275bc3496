"""OpenAPI documents in protobuf, byte for byte as gnostic's Go code makes them of the same JSON."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import pytest

from apiserver.discovery import openapi_protobuf

CASES: dict[str, Any] = json.loads(
    (pathlib.Path(__file__).resolve().parents[2] / "cases" / "openapi-protobuf.json").read_text()
)
"""A small document of each version, and what `proto.Marshal(openapi_v2.ParseDocument(document))` makes of it (`openapi_v3` likewise)."""


@pytest.mark.parametrize(("version", "written"), [("v2", openapi_protobuf.v2), ("v3", openapi_protobuf.v3)])
def test_a_document_is_written_as_upstream_writes_it(version: str, written: Any) -> None:
    case = CASES[version]
    assert written(case["document"]) == base64.b64decode(case["protobuf"])


def test_the_order_of_members_does_not_count() -> None:
    document = CASES["v2"]["document"]
    assert openapi_protobuf.v2(dict(reversed(document.items()))) == openapi_protobuf.v2(document)


def test_a_number_may_be_a_default() -> None:
    """As a double: a schema whose default (33) is a DefaultType with a number (1)."""
    schema = {"type": "number", "default": 1.5}
    document = {"components": {"schemas": {"A": schema}}}
    assert openapi_protobuf.v3(document).endswith(bytes([33 << 3 & 127 | 2 | 128, 2, 9, 9]) + b"\0\0\0\0\0\0\xf8\x3f")


def test_a_member_without_a_number_is_an_error() -> None:
    with pytest.raises(KeyError, match="host"):
        openapi_protobuf.v2({"host": "example.com"})


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"nullable": True}, "0801"),
        ({"title": "T"}, "4a0154"),
        ({"minimum": 1, "exclusiveMinimum": True}, "69000000000000f03f7001"),
        ({"minLength": 0, "maxItems": -1}, "9001ffffffffffffffffff01"),
        ({"anyOf": [{"type": "string"}]}, "e2010b0a09ca0106737472696e67"),
        ({"not": {"type": "string"}}, "ea0109ca0106737472696e67"),
        ({"additionalProperties": False}, "8202021000"),
        ({"externalDocs": {"url": "u"}}, "3203120175"),
    ],
)
def test_members_of_custom_schemas_are_written(schema: dict[str, Any], written: str) -> None:
    """As OpenAPIv3.proto numbers them. Numbers that are zero are left out, as in Go."""
    assert openapi_protobuf.v3({"components": {"schemas": {"A": schema}}}).hex().endswith(written)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"maximum": 1}, "39000000000000f03f"),
        ({"minProperties": 2, "pattern": "a"}, "6a016190" + "0102"),
        ({"additionalProperties": True}, "aa01021001"),
    ],
)
def test_members_of_custom_schemas_are_written_in_version_2(schema: dict[str, Any], written: str) -> None:
    assert openapi_protobuf.v2({"definitions": {"A": schema}}).hex().endswith(written)
