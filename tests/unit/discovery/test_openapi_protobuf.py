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
