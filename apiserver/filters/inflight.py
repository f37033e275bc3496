"""Limit how many requests are served at a time, reads and writes apart.

Watches have a limit of their own and none per user: one service account may hold the watches of all nodes. Health checks have no limit,
because a busy server must not be killed. Upstream: kubernetes/apiserver `pkg/server/filters/maxinflight.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import TextError
from apiserver.apimachinery.request import MASTERS
from apiserver.filters.state import Handler, Request

READING = frozenset({"get", "list", "watch"})
FULL = "Too many requests, please try again later."


class Bound:
    """The requests of one class that are being served. A limit of 0 is no limit. It may change."""

    __slots__ = ("_dropped", "limit", "used")

    def __init__(self, kind: str, limit: Callable[[], int]) -> None:
        self.limit = limit
        self.used = 0
        self._dropped = metrics.DROPPED.labels(kind)

    @property
    def full(self) -> bool:
        return 0 < self.limit() <= self.used

    def drop(self) -> None:
        self._dropped.inc()


def inflight(
    handler: Handler, *, reading: Callable[[], int], writing: Callable[[], int], watching: Callable[[], int]
) -> Handler:
    """Limit reads, writes and watches."""
    reads, writes, watches = Bound("readOnly", reading), Bound("mutating", writing), Bound("watch", watching)
    metrics.IN_FLIGHT.labels("readOnly").set_function(lambda: reads.used)
    metrics.IN_FLIGHT.labels("mutating").set_function(lambda: writes.used)

    async def bounding(request: Request) -> web.StreamResponse:
        info = request.info
        if not info.is_resource and info.probe:
            return await handler(request)
        watch = info.long_running
        bound = watches if watch else reads if info.verb in READING else writes
        if bound.full:
            if MASTERS in request.user.groups:
                return await handler(request)
            bound.drop()
            request.terminated = True
            raise errors.too_many_requests(FULL, retry_after=1) if watch else too_many()
        bound.used += 1
        try:
            return await handler(request)
        finally:
            bound.used -= 1

    return bounding


def too_many(retry_after: int = 1) -> TextError:
    return TextError(429, FULL + "\n", headers={"Retry-After": str(retry_after)})
