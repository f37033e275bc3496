"""The spans of requests, and whose traces are continued. An SDK's exporter in memory stands for the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import User
from apiserver.filters import tracing
from apiserver.filters.state import Filter, Handler, Request
from apiserver.runtime import spans
from apiserver.tracing.provider import Provider
from tests.fixtures.connection import Answer
from tests.fixtures.otlp import FAILED, SERVER, Receiver, Span, tree
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect, ok

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = {"Traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "Tracestate": "a=1", "Baggage": "k=v"}
UNSAMPLED = {**SAMPLED, "Traceparent": f"00-{TRACE}-b7ad6b7169203331-00"}
ALL = 1_000_000


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


Traced = Callable[..., Awaitable[tuple[Answer, list[Span], list[dict[str, str]]]]]


@pytest.fixture
def traced(receiver: Receiver) -> Traced:
    """Ask a server that traces. Returns its answer, the spans of the request, and the headers that another server got meanwhile."""

    async def run(
        headers: dict[str, str],
        *,
        user: User = ADMIN,
        per_million: int = 0,
        handler: Handler = ok,
        path: str = f"{V1}/namespaces/ns/things/x",
    ) -> tuple[Answer, list[Span], list[dict[str, str]]]:
        tracer = Provider(endpoint=f"127.0.0.1:{receiver.port}", per_million=per_million, instance="id")
        sent: list[dict[str, str]] = []

        async def asking(request: Request) -> web.StreamResponse:
            with spans.sending("POST", lambda: "https://user:secret@hook.test:8443/x?timeout=1s") as span:
                sent.append(dict(spans.sent_headers()))
                spans.answered(span, 404)
            return await handler(request)

        def authenticate(inner: Handler) -> Handler:
            return as_user(inner, user)

        def authorize(inner: Handler) -> Handler:
            return inner

        filters: list[Filter] = [authenticate, partial(tracing.trace, tracer=tracer), authorize]
        filters = tracing.traced(filters, tracer, constrained=True)
        composed: Handler = asking
        for made in reversed(filters):
            composed = made(composed)
        before = len(receiver.spans)
        answer = await connect(composed).ask("GET", path, headers)
        await asyncio.to_thread(tracer.close)
        return answer, receiver.spans[before:], sent

    return run


async def test_privileged_sender_chooses_the_trace(traced: Traced) -> None:
    _, found, sent = await traced(SAMPLED)
    assert {span.trace_id for span in found} == {TRACE}
    assert tree(found) == {
        "GET /apis/things.example.com/v1/namespaces/{:namespace}/things/{:name}": {"authorization": {"HTTP POST": {}}}
    }
    by_name = {span.name: span for span in found}
    client = by_name["HTTP POST"]
    assert sent == [{"traceparent": f"00-{TRACE}-{client.span_id}-01", "tracestate": "a=1", "baggage": "k=v"}]
    assert client.status == FAILED
    assert client.attributes == {
        "http.request.method": "POST",
        "url.full": "https://hook.test:8443/x?timeout=1s",
        "server.address": "hook.test",
        "server.port": 8443,
        "network.protocol.version": "1.1",
        "http.response.status_code": 404,
        "error.type": "404",
    }


async def test_span_of_a_request_has_upstreams_attributes(traced: Traced) -> None:
    headers = {**SAMPLED, "Host": "[::1]:6443", "User-Agent": "kubectl/1", "X-Forwarded-For": "192.0.2.7, 192.0.2.8"}
    _, found, _ = await traced({**headers, "Audit-Id": "a" * 100}, path=f"{V1}/things?limit=1")
    span = next(span for span in found if span.kind == SERVER)
    peer = {name: span.attributes.pop(name, None) for name in ("network.peer.address", "network.peer.port")}
    assert span.name == "GET /apis/things.example.com/v1/things"
    assert span.attributes == {
        "server.address": "::1",
        "server.port": 6443,
        "http.request.method": "GET",
        "url.scheme": "https",
        "url.path": f"{V1}/things",
        "network.protocol.version": "1.1",
        "user_agent.original": "kubectl/1",
        "client.address": "192.0.2.7",
        "http.target": f"{V1}/things?limit=1",
        "audit-id": "a" * 64,
        "http.response.status_code": 200,
        "http.response.body.size": 4,
    }
    assert all(peer.values()) or not any(peer.values())
    assert span.resource == {"service.name": "apiserver", "service.instance.id": "id"}


async def test_unsampled_trace_is_passed_on_and_not_recorded(traced: Traced) -> None:
    _, found, sent = await traced(UNSAMPLED, per_million=ALL)
    assert [span.name for span in found] == ["authentication"]
    assert sent == [
        {"traceparent": UNSAMPLED["Traceparent"], "tracestate": "a=1", "baggage": "k=v"},
    ]


async def test_other_senders_trace_is_linked(traced: Traced) -> None:
    _, found, sent = await traced(SAMPLED, user=JANE, per_million=ALL)
    request = next(span for span in found if span.kind == SERVER)
    assert request.trace_id != TRACE
    assert request.links == [TRACE]
    assert sent[0]["traceparent"].split("-")[1] == request.trace_id
    assert sent[0]["baggage"] == "k=v"


async def test_other_senders_have_no_request_traced(traced: Traced) -> None:
    _, found, sent = await traced(SAMPLED, user=JANE)
    assert found == []
    assert sent == [{"baggage": "k=v"}]


async def test_request_without_trace_is_sampled_by_its_rate(traced: Traced) -> None:
    assert (await traced({}))[1] == []
    _, found, _ = await traced({}, per_million=ALL)
    name = "GET /apis/things.example.com/v1/namespaces/{:namespace}/things/{:name}"
    assert tree(found) == {"authentication": {name: {"authorization": {"HTTP POST": {}}}}}


@pytest.mark.parametrize(("error", "code"), [(errors.bad_request("no"), 400), (RuntimeError("bug"), 500)])
async def test_failed_request_has_the_code_of_its_answer(traced: Traced, error: Exception, code: int) -> None:
    async def failing(_: Request) -> web.StreamResponse:
        raise error

    answer, found, _ = await traced(SAMPLED, handler=failing)
    request = next(span for span in found if span.kind == SERVER)
    assert (answer.status, request.attributes["http.response.status_code"]) == (code, code)
    assert (request.status == FAILED) == (code >= 500)


async def test_attribute_is_cut_so_that_spans_stay_small(traced: Traced) -> None:
    _, found, _ = await traced({**SAMPLED, "User-Agent": "x" * 9000}, path=f"{V1}/things?x={'y' * 9000}")
    assert max(len(str(value)) for span in found for value in span.attributes.values()) == 1024


async def test_task_that_outlives_its_request_is_not_traced(traced: Traced) -> None:
    over = asyncio.Event()
    tasks = []

    async def later() -> tuple[object, bool]:
        await over.wait()
        return spans.sent_headers(), spans.present().recording

    async def beginning(_: Request) -> web.StreamResponse:
        tasks.append(asyncio.create_task(later()))
        return web.Response()

    await traced(SAMPLED, handler=beginning)
    over.set()
    assert await tasks[0] == ((), False)


async def test_server_that_records_nothing_passes_traces_on() -> None:
    sent = []

    async def asking(request: Request) -> web.StreamResponse:
        sent.append(dict(spans.sent_headers()))
        return await ok(request)

    server = connect(tracing.pass_on(as_user(asking, JANE)))
    await server.ask("GET", f"{V1}/things", SAMPLED)
    await server.ask("GET", f"{V1}/things", {})
    assert sent == [{name.lower(): value for name, value in SAMPLED.items()}, {}]
