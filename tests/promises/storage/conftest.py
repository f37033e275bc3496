"""A Valkey of its own for each promise."""

from __future__ import annotations

from tests.fixtures.valkey import own_server

__all__ = ["own_server"]
