"""Limit the time of all requests except watches.

Upstream: kubernetes/apiserver `pkg/endpoints/filters/request_deadline.go`, `pkg/server/filters/timeout.go`,
`pkg/endpoints/handlers/rest.go` (the shorter limit of writes).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable

from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.request import Query, RequestInfo
from apiserver.config import config
from apiserver.filters.state import Handler, Request
from kubetext import durations

WRITES = frozenset({"create", "update", "patch", "delete"})
"""Verbs that write one object."""
LATE_READ = "request did not complete within the allotted timeout"
LATE_WRITE = "request did not complete within requested timeout - context deadline exceeded"


def deadline(handler: Handler, *, seconds: float) -> Handler:
    """Limit requests. `seconds` is the maximum for `?timeout=`, and the default."""
    reads, writes = Sweep(seconds), Sweep(min(seconds, config.WRITE_SECONDS))

    def limiting(request: Request) -> Awaitable[web.StreamResponse]:
        info = request.info
        if info.long_running:
            return handler(request)
        sweep = writes if is_write(info) else reads
        if "?" in request.raw_path:
            allowed = seconds_for(request.exchange.query, most=seconds)
            if allowed < sweep.seconds:
                return shorter(request, allowed)
        return sweep.bound(handler, request)

    async def shorter(request: Request, allowed: float) -> web.StreamResponse:
        with Sweep(allowed) as own:
            return await own.bound(handler, request)

    return limiting


class _Bounded:
    """One handler that is running."""

    __slots__ = ("born", "late", "task")

    def __init__(self, task: asyncio.Task[object], born: int) -> None:
        self.task = task
        self.born = born
        self.late = False


TICKS = 100
"""The steps of a limit: it is kept to a hundredth, and a handler that begins and ends within one step reads no clock."""


class Sweep:
    """One time limit for many handlers, with one timer for all: `asyncio.timeout` costs as much as the other filters together.

    Time is counted in ticks. All handlers have the same limit, so their ends come in the order of their beginnings, and checking the
    oldest is enough.
    """

    __slots__ = ("_now", "_running", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._now = 0
        self._running: dict[_Bounded, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def bound(self, handler: Handler, request: Request) -> web.StreamResponse:
        """Return the handler's response. When the time is over, cancel it and raise upstream's answer."""
        task = asyncio.current_task()
        assert task is not None
        mine = _Bounded(task, self._now)
        self._running[mine] = None
        loop = task.get_loop()
        request.exchange.until = loop.time() + self.seconds
        if self._timer is None:
            self._tick_later(loop)
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if mine.late and task.uncancel() == 0:
                request.terminated = True
                raise (late_write() if is_write(request.info) else late_read()) from None
            raise
        finally:
            del self._running[mine]

    def _tick_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.seconds / TICKS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel late handlers, and go on while a handler is running."""
        self._now += 1
        for oldest in self._running:
            if self._now - oldest.born <= TICKS:
                break
            if not oldest.late:
                oldest.late = True
                oldest.task.cancel()
        if self._running:
            self._tick_later(loop)
        else:
            self._timer = None


def is_write(info: RequestInfo) -> bool:
    return info.is_resource and info.verb in WRITES


def seconds_for(query: Query, *, most: float) -> float:
    """Return the client's `timeout` if it is shorter than `most`. Raises 400 for an invalid duration."""
    text = query.first("timeout")
    if not text:
        return most
    try:
        wanted = durations.parse(text)
    except ValueError as e:
        raise errors.bad_request(f"invalid timeout specified in the request URL - {e}") from None
    return wanted if 0 < wanted < most else most


def late_write() -> StatusError:
    """Make the answer of a write's handler. The write may still happen."""
    return errors.timeout(LATE_WRITE)


def late_read() -> TextError:
    """Make the answer of upstream's timeout filter: the bare Status, without kind and without negotiation; net/http then guesses
    text/plain.
    """
    status = errors.timeout(LATE_READ).status()
    bare = {name: value for name, value in status.items() if name not in ("kind", "apiVersion")}
    return TextError(504, json.dumps(bare, separators=(",", ":")) + "\n", nosniff=False)
