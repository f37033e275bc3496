"""Too much at a time is 429, for reads and writes apart."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from apiserver.apimachinery.request import User
from apiserver.filters.inflight import inflight
from apiserver.filters.state import Handler, Request
from tests.fixtures.connection import Connection
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect, outer


class Gate:
    """A handler that answers when the test lets it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.inside = 0

    async def __call__(self, _request: Request) -> web.StreamResponse:
        self.inside += 1
        self.entered.set()
        await self.open.wait()
        return web.Response(text="fine")


async def occupy(handler: Handler, gate: Gate, method: str, path: str) -> Connection:
    """A request that is being served until the gate opens."""
    connection = Connection(outer(handler))
    gate.entered.clear()
    connection.feed(f"{method} {path} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    await gate.entered.wait()
    return connection


def limited(gate: Gate, user: User = JANE, *, reading: int = 1, writing: int = 1, watching: int = 1) -> Handler:
    return as_user(inflight(gate, reading=lambda: reading, writing=lambda: writing, watching=lambda: watching), user)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", f"{V1}/nodes"), ("GET", "/version"), ("POST", f"{V1}/nodes"), ("HEAD", "/version")]
)
async def test_one_too_many_is_429_in_upstreams_words(method: str, path: str) -> None:
    gate = Gate()
    handler = limited(gate)
    first = await occupy(handler, gate, method, path)
    refused = await connect(handler).ask(method if method != "HEAD" else "PUT", path)
    assert (refused.status, refused.text) == (429, "Too many requests, please try again later.\n")
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["X-Content-Type-Options"] == "nosniff"
    assert refused.headers["Content-Type"] == "text/plain; charset=utf-8"
    gate.open.set()
    assert (await first.answer(head_only=method == "HEAD")).status == 200
    assert (await connect(handler).ask("GET", path)).status == 200


async def test_changed_limit_applies_to_the_next_request() -> None:
    gate, limits = Gate(), [1]
    handler = as_user(inflight(gate, reading=lambda: limits[0], writing=lambda: 1, watching=lambda: 1), JANE)
    await occupy(handler, gate, "GET", f"{V1}/nodes")
    assert (await connect(handler).ask("GET", f"{V1}/nodes")).status == 429
    limits[0] = 2
    await occupy(handler, gate, "GET", f"{V1}/nodes")
    assert gate.inside == 2
    gate.open.set()


async def test_reads_and_writes_do_not_stand_in_each_others_way() -> None:
    gate = Gate()
    handler = limited(gate)
    await occupy(handler, gate, "GET", f"{V1}/nodes")
    await occupy(handler, gate, "DELETE", f"{V1}/nodes")
    await occupy(handler, gate, "GET", f"{V1}/nodes?watch=1")
    assert gate.inside == 3
    gate.open.set()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz?verbose"])
async def test_health_check_passes_full_limits_and_takes_no_place(path: str) -> None:
    gate = Gate()
    handler = limited(gate)
    for method, other in (("GET", f"{V1}/nodes"), ("POST", f"{V1}/nodes"), ("GET", f"{V1}/nodes?watch=1")):
        await occupy(handler, gate, method, other)
    await occupy(handler, gate, "GET", path)
    await occupy(handler, gate, "GET", path)
    assert gate.inside == 5
    gate.open.set()


async def test_path_that_only_ends_like_a_health_check_is_limited() -> None:
    gate = Gate()
    handler = limited(gate)
    await occupy(handler, gate, "GET", f"{V1}/nodes")
    assert (await connect(handler).ask("GET", f"{V1}/livez")).status == 429
    gate.open.set()


async def test_administrators_pass_full_limits() -> None:
    gate = Gate()
    bounded = inflight(gate, reading=lambda: 1, writing=lambda: 1, watching=lambda: 1)
    await occupy(as_user(bounded, JANE), gate, "GET", f"{V1}/nodes")
    await occupy(as_user(bounded, ADMIN), gate, "GET", f"{V1}/nodes")
    assert gate.inside == 2
    gate.open.set()


async def test_watches_have_a_limit_of_their_own_and_informers_obey_its_429() -> None:
    gate = Gate()
    handler = limited(gate, reading=1)
    await occupy(handler, gate, "GET", f"{V1}/nodes?watch=1")
    answer = await connect(handler).ask("GET", f"{V1}/nodes?watch=1")
    assert (answer.status, answer.json["reason"], answer.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    gate.open.set()


async def test_a_client_that_leaves_frees_its_place() -> None:
    gate = Gate()
    handler = limited(gate)
    first = await occupy(handler, gate, "GET", f"{V1}/nodes")
    await first.close()
    await occupy(handler, gate, "GET", f"{V1}/nodes")
    gate.open.set()


async def test_zero_is_no_limit() -> None:
    gate = Gate()
    handler = limited(gate, reading=0)
    for _ in range(5):
        await occupy(handler, gate, "GET", f"{V1}/nodes")
    gate.open.set()
