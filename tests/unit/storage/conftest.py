"""A Valkey for the tests of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import Server, opening, own_server, resource, shared_server, store

__all__ = ["opening", "own_server", "resource", "shared_server", "store"]


@pytest_asyncio.fixture
async def proxy(shared_server: Server) -> AsyncIterator[Proxy]:
    made = Proxy(shared_server.socket)
    await made.start()
    yield made
    await made.stop()
