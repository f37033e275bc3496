"""Counts of a request, and their labels."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery import errors
from apiserver.filters.observe import observe
from apiserver.filters.state import Handler, Request
from tests.unit.filters.chain import connect, ok

G = "observed.example.com"
V1 = f"/apis/{G}/v1"
SERVED = {(G, "v1", "nodes")}


def watched(handler: Handler, *, log: bool = False) -> Handler:
    ticks = iter(range(1000))
    return observe(handler, served=SERVED, clock=lambda: next(ticks) / 100, log_requests=lambda: log)


def counted() -> dict[tuple[str, ...], float]:
    return {values: child.value for values, child in metrics.REQUESTS.children()}


async def newly_counted(
    handler: Handler, method: str, path: str, headers: dict[str, str] | None = None
) -> list[tuple[str, ...]]:
    """The label values (verb, dry run, group, version, resource, subresource, scope, code) that one request counts under."""
    before = counted()
    await connect(watched(handler)).ask(method, path, headers)
    rows = [values for values, value in counted().items() if value != before.get(values, 0)]
    return [(*row[:7], row[8]) for row in rows]


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", "/nodes", ("LIST", "", G, "v1", "nodes", "", "cluster", "200")),
        ("GET", "/namespaces/n/nodes", ("LIST", "", G, "v1", "nodes", "", "namespace", "200")),
        ("GET", "/nodes?fieldSelector=metadata.name%3Dx", ("LIST", "", G, "v1", "nodes", "", "cluster", "200")),
        ("GET", "/nodes/x", ("GET", "", G, "v1", "nodes", "", "resource", "200")),
        ("HEAD", "/nodes/x", ("GET", "", G, "v1", "nodes", "", "resource", "200")),
        ("GET", "/nodes?watch=1", ("WATCH", "", G, "v1", "nodes", "", "cluster", "200")),
        ("GET", "/watch/nodes", ("WATCH", "", G, "v1", "nodes", "", "cluster", "200")),
        ("POST", "/nodes", ("POST", "", G, "v1", "nodes", "", "resource", "200")),
        ("POST", "/nodes?dryRun=All", ("POST", "All", G, "v1", "nodes", "", "resource", "200")),
        ("POST", "/nodes?dryRun=x", ("POST", "invalid", G, "v1", "nodes", "", "resource", "200")),
        ("PUT", "/nodes/x/status", ("PUT", "", G, "v1", "nodes", "status", "resource", "200")),
        ("DELETE", "/nodes", ("DELETE", "", G, "v1", "nodes", "", "cluster", "200")),
        ("OPTIONS", "/nodes", ("other", "", G, "v1", "nodes", "", "cluster", "200")),
        ("GET", "/nodes/x/invented", ("GET", "", G, "v1", "nodes", "other", "resource", "200")),
        ("GET", "/invented/x", ("GET", "", "", "", "", "", "resource", "200")),
    ],
)
async def test_a_request_is_labelled_as_upstream_labels_it(method: str, path: str, labels: tuple[str, ...]) -> None:
    assert await newly_counted(ok, method, V1 + path) == [labels]


async def test_apply_is_distinguished_from_other_patches() -> None:
    [labels] = await newly_counted(ok, "PATCH", f"{V1}/nodes/x", {"Content-Type": "application/apply-patch+yaml"})
    assert labels[0] == "APPLY"
    [labels] = await newly_counted(ok, "PATCH", f"{V1}/nodes/x", {"Content-Type": "application/merge-patch+json"})
    assert labels[0] == "PATCH"


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ("", ""),
        ("?fieldValidation=Strict", "Strict"),
        ("?fieldValidation=x", "invalid"),
        ("?fieldValidation=", "invalid"),
    ],
)
async def test_writes_are_timed_by_their_field_validation(query: str, label: str) -> None:
    timed = metrics.FIELD_VALIDATION_SECONDS.labels(label)
    before = timed.count
    await connect(watched(ok)).ask("POST", f"{V1}/nodes{query}")
    await connect(watched(ok)).ask("GET", f"{V1}/nodes{query}")
    assert timed.count == before + 1


async def test_non_resource_paths_have_labels_only_if_served() -> None:
    assert await newly_counted(ok, "GET", "/readyz") == [("GET", "", "", "", "", "/readyz", "", "200")]
    assert await newly_counted(ok, "GET", "/invented/by/a/client") == [("GET", "", "", "", "", "", "", "200")]


async def test_errors_are_counted_by_their_code() -> None:
    async def fail(_request: Request) -> web.StreamResponse:
        raise errors.bad_request("no")

    async def panic(_request: Request) -> web.StreamResponse:
        raise RuntimeError

    assert (await newly_counted(fail, "GET", f"{V1}/nodes"))[0][-1] == "400"
    assert (await newly_counted(panic, "GET", f"{V1}/nodes"))[0][-1] == "500"


async def test_answer_that_the_server_cut_short_counts_as_a_termination() -> None:
    async def refuse(request: Request) -> web.StreamResponse:
        request.terminated = True
        raise errors.too_many_requests("full", retry_after=1)

    await connect(watched(refuse)).ask("GET", f"{V1}/nodes")
    assert metrics.TERMINATIONS.labels("apiserver", "LIST", G, "v1", "nodes", "", "cluster", "429").value == 1


async def test_an_open_watch_is_in_the_gauge_and_a_lost_client_an_abort() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def stream(_request: Request) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    labels = ("WATCH", G, "v1", "nodes", "", "namespace")
    connection = connect(watched(stream))
    connection.feed(f"GET {V1}/namespaces/n/nodes?watch=1 HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    await began.wait()
    assert metrics.LONG_RUNNING.labels(*labels, "apiserver").value == 1
    connection.transport.close()
    await ended.wait()
    await connection.close()
    assert metrics.LONG_RUNNING.labels(*labels, "apiserver").value == 0
    assert metrics.ABORTS.labels(*labels).value == 1


async def test_requests_are_logged_on_demand_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await connect(watched(ok)).ask("GET", f"{V1}/nodes")
    assert not caplog.records
    await connect(watched(ok, log=True)).ask("GET", f"{V1}/nodes?limit=1", {"User-Agent": "tests"})
    [record] = caplog.records
    fields = vars(record)
    assert (record.getMessage(), fields["verb"], fields["uri"], fields["code"]) == (
        "HTTP",
        "list",
        f"{V1}/nodes?limit=1",
        200,
    )
    assert (fields["user_agent"], fields["audit_id"], fields["source"]) == ("tests", "id-1", "192.0.2.7")
