"""The server that plays kube-apiserver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from apiserver.cluster.client import Client
from tests.unit.cluster.plane import Clock, Plane


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    folder = tmp_path / "plane"
    folder.mkdir()
    made = await Plane(folder).start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def client(plane: Plane, clock: Clock) -> AsyncIterator[Client]:
    made = await plane.client(clock)
    yield made
    await made.close()
