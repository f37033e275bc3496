"""A list that memory finds by the value of a field is answered byte for byte as one that looks at all objects."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

from apiserver.watchcache.lookup import Lookup
from tests.fixtures.composed import Composed, composed
from tests.fixtures.definitions import definition, write
from tests.fixtures.valkey import Server

OBJECTS, ROUNDS, COLORS = 24, 120, ("red", "green", "")
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
ROOT = "/apis/listed.example.com/v1"


def paint(name: str, color: str, gloss: int) -> dict[str, Any]:
    spec = {"gloss": gloss} | ({"color": color} if color else {})
    labels = {"even": str(gloss % 2 == 0)}
    return {
        "apiVersion": "listed.example.com/v1",
        "kind": "Paint",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


async def change(server: Composed, draw: random.Random) -> None:
    """Create an object, move it to another color, change what is not selected, or delete it."""
    path = f"{ROOT}/namespaces/{draw.choice('ab')}/paints"
    name = f"p{draw.randrange(OBJECTS // 2):02}"
    found = await server.ask("GET", f"{path}/{name}")
    if found.status == 404:
        done = await server.ask("POST", path, paint(name, draw.choice(COLORS), draw.randrange(3)))
    elif draw.random() < 0.3:
        done = await server.ask("DELETE", f"{path}/{name}")
    else:
        body: dict[str, Any] = {"metadata": {"labels": {"n": str(draw.random())}}}
        if draw.random() < 0.7:
            body["spec"] = {"color": draw.choice(COLORS) or None}
        done = await server.ask("PATCH", f"{path}/{name}", body, kind="application/merge-patch+json")
    assert done.status in (200, 201), done.text


def queries(versions: Sequence[str]) -> list[tuple[str, str]]:
    """Paths with their query, and the form that is asked for."""
    places = (f"{ROOT}/paints", f"{ROOT}/namespaces/a/paints")
    selectors = (
        *(f"fieldSelector=spec.color%3D{color}" for color in (*COLORS, "never")),
        "fieldSelector=spec.gloss%3D1,spec.color%3Dred",
        "fieldSelector=spec.color%3Dred,spec.color%3Dgreen",
        "fieldSelector=spec.color!%3Dred,spec.gloss%3D2",
        "fieldSelector=metadata.namespace%3Db,spec.color%3Dgreen",
        "fieldSelector=spec.color%3Dgreen&labelSelector=even%3DTrue",
    )
    limits = ("", "&limit=1", "&limit=2", "&limit=3", "&limit=100")
    exact = [f"&resourceVersion={version}&resourceVersionMatch=Exact" for version in versions]
    forms = (*limits, "&resourceVersion=0", *(limit + version for version in exact for limit in limits[:3]))
    made = [(f"{place}?{selector}{form}", "") for place in places for selector in selectors for form in forms]
    return [*made, (f"{places[0]}?{selectors[0]}", TABLE)]


async def answers(server: Composed, path: str, accept: str) -> list[bytes]:
    """The chunks of a list."""
    found, page = [], path
    while True:
        answer = await server.ask("GET", page, **({"Accept": accept} if accept else {}))
        assert answer.status == 200, answer.text
        found.append(answer.body)
        token = answer.json["metadata"].get("continue")
        if not token:
            return found
        page = f"{path.partition('&resourceVersion')[0]}&continue={token}"


async def test_list_by_a_field_is_byte_for_byte_the_list_that_looks_at_all(
    shared_server: Server, tmp_path: pathlib.Path
) -> None:
    paints, draw = definition("paints", group="listed.example.com", color="string", gloss="integer"), random.Random(36)
    [version] = paints["spec"]["versions"]
    version["selectableFields"] = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.gloss"}]
    file = write(tmp_path / "paints.yaml", paints)
    compared = 0
    async with composed(shared_server, f"--crds={file}") as server:
        versions: list[str] = []
        for _ in range(4):
            for _ in range(ROUNDS // 4):
                await change(server, draw)
            versions.append((await server.ask("GET", f"{ROOT}/paints")).json["metadata"]["resourceVersion"])
            for path, accept in queries(versions[-2:]):
                looked_up = await answers(server, path, accept)
                with mock.patch.object(Lookup, "keys", return_value=None):
                    assert await answers(server, path, accept) == looked_up, path
                compared += len(looked_up)
        with mock.patch.object(Lookup, "keys", autospec=True, side_effect=Lookup.keys) as asked:
            await server.ask("GET", f"{ROOT}/paints?fieldSelector=spec.color%3Dred")
        assert asked.call_count == 1
    assert compared > 1000
