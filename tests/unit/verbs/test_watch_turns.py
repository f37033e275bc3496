"""A change of a large object goes out to its watchers one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from apiserver.verbs import watch
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.connection import Connection
from tests.fixtures.valkey import Server

WATCHERS = 30


@pytest_asyncio.fixture
async def server(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def large(name: str) -> dict[str, Any]:
    annotations = {str(i): "x" * 50_000 for i in range(5)}
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "x" * watch.BATCH_BYTES, "uid": "u"}]
    return {"metadata": {"name": name, "annotations": annotations, "ownerReferences": owners}, "spec": {}}


async def watching(server: Composed, since: str, *, selector: str) -> Connection:
    connection = server.connect()
    target = f"{server.classes}?watch=1&resourceVersion={since}&labelSelector={selector}"
    connection.feed(f"GET {target} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
    await connection._until(b"\r\n\r\n")
    return connection


async def test_others_get_turns_between_two_watchers_of_a_large_object(server: Composed) -> None:
    made = await server.ask("POST", server.classes, large("a"))
    assert made.status == 201
    since = made.json["metadata"]["resourceVersion"]
    watchers = [await watching(server, since, selector="" if i % 2 else f"a!=x{i}") for i in range(WATCHERS)]

    def told() -> int:
        return sum(len(each.transport.sent) > watch.BATCH_BYTES for each in watchers)

    changing = asyncio.ensure_future(
        server.ask("PATCH", f"{server.classes}/a", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE_PATCH)
    )
    most, before = 0, 0
    async with asyncio.timeout(60):
        while before < WATCHERS:
            await asyncio.sleep(0)
            now = told()
            most, before = max(most, now - before), now
    assert most == 1
    assert (await changing).status == 200
