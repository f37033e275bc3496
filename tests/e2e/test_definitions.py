"""A server of CustomResourceDefinition files alone, and files that change while it runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.definitions import GROUP, definition, write
from tests.fixtures.server import DevServer, dev_server

ROOT = f"/apis/{GROUP}/v1"


def lamps(*, scope: str = "Cluster") -> dict[str, Any]:
    return definition("lamps", scope=scope, watt="integer")


def dimmed() -> dict[str, Any]:
    """The same with one more member, which has a default."""
    made = lamps()
    (version,) = made["spec"]["versions"]
    members = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    members["dimmed"] = {"type": "boolean", "default": False}
    return made


def thing(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "crds"
    made.mkdir()
    write(made / "lamps.yaml", lamps())
    write(made / "bulbs.yaml", definition("bulbs", scope="Cluster"))
    return made


@pytest.fixture
def server(tmp_path: pathlib.Path, folder: pathlib.Path) -> Iterator[DevServer]:
    with dev_server(tmp_path, "--no-builtin-kinds", f"--crds={folder}") as started:
        yield started


@contextlib.contextmanager
def watch(server: DevServer, plural: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=server.context(), timeout=60)
    try:
        connection.request("GET", f"{ROOT}/{plural}?watch=1")
        yield connection.getresponse()
    finally:
        connection.close()


def test_server_of_definitions_alone_has_no_other_kinds(server: DevServer) -> None:
    assert server.request("POST", f"{ROOT}/lamps", thing("Lamp", "one", watt=7)).status == 201
    groups = {group["name"] for group in server.request("GET", "/apis").json["groups"]}
    assert GROUP in groups
    assert not any("resource" in group for group in groups)


def test_changed_definition_is_served_and_stored_objects_are_read_by_it(
    server: DevServer, folder: pathlib.Path
) -> None:
    assert server.request("POST", f"{ROOT}/lamps", thing("Lamp", "one", watt=7)).status == 201
    write(folder / "lamps.yaml", dimmed())
    read = {"watt": 7, "dimmed": False}
    until(lambda: server.request("GET", f"{ROOT}/lamps/one").json.get("spec") == read, "the default is read")


def test_watches_end_where_the_definition_changed_and_go_on_elsewhere(server: DevServer, folder: pathlib.Path) -> None:
    with watch(server, "lamps") as lamps, watch(server, "bulbs") as bulbs:
        write(folder / "lamps.yaml", dimmed())
        assert lamps.read() == b"", "the watch of the changed kind ends cleanly"
        assert server.request("POST", f"{ROOT}/bulbs", thing("Bulb", "one")).status == 201
        event = json.loads(bulbs.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "one")


def test_removed_definition_is_not_served_and_comes_back_with_its_objects(
    server: DevServer, folder: pathlib.Path
) -> None:
    assert server.request("POST", f"{ROOT}/lamps", thing("Lamp", "one", watt=7)).status == 201
    (folder / "lamps.yaml").unlink()
    until(lambda: server.request("GET", f"{ROOT}/lamps").text == "404 page not found\n", "the kind is gone")
    write(folder / "lamps.yaml", lamps())
    until(lambda: server.request("GET", f"{ROOT}/lamps/one").status == 200, "the object is back")


def test_file_that_cannot_be_served_keeps_its_kind_and_says_why(server: DevServer, folder: pathlib.Path) -> None:
    why = f'lamps.{GROUP}: spec.scope: Unsupported value: "Global"'
    write(folder / "lamps.yaml", lamps(scope="Global"))
    until(lambda: why in server.request("GET", "/readyz?verbose").text, "readyz says why")
    assert server.request("GET", "/readyz").status == 200
    assert server.request("GET", f"{ROOT}/lamps").status == 200
    assert 'sluice_crds{state="refused"} 1' in server.request("GET", "/metrics").text
    assert why in server.log.read_text().replace('\\"', '"')


def large(plural: str, *versions: str) -> dict[str, Any]:
    """A definition with some 3,000 nodes in each version."""
    made = definition(plural, scope="Cluster")
    text = {"type": "string", "maxLength": 63, "pattern": "^[a-z]*$", "default": "a"}
    part = {"type": "object", "properties": {f"p{number}": text for number in range(40)}}
    spec = {"type": "object", "properties": {f"part{number}": part for number in range(40)}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": spec}}}
    made["spec"]["versions"] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": {"status": {}}}
        for name in versions
    ]
    return made


def test_first_write_to_a_large_kind_holds_up_no_other_request(tmp_path: pathlib.Path) -> None:
    """Each test fails whose server takes long steps."""
    file = write(tmp_path / "large.yaml", large("posts", "v1", "v2"), large("applies", "v1"))
    with dev_server(tmp_path, "--no-builtin-kinds", f"--crds={file}") as server:
        assert server.request("POST", f"{ROOT}/posts", thing("Post", "one", part1={"p1": "b"})).status == 201
        merge, apply = ({"Content-Type": f"application/{media}"} for media in ("merge-patch+json", "apply-patch+yaml"))
        other = f"/apis/{GROUP}/v2/posts/one"
        for path in (other, f"{other}/status"):
            changed = {path.rpartition("/")[2].replace("one", "spec"): {"part1": {"p2": "c"}}}
            assert server.request("PATCH", path, changed, headers=merge).status == 200
        applied = json.dumps(thing("Applie", "one", part1={"p1": "b"}))
        assert server.request("PATCH", f"{ROOT}/applies/one?fieldManager=me", applied, headers=apply).status == 201
