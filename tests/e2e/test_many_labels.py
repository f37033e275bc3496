"""Objects of very many labels, and selectors of as many terms. The detector of steps watches the event loop."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
from collections.abc import Iterator

import pytest

from tests.fixtures.server import DevServer, dev_server

CLASSES = "/apis/resource.sluice.dev/v1/deviceclasses"
TERMS = 5000
FEW, MANY, VERY_MANY = 3, 5000, 85_000
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("labels")) as started:
        for at in range(60):
            _create(started, f"many-{at:02}", MANY)
        _create(started, "few", FEW)
        _create(started, "very-many", VERY_MANY)
        yield started


def _create(server: DevServer, name: str, labels: int) -> str:
    metadata = {"name": name, "labels": {f"k{at:05}": "" for at in range(labels)}}
    reply = server.request("POST", CLASSES, {"metadata": metadata, "spec": {}})
    assert reply.status == 201, reply.text
    version: str = reply.json["metadata"]["resourceVersion"]
    return version


def _selected(server: DevServer, selector: str, query: str = "") -> list[str]:
    reply = server.request("GET", f"{CLASSES}?labelSelector={selector}{query}")
    assert reply.status == 200, reply.text
    return [item["metadata"]["name"] for item in reply.json["items"]]


THE_MANY = [f"many-{at:02}" for at in range(60)]


@pytest.mark.parametrize("query", ["", "&limit=500", "&resourceVersion=0"])
def test_lists_select_by_as_many_terms_as_there_are_labels(server: DevServer, query: str) -> None:
    every = [f"k{at:05}" for at in range(TERMS)]
    assert _selected(server, ",".join(every), query) == [*THE_MANY, "very-many"]
    assert _selected(server, ",".join([*every, "!k05000"]), query) == THE_MANY
    assert _selected(server, ",".join(f"!k{at:05}" for at in range(FEW, TERMS)), query) == ["few"]
    assert _selected(server, "k84999", query) == ["very-many"]


def test_chunks_of_such_a_selection_go_on_behind_the_last_one(server: DevServer) -> None:
    selector = ",".join(f"k{at:05}" for at in range(TERMS))
    found: list[str] = []
    onward = ""
    while True:
        reply = server.request("GET", f"{CLASSES}?limit=7&labelSelector={selector}&continue={onward}")
        found += [item["metadata"]["name"] for item in reply.json["items"]]
        onward = reply.json["metadata"].get("continue", "")
        if not onward:
            break
    assert found == [*THE_MANY, "very-many"]


@pytest.mark.parametrize(("labels", "terms"), [(MANY, 100), (MANY, TERMS), (VERY_MANY, 100), (VERY_MANY, TERMS)])
def test_watches_select_by_them_and_see_what_enters_changes_and_leaves(
    server: DevServer, labels: int, terms: int
) -> None:
    name = f"watched-{labels}-{terms}"
    selector = ",".join([f"k{at:05}" for at in range(terms)] + [f"!m{at}" for at in range(terms)])
    before = server.request("GET", f"{CLASSES}?limit=1").json["metadata"]["resourceVersion"]
    with contextlib.ExitStack() as stack:
        watches = [
            stack.enter_context(_watch(server, f"labelSelector={selector},!n{at}&resourceVersion={before}"))
            for at in range(5)
        ]
        _create(server, name, labels)
        for text in ('{"p":"1"}', '{"m7":""}', '{"m7":null}'):
            patch = f'{{"metadata":{{"labels":{text}}}}}'
            assert server.request("PATCH", f"{CLASSES}/{name}", patch, headers=MERGE).status == 200
        assert server.request("DELETE", f"{CLASSES}/{name}").status == 200
        for watch in watches:
            events = [json.loads(watch.readline()) for _ in range(5)]
            assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
            assert {event["object"]["metadata"]["name"] for event in events} == {name}


@contextlib.contextmanager
def _watch(server: DevServer, query: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=server.context(), timeout=120)
    with contextlib.closing(connection):
        connection.request("GET", f"{CLASSES}?watch=true&{query}")
        yield connection.getresponse()


def test_a_server_starts_with_such_objects(tmp_path: pathlib.Path) -> None:
    with dev_server(tmp_path) as server:
        for at in range(100):
            _create(server, f"many-{at}", MANY)
        _create(server, "very-many", VERY_MANY)
        server.stop()
        server.start()
        assert len(_selected(server, "k00000")) == 101
