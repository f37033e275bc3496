"""What of a deletion is on its way at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.verbs import delete
from tests.fixtures.composed import composed
from tests.fixtures.valkey import Server

EMPTY: dict[str, Any] = {"spec": {"devices": {}}}


class InFlight:
    """Stands for `delete_one`: how much of a collection is past its admission together."""

    def __init__(self, size: int) -> None:
        self.most = 0
        self.deleted = 0
        self._now = 0
        self._size = size

    async def delete(self, *_: object, admitted: Callable[[], None], **__: object) -> None:
        admitted()
        self._now += self._size
        self.most = max(self.most, self._now)
        for _ in range(100):  # the turns of all others who may begin
            await asyncio.sleep(0)
        self._now -= self._size
        self.deleted += 1


@pytest.mark.parametrize(("size", "together"), [(1_000, 12), (700_000, 5), (1_300_000, 3)])
async def test_of_a_collection_of_large_objects_few_are_deleted_at_a_time(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch, size: int, together: int
) -> None:
    flight = InFlight(size)
    async with composed(shared_server) as server:
        templates = f"{server.v1}/namespaces/ns/resourceclaimtemplates"
        for number in range(12):
            owner = {"apiVersion": "v1", "kind": "Pod", "name": "x" * size, "uid": "u"}
            metadata = {"name": f"t{number}", "ownerReferences": [owner]}
            assert (await server.ask("POST", templates, {"metadata": metadata, "spec": EMPTY})).status == 201
        monkeypatch.setattr(delete, "delete_one", flight.delete)
        assert (await server.ask("DELETE", templates)).status == 200

    assert flight.deleted == 12
    assert flight.most == together * size
