"""A Valkey for the tests of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from apiserver.storage import durability
from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import Server, opening, own_server, resource, shared_server, store

__all__ = ["opening", "own_server", "resource", "shared_server", "store"]

Patience = Callable[[float], None]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """Replicas may take a minute to confirm, unless a test asks for less: a busy machine must not put writes in doubt."""

    def patience(seconds: float) -> None:
        monkeypatch.setattr(durability, "CONFIRM_SECONDS", seconds)

    patience(60.0)
    return patience


@pytest_asyncio.fixture
async def proxy(shared_server: Server) -> AsyncIterator[Proxy]:
    made = Proxy(shared_server.socket)
    await made.start()
    yield made
    await made.stop()
