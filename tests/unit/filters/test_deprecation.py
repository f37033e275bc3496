"""Traces of a request for a deprecated version."""

from __future__ import annotations

import dataclasses

import pytest
from aiohttp.test_utils import make_mocked_request

from apiserver.apimachinery.request import Level
from apiserver.filters import deprecation
from apiserver.filters.request_info import parse
from apiserver.schema.resource import Deprecation
from apiserver.wire.response import Exchange
from tests.unit.wire.served import CLASSES


@pytest.mark.parametrize(
    ("removed", "text", "noted"),
    [
        ("1.38", ", unavailable in v1.38+", {"k8s.io/deprecated": "true", "k8s.io/removed-release": "1.38"}),
        ("", "", {"k8s.io/deprecated": "true"}),
    ],
)
def test_deprecated_version_warns_and_is_noted_for_the_auditor(removed: str, text: str, noted: dict[str, str]) -> None:
    path = f"/apis/{CLASSES.group}/v1/deviceclasses"
    exchange = Exchange(make_mocked_request("GET", path))
    kind = dataclasses.replace(CLASSES, deprecation=Deprecation(since="1.35", removed=removed))

    deprecation.note(exchange, parse("GET", path), kind)

    warning = f'299 - "{CLASSES.api_version} DeviceClass is deprecated in v1.35+{text}"'
    assert exchange.warnings.headers() == [warning]
    assert exchange.annotations.seen_at(Level.METADATA) == noted
