"""The webhook that is called, and whoever calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from apiserver.admission.webhooks.calls import Caller
from tests.unit.admission.webhooks.hook import Hook


@pytest_asyncio.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Hook]:
    made = await Hook(tmp_path).start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    made = Caller()
    yield made
    await made.close()
