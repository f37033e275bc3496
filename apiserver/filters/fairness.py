"""Let requests wait for seats of their priority level, fairly among flows, or refuse them.

A watch keeps its seats until its initial events are sent. Watches have a limit of their own besides. Health checks never wait, whatever
the configuration says, because a busy server must not be killed.
Upstream: kubernetes/apiserver `pkg/server/filters/priority-and-fairness.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery import errors
from apiserver.config import config
from apiserver.filters import deadline
from apiserver.filters.inflight import FULL, READING, Bound, too_many
from apiserver.filters.state import Handler, Request
from apiserver.flowcontrol.control import FlowControl
from apiserver.flowcontrol.estimates import ONE, Estimator
from apiserver.flowcontrol.meters import KINDS
from apiserver.flowcontrol.queueset import Flow, Ticket, Verdict
from apiserver.flowcontrol.watches import Watches

READS, WRITES, WAITING = 0, 1, 2
"""Places in `meters.Kinds.counts`."""
WAIT_PART = 4
"""A request waits in its queue for at most this part of its time, as upstream."""
MOST_WAIT_SECONDS = 60.0
WAITING_BYTES = 64 << 20
"""Bytes of the heads of all waiting requests. Further ones are refused: a head may have a mebibyte, and queues hold thousands."""
HEAD_BYTES = 8 << 10
"""About what a waiting request takes besides its head: its objects and its task."""


def priority_and_fairness(
    handler: Handler,
    *,
    control: FlowControl,
    estimate: Estimator,
    watches: Watches,
    seconds: float,
    watching: Callable[[], int],
) -> Handler:
    """Serve requests as `control` decides. `seconds` is the time that a request has, `watching` returns the most watches."""
    open_watches, counts = Bound("watch", watching), control.kinds
    gate = Gate(control, seconds=seconds)

    async def fair(request: Request) -> web.StreamResponse:
        info = request.info
        flow = request.flow = control.flow_of(request.user, info)
        if info.probe:
            return await handler(request)
        if info.long_running:
            return await watch(request, flow)
        work = ONE if flow.level.exempt else estimate(info, request.exchange.query, flow.queues.most_of_request)
        if work.final:
            flow.meter.concerned(watches.concerned(info))
        ticket = control.start(flow, work, request.user, info)
        kind = READS if info.verb in READING else WRITES
        if ticket.verdict is Verdict.SERVED:
            flow.meter.served_at_once()
        else:
            await gate.pass_through(request, ticket, kind)
        counts.change(kind, 1)
        try:
            return await handler(request)
        finally:
            counts.change(kind, -1)
            flow.meter.served.observe(flow.queues.finish(ticket))

    async def watch(request: Request, flow: Flow) -> web.StreamResponse:
        """Serve a watch. It is in progress until it has begun."""
        info, exchange = request.info, request.exchange
        if open_watches.full and not flow.level.exempt:
            open_watches.drop()
            request.terminated = True
            raise errors.too_many_requests(FULL, retry_after=1)
        work = ONE if flow.level.exempt else estimate(info, exchange.query, flow.queues.most_of_request)
        ticket = control.start(flow, work, request.user, info)
        if ticket.verdict is Verdict.SERVED:
            flow.meter.served_at_once()
        else:
            await gate.pass_through(request, ticket, READS)

        def begun() -> None:
            if ticket.verdict is Verdict.SERVED:
                counts.change(READS, -1)
                flow.meter.watched(flow.queues.finish(ticket))

        counts.change(READS, 1)
        open_watches.used += 1
        exchange.begun = begun
        place = watches.opened(info, exchange.query)
        try:
            return await handler(request)
        finally:
            begun()
            open_watches.used -= 1
            watches.closed(place)

    return fair


class Gate:
    """Where requests wait for their turn. Their memory is limited. `seconds` is the time that a request has."""

    def __init__(self, control: FlowControl, *, seconds: float) -> None:
        self._control = control
        self._seconds = seconds
        self._bytes = 0
        self._dropped = [metrics.DROPPED.labels(kind) for kind in KINDS]

    async def pass_through(self, request: Request, ticket: Ticket, kind: int) -> None:
        """Wait until a request is served. Raises 429."""
        flow = ticket.flow
        try:
            if ticket.verdict is Verdict.WAITS:
                await self._wait(request, ticket, kind)
        finally:
            flow.queues.leave(ticket)
        if ticket.verdict is Verdict.SERVED:
            waited = (ticket.started - ticket.arrived) / 1e9
            flow.meter.waited.observe(waited)
            request.exchange.waits.seconds += waited
            return
        request.terminated = True
        self._dropped[kind].inc()
        raise too_many(self._control.refused(flow))

    async def _wait(self, request: Request, ticket: Ticket, kind: int) -> None:
        size = head_bytes(request)
        if self._bytes + size > WAITING_BYTES:
            return
        self._bytes += size
        self._control.kinds.change(WAITING + kind, 1)
        try:
            await turn(ticket, seconds=self._most_wait(request))
        finally:
            self._bytes -= size
            self._control.kinds.change(WAITING + kind, -1)

    def _most_wait(self, request: Request) -> float:
        """Return how long a request may wait. The time since its deadline was set counts."""
        info, exchange = request.info, request.exchange
        if info.long_running:
            return min(self._seconds / WAIT_PART, MOST_WAIT_SECONDS)
        allowed = self._seconds
        if "?" in request.raw_path:
            allowed = deadline.seconds_for(exchange.query, most=allowed)
        given = min(allowed, config.WRITE_SECONDS) if deadline.is_write(info) else allowed
        left = exchange.until - asyncio.get_running_loop().time()
        passed = max(0.0, given - left)
        return max(0.0, min(allowed / WAIT_PART, MOST_WAIT_SECONDS) - passed)


async def turn(ticket: Ticket, *, seconds: float) -> None:
    """Wait until a request is served, for at most so many seconds. A client that leaves gives its seats back."""
    loop = asyncio.get_running_loop()
    decision: asyncio.Future[None] = loop.create_future()

    def decide() -> None:
        if not decision.done():
            decision.set_result(None)

    ticket.decided = decide
    timer = loop.call_later(seconds, decide)
    try:
        await decision
    except BaseException:
        ticket.flow.queues.finish(ticket)  # it may have been served in the same turn of the loop
        raise
    finally:
        timer.cancel()


def head_bytes(request: Request) -> int:
    """Estimate the memory of a waiting request."""
    return HEAD_BYTES + len(request.raw_path) + sum(len(name) + len(value) for name, value in request.raw_headers)
