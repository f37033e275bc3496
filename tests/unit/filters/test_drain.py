"""While the server stops, new watches get a retry and everything else is served."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from apiserver.filters.drain import Drain, drain
from apiserver.filters.state import Request
from tests.unit.filters.chain import V1, connect, ok


async def test_while_serving_nothing_is_refused_and_connections_stay() -> None:
    state = Drain()
    connection = connect(drain(ok, state=state))
    assert (await connection.ask("GET", f"{V1}/nodes?watch=1")).status == 200
    assert (await connection.ask("POST", f"{V1}/nodes")).status == 200
    assert not connection.closed
    assert (state.requests, state.watches) == (0, 0)


@pytest.mark.parametrize("path", ["/nodes?watch=1", "/watch/nodes", "/watch/nodes/x"])
async def test_new_watch_gets_retry_after_one_second(path: str) -> None:
    state = Drain()
    state.stop(handed_over=False)
    connection = connect(drain(ok, state=state))
    answer = await connection.ask("GET", V1 + path)
    assert (answer.status, answer.headers["Retry-After"], answer.headers["Connection"]) == (429, "1", "close")
    assert (answer.json["kind"], answer.json["reason"]) == ("Status", "TooManyRequests")
    assert answer.json["details"] == {"retryAfterSeconds": 1}
    await connection.end()


@pytest.mark.parametrize(("method", "path"), [("GET", "/nodes"), ("POST", "/nodes"), ("GET", "/nodes/x?watch=1")])
async def test_other_requests_are_served_and_end_their_connection(method: str, path: str) -> None:
    state = Drain()
    state.stop(handed_over=False)
    connection = connect(drain(ok, state=state))
    answer = await connection.ask(method, V1 + path)
    assert (answer.status, answer.text, answer.headers["Connection"]) == (200, "fine", "close")
    await connection.end()


async def test_a_watch_on_a_kept_connection_gets_no_answer_after_a_hand_over() -> None:
    """The client repeats it on a new connection, which reaches the successor."""
    state = Drain()
    connection = connect(drain(ok, state=state))
    assert (await connection.ask("GET", f"{V1}/nodes")).status == 200
    state.stop(handed_over=True)
    sent = len(connection.transport.sent)
    connection.feed(f"GET {V1}/nodes?watch=1 HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    await connection.end()
    assert len(connection.transport.sent) == sent
    assert (state.requests, state.watches) == (0, 0)


async def test_the_first_watch_on_a_connection_is_served_after_a_hand_over() -> None:
    """No client repeats a request whose new connection ended."""
    state = Drain()
    state.stop(handed_over=True)
    connection = connect(drain(ok, state=state))
    answer = await connection.ask("GET", f"{V1}/nodes?watch=1")
    assert (answer.status, answer.text, answer.headers["Connection"]) == (200, "fine", "close")
    await connection.end()


@pytest.mark.parametrize(("method", "path"), [("GET", "/nodes"), ("POST", "/nodes"), ("GET", "/nodes/x?watch=1")])
async def test_other_requests_on_a_kept_connection_are_served_after_a_hand_over(method: str, path: str) -> None:
    state = Drain()
    connection = connect(drain(ok, state=state))
    assert (await connection.ask("GET", f"{V1}/nodes")).status == 200
    state.stop(handed_over=True)
    answer = await connection.ask(method, V1 + path)
    assert (answer.status, answer.headers["Connection"]) == (200, "close")
    await connection.end()


async def test_it_is_idle_when_the_last_request_has_been_answered() -> None:
    state, gate = Drain(), asyncio.Event()
    inside = asyncio.Semaphore(0)

    async def wait(_request: Request) -> web.StreamResponse:
        inside.release()
        await gate.wait()
        return web.Response()

    watch, get = connect(drain(wait, state=state)), connect(drain(wait, state=state))
    watch.feed(f"GET {V1}/nodes?watch=1 HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    get.feed(f"GET {V1}/nodes HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    await inside.acquire()
    await inside.acquire()
    assert (state.requests, state.watches) == (1, 1)
    all_idle = asyncio.ensure_future(state.idle())
    await get.close()
    assert (state.requests, state.watches) == (0, 1)
    assert not all_idle.done()
    gate.set()
    await all_idle
    assert (state.requests, state.watches) == (0, 0)
