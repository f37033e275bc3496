"""A write frees a large object in a thread, however small the request is and however it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.apimachinery import errors
from apiserver.runtime import offload
from apiserver.schema.resource import Object
from apiserver.verbs import patch
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server


@pytest_asyncio.fixture
async def server(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


@pytest.mark.parametrize("stored", [100, 100_000])
async def test_small_patch_that_fails_frees_a_large_object_in_a_thread(
    server: Composed, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    metadata = {"name": "c", "annotations": {"text": "x" * stored}}
    claim = {
        "apiVersion": f"{server.group}/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }
    assert (await server.ask("POST", server.claims, claim)).status == 201
    freed: list[bool] = []
    went = threading.Event()

    class Made:
        def __del__(self) -> None:
            freed.append(threading.current_thread() is not threading.main_thread())
            went.set()

    def fail(*_patch: Any, **_terms: Any) -> Object:
        _made = Made()
        raise errors.bad_request("it is wrong")

    monkeypatch.setattr(patch, "patched", fail)
    answer = await server.ask("PATCH", f"{server.claims}/c", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE_PATCH)

    assert answer.status == 400
    assert await asyncio.to_thread(went.wait, 10)
    assert freed == [stored > offload.FREE.limit]
