"""A package brings kinds: groups of their own, and a kind in two versions with one stored form."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import yaml

from apiserver import apigroups
from apiserver.config import config
from tests.fixtures.composed import ADMIN, MERGE_PATCH, Composed, composed
from tests.fixtures.connection import Connection
from tests.fixtures.valkey import Server, eventually
from tests.promises.extensions import fleet

GROUP = f"/apis/{fleet.GROUP}"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
JSON_PATCH = "application/json-patch+json"


@pytest_asyncio.fixture
async def served(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server, "--kinds", fleet.__name__) as running:
        yield running


@pytest.fixture
def mine(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test has."""
    return str(request.node.originalname).removeprefix("test_").replace("_", "-")[:60].strip("-")


def ships(mine: str, version: str = "v1") -> str:
    return f"{GROUP}/{version}/namespaces/{mine}/ships"


def ship(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


async def created(served: Composed, mine: str, name: str, version: str = "v1", **spec: Any) -> Any:
    answer = await served.ask("POST", ships(mine, version), ship(name, **spec))
    assert answer.status == 201, answer.text
    return answer.json


async def test_object_created_in_one_version_is_read_in_the_other(served: Composed, mine: str) -> None:
    made = await created(served, mine, "argo", "v1beta1", master="jason", hands=49)

    assert (made["apiVersion"], made["kind"]) == (f"{fleet.GROUP}/v1beta1", "Ship")
    assert made["spec"] == {"master": "jason", "hands": 49}
    stored = (await served.ask("GET", f"{ships(mine)}/argo")).json
    assert (stored["apiVersion"], stored["spec"]) == (f"{fleet.GROUP}/v1", {"captain": "jason", "crew": 50})
    assert stored["metadata"] == made["metadata"]
    again = (await served.ask("GET", f"{ships(mine, 'v1beta1')}/argo")).json
    assert again == made


async def test_each_version_fills_in_its_own_defaults(served: Composed, mine: str) -> None:
    assert (await created(served, mine, "old", "v1beta1", master="a"))["spec"]["hands"] == 2
    assert (await created(served, mine, "new", captain="b"))["spec"]["crew"] == 1


async def test_fields_that_a_version_lacks_survive_a_client_that_writes_back(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", crew=50, flag="iolcus")
    item = f"{ships(mine, 'v1beta1')}/argo"
    read = (await served.ask("GET", item)).json
    assert read["metadata"]["annotations"] == {fleet.FLAG: "iolcus"}

    same = await served.ask("PUT", item, read)
    assert same.json == read, "nothing changed, so it has no new version"
    read["spec"]["hands"] = 10
    written = (await served.ask("PUT", item, read)).json

    assert written["spec"] == {"master": "jason", "hands": 10}
    stored = (await served.ask("GET", f"{ships(mine)}/argo")).json
    assert stored["spec"] == {"captain": "jason", "crew": 11, "flag": "iolcus"}
    assert stored["metadata"]["generation"] == 2
    assert "annotations" not in stored["metadata"]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (MERGE_PATCH, {"spec": {"hands": 7}}),
        (JSON_PATCH, [{"op": "test", "path": "/spec/master", "value": "jason"}, {"op": "replace", "path": "/spec/hands", "value": 7}]),
    ],
)  # fmt: skip
async def test_a_patch_sees_the_version_in_which_it_is_sent(served: Composed, mine: str, kind: str, patch: Any) -> None:
    name = "argo" if kind == MERGE_PATCH else "colchis"
    await created(served, mine, name, captain="jason", crew=50)

    answer = await served.ask("PATCH", f"{ships(mine, 'v1beta1')}/{name}", patch, kind=kind)

    assert answer.status == 200, answer.text
    assert answer.json["spec"] == {"master": "jason", "hands": 7}
    assert (await served.ask("GET", f"{ships(mine)}/{name}")).json["spec"] == {"captain": "jason", "crew": 8}


async def test_a_patch_may_turn_the_document_into_another_version(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", crew=50)
    patch = {
        "apiVersion": f"{fleet.GROUP}/v1beta1",
        "spec": {"captain": None, "crew": None, "master": "medea", "hands": 3},
    }

    answer = await served.ask("PATCH", f"{ships(mine)}/argo", patch, kind=MERGE_PATCH)

    assert (answer.status, answer.json["spec"]) == (200, {"captain": "medea", "crew": 4})


async def test_the_status_of_one_version_is_that_of_the_other(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason")
    item = f"{ships(mine, 'v1beta1')}/argo"
    obj = (await served.ask("GET", item)).json | {"status": {"place": "quay 3"}}
    obj["spec"]["master"] = "nobody"

    answer = await served.ask("PUT", f"{item}/status", obj)

    assert answer.status == 200, answer.text
    stored = (await served.ask("GET", f"{ships(mine)}/argo")).json
    assert (stored["status"], stored["spec"]["captain"]) == ({"berth": "quay 3"}, "jason")


async def test_a_body_of_the_other_version_is_refused_at_an_endpoint(served: Composed, mine: str) -> None:
    body = {"apiVersion": f"{fleet.GROUP}/v1beta1", "kind": "Ship", **ship("argo", master="jason")}

    answer = await served.ask("POST", ships(mine), body)

    assert answer.status == 400
    assert answer.json["message"] == (
        f"the API version in the data ({fleet.GROUP}/v1beta1) does not match the expected API version ({fleet.GROUP}/v1)"
    )


async def test_rules_and_warnings_are_those_of_the_stored_version(served: Composed, mine: str) -> None:
    refused = await served.ask("POST", ships(mine, "v1beta1"), ship("argo", master="j" * 21))
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "spec.captain")
    warned = await served.ask("POST", ships(mine, "v1beta1"), ship("argo", master="j", hands=99))
    assert warned.headers["Warning"] == '299 - "spec.crew: 100 is many"'
    unknown = await served.ask("POST", f"{ships(mine, 'v1beta1')}?fieldValidation=Strict", ship("b", captain="j"))
    assert (unknown.status, 'unknown field "spec.captain"' in unknown.json["message"]) == (400, True)


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", "application/json;pretty=1"])
async def test_a_list_is_in_the_version_that_is_asked_for(served: Composed, mine: str, accept: str) -> None:
    space = f"{mine}-{accept.encode().hex()[-6:]}"
    names = [f"s{i:03}" for i in range(130)]
    await asyncio.gather(*(created(served, space, name, captain="j", crew=5) for name in names))

    answer = await served.ask("GET", f"{ships(space, 'v1beta1')}?fieldSelector=spec.captain%3Dj", Accept=accept)

    listed = yaml.safe_load(answer.body)
    assert (listed["kind"], listed["apiVersion"]) == ("ShipList", f"{fleet.GROUP}/v1beta1")
    assert [item["metadata"]["name"] for item in listed["items"]] == names
    assert all(item["spec"] == {"master": "j", "hands": 4} for item in listed["items"])
    part = (await served.ask("GET", f"{ships(space, 'v1beta1')}?limit=2")).json
    rest = await served.ask("GET", f"{ships(space)}?limit=200&continue={part['metadata']['continue']}")
    assert [item["spec"]["crew"] for item in rest.json["items"]] == [5] * 128


async def test_tables_have_the_columns_and_objects_of_their_version(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", crew=50)
    for version, column, spec in (
        ("v1", "Captain", {"captain": "jason", "crew": 50}),
        ("v1beta1", "Master", {"master": "jason", "hands": 49}),
    ):
        for path in (ships(mine, version), f"{ships(mine, version)}/argo"):
            table = (await served.ask("GET", f"{path}?includeObject=Object", Accept=TABLE)).json
            assert [c["name"] for c in table["columnDefinitions"]] == ["Name", column]
            (row,) = table["rows"]
            assert (row["cells"], row["object"]["spec"]) == (["argo", "jason"], spec)
            assert row["object"]["apiVersion"] == f"{fleet.GROUP}/{version}"


def _has_three(connection: Connection) -> bool:
    return bytes(connection.transport.sent).count(b'{"type":') == 3


async def test_two_versions_never_share_a_frame(served: Composed, mine: str) -> None:
    """Watchers of both versions see the same changes at the same time, each in its own words, with each representation."""
    began = (await served.ask("GET", ships(mine))).json["metadata"]["resourceVersion"]
    streams = {}
    for version in ("v1", "v1beta1", "v1", "v1beta1"):
        for accept in ("application/json", TABLE):
            connection = served.connect(ADMIN.peer)
            path = f"{ships(mine, version)}?watch=1&resourceVersion={began}&includeObject=Object"
            connection.feed(f"GET {path} HTTP/1.1\r\nHost: s\r\nAccept: {accept}\r\n\r\n".encode())
            streams[connection] = version, accept
    await created(served, mine, "argo", captain="jason", crew=50)
    await created(served, mine, "old", "v1beta1", master="medea", hands=3)
    await served.ask("DELETE", f"{ships(mine, 'v1beta1')}/argo")

    words = {
        "v1": [{"captain": "jason", "crew": 50}, {"captain": "medea", "crew": 4}, {"captain": "jason", "crew": 50}],
        "v1beta1": [
            {"master": "jason", "hands": 49},
            {"master": "medea", "hands": 3},
            {"master": "jason", "hands": 49},
        ],
    }
    for connection, (version, accept) in streams.items():
        await eventually(partial(_has_three, connection))
        lines = [line for line in bytes(connection.transport.sent).splitlines() if line.startswith(b'{"type":')]
        events = [json.loads(line) for line in lines]
        assert [event["type"] for event in events] == ["ADDED", "ADDED", "DELETED"]
        objects = [event["object"] for event in events]
        if accept == TABLE:
            objects = [obj["rows"][0]["object"] for obj in objects]
        assert [obj["spec"] for obj in objects] == words[version]
        assert {obj["apiVersion"] for obj in objects} == {f"{fleet.GROUP}/{version}"}
        connection.transport.close()


async def test_initial_events_and_their_bookmark_are_in_the_requested_version(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", crew=50)
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"

    answer = await served.ask("GET", f"{ships(mine, 'v1beta1')}?{query}")

    first, bookmark = [json.loads(line) for line in answer.text.splitlines() if line.startswith("{")]
    assert first["object"]["spec"] == {"master": "jason", "hands": 49}
    assert (bookmark["type"], bookmark["object"]["apiVersion"]) == ("BOOKMARK", f"{fleet.GROUP}/v1beta1")
    assert set(bookmark["object"]["spec"]) <= {"master", "hands"}


async def test_deletion_of_a_collection_answers_in_the_version_that_is_asked_for(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", crew=50)
    gone = (await served.ask("DELETE", ships(mine, "v1beta1"))).json
    assert [item["spec"] for item in gone["items"]] == [{"master": "jason", "hands": 49}]
    assert (await served.ask("GET", ships(mine))).json["items"] == []


async def test_discovery_and_openapi_contain_every_group_and_version(served: Composed) -> None:
    groups = {group["name"]: group for group in (await served.ask("GET", "/apis")).json["groups"]}
    assert {fleet.GROUP, "ports.example.com"} < set(groups)
    assert [v["version"] for v in groups[fleet.GROUP]["versions"]] == ["v1", "v1beta1"]
    assert groups[fleet.GROUP]["preferredVersion"]["version"] == "v1"
    hashes = set()
    for version in ("v1", "v1beta1"):
        (kind, status) = (await served.ask("GET", f"{GROUP}/{version}")).json["resources"]
        assert (kind["name"], status["name"]) == ("ships", "ships/status")
        hashes.add(kind["storageVersionHash"])
    (told,) = hashes
    assert len(base64.b64decode(told)) == 8
    paths = (await served.ask("GET", "/openapi/v3")).json["paths"]
    assert {f"apis/{fleet.GROUP}/v1", f"apis/{fleet.GROUP}/v1beta1", "apis/ports.example.com/v1alpha1"} < set(paths)
    for version, member in (("v1", "captain"), ("v1beta1", "master")):
        document = (await served.ask("GET", f"/openapi/v3/apis/{fleet.GROUP}/{version}")).json
        spec = document["components"]["schemas"][f"com.example.fleet.{version}.ShipSpec"]
        assert (member in spec["properties"], spec["required"]) == (True, [member])
    definitions = (await served.ask("GET", "/openapi/v2")).json["definitions"]
    assert {"com.example.fleet.v1.Ship", "com.example.fleet.v1beta1.Ship", "com.example.ports.v1alpha1.Port"} < set(
        definitions
    )


async def test_metadata_alone_is_that_of_the_version_that_is_asked_for(served: Composed, mine: str) -> None:
    await created(served, mine, "argo", captain="jason", flag="iolcus")
    for version, notes in (("v1", None), ("v1beta1", {fleet.FLAG: "iolcus"})):
        part = (await served.ask("GET", f"{ships(mine, version)}/argo", Accept=PARTIAL)).json
        assert (part["kind"], part["metadata"].get("annotations")) == ("PartialObjectMetadata", notes)
        accept = PARTIAL.replace("Metadata", "MetadataList")
        for _ in range(2):
            (item,) = (await served.ask("GET", ships(mine, version), Accept=accept)).json["items"]
            assert item == part


async def test_a_kind_of_metadata_alone_lives_in_its_own_group(served: Composed, mine: str) -> None:
    ports = "/apis/ports.example.com/v1alpha1/ports"
    made = await served.ask("POST", ports, {"metadata": {"name": mine}})
    assert made.status == 201, made.text
    patched = await served.ask("PATCH", f"{ports}/{mine}", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE_PATCH)
    assert patched.json["metadata"]["labels"] == {"a": "b"}
    gone = await served.ask("DELETE", f"{ports}/{mine}")
    assert (gone.status, (await served.ask("GET", f"{ports}/{mine}")).status) == (200, 404)


async def test_groups_do_not_answer_for_each_other(served: Composed, mine: str) -> None:
    for path in (
        f"{GROUP}/v1/ports",
        f"{GROUP}/v1alpha1/ships",
        "/apis/ports.example.com/v1/ports",
        "/apis/ports.example.com/v1alpha1/ships",
        f"{served.v1}/ships",
        f"{GROUP}/v1/deviceclasses",
    ):
        answer = await served.ask("GET", path)
        assert (answer.status, answer.json["reason"]) == (404, "NotFound"), path
    assert (await served.ask("GET", "/apis/ports.example.comx/v1alpha1/ports")).text == "404 page not found\n"
    assert (await served.ask("GET", "/apis/ports.example.com/v1alpha1/ports")).json["kind"] == "PortList"
    body = {"apiVersion": "ports.example.com/v1alpha1", "kind": "Port", "metadata": {"name": mine}}
    foreign = await served.ask("POST", ships(mine), body)
    assert foreign.status == 400
    assert 'Port in version "v1alpha1" cannot be handled as a Ship' in foreign.json["message"]


def test_kinds_of_a_package_are_served_beside_the_built_in_ones() -> None:
    alone, both = (
        apigroups.kinds(config.parse(words, {}).serving) for words in (["dev"], ["dev", "--kinds", fleet.__name__])
    )
    added = {(r.group, r.version, r.plural) for r in both} - {(r.group, r.version, r.plural) for r in alone}
    assert added == {
        (fleet.GROUP, "v1", "ships"),
        (fleet.GROUP, "v1beta1", "ships"),
        ("ports.example.com", "v1alpha1", "ports"),
    }
    assert {r.storage_name for r in both.stored} - {r.storage_name for r in alone.stored} == {
        f"{fleet.GROUP}/ships",
        "ports.example.com/ports",
    }
