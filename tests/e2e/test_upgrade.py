"""Stores of earlier releases under this version, and back: objects, resourceVersions and writes.

The program of an earlier release does not run here. Its store brings the release's function library: all that an older server executes in a
store. The way back runs that library on what this version wrote.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import pytest

from apiserver.storage import functions
from apiserver.storage.functions import Commands, Mutation
from tests.fixtures import release_stores
from tests.fixtures.release_stores import LISTS, STORES, V1
from tests.fixtures.server import DevServer
from tests.fixtures.valkey import Server, packed

CLASSES = "resource.sluice.dev/deviceclasses"
PATH = f"{V1}/deviceclasses"
LATE = b"99999999999999"
"""A deadline of a write that no test reaches."""

pytestmark = pytest.mark.parametrize("archive", STORES, ids=lambda file: file.name.removesuffix(".tar.gz"))

Object = dict[str, Any]


def version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def library(store: Server) -> tuple[bytes, bytes]:
    """The name and the code of the function library in a store."""
    [found] = store("FUNCTION", "LIST", "WITHCODE")
    members = dict(zip(found[::2], found[1::2], strict=True))
    return members[b"library_name"], members[b"library_code"]


def write_as_before(store: Server, code: bytes) -> None:
    """Replace the library by an older one, take the log over as a server does, and create a copy of the object `new`."""
    store("FUNCTION", "LOAD", "REPLACE", code)
    commands = Commands(CLASSES)
    assert raw(store, commands.fence("older", 0))[0] == b"OK"
    copy = store("HGET", commands.keys.objects, "new").replace(b'"new"', b'"older"')
    change = Mutation(b"older", b"-", b"older.1", json.loads(copy)["metadata"]["uid"].encode(), copy)
    assert raw(store, commands.change(store("HGET", commands.keys.meta, "epoch"), LATE, change))[0] == b"OK"


def raw(store: Server, command: bytes) -> Any:
    """Send a packed command as its words."""
    words, rest = [], command.partition(b"\r\n")[2]
    while rest:
        length, _, rest = rest[1:].partition(b"\r\n")
        words.append(rest[: int(length)])
        rest = rest[int(length) + 2 :]
    assert packed(*words) == command
    return store(*words)


def test_this_version_serves_and_changes_the_objects_of_an_earlier_release(
    archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    answers = release_stores.unpack(archive, tmp_path / "data")
    newest = max(version(answers[path]) for path in LISTS)
    with DevServer(tmp_path / "data") as server:
        for path in LISTS:
            found = server.request("GET", path).json
            assert found["items"] == answers[path]["items"] != []
            assert version(found) >= version(answers[path])
        kept = server.request("GET", PATH).json["items"][0]
        kept["metadata"]["labels"] = {"changed": "here"}
        changed = server.request("PUT", f"{PATH}/{kept['metadata']['name']}", kept)
        created = server.request("POST", PATH, {"metadata": {"name": "new"}, "spec": {}})
        assert (changed.status, created.status) == (200, 201)
        assert newest < version(changed.json) < version(created.json)
        stale = server.request("PUT", f"{PATH}/{kept['metadata']['name']}", kept)
        assert stale.status == 409
    with DevServer(tmp_path / "data") as again:
        items = again.request("GET", PATH).json
        names = {item["metadata"]["name"]: item["metadata"] for item in items["items"]}
        assert names.keys() == {item["metadata"]["name"] for item in answers[PATH]["items"]} | {"new"}
        assert names[kept["metadata"]["name"]] == changed.json["metadata"]
        assert version(items) >= version(created.json)


def test_library_of_an_earlier_release_goes_on_with_what_this_version_wrote(
    archive: pathlib.Path, tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, store = tmp_path / "data", Server(tmp_path_factory.mktemp("s"))
    release_stores.unpack(archive, data)
    files, elsewhere = data / "store" / "appendonlydir", store.folder / "appendonlydir"
    shutil.copytree(files, elsewhere)
    store.start()
    name, code = library(store)
    store.stop()
    shutil.rmtree(elsewhere)
    with DevServer(data) as server:
        created = server.request("POST", PATH, {"metadata": {"name": "new"}, "spec": {}})
        assert created.status == 201

    shutil.move(files, elsewhere)
    store.start()
    assert library(store) == (name, functions.CODE)
    write_as_before(store, code)
    store.stop()
    shutil.move(elsewhere, files)

    with DevServer(data) as server:
        found = server.request("GET", PATH)
        assert found.status == 200, found.text
        items = {item["metadata"]["name"]: item for item in found.json["items"]}
        assert version(items["older"]) > version(items["new"]) == version(created.json)
        assert server.request("DELETE", f"{PATH}/older").status == 200
