"""The webhook that is called, and its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest_asyncio

from apiserver.admission.webhooks.calls import Caller
from apiserver.serving.lookups import Lookups
from apiserver.serving.secured import Secured
from tests.fixtures import steps
from tests.unit.admission.webhooks.hook import Hook


class Loop(Secured, Lookups, steps.Loop):  # type: ignore[misc]  # as in serving/steps
    """The loop of tests, with TLS as the program's own loop has it."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"secured": Loop}


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
