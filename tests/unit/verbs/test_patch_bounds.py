"""Every patch is done or refused, and no other request waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from apiserver.runtime import offload, workers
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server

JSON_PATCH = "application/json-patch+json"
PARAMETERS = "/spec/devices/config/0/opaque/parameters"
LISTS, OBJECTS = ("[", "", "]"), ('{"a":', "1", "}")


@pytest_asyncio.fixture
async def server(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def nested(sort: tuple[str, str, str], levels: int) -> str:
    opening, inmost, closing = sort
    return opening * levels + inmost + closing * levels


def claim(parameters: str) -> bytes:
    opaque = f'{{"opaque":{{"driver":"d.example.com","parameters":{{"x":{parameters}}}}}}}'
    requests = '[{"name":"r","exactly":{"deviceClassName":"c"}}]'
    return f'{{"metadata":{{"name":"c"}},"spec":{{"devices":{{"requests":{requests},"config":[{opaque}]}}}}}}'.encode()


def patches(inner: str) -> list[tuple[str, str]]:
    return [
        (MERGE_PATCH, '{"metadata":{"labels":{"a":"b"}}}'),
        (JSON_PATCH, '[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]'),
        (JSON_PATCH, f'[{{"op":"copy","from":"{PARAMETERS}","path":"{PARAMETERS}/y"}}]'),
        (JSON_PATCH, f'[{{"op":"test","path":"{PARAMETERS}/x","value":{inner}}}]'),
        (JSON_PATCH, f'[{{"op":"add","path":"/unknown","value":{inner}}}]'),
        (MERGE_PATCH, f'{{"spec":{{"devices":{{"unknown":{inner}}}}}}}'),
        (MERGE_PATCH, f'{{"apiVersion":null,"unknown":{inner}}}'),
    ]


@pytest.mark.parametrize("sort", [LISTS, OBJECTS], ids=["lists", "objects"])
@pytest.mark.parametrize("levels", [100, 254, 490, 499, 501, 690, 900, 3000])
async def test_no_depth_makes_a_write_fail(server: Composed, sort: tuple[str, str, str], levels: int) -> None:
    inner, path = nested(sort, levels), f"{server.claims}/c"
    made = await server.ask("POST", server.claims, claim(inner))
    assert made.status in (201, 400)
    stored = made.status == 201
    if not stored:
        await server.ask("POST", server.claims, claim("1"))
    for kind, patch in patches(inner):
        answer = await server.ask("PATCH", path, patch.encode(), kind=kind)
        assert answer.status in (200, 400, 422), (patch[:80], answer.text[:200])
    assert (await server.ask("PUT", path, claim(inner))).status == (200 if stored else 400)
    assert (await server.ask("DELETE", path)).status == 200


@pytest.mark.parametrize("size", [1_000, 5_900, 16_000])
@pytest.mark.parametrize("element", ["0", "{}", '""'])
@pytest.mark.parametrize("member", ["finalizers", "ownerReferences"])
async def test_short_bodies_of_very_many_values_delay_no_other_request(
    server: Composed, member: str, element: str, size: int
) -> None:
    listed = ",".join([element] * (size // (len(element) + 1)))
    obj = f'{{"apiVersion":"{server.group}/v1","kind":"ResourceClaim","metadata":{{"name":"c","{member}":[{listed}]}},"spec":{{}}}}'
    for method, path, kind in (
        ("POST", server.claims, "application/json"),
        ("PATCH", f"{server.claims}/c", MERGE_PATCH),
        ("PATCH", f"{server.claims}/c?fieldManager=me", "application/apply-patch+yaml"),
    ):
        answer = await server.ask(method, path, obj.encode(), kind=kind)
        assert answer.status in (400, 404, 422, 500), answer.text[:200]


def operations(*steps: Any) -> bytes:
    return json.dumps(steps, separators=(",", ":")).encode()


async def test_a_patch_without_end_is_refused_while_others_are_served(server: Composed) -> None:
    path = f"{server.classes}/a"
    await server.ask("POST", server.classes, {"metadata": {"name": "a"}, "spec": {}})
    long_list = {"op": "add", "path": "/x", "value": [0] * 105_000}
    endless = operations(long_list, *[{"op": "add", "path": "/x/0", "value": 0}] * 9_999)
    patching = asyncio.ensure_future(server.ask("PATCH", path, endless, kind=JSON_PATCH))
    while not patching.done():
        assert (await server.ask("GET", "/livez")).status == 200
    refusal = (await patching).json
    assert (refusal["code"], refusal["reason"]) == (413, "RequestEntityTooLarge")
    assert "maximum work of a JSON patch" in refusal["message"]


async def test_a_patch_of_many_operations_is_done(server: Composed) -> None:
    await server.ask("POST", server.classes, {"metadata": {"name": "a", "finalizers": ["x.io/x"]}, "spec": {}})
    steps = [{"op": "add", "path": "/metadata/finalizers/0", "value": f"x.io/f{i}"} for i in range(9_998)]
    move = {"op": "move", "from": "/metadata/finalizers", "path": "/y"}
    answer = await server.ask(
        "PATCH", f"{server.classes}/a", operations(*steps, move, {"op": "remove", "path": "/y"}), kind=JSON_PATCH
    )
    assert (answer.status, "finalizers" in answer.json["metadata"]) == (200, False)


async def test_copies_that_make_a_small_patch_large_are_made_in_a_thread(server: Composed) -> None:
    await server.ask("POST", server.classes, {"metadata": {"name": "a"}, "spec": {}})
    value = [1] * 7_000
    opened = [{"op": "add", "path": "/x", "value": value}, {"op": "test", "path": "/x", "value": value}]
    copies = [{"op": "copy", "from": "/x", "path": f"/y{i}"} for i in range(25)]
    raw = operations(*opened, *copies)
    assert len(raw) < offload.DECODE.limit
    answer = await server.ask("PATCH", f"{server.classes}/a", raw, kind=JSON_PATCH)
    assert answer.status == 200


async def test_copies_of_too_many_values_are_refused(server: Composed) -> None:
    await server.ask("POST", server.classes, {"metadata": {"name": "a"}, "spec": {}})
    values = {"op": "add", "path": "/x", "value": [{"": 1}] * 4_000}
    copies = [{"op": "copy", "from": "/x", "path": f"/y{i}"} for i in range(80)]
    refusal = (await server.ask("PATCH", f"{server.classes}/a", operations(values, *copies), kind=JSON_PATCH)).json
    assert (refusal["code"], refusal["reason"]) == (413, "RequestEntityTooLarge")
    assert "more values than" in refusal["message"]
    answer = await server.ask("PATCH", f"{server.classes}/a", operations(values, *copies[:3]), kind=JSON_PATCH)
    assert answer.status == 200


@pytest.mark.parametrize(
    ("kind", "plain", "strange"),
    [
        (MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"x": {}}}),
        (JSON_PATCH, [{"op": "test", "path": "/spec", "value": {}}], [{"op": "add", "path": "/x", "value": 1}]),
    ],
)
async def test_patch_that_expands_a_long_value_is_computed_in_a_thread(
    server: Composed, monkeypatch: pytest.MonkeyPatch, kind: str, plain: Any, strange: Any
) -> None:
    labels = {f"{i}": "" for i in range(200)}
    await server.ask("POST", server.classes, {"metadata": {"name": "a", "labels": labels}, "spec": {}})
    computed: list[Any] = []

    class Recorded:
        async def run(self, compute: Any, *arguments: Any) -> Any:
            computed.append(compute)
            return await workers.BODIES.run(compute, *arguments)

    monkeypatch.setattr(offload, "PATCH", offload.PATCH._replace(pool=cast("workers.Workers", Recorded())))
    for sent, times in ((plain, 0), (strange, 1)):
        answer = await server.ask("PATCH", f"{server.classes}/a", sent, kind=kind)
        assert (answer.status, len(computed)) == (200, times)
    assert "unknown field" in answer.headers["Warning"]
