"""Valkey servers to break."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import Server, opening, own_server, resource, shared_server, store

__all__ = ["opening", "own_server", "resource", "shared_server", "store"]


@pytest_asyncio.fixture
async def proxy(own_server: Server) -> AsyncIterator[Proxy]:
    made = Proxy(own_server.socket)
    await made.start()
    yield made
    await made.stop()
