"""A server without a cluster, with its controllers, over a Valkey for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.fixtures.composed import Composed, composed
from tests.fixtures.valkey import Server, shared_server

__all__ = ["shared_server"]


@pytest_asyncio.fixture
async def alone(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server, alone=True) as server:
        yield server
