"""Count the requests being served and, once the server stops, refuse new watches so that the old ones can end cleanly.

After a clean end, an informer that gets anything but 429 for its next watch lists everything again. Every other request is served to
the end, with `Connection: close`.

If a successor listens on the same socket, new watches belong to it. On a kept connection a watch gets no answer. HTTP clients repeat a
GET whose kept connection ended, on a new connection, and kube-apiserver's aggregator does so for its clients. They do not repeat a
request on a new connection. So the first watch on a connection is served, and ends cleanly with the others. RFC 9112, section 9.3.1;
golang/go `src/net/http/transport.go` shouldRetryRequest.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.filters.state import Handler, Request

STOPPING = "the server is shutting down, please try again"


class LeftToSuccessor(ConnectionError):
    """The connection ends without an answer, and the client's next one reaches the successor."""


class Drain:
    """Counts requests being served. Used on the event loop only. `handed_over`: a successor accepts connections."""

    __slots__ = ("_changed", "handed_over", "requests", "stopping", "watches")

    def __init__(self) -> None:
        self.requests = 0
        self.watches = 0
        self.stopping = self.handed_over = False
        self._changed: asyncio.Event | None = None

    def stop(self, *, handed_over: bool) -> None:
        """From now on, refuse watches or leave them to a successor, and end connections with their response."""
        self.stopping = True
        self.handed_over = handed_over

    def left(self) -> None:
        """Note that a request has been served."""
        if self._changed is not None:
            self._changed.set()

    async def idle(self, *, watches: bool = True) -> None:
        """Wait until no request is being served. Without `watches`, these may go on."""
        while self.requests or (watches and self.watches):
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()


def drain(handler: Handler, *, state: Drain) -> Handler:
    async def draining(request: Request) -> web.StreamResponse:
        watch = request.info.long_running
        if state.stopping:
            request.last = True
            if watch and state.handed_over and request.kept:
                raise LeftToSuccessor
            if watch and not state.handed_over:
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
