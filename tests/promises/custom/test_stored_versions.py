"""Servers whose definitions store different versions share a store: each object keeps the version that its writer stored."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from apiserver import delegation
from apiserver.config import config
from apiserver.storage import functions
from apiserver.storage.store import Write
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.composed import Composed, composed
from tests.fixtures.connection import Connection
from tests.fixtures.conversion_hook import Hook, Object, answered, converted
from tests.fixtures.definitions import write
from tests.fixtures.lamps import convert, definition
from tests.fixtures.valkey import Server

MERGE = "application/merge-patch+json"
_NUMBERS = itertools.count()


class Lamps:
    """Lamps on one server."""

    def __init__(self, server: Composed, group: str) -> None:
        self.server = server
        self.group = group

    def path(self, version: str, name: str = "") -> str:
        return f"/apis/{self.group}/{version}/namespaces/ns/lamps" + (f"/{name}" if name else "")

    async def ask(
        self, method: str, version: str, name: str = "", body: Any = None, query: str = "", **more: Any
    ) -> Any:
        """Return the JSON of an answer that succeeds."""
        found = await self.server.ask(method, self.path(version, name) + query, body, **more)
        assert found.status < 300, found.text
        return found.json

    async def create(self, version: str, name: str, **spec: Any) -> Any:
        body = {"apiVersion": f"{self.group}/{version}", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}
        return await self.ask("POST", version, body=body)

    async def shown(self, version: str, query: str = "") -> dict[str, Any]:
        """Return the spec of each object of a list."""
        items = (await self.ask("GET", version, query=query))["items"]
        return {each["metadata"]["name"]: each["spec"] for each in items}

    async def watch(self, version: str) -> Connection:
        """Open a watch of what happens from now on."""
        begin = (await self.ask("GET", version))["metadata"]["resourceVersion"]
        connection = self.server.connect()
        assert await connection.begin(f"{self.path(version)}?watch=1&resourceVersion={begin}") == 200
        return connection


async def events(watch: Connection, count: int) -> list[tuple[str, Any]]:
    """Return the type and the spec of the next events."""
    lines: list[bytes] = []
    while len(lines) < count:
        lines += (await watch.chunk()).splitlines()
    return [(event["type"], event["object"]["spec"]) for event in map(json.loads, lines)]


class Place:
    """Servers on one store, each with a definition of its own in the same group."""

    def __init__(self, store: Server, hook: Hook, folder: pathlib.Path, stack: AsyncExitStack) -> None:
        self.store = store
        self.hook = hook
        self.group = f"lamps{next(_NUMBERS)}.example.com"
        self._folder = folder
        self._stack = stack

    async def server(self, stored: str, *, strategy: str = "Webhook", only: bool = False) -> Lamps:
        """Start a server that stores a version. `only`: its definition has no other."""
        conversion = self.hook.conversion() if strategy == "Webhook" else {"strategy": strategy}
        made = definition(conversion, stored=stored, group=self.group)
        if only:
            made["spec"]["versions"] = [each for each in made["spec"]["versions"] if each["name"] == stored]
        file = write(self._folder / f"{next(_NUMBERS)}.yaml", made)
        callers = delegation.callers(config.parse(["dev"], {}))
        self._stack.push_async_callback(callers.close)
        running = await self._stack.enter_async_context(composed(self.store, f"--crds={file}", callers=callers))
        return Lamps(running, self.group)

    async def store_again(self, server: Lamps, name: str, value: bytes) -> None:
        """Store another value for an object."""
        store = server.server.stores[f"{self.group}/lamps"]
        live = store.view().get(Key(f"ns/{name}"))
        assert live is not None
        await store.commit(Write(live.key, value, live.revision, live.uid.decode()), dry_run=False)

    async def multiply(self, server: Lamps, name: str, count: int) -> None:
        """Store copies of an object under other names."""
        store, value = server.server.stores[f"{self.group}/lamps"], self.values()[f"ns/{name}"]
        names = [f"copy-{number:05}" for number in range(count)]
        for start in range(0, count, 500):
            writes = [
                Write(Key(f"ns/{each}"), value.replace(f'"{name}"'.encode(), f'"{each}"'.encode(), 1), Revision(0), "u")
                for each in names[start : start + 500]
            ]
            await asyncio.gather(*(store.commit(write, dry_run=False) for write in writes))

    def values(self) -> dict[str, bytes]:
        """Return what is stored."""
        found = self.store("HGETALL", functions.Commands(f"{self.group}/lamps").keys.objects)
        return dict(zip(map(bytes.decode, found[::2]), found[1::2], strict=True))

    def versions(self) -> dict[str, str]:
        """Return the version that each stored value names."""
        return {name.partition("/")[2]: value.partition(b"\n")[2].decode() for name, value in self.values().items()}

    def asked(self) -> list[tuple[str, str, int]]:
        """Return the versions and the number of objects of each review since the last call."""
        seen = [
            (objects[0]["apiVersion"].rpartition("/")[2], wanted.rpartition("/")[2], len(objects))
            for review in self.hook.seen
            for wanted, objects in [(review["request"]["desiredAPIVersion"], review["request"]["objects"])]
        ]
        self.hook.seen.clear()
        return seen


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    with Hook(tmp_path_factory.mktemp("hook"), convert) as made:
        yield made


@pytest_asyncio.fixture
async def place(shared_server: Server, hook: Hook, tmp_path: pathlib.Path) -> AsyncIterator[Place]:
    hook.answer = converted
    hook.seen.clear()
    async with AsyncExitStack() as stack:
        yield Place(shared_server, hook, tmp_path, stack)


async def test_object_keeps_the_version_it_was_stored_in(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "old", watt=7, onlyv1="x")
    await newer.create("v2", "new", lumen=50, onlyv2="y")
    assert place.versions() == {"old": "v1", "new": "v2"}
    assert place.asked() == []
    for server in (older, newer):
        assert await server.shown("v1") == {"old": {"watt": 7, "onlyv1": "x"}, "new": {"watt": 5}}
        assert await server.shown("v2") == {"old": {"lumen": 70}, "new": {"lumen": 50, "onlyv2": "y"}}
        assert (await server.ask("GET", "v2", "old"))["spec"] == {"lumen": 70}
        assert (await server.ask("GET", "v1", "old"))["spec"] == {"watt": 7, "onlyv1": "x"}
    assert place.asked() == [("v2", "v1", 1), ("v1", "v2", 1)] * 2


async def test_next_write_stores_the_present_version(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    for name in ("put", "same", "merge", "apply", "status", "marked", "kept"):
        await older.create("v1", name, watt=7)
    for name in ("put", "same"):
        found = await newer.ask("GET", "v2", name)
        spec = {"lumen": 90} if name == "put" else found["spec"]
        await newer.ask("PUT", "v2", name, found | {"spec": spec})
    await newer.ask("PATCH", "v1", "merge", {"spec": {"watt": 8}}, kind=MERGE)
    applied = {"apiVersion": f"{newer.group}/v2", "kind": "Lamp", "spec": {"lumen": 90}}
    query = "?fieldManager=me&force=true"
    await newer.ask("PATCH", "v2", "apply", applied, query=query, kind="application/apply-patch+yaml")
    await newer.ask("PATCH", "v2", "status/status", {"status": {"n": 1}}, kind=MERGE)
    await newer.ask("PATCH", "v2", "marked", {"metadata": {"finalizers": ["example.com/hold"]}}, kind=MERGE)
    await older.ask("PATCH", "v1", "marked", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
    assert place.versions()["marked"] == "v1"
    await newer.ask("DELETE", "v1", "marked")
    written = dict.fromkeys(("put", "same", "merge", "apply", "status", "marked"), "v2")
    assert place.versions() == {**written, "kept": "v1"}
    assert (await older.shown("v1"))["merge"] == {"watt": 8}


async def test_update_that_changes_nothing_is_written_once(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "one", watt=7)
    versions = []
    for version in ("v1", "v1", "v2"):
        found = await newer.ask("PUT", version, "one", await newer.ask("GET", version, "one"))
        versions.append(found["metadata"]["resourceVersion"])
    created = (await older.ask("GET", "v1", "one"))["metadata"]["resourceVersion"]
    assert created == versions[0] == versions[1] == versions[2]
    assert place.versions() == {"one": "v2"}


async def test_watch_shows_changes_in_its_version(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "first", watt=1)
    pairs = list(itertools.product((older, newer), ("v1", "v2")))
    watches = [(version, await server.watch(version)) for server, version in pairs]
    await older.create("v1", "one", watt=7)
    await newer.ask("PATCH", "v2", "one", {"spec": {"lumen": 80}}, kind=MERGE)
    await older.ask("PATCH", "v1", "one", {"spec": {"watt": 9}}, kind=MERGE)
    await newer.ask("DELETE", "v1", "one")
    expected: dict[str, list[tuple[str, Any]]] = {
        "v1": [("ADDED", {"watt": 7}), ("MODIFIED", {"watt": 8}), ("MODIFIED", {"watt": 9}), ("DELETED", {"watt": 9})],
        "v2": [
            ("ADDED", {"lumen": 70}),
            ("MODIFIED", {"lumen": 80}),
            ("MODIFIED", {"lumen": 90}),
            ("DELETED", {"lumen": 90}),
        ],
    }
    for version, watch in watches:
        assert await events(watch, 4) == expected[version]


async def test_fields_are_selected_in_the_version_of_the_request(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "old", watt=7)
    await newer.create("v2", "new", lumen=70)
    for server in (older, newer):
        assert set(await server.shown("v2", "?fieldSelector=spec.lumen%3D70")) == {"old", "new"}
        assert set(await server.shown("v1", "?fieldSelector=spec.watt%3D7")) == {"old", "new"}


async def test_defaults_are_those_of_the_stored_version(place: Place) -> None:
    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "one")
    assert place.values()["ns/one"].count(b'"watt":3') == 1
    assert await newer.shown("v2") == {"one": {"lumen": 30}}


async def test_list_of_10000_objects_is_converted_in_batches(place: Place) -> None:
    older = await place.server("v1")
    await older.create("v1", "seed", watt=7)
    await place.multiply(older, "seed", 9_999)
    newer = await place.server("v2")
    place.asked()
    items = (await newer.ask("GET", "v2"))["items"]
    assert len(items) == 10_000
    assert {each["spec"]["lumen"] for each in items} == {70}
    reviews = place.asked()
    assert {(source, wanted) for source, wanted, _ in reviews} == {("v1", "v2")}
    assert (max(count for _, _, count in reviews), len(reviews)) == (64, 157)


async def test_object_of_a_former_version_is_pruned_without_a_webhook(place: Place) -> None:
    older, newer = await place.server("v1", strategy="None"), await place.server("v2", strategy="None")
    await older.create("v1", "one", onlyv1="x", mode="dim")
    assert await newer.shown("v2") == {"one": {"mode": "dim"}}
    await newer.ask("PUT", "v2", "one", await newer.ask("GET", "v2", "one"))
    assert place.versions() == {"one": "v2"}


@pytest.mark.parametrize("strategy", ["Webhook", "None"])
async def test_object_of_a_removed_version_cannot_be_read(place: Place, strategy: str) -> None:
    older = await place.server("v1", strategy=strategy)
    newer = await place.server("v2", strategy=strategy, only=True)
    watch = await newer.watch("v2")
    await newer.create("v2", "new", lumen=50)
    await older.create("v1", "old", watt=7)
    why = f"request to convert CR from an invalid group/version: {newer.group}/v1"
    for method, name, body in (
        ("GET", "old", None),
        ("GET", "", None),
        ("PATCH", "old", {"spec": {}}),
        ("DELETE", "old", None),
        ("DELETE", "", None),
    ):
        reply = await newer.server.ask(method, newer.path("v2", name), body, kind=MERGE)
        assert (reply.status, reply.json["message"][-len(why) :]) == (500, why)
    assert (await newer.ask("GET", "v2", "new"))["spec"] == {"lumen": 50}
    assert set(place.versions()) == {"old", "new"}
    assert await events(watch, 1) == [("ADDED", {"lumen": 50})]
    assert await watch.chunk() == b""


async def test_value_without_a_version_is_in_the_stored_one(place: Place) -> None:
    older = await place.server("v1")
    await older.create("v1", "one", watt=7)
    await place.store_again(older, "one", place.values()["ns/one"].partition(b"\n")[0])
    assert place.versions() == {"one": ""}
    reader = await place.server("v1")
    assert await reader.shown("v2") == {"one": {"lumen": 70}}
    await reader.ask("PUT", "v1", "one", await reader.ask("GET", "v1", "one"))
    assert place.versions() == {"one": "v1"}


async def test_failing_webhook_fails_only_objects_of_the_former_version(place: Place) -> None:
    def refusing(review: Object, convert: Any) -> Object:
        return answered(review, [], result={"status": "Failure", "message": "no way"})

    older, newer = await place.server("v1"), await place.server("v2")
    await older.create("v1", "old", watt=7)
    await newer.create("v2", "new", lumen=50)
    place.hook.answer = refusing
    assert (await newer.ask("GET", "v2", "new"))["spec"] == {"lumen": 50}
    for name in ("old", ""):
        reply = await newer.server.ask("GET", newer.path("v2", name))
        assert reply.status == 500
        assert reply.json["message"].endswith(f"conversion webhook for {newer.group}/v1, Kind=Lamp failed: no way")
