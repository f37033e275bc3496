"""Knows what is being served and, once the server stops, keeps new watches away so that the old ones can end well.

A watch that meets anything but 429 after a clean end makes an informer list everything again. Every other
request is served to the end, with `Connection: close`.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.filters.state import Handler, Request

STOPPING = "the server is shutting down, please try again"


class Drain:
    """Counts requests being served. Used on the event loop only."""

    __slots__ = ("_changed", "requests", "stopping", "watches")

    def __init__(self) -> None:
        self.requests = 0
        self.watches = 0
        self.stopping = False
        self._changed: asyncio.Event | None = None

    def stop(self) -> None:
        """From now on watches are refused and connections end with their response."""
        self.stopping = True

    def left(self) -> None:
        """Somebody has been served."""
        if self._changed is not None:
            self._changed.set()

    async def idle(self) -> None:
        """Returns once nothing is being served."""
        while self.requests or self.watches:
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()


def drain(handler: Handler, *, state: Drain) -> Handler:
    async def draining(request: Request) -> web.StreamResponse:
        watch = request.info.long_running
        if state.stopping:
            request.last = True
            if watch:
                raise errors.too_many_requests(STOPPING, retry_after=1)
        if watch:
            state.watches += 1
        else:
            state.requests += 1
        try:
            return await handler(request)
        finally:
            if watch:
                state.watches -= 1
            else:
                state.requests -= 1
            state.left()

    return draining
