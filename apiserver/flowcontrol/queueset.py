"""The queues of one priority level: who is served next, by fair queuing in virtual time.

Each active queue gets the same share of the level's seats. A queue's progress is the virtual time at which its next request would begin.
The queue whose next request would end first is served. Queues exist only while they have requests, so their configured number costs
nothing, and choosing one costs the logarithm of the number of waiting queues.
Upstream: kubernetes/apiserver `pkg/util/flowcontrol/fairqueuing/queueset/{doc,queueset}.go`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from apiserver.apimachinery.request import RequestInfo, User
from apiserver.flowcontrol import meters, shufflesharding
from apiserver.flowcontrol.estimates import SERVICE_NANOSECONDS, UNIT_NANOSECONDS, Estimate
from apiserver.flowcontrol.meters import FlowMeter, Occupancy
from apiserver.flowcontrol.types import FlowSchema, PriorityLevel, Queuing

Clock = Callable[[], int]
"""Nanoseconds of a clock that never goes back."""
Later = Callable[[float, Callable[[], None]], object]
"""Call a function after some seconds."""
KEPT_QUEUES = 1024
"""Queues below this number stay when they are empty: making one costs as much as serving a request."""
MOST_STALE = 64
"""Entries of the order that may be out of date, besides four for each queue."""


class Verdict(Enum):
    """The state of a request in its level."""

    SERVED = "served"
    WAITS = "waits"
    REFUSED = "refused"
    ENDED = "ended"


class Flow:
    """A flow of requests: those of a schema that one user sends, or that concern one namespace. `hand` are its queues."""

    __slots__ = ("distinguisher", "hand", "level", "meter", "queues", "schema")

    def __init__(
        self, schema: FlowSchema, level: PriorityLevel, *, queues: QueueSet, distinguisher: str, meter: FlowMeter
    ) -> None:
        self.schema = schema
        self.level = level
        self.queues = queues
        self.meter = meter
        queuing = level.queuing
        several = queuing is not None and queuing.queues > 1
        self.distinguisher = distinguisher if several else ""
        self.hand: Sequence[int] = ()
        if queuing is not None:
            value = shufflesharding.flow_hash(schema.name, distinguisher) if several else 0
            self.hand = shufflesharding.deal(value, queuing.queues, queuing.hand)


class Ticket:
    """A request in a level. `decided` is called once when a waiting request may be served.

    `arrived` and `started` are nanoseconds of the level's clock; `arrived_r` is virtual time.
    """

    __slots__ = ("arrived", "arrived_r", "decided", "estimate", "flow", "info", "queue", "started", "user", "verdict")

    def __init__(self, flow: Flow, estimate: Estimate, user: User, info: RequestInfo) -> None:
        self.flow = flow
        self.estimate = estimate
        self.user = user
        self.info = info
        self.arrived = self.arrived_r = self.started = 0
        self.queue: Queue | None = None
        self.decided: Callable[[], None] | None = None
        self.verdict = Verdict.REFUSED


class Queue:
    """Requests of the flows that were dealt this queue. `next_r` is the virtual time at which its next request begins."""

    __slots__ = ("executing", "index", "next_r", "seats", "stamp", "turn", "waiting", "work")

    def __init__(self, index: int, next_r: int) -> None:
        self.index = index
        self.next_r = next_r
        self.waiting: OrderedDict[Ticket, None] = OrderedDict()
        self.executing: set[Ticket] = set()
        self.seats = 0
        self.work = 0
        self.stamp = 0
        self.turn = 0

    @property
    def active(self) -> bool:
        return bool(self.waiting or self.executing)


class QueueSet:
    """A level at work. Used on the event loop only.

    `queuing`: None refuses what finds no seat. `exempt`: everything is served at once. `limit`: seats that may be in use.
    """

    def __init__(
        self, name: str, *, queuing: Queuing | None, exempt: bool, clock: Clock, later: Later, limit: int = 0
    ) -> None:
        self.name = name
        self.queuing = queuing
        self.exempt = exempt
        self.limit = limit
        self.most_of_request = 0
        """The most seats of one request, 0 if it may have all."""
        self.queues: dict[int, Queue] = {}
        self.alone: set[Ticket] = set()
        """Requests that are served without a queue."""
        self.executing = self.waiting = self.seats = self.seats_waiting = 0
        self.dispatched = self.rejected = self.cancelled = 0
        self.current_r = self.dispatched_r = self.latest_s = 0
        self.occupancy = Occupancy()
        self._spent = self.occupancy.spent
        self._clock, self._later = clock, later
        self._at = clock()
        self._active = 0
        self._enqueued = self._stamps = 0
        self._order: list[tuple[int, int, int, Queue]] = []

    @property
    def idle(self) -> bool:
        return not self.executing and not self.waiting

    @property
    def state(self) -> tuple[int, int, int, int]:
        return self.executing, self.waiting, self.seats, self.seats_waiting

    def configure(self, queuing: Queuing | None, limit: int) -> None:
        """Change the queues and the limit. Requests stay where they are."""
        self.advance()
        self.queuing = queuing
        self.limit = limit
        self._dispatch_all()

    # ------------------------------------------------------------------------------------------------------------ a request

    def start(self, ticket: Ticket) -> None:
        """Take a request in, and decide: it is served, waits, or is refused."""
        now = ticket.arrived = self.advance()
        ticket.arrived_r = self.current_r
        flow, seats = ticket.flow, ticket.estimate.seats
        if not flow.hand:
            if self._has_room_for(seats):
                self.alone.add(ticket)
                self._serve(ticket, now)
            else:
                self._refuse(ticket, meters.NO_SEAT)
            return
        queue = self._choose(flow.hand)
        if not self.waiting and self.seats < self.limit and self._has_room_for(seats):
            flow.meter.entered_alone()
            if not queue.executing:
                self._active += 1
                queue.next_r = self.current_r
            elif queue.next_r < self.current_r:
                queue.next_r = self.current_r
            ticket.queue = queue
            self._serve(ticket, now)
        elif self.seats >= self.limit and self.queuing is not None and len(queue.waiting) >= self.queuing.length:
            self._refuse(ticket, meters.QUEUE_FULL)
        else:
            ticket.verdict = Verdict.WAITS
            self._enqueue(ticket, queue)
            self._dispatch_all()

    def leave(self, ticket: Ticket) -> None:
        """Take a waiting request out: it has waited too long, or its client has left."""
        queue = ticket.queue
        if ticket.verdict is not Verdict.WAITS or queue is None:
            return
        now = self.advance()
        self._remove(ticket, queue)
        self.cancelled += 1
        self._refuse(ticket, meters.TIME_OUT, waited=(now - ticket.arrived) / 1e9)
        if queue.waiting:
            self._bound(queue)
        elif not queue.executing:
            self._active -= 1
            self._drop_if_unused(queue)
        self._dispatch_all()

    def finish(self, ticket: Ticket) -> float:
        """End a request that was served. Return the seconds that it took. A second call does nothing."""
        if ticket.verdict is not Verdict.SERVED:
            return 0.0
        ticket.verdict = Verdict.ENDED
        now = self.advance()
        served = now - ticket.started
        queue, estimate, meter = ticket.queue, ticket.estimate, ticket.flow.meter
        self.executing -= 1
        meter.executing -= 1
        if queue is None:
            self.alone.discard(ticket)
        else:
            queue.executing.discard(ticket)
            queue.next_r -= estimate.initial * (SERVICE_NANOSECONDS - served) // UNIT_NANOSECONDS
            if queue.waiting:
                self._bound(queue)
            elif not queue.executing:
                self._active -= 1
        if estimate.latency > 0:
            self._later(estimate.latency / 1e9, partial(self._release_later, ticket))
        else:
            self._release(ticket)
        if self.waiting:
            self._dispatch_all()
        return served / 1e9

    def _release_later(self, ticket: Ticket) -> None:
        self.advance()
        self._release(ticket)
        self._dispatch_all()

    def _release(self, ticket: Ticket) -> None:
        seats, queue = ticket.estimate.seats, ticket.queue
        self.seats -= seats
        ticket.flow.meter.executing_seats -= seats
        if queue is not None:
            queue.seats -= seats
            if queue.index >= KEPT_QUEUES:
                self._drop_if_unused(queue)

    def _refuse(self, ticket: Ticket, reason: str, *, waited: float = 0.0) -> None:
        ticket.verdict = Verdict.REFUSED
        self.rejected += 1
        ticket.flow.meter.refused(reason, waited)

    # ------------------------------------------------------------------------------------------------------------ time

    def advance(self) -> int:
        """Let virtual time pass until now, in the state that the level had since the last call. Return the time."""
        now = self._clock()
        passed = now - self._at
        self._at = now
        if self._active:
            rate = min(self.seats + self.seats_waiting, self.limit)
            self.current_r += rate * passed // (self._active * UNIT_NANOSECONDS)
        spent = self._spent
        state = (self.executing, self.waiting, self.seats, self.seats_waiting)
        if state in spent:
            spent[state] += passed
        else:
            spent[state] = passed
            if len(spent) > Occupancy.MOST:
                self.occupancy.add_up(self.name, state)
        return now

    # ------------------------------------------------------------------------------------------------------------ queues

    def _choose(self, hand: Sequence[int]) -> Queue:
        """Return the queue with the least waiting work. Ties are broken in turn, so that flows with common queues do not meet."""
        self._enqueued = enqueued = self._enqueued + 1
        offset = enqueued % len(hand)
        queues = self.queues
        best = hand[offset]
        if self.waiting:
            least = -1
            for index in (*hand[offset:], *hand[:offset]):
                queue = queues.get(index)
                work = 0 if queue is None else queue.work
                if least < 0 or work < least:
                    least, best = work, index
                if not work:
                    break
        found = queues.get(best)
        if found is None:
            found = queues[best] = Queue(best, self.current_r)
        return found

    def _drop_if_unused(self, queue: Queue) -> None:
        if queue.index >= KEPT_QUEUES and not queue.waiting and not queue.executing and not queue.seats:
            self.queues.pop(queue.index, None)

    def _enqueue(self, ticket: Ticket, queue: Queue) -> None:
        if not queue.active:
            self._active += 1
            queue.next_r = self.current_r
        estimate, meter = ticket.estimate, ticket.flow.meter
        ticket.queue = queue
        queue.waiting[ticket] = None
        queue.work += estimate.work
        self.waiting += 1
        self.seats_waiting += estimate.seats
        meter.waiting += 1
        meter.waiting_seats += estimate.seats
        meter.queue_length.observe(len(queue.waiting))
        self._bound(queue)

    def _remove(self, ticket: Ticket, queue: Queue) -> None:
        estimate, meter = ticket.estimate, ticket.flow.meter
        del queue.waiting[ticket]
        queue.work -= estimate.work
        self.waiting -= 1
        self.seats_waiting -= estimate.seats
        meter.waiting -= 1
        meter.waiting_seats -= estimate.seats

    def _bound(self, queue: Queue) -> None:
        """Let the next request of a queue not begin before it came: a queue that asks for little must not save up time. Put the queue in
        its place."""
        head = next(iter(queue.waiting))
        queue.next_r = max(queue.next_r, head.arrived_r)
        self._stamps += 1
        queue.stamp = self._stamps
        heapq.heappush(self._order, (queue.next_r + head.estimate.work, queue.turn, queue.stamp, queue))
        if len(self._order) > MOST_STALE + 4 * len(self.queues):
            self._order = [entry for entry in self._order if entry[3].stamp == entry[2] and entry[3].waiting]
            heapq.heapify(self._order)

    def _first(self) -> Queue | None:
        """Return the queue whose next request would end first."""
        order = self._order
        while order:
            _, _, stamp, queue = order[0]
            if queue.stamp == stamp and queue.waiting:
                return queue
            heapq.heappop(order)
        return None

    # ------------------------------------------------------------------------------------------------------------ seats

    def _has_room_for(self, seats: int) -> bool:
        """Return whether a request may be served now. One that needs more seats than there are is served alone."""
        return self.exempt or self.seats + seats <= self.limit or (seats > self.limit and not self.executing)

    def _dispatch_all(self) -> None:
        """Serve waiting requests while there are seats."""
        while self.waiting and self.seats < self.limit:
            queue = self._first()
            if queue is None:
                return
            ticket = next(iter(queue.waiting))
            if not self._has_room_for(ticket.estimate.seats):
                ticket.flow.meter.found_no_seat()
                return
            self._remove(ticket, queue)
            self._serve(ticket, self._at)
            if queue.waiting:
                self._bound(queue)
            if ticket.decided is not None:
                ticket.decided()

    def _serve(self, ticket: Ticket, now: int) -> None:
        estimate, queue, meter = ticket.estimate, ticket.queue, ticket.flow.meter
        if estimate.final > self.limit > 0:
            estimate = ticket.estimate = estimate.within(self.limit)
        seats = estimate.seats
        if queue is not None:
            self.dispatched_r, self.latest_s = self.current_r, queue.next_r
            queue.turn = self.dispatched
            queue.executing.add(ticket)
            queue.seats += seats
            queue.next_r += estimate.work
        ticket.verdict = Verdict.SERVED
        ticket.started = now
        self.executing += 1
        self.seats += seats
        self.dispatched += 1
        meter.executing += 1
        meter.executing_seats += seats
        meter.dispatched += 1
