"""Objects that are too large for the store: what is done for them before they are refused, and when they are stored without managers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.apimachinery import meta
from apiserver.codecs.objects import canonical
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.schema.resource import Object
from apiserver.storage.options import StoreOptions
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server

LIMIT = StoreOptions(url="").object_limit


@pytest_asyncio.fixture
async def server(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def claim(server: Composed, *, labels: int = 0, owners: int = 0) -> Object:
    """A claim with so many bytes of labels and of owners."""
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    metadata = {
        "name": "c",
        "labels": {f"label-{at:013}": "v" * 35 for at in range(labels // 60)},
        "ownerReferences": [{**owner, "uid": f"{at:0943}"} for at in range(owners // 1000)],
    }
    return {
        "apiVersion": f"{server.group}/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects whose managers were worked out."""
    names: list[str] = []
    updated = FieldManagers.updated

    def noted(self: FieldManagers, new: Object, *rest: Any) -> Object:
        names.append(new["metadata"]["name"])
        return updated(self, new, *rest)

    monkeypatch.setattr(FieldManagers, "updated", noted)
    return names


async def refused(server: Composed, method: str, path: str, body: Any, **how: Any) -> None:
    answer = await server.ask(method, path, body, **how)
    assert (answer.status, answer.json["message"]) == (500, "etcdserver: request is too large"), answer.text[:500]


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_object_above_the_limit_gets_no_managers(server: Composed, tracked: list[str], query: str) -> None:
    await server.ask("POST", server.claims, claim(server))
    del tracked[:]
    wide = claim(server, labels=LIMIT * 3 // 2)
    await refused(server, "POST", server.claims + query, {**wide, "metadata": {**wide["metadata"], "name": "d"}})
    await refused(server, "PUT", f"{server.claims}/c{query}", wide)
    patch = {"metadata": {"labels": wide["metadata"]["labels"]}}
    await refused(server, "PATCH", f"{server.claims}/c{query}", patch, kind=MERGE_PATCH)
    assert not tracked


async def test_texts_above_the_limit_are_refused_before_they_are_encoded(
    server: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = canonical.encode

    def noted(shape: Any, obj: Object) -> bytes:
        encoded.append(meta.text_bytes(obj["metadata"]))
        return encode(shape, obj)

    await server.ask("POST", server.claims, claim(server))
    monkeypatch.setattr(canonical, "encode", noted)
    wide = claim(server, labels=LIMIT * 3 // 2)
    await refused(server, "PUT", f"{server.claims}/c", wide)
    patch = {"metadata": {"labels": wide["metadata"]["labels"]}}
    await refused(server, "PATCH", f"{server.claims}/c", patch, kind=MERGE_PATCH)
    assert max(encoded, default=0) < LIMIT


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_object_that_fits_only_without_managers_is_stored_without_them(
    server: Composed, tracked: list[str], method: str
) -> None:
    wide = claim(server, labels=LIMIT * 4 // 5)
    if method != "POST":
        await server.ask("POST", server.claims, claim(server))
    del tracked[:]
    if method == "POST":
        answer = await server.ask("POST", server.claims, wide)
    elif method == "PUT":
        answer = await server.ask("PUT", f"{server.claims}/c", wide)
    else:
        answer = await server.ask(
            "PATCH", f"{server.claims}/c", {"metadata": {"labels": wide["metadata"]["labels"]}}, kind=MERGE_PATCH
        )
    assert answer.status in (200, 201), answer.text[:500]
    stored = (await server.ask("GET", f"{server.claims}/c")).json["metadata"]
    assert stored["labels"] == wide["metadata"]["labels"]
    assert "managedFields" not in stored
    assert tracked == ["c"], "they were worked out, once"


async def test_object_that_is_large_by_other_members_is_measured(server: Composed, tracked: list[str]) -> None:
    await refused(server, "POST", server.claims, claim(server, owners=LIMIT * 11 // 10))
    assert not tracked
    answer = await server.ask("POST", server.claims, claim(server, owners=LIMIT // 4))
    assert answer.status == 201, answer.text[:500]
    assert answer.json["metadata"]["managedFields"]
    assert tracked == ["c"]


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": None},
        {"labels": {}, "finalizers": []},
        {"labels": {"a": "", "b": None}},
        {"labels": {"a": "b"}, "annotations": {"c": "é"}, "finalizers": ["x", "y/z"]},
    ],
)
def test_bytes_of_texts_are_no_more_than_their_json_has(metadata: Object) -> None:
    written = {
        name: {k: x or "" for k, x in value.items()} if isinstance(value, dict) else value
        for name, value in metadata.items()
    }
    assert meta.text_bytes(metadata) <= len(json.dumps(written, separators=(",", ":"), ensure_ascii=False).encode())
