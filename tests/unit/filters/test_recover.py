"""Errors become responses here and nowhere else; nobody is shown a trace."""

from __future__ import annotations

import asyncio
import logging
import re
import threading

import pytest
from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import TextError
from apiserver.filters.recover import recover
from apiserver.filters.state import Request
from apiserver.runtime.workers import RENDERING
from apiserver.wire.response import BODY_LIMIT
from tests.fixtures.connection import Connection
from tests.unit.filters.chain import V1, connect, ids, ok


def failing(error: Exception) -> Connection:
    async def fail(_request: Request) -> web.StreamResponse:
        raise error

    return connect(fail)


async def test_every_response_has_an_audit_id_and_a_cache_rule() -> None:
    answer = await connect(ok).ask("GET", "/x")
    assert (answer.status, answer.headers["Audit-Id"], answer.headers["Cache-Control"]) == (
        200,
        "id-1",
        "no-cache, private",
    )
    assert "Server" not in answer.headers


async def test_the_clients_audit_id_is_echoed_as_it_is() -> None:
    long = "x" * 300 + " ;ä"
    answer = await connect(ok).ask("GET", "/x", {"Audit-ID": long})
    assert answer.headers.getall("Audit-Id") == [long]


async def test_an_audit_id_that_is_no_text_is_mended_and_an_empty_one_replaced() -> None:
    connection = connect(ok)
    connection.feed(b"GET /x HTTP/1.1\r\nHost: s\r\nAudit-ID: a\xffb\r\n\r\n")
    assert (await connection.answer()).headers["Audit-Id"] == "a?b"
    assert (await connection.ask("GET", "/x", {"Audit-ID": ""})).headers["Audit-Id"] == "id-1"


async def test_a_handlers_own_cache_rule_stays() -> None:
    async def cached(_request: Request) -> web.StreamResponse:
        return web.Response(headers={"Cache-Control": "public"})

    assert (await connect(cached).ask("GET", "/x")).headers.getall("Cache-Control") == ["public"]


async def test_a_streamed_response_gets_the_same_headers() -> None:
    async def stream(request: Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"abc")
        return response

    answer = await connect(stream).ask("GET", "/x")
    assert (answer.body, answer.headers["Audit-Id"], answer.headers["Cache-Control"]) == (
        b"abc",
        "id-1",
        "no-cache, private",
    )


async def test_an_api_error_becomes_its_status() -> None:
    answer = await failing(errors.no_such_path()).ask("GET", f"{V1}/x")
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server could not find the requested resource", "reason": "NotFound", "details": {}, "code": 404,
    }  # fmt: skip


async def test_the_status_has_the_clients_form() -> None:
    connection = failing(errors.unauthorized())
    pretty = await connection.ask("GET", "/x?pretty=1")
    assert pretty.body.startswith(b'{\n  "kind": "Status"')
    yaml = await connection.ask("GET", "/x", {"Accept": "application/yaml"})
    assert yaml.headers["Content-Type"] == "application/yaml"
    assert yaml.body.startswith(b"apiVersion: v1\ncode: 401\n")
    nothing_of_ours = await connection.ask("GET", "/x", {"Accept": "text/html"})
    assert (nothing_of_ours.status, nothing_of_ours.headers["Content-Type"]) == (401, "application/json")
    assert nothing_of_ours.body.startswith(b'{\n  "kind": "Status"')
    assert not nothing_of_ours.body.endswith(b"\n")


async def test_details_with_a_pause_become_a_header_too() -> None:
    answer = await failing(errors.too_many_requests("later", retry_after=3)).ask("GET", "/x")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
    assert "Retry-After" not in (await failing(errors.bad_request("no")).ask("GET", "/x")).headers


async def test_warnings_are_sent_with_errors() -> None:
    async def warn(request: Request) -> web.StreamResponse:
        request.exchange.warnings.add("beware")
        raise errors.bad_request("no")

    assert (await connect(warn).ask("GET", "/x")).headers["Warning"] == '299 - "beware"'


async def test_a_text_error_is_plain_text_that_is_not_sniffed() -> None:
    answer = await failing(TextError(429, "wait\n", headers={"Retry-After": "1"})).ask("GET", "/x")
    assert (answer.status, answer.text) == (429, "wait\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Retry-After"] == "1"


async def test_unexpected_exception_is_logged_with_its_audit_id_and_hidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = failing(RuntimeError("secret detail"))
    answer = await connection.ask("POST", "/x")
    assert (answer.status, answer.text) == (
        500,
        "This request caused apiserver to panic. Look in the logs for details.\n",
    )
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Audit-Id"] == "id-1"
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert vars(record)["audit_id"] == "id-1"
    assert "secret detail" in caplog.text
    assert (await connection.ask("GET", "/x")).status == 500


async def test_head_has_no_body() -> None:
    connection = failing(errors.method_not_allowed())
    answer = await connection.ask("HEAD", "/x")
    assert (answer.status, answer.headers["Content-Type"]) == (405, "application/json")
    assert (await connection.ask("GET", "/x")).status == 405


async def test_a_request_that_cannot_be_parsed_has_an_audit_id_and_no_cache_rule() -> None:
    answer = await connect(ok).ask("GET", f"{V1}/watch")
    assert answer.status == 500
    assert answer.text.startswith(f'Internal Server Error: "{V1}/watch": failed to create RequestInfo: ')
    assert "Audit-Id" in answer.headers
    assert "Cache-Control" not in answer.headers


@pytest.mark.parametrize("error", [errors.bad_request("late"), RuntimeError("late")])
async def test_an_error_after_the_response_began_breaks_the_stream_off(error: Exception) -> None:
    async def begin(request: Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"abc")
        raise error

    connection = connect(begin)
    with pytest.raises(ConnectionResetError):
        await connection.ask("GET", "/x")
    assert connection.transport.aborted
    assert not bytes(connection.transport.sent).endswith(b"0\r\n\r\n")


async def test_disconnected_client_cancels_the_handler_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(_request: Request) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    connection = connect(wait)
    connection.feed(b"GET /x HTTP/1.1\r\nHost: s\r\n\r\n")
    await began.wait()
    connection.transport.close()
    await ended.wait()
    assert not caplog.records


async def test_a_body_broken_in_its_transfer_encoding_is_400_and_the_end() -> None:
    reading = asyncio.Event()

    async def read(request: Request) -> web.StreamResponse:
        reading.set()
        await request.content.read()
        return web.Response()

    connection = connect(read)
    connection.feed(b"POST /x HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc")
    await reading.wait()
    connection.feed(b"XX\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.json["reason"], answer.headers["Connection"]) == (400, "BadRequest", "close")
    await connection.end()


async def test_ids_are_made_only_for_requests_without_one() -> None:
    made = []

    def make() -> str:
        made.append(1)
        return "fresh"

    connection = Connection(recover(ok, new_id=make, body_limit=BODY_LIMIT, workers=RENDERING))
    await connection.ask("GET", "/", {"Audit-ID": "mine"})
    assert not made
    assert re.fullmatch("id-1", ids()())


@pytest.mark.parametrize(("size", "in_a_thread"), [(100, False), (100_000, True)])
async def test_large_object_of_a_failed_request_is_freed_in_a_thread(size: int, in_a_thread: bool) -> None:
    freed, went = [], threading.Event()

    class Decoded:
        def __del__(self) -> None:
            freed.append(threading.current_thread() is not threading.main_thread())
            went.set()

    async def fail(request: Request) -> web.StreamResponse:
        _decoded, _body = Decoded(), await request.exchange.body()
        try:
            raise ValueError("it is wrong")
        except ValueError as e:
            raise errors.bad_request(str(e)) from e

    answer = await connect(fail).ask("POST", "/x", body=b"x" * size)

    assert answer.status == 400
    assert await asyncio.to_thread(went.wait, 10)
    assert freed == [in_a_thread]


@pytest.mark.parametrize(("size", "in_a_thread"), [(100, False), (100_000, True)])
async def test_held_values_of_an_answered_request_are_freed_in_a_thread_if_they_are_large(
    size: int, in_a_thread: bool
) -> None:
    freed, went = [], threading.Event()

    class Decoded:
        def __del__(self) -> None:
            freed.append(threading.current_thread() is not threading.main_thread())
            went.set()

    async def succeed(request: Request) -> web.StreamResponse:
        request.exchange.hold(Decoded(), size=size)
        return web.Response()

    answer = await connect(succeed).ask("GET", "/x")

    assert answer.status == 200
    assert await asyncio.to_thread(went.wait, 10)
    assert freed == [in_a_thread]
