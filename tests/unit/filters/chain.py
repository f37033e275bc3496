"""Filters with a handler of the test's choice at their end."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

from aiohttp import web

from apiserver.apimachinery.request import User
from apiserver.filters.recover import recover
from apiserver.filters.request_info import request_info
from apiserver.filters.state import Handler, Request
from apiserver.runtime.workers import RENDERING
from apiserver.wire.response import BODY_LIMIT
from tests.fixtures.connection import Connection

V1 = "/apis/things.example.com/v1"
JANE = User("jane", groups=("devs", "system:authenticated"))
ADMIN = User("admin", groups=("system:masters", "system:authenticated"))


async def ok(_request: Request) -> web.StreamResponse:
    return web.Response(text="fine")


def ids() -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"id-{next(counter)}"


def outer(handler: Handler) -> Handler:
    """The filters outside every other one."""
    return recover(request_info(handler), new_id=ids(), body_limit=BODY_LIMIT, workers=RENDERING)


def as_user(handler: Handler, user: User) -> Handler:
    """In the place of authentication."""

    async def become(request: Request) -> web.StreamResponse:
        request.user = user
        return await handler(request)

    return become


def connect(handler: Callable[[Request], Awaitable[web.StreamResponse]]) -> Connection:
    return Connection(outer(handler))
