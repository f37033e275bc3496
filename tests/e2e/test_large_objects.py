"""`--max-object-bytes`: what is above the limits is refused as upstream does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controlplane.connection import Connection, Stream
from tests.fixtures.definitions import GROUP, definition, write
from tests.fixtures.server import DevServer, Reply, dev_server

MIB = 1 << 20
LIMIT = 8 * MIB
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
REPORTS = f"/apis/{GROUP}/v1/namespaces/default/reports"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("large")
    crds = write(folder / "reports.yaml", reports())
    with dev_server(folder, f"--crds={crds}", f"--max-object-bytes={LIMIT}") as started:
        yield started


def reports() -> dict[str, Any]:
    """A definition of reports, each with a list of results."""
    made = definition("reports")
    result = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {"results": {"type": "array", "items": result}}
    return made


def report(name: str, size: int) -> dict[str, Any]:
    """A report of about `size` bytes, like those of policy engines: many results of some hundred bytes."""
    result = {
        "source": "engine",
        "policy": "require-run-as-nonroot",
        "rule": "run-as-non-root",
        "result": "fail",
        "severity": "medium",
        "scored": True,
        "timestamp": {"seconds": 1700000000, "nanos": 0},
        "message": "validation error: running as root is not allowed " * 4,
    }
    count = size // len(json.dumps(result, separators=(",", ":")))
    return {"apiVersion": f"{GROUP}/v1", "kind": "Report", "metadata": {"name": name}, "results": [result] * count}


def send(server: DevServer, method: str, path: str, body: Any) -> Reply:
    return server.request(
        method, path, json.dumps(body, separators=(",", ":")), headers={"Content-Type": "application/json"}
    )


def test_report_of_three_mebibytes_is_written_read_listed_and_watched(server: DevServer) -> None:
    made = report("three", 3 * MIB)
    created = send(server, "POST", REPORTS, made)
    assert created.status == 201, created.text[:300]
    assert len(server.request("GET", f"{REPORTS}/three").json["results"]) == len(made["results"])
    listed = server.request("GET", REPORTS).json
    assert [len(item["results"]) for item in listed["items"]] == [len(made["results"])]
    since = created.json["metadata"]["resourceVersion"]
    made["metadata"]["resourceVersion"] = since
    made["metadata"]["labels"] = {"round": "2"}
    assert send(server, "PUT", f"{REPORTS}/three", made).status == 200
    watched = server.request("GET", f"{REPORTS}?watch=1&resourceVersion={since}&timeoutSeconds=1").text
    assert [json.loads(line)["type"] for line in watched.splitlines()] == ["MODIFIED"]
    merge = {"Content-Type": "application/merge-patch+json"}
    assert (
        server.request("PATCH", f"{REPORTS}/three", {"metadata": {"labels": {"a": "b"}}}, headers=merge).status == 200
    )
    assert server.request("DELETE", f"{REPORTS}/three").status == 200


def test_no_step_is_long_for_objects_near_the_limit(server: DevServer) -> None:
    """The detector fails this test for a step above the budget (`tests/fixtures/steps.py`)."""
    made, name = report("eight", LIMIT - MIB // 8), f"{REPORTS}/eight"
    merge = {"Content-Type": "application/merge-patch+json"}
    with Connection(server.kubeconfig) as user:
        since = server.request("GET", REPORTS).json["metadata"]["resourceVersion"]
        with contextlib.ExitStack() as opened:
            watches = [
                opened.enter_context(Stream(user, f"{REPORTS}?watch=1&resourceVersion={since}")) for _ in range(3)
            ]
            created = send(server, "POST", REPORTS, made)
            assert created.status == 201, created.text[:300]
            made["metadata"]["resourceVersion"] = created.json["metadata"]["resourceVersion"]
            made["results"].pop()
            assert send(server, "PUT", name, made).status == 200
            labels = {"metadata": {"labels": {"a": "b"}}}
            assert server.request("PATCH", name, labels, headers=merge).status == 200
            assert len(server.request("GET", REPORTS).json["items"]) == 1
            with Stream(user, f"{REPORTS}?watch=1&{INITIAL}") as beginning:
                assert [beginning.next()["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
            assert server.request("DELETE", name).status == 200
            for watch in watches:
                types = [watch.next()["type"] for _ in range(4)]
                assert types == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_object_above_the_limit_gets_the_error_of_etcd(server: DevServer) -> None:
    refused = send(server, "POST", REPORTS, report("c", 9 * MIB))
    assert (refused.status, refused.json["message"]) == (500, "etcdserver: request is too large")


def test_body_above_twice_the_limit_gets_413(server: DevServer) -> None:
    refused = send(server, "POST", REPORTS, report("d", 2 * LIMIT + MIB))
    assert (refused.status, refused.json["message"]) == (413, f"Request entity too large: limit is {2 * LIMIT}")
