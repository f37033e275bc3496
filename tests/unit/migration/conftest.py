"""A Valkey for the tests of this room."""

from __future__ import annotations

from tests.fixtures.valkey import opening, shared_server

__all__ = ["opening", "shared_server"]
