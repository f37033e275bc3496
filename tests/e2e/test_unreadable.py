"""Stored values that are no objects: listed around, told as corrupt, deletable. They are put into the store behind the server's back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest

from apiserver.storage.store import Write, open_stores
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.server import DevServer, dev_server
from tests.fixtures.valkey import patient

GROUP = "resource.sluice.dev"
CLASSES = f"/apis/{GROUP}/v1/deviceclasses"
JSON = {"Content-Type": "application/json"}

VALUES = {
    "nothing": b"",
    "no JSON": b"{not json",
    "no text": b'{"metadata":{"name":"x","uid":"u"},"spec":{"a":"\xff"}}',
    "a list": b"[]",
    "a number": b"1",
    "no metadata": b'{"spec":{}}',
    "metadata of another shape": b'{"metadata":{"name":"x","uid":"u","labels":5},"spec":{}}',
    "labels that are no text": b'{"metadata":{"name":"x","uid":"u","labels":{"a":1}},"spec":{}}',
    "too deep": b'{"metadata":{"name":"x","uid":"u"},"spec":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "cut off": b'{"metadata":{"name":"x","uid":"u"},"spec":{"config":[{',
}

LISTED = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("unreadable")) as found:
        yield found


def put(server: DevServer, name: str, value: bytes, *, expected: int = 0) -> None:
    """Through the library's own function, as a server with a bug would."""

    async def write() -> None:
        folder = server.data / "store"
        text = "".join(file.read_text() for file in folder.glob("*.conf"))
        found = re.search(r'^requirepass "?([^"\s]+)"?$', text, re.MULTILINE)
        assert found
        url = f"unix://{folder / 'valkey.sock'}?password={found.group(1)}"
        resource = f"{GROUP}/deviceclasses"
        stores = await open_stores(patient(url), {resource: lambda _: ({}, ())})
        try:
            await stores.ready()
            await stores[resource].commit(Write(Key(name), value, Revision(expected), ""), dry_run=False)
        finally:
            await stores.close()

    asyncio.run(write())


def create(server: DevServer, name: str) -> int:
    """Its version."""
    made = server.request("POST", CLASSES, json.dumps({"metadata": {"name": name}, "spec": {}}), headers=JSON)
    assert made.status == 201
    return int(made.json["metadata"]["resourceVersion"])


def named(server: DevServer) -> list[str]:
    return [item["metadata"]["name"] for item in server.request("GET", CLASSES).json["items"]]


@pytest.mark.parametrize("case", sorted(VALUES))
def test_a_value_that_is_no_object_hides_nothing_and_can_be_deleted(server: DevServer, case: str) -> None:
    name = f"bad-{case.replace(' ', '-').lower()}"
    path = f"{CLASSES}/{name}"
    create(server, f"good-{name}")
    version = create(server, name)
    put(server, name, VALUES[case], expected=version)

    found = server.request("GET", path)
    assert (found.status, found.json["reason"]) == (500, "InternalError")
    assert found.json["message"].startswith(
        f"Internal error occurred: StorageError: corrupt object, Code: 7, Key: /{GROUP}/deviceclasses/{name}, "
    )
    assert named(server) == [f"good-{name}"]
    for form in LISTED:
        for query in ("", "?limit=1", "?labelSelector=!a", f"?fieldSelector=metadata.name={name}"):
            listed = server.request("GET", CLASSES + query, headers={"Accept": form})
            assert listed.status == 200
    patched = server.request(
        "PATCH", path, '{"metadata":{"labels":{"a":"b"}}}', headers={"Content-Type": "application/merge-patch+json"}
    )
    assert (patched.status, patched.json["reason"]) == (500, "InternalError")
    assert (
        server.request("POST", CLASSES, json.dumps({"metadata": {"name": name}, "spec": {}}), headers=JSON).status
        == 409
    )
    stale = {"preconditions": {"resourceVersion": str(version)}}
    assert server.request("DELETE", path, json.dumps(stale), headers=JSON).status == 409
    assert server.request("DELETE", f"{path}?propagationPolicy=Foreground").status == 200
    assert server.request("GET", path).status == 404
    assert server.request("DELETE", f"{CLASSES}/good-{name}").status == 200
    assert f'"{name}"' in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_a_collection_is_deleted_with_what_cannot_be_read(server: DevServer) -> None:
    create(server, "good")
    put(server, "bad", b"{", expected=0)

    assert named(server) == ["good"]
    assert server.request("DELETE", CLASSES).status == 200
    assert server.request("GET", f"{CLASSES}/bad").status == 404
    assert named(server) == []


def test_a_watch_goes_on_and_shows_what_becomes_unreadable_as_deleted(server: DevServer) -> None:
    version = create(server, "turning")
    put(server, "turning", b"[", expected=version)
    create(server, "next")
    events = server.request("GET", f"{CLASSES}?watch=true&resourceVersion={version - 1}&timeoutSeconds=1").text

    seen = [json.loads(line) for line in events.splitlines()]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [
        ("ADDED", "turning"),
        ("DELETED", "turning"),
        ("ADDED", "next"),
    ]
    assert server.request("DELETE", CLASSES).status == 200
