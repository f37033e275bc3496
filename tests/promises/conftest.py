"""The option that chooses the targets of promises."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", default="all", help="comma-separated, of dev, aggregated, upstream; or all")
