"""A running process becomes another release: no request fails, watches end cleanly and go on where they ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest_asyncio

from apiserver import apigroups, app, delegation
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.config import config
from apiserver.filters.authenticate import Trust
from apiserver.generations import Generation, Generations
from apiserver.serving.x509 import chains
from tests.fixtures.authorities import issue
from tests.fixtures.connection import Answer, Connection
from tests.fixtures.valkey import Server, eventually, install, patient
from tests.fixtures.varying_kind import GROUP

PACKAGE = "tests.fixtures.varying_kind"
LAMPS, LANTERNS = f"/apis/{GROUP}/v1/lamps", f"/apis/{GROUP}/v1/lanterns"
USERS = issue("users", ca=True)
ADMIN = issue("admin", USERS, groups=("system:masters",))
TRUST = Trust(client=chains.verifier(USERS.pem), proxy=None)


class Process:
    """A process that serves, without its sockets."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self.settings = config.parse(["dev", f"--kinds={PACKAGE}"], {})
        self.generations: Generations

    async def open(self, release: Release) -> Generation:
        settings = replace(self.settings, serving=replace(self.settings.serving, emulated=release))
        served = apigroups.kinds(settings.serving)
        stores = await apigroups.open_stores(patient(self._url), served, settings.serving)
        delegates = delegation.alone(settings)
        return Generation(
            served,
            stores,
            lambda kinds, stores: app.build(settings, kinds, stores=stores, trust=lambda: TRUST, delegates=delegates),
        )

    async def start(self, release: Release) -> Process:
        self.generations = Generations(await self.open(release), watch_seconds=0, request_seconds=30)
        await self.generations.present.complete()
        return self

    async def become(self, release: Release) -> None:
        await self.generations.replace(await self.open(release))

    def connect(self) -> Connection:
        return Connection(self.generations.handle, peer=ADMIN.peer)

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        raw = b"" if body is None else json.dumps(body).encode()
        return await self.connect().ask(method, path, {"Content-Type": "application/json"}, body=raw)

    async def create(self, name: str, **spec: Any) -> Any:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}
        answer = await self.ask("POST", LAMPS, body)
        assert answer.status == 201, answer.text
        return answer.json


@pytest_asyncio.fixture
async def process(own_server: Server) -> AsyncIterator[Process]:
    made = Process(own_server)
    await install(own_server, *apigroups.storage_names(made.settings.serving))
    await made.start(V1_36)
    yield made
    await made.generations.close()


def events(answer: Answer) -> Iterator[Any]:
    return map(json.loads, answer.body.splitlines())


async def test_a_process_serves_the_kinds_and_members_of_the_new_release(process: Process) -> None:
    await process.create("a", place="hall", wick="flat")
    assert (await process.ask("GET", LANTERNS)).status == 404
    await process.become(V1_37)
    assert (await process.ask("GET", LANTERNS)).json["items"] == []
    assert (await process.ask("GET", f"{LAMPS}/a")).json["spec"] == {"place": "hall"}
    assert (await process.ask("GET", "/version")).json["minor"] == "37"
    await process.create("b", colour="red")
    await process.become(V1_36)
    assert (await process.ask("GET", LANTERNS)).status == 404
    assert (await process.ask("GET", f"{LAMPS}/b")).json["spec"] == {}
    assert (await process.ask("GET", f"{LAMPS}/a")).json["spec"] == {"place": "hall", "wick": "flat"}


async def test_watches_end_cleanly_and_go_on_without_a_list(process: Process) -> None:
    version = (await process.ask("GET", LAMPS)).json["metadata"]["resourceVersion"]
    watching = asyncio.ensure_future(process.ask("GET", f"{LAMPS}?watch=1&resourceVersion={version}"))
    await eventually(lambda: process.generations.unfinished[1] == 1)
    first = await process.create("first", place="hall")
    await process.become(V1_37)
    second = await process.create("second", place="hall", colour="red")
    ended = await watching
    assert ended.status == 200
    seen = [event["object"]["metadata"]["resourceVersion"] for event in events(ended)]
    assert seen[0] == first["metadata"]["resourceVersion"]
    again = await process.ask("GET", f"{LAMPS}?watch=1&resourceVersion={seen[0]}&timeoutSeconds=1")
    resumed = list(events(again))
    assert resumed[0] == {"type": "ADDED", "object": second}


async def test_no_request_fails_while_the_release_changes(process: Process) -> None:
    stop = asyncio.Event()

    async def write(client: int) -> int:
        number = 0
        while not stop.is_set():
            made = await process.create(f"load-{client}-{number}", place="hall")
            read = await process.ask("GET", f"{LAMPS}/load-{client}-{number}")
            assert (read.status, read.json["metadata"]) == (200, made["metadata"])
            number += 1
        return number

    writers = [asyncio.ensure_future(write(client)) for client in range(4)]
    for release in (V1_37, V1_36, V1_37):
        await process.become(release)
    stop.set()
    written = await asyncio.gather(*writers)
    assert len((await process.ask("GET", LAMPS)).json["items"]) == sum(written)


async def test_a_release_whose_stores_are_missing_does_not_replace_the_present_one(own_server: Server) -> None:
    process = Process(own_server)
    old = replace(process.settings.serving, emulated=V1_36)
    await install(own_server, *apigroups.storage_names(old))
    await process.start(V1_36)
    try:
        becoming = asyncio.ensure_future(process.become(V1_37))
        await process.create("a", place="hall")
        assert not becoming.done()
        assert (await process.ask("GET", LANTERNS)).status == 404
        await install(own_server, *apigroups.storage_names(process.settings.serving))
        await becoming
        assert (await process.ask("GET", LANTERNS)).json["items"] == []
    finally:
        await process.generations.close()


async def test_a_closed_generation_holds_no_objects(process: Process) -> None:
    await process.create("a", place="hall")
    old = process.generations.present.stores[f"{GROUP}/lamps"]
    assert len(old._replica.index) == 1
    await process.become(V1_37)
    await eventually(lambda: len(old._replica.index) == 0)
    assert (await process.ask("GET", f"{LAMPS}/a")).status == 200
