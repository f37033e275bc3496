"""Deletions in progress at a time, and the finalizers that a deletion leaves."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apimachinery.options import DeleteOptions
from apiserver.verbs import delete
from apiserver.verbs.delete import FOREGROUND, ORPHAN
from tests.fixtures.composed import MERGE_PATCH, composed
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
        for _turn in range(100):  # the turns of all others who may begin
            await asyncio.sleep(0)
        self._now -= self._size
        self.deleted += 1


@pytest.mark.parametrize(("size", "together"), [(1_000, 12), (700_000, 5), (1_300_000, 3)])
async def test_few_large_objects_of_a_collection_are_deleted_at_a_time(
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


FEW = [list(some) for number in range(4) for some in itertools.permutations(["a.b/c", ORPHAN, FOREGROUND], number)]


@pytest.mark.parametrize("policy", ["Orphan", "Foreground", "Background"])
@pytest.mark.parametrize("existing", FEW, ids=",".join)
def test_policy_judges_the_collectors_finalizers_and_keeps_their_order(policy: str, existing: list[str]) -> None:
    wanted = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
    others = [name for name in existing if name == "a.b/c"]
    after = delete.finalizers_after(DeleteOptions(propagation_policy=policy), existing)
    assert after == (existing if set(existing) == {*others, *wanted} else others + wanted)


async def test_deletion_with_very_many_finalizers_does_not_hold_the_loop(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalizers = [f"a.b/f{number}" for number in range(90_000)]
    loops, asked_in = threading.get_ident(), []
    after = delete.finalizers_after

    def noted(wanted: DeleteOptions, existing: list[str]) -> list[str]:
        asked_in.append(threading.get_ident())
        return after(wanted, existing)

    monkeypatch.setattr(delete, "finalizers_after", noted)
    async with composed(shared_server) as server:
        path = f"{server.classes}/a"
        body = {"metadata": {"name": "a", "finalizers": finalizers}, "spec": {}}
        assert (await server.ask("POST", server.classes, body)).status == 201
        assert (await server.ask("DELETE", f"{path}?dryRun=All&propagationPolicy=Orphan")).status == 200
        marked = await server.ask("DELETE", path)
        assert marked.status == 200
        assert marked.json["metadata"]["finalizers"] == finalizers
        gone = await server.ask("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE_PATCH)
        assert gone.status == 200
    assert len(asked_in) == 2
    assert loops not in asked_in
