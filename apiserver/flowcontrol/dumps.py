"""Tables of levels, queues and requests, for people who ask why requests wait.

A table is made from a snapshot, so that a thread can print it: thousands of requests may wait. Texts that clients make up are cut,
because each cell is as wide as the longest one of its column.
Upstream: kubernetes/apiserver `pkg/util/flowcontrol/apf_controller_debug.go`.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence

from apiserver.flowcontrol.control import FlowControl, Level
from apiserver.flowcontrol.estimates import SEAT_SECONDS
from apiserver.flowcontrol.queueset import Queue, QueueSet, Ticket

CELL = 256
"""The most characters of a cell that a client makes up."""
LEAST_WIDTH = 8
MOST_IDLE_QUEUES = 1024
"""Idle queues of a level that are shown. A level may be configured with millions."""
NEVER = "0001-01-01T00:00:00Z"

LEVEL_COLUMNS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests",
    "RejectedRequests", "TimedoutRequests", "CancelledRequests",
)  # fmt: skip
QUEUE_COLUMNS = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum",
    "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
REQUEST_COLUMNS = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats",
    "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
DETAIL_COLUMNS = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")

Row = Sequence[str]
Table = Callable[[], str]
"""Prints a table, in any thread."""


def priority_levels(control: FlowControl) -> Table:
    """Return the table of all levels, by name."""
    rows = [LEVEL_COLUMNS, *(_level(name, level) for name, level in sorted(control.levels.items()))]
    return lambda: printed(rows)


def _level(name: str, level: Level) -> Row:
    queues = level.queues
    active = sum(1 for queue in queues.queues.values() if queue.waiting)
    numbers = queues.waiting, queues.executing, queues.dispatched, queues.rejected, 0, queues.cancelled
    return (name, str(active), _boolean(queues.idle), _boolean(level.quiescing), *map(str, numbers))


def queues(control: FlowControl) -> Table:
    """Return the table of all queues."""
    found = [(name, level.queues, dict(level.queues.queues)) for name, level in sorted(control.levels.items())]
    return lambda: printed([QUEUE_COLUMNS, *(row for one in found for row in _queues(*one))])


def _queues(name: str, level: QueueSet, made: dict[int, Queue]) -> Iterator[Row]:
    configured = 0 if level.queuing is None else level.queuing.queues
    idle = range(configured) if configured <= MOST_IDLE_QUEUES else ()
    for index in sorted({*made, *idle}):
        queue = made.get(index)
        if queue is None:
            yield name, str(index), "0", "0", "0", work(0), "0", "0", work(0)
            continue
        estimates = [ticket.estimate for ticket in list(queue.waiting)]
        yield (
            name,
            str(index),
            str(len(estimates)),
            str(len(queue.executing)),
            str(queue.seats),
            work(queue.next_r),
            str(sum(one.initial for one in estimates)),
            str(sum(one.seats for one in estimates)),
            work(sum(one.work for one in estimates)),
        )


def requests(control: FlowControl, *, details: bool) -> Table:
    """Return the table of all requests that wait or are served. `details` adds who asks for what."""
    found: list[tuple[str, int, int, Ticket]] = []
    for name, level in sorted(control.levels.items()):
        for index, queue in sorted(level.queues.queues.items()):
            found += ((name, index, place, ticket) for place, ticket in enumerate(queue.waiting))
            found += ((name, index, -1, ticket) for ticket in queue.executing)
        found += ((name, -1, -1, ticket) for ticket in level.queues.alone)
    offset = time.time_ns() - time.monotonic_ns()
    head = (*REQUEST_COLUMNS, *DETAIL_COLUMNS) if details else REQUEST_COLUMNS
    return lambda: printed([head, *(_request(*one, offset=offset, details=details) for one in found)])


def _request(name: str, queue: int, place: int, ticket: Ticket, *, offset: int, details: bool) -> Row:
    flow, estimate, info = ticket.flow, ticket.estimate, ticket.info
    row = (
        name,
        flow.schema.name,
        str(queue),
        str(place),
        cell(flow.distinguisher),
        _time(ticket.arrived + offset),
        str(estimate.initial),
        str(estimate.final),
        _duration(estimate.latency),
        _time(ticket.started + offset) if ticket.started else NEVER,
    )
    if not details:
        return row
    version = f"{info.group}/{info.version}" if info.group else info.version
    shown = ticket.user.name, info.verb, info.path, info.namespace, info.name, version, info.resource, info.subresource
    return (*row, *map(cell, shown))


def printed(rows: Sequence[Row]) -> str:
    """Print a table: columns as wide as their longest cell, whose comma counts."""
    widths = [max(LEAST_WIDTH, 2 + max(len(row[i]) for row in rows)) for i in range(len(rows[0]) - 1)]
    lines = (
        "".join(f"{text},".ljust(width) for text, width in zip(row, widths, strict=False)) + row[-1] for row in rows
    )
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Cut a text that a client made up, and escape what would break the table."""
    return text[:CELL].encode("unicode_escape", "backslashreplace").decode() if not text.isprintable() else text[:CELL]


def work(units: int) -> str:
    """Return an amount of work in seat-seconds, as upstream prints it."""
    return f"{units // SEAT_SECONDS}.{units % SEAT_SECONDS:08}ss"


def _time(nanoseconds: int) -> str:
    """Return a time as Go's RFC3339Nano."""
    seconds, rest = divmod(nanoseconds, 10**9)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _duration(nanoseconds: int) -> str:
    """Return a duration as Go prints it."""
    for unit, name in ((10**6, "µs"), (10**9, "ms")):
        if 0 < nanoseconds < unit:
            return f"{_decimal(nanoseconds, unit // 1000)}{name}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{before}{_decimal(rest, 10**9)}s"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") if rest else str(whole)


def _boolean(value: object) -> str:
    return "true" if value else "false"
