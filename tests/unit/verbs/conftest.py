"""A Valkey for the tests of this package."""

from __future__ import annotations

from tests.fixtures.valkey import shared_server

__all__ = ["shared_server"]
