"""How long a request may take, and what is said when it took longer."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from apiserver.filters.deadline import deadline
from apiserver.filters.state import Request
from tests.unit.filters.chain import V1, connect, ok


async def stuck(_request: Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("timeout", ["", "?timeout=5s", "?timeout=0", "?timeout=-3s", "?timeout=999h", "?timeout="])
async def test_a_request_in_time_is_not_touched(timeout: str) -> None:
    assert (await connect(deadline(ok, seconds=60)).ask("GET", f"{V1}/nodes{timeout}")).text == "fine"


async def test_a_timeout_that_is_no_duration_is_400_before_anything_else() -> None:
    answer = await connect(deadline(stuck, seconds=60)).ask("GET", "/nowhere?timeout=abc")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"] == 'invalid timeout specified in the request URL - time: invalid duration "abc"'


async def test_a_late_read_is_upstreams_bare_status_without_kind_as_text() -> None:
    answer = await connect(deadline(stuck, seconds=60)).ask(
        "GET", f"{V1}/nodes?timeout=10ms", {"Accept": "application/yaml"}
    )
    assert answer.status == 504
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "X-Content-Type-Options" not in answer.headers
    assert answer.text == (
        '{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout",'
        '"reason":"Timeout","details":{},"code":504}\n'
    )


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/nodes"), ("PUT", "/nodes/x"), ("PATCH", "/nodes/x"), ("DELETE", "/nodes/x")]
)
async def test_late_write_gets_a_status_without_retry_after(method: str, path: str) -> None:
    answer = await connect(deadline(stuck, seconds=60)).ask(method, f"{V1}{path}?timeout=10ms")
    assert (answer.status, answer.json["reason"], answer.json["details"]) == (504, "Timeout", {})
    assert (
        answer.json["message"]
        == "Timeout: request did not complete within requested timeout - context deadline exceeded"
    )
    assert "Retry-After" not in answer.headers


async def test_the_servers_own_limit_holds_without_a_timeout() -> None:
    assert (await connect(deadline(stuck, seconds=0.01)).ask("DELETE", f"{V1}/nodes")).status == 504
    assert (await connect(deadline(stuck, seconds=0.01)).ask("GET", "/slow?timeout=1h")).status == 504


async def test_a_watch_has_no_deadline_and_its_timeout_is_not_even_read() -> None:
    assert (await connect(deadline(ok, seconds=0)).ask("GET", f"{V1}/nodes?watch=1&timeout=abc")).text == "fine"


async def test_a_timeout_of_the_handlers_own_is_not_taken_for_the_deadline() -> None:
    async def fail(_request: Request) -> web.StreamResponse:
        raise TimeoutError

    assert (await connect(deadline(fail, seconds=60)).ask("GET", f"{V1}/nodes")).status == 500


async def test_a_response_that_began_is_broken_off() -> None:
    async def begin(request: Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"abc")
        return await stuck(request)

    connection = connect(deadline(begin, seconds=60))
    with pytest.raises(ConnectionResetError):
        await connection.ask("GET", f"{V1}/nodes?timeout=10ms")
