"""Count requests and seats of flows and levels, cheaply: scrapes read what the queues count anyway.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/metrics/metrics.go`, `pkg/util/flowcontrol/fairqueuing/integrator.go`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from apiserver import collectors, metrics
from apiserver.collectors import Distribution, Value

QUEUE_FULL, NO_SEAT, TIME_OUT = "queue-full", "concurrency-limit", "time-out"


class FlowMeter:
    """The metrics of one FlowSchema in one level."""

    __slots__ = (
        "_labels", "_refusals", "_waited_in_vain", "dispatched", "estimated", "executing", "executing_seats", "no_seat",
        "queue_length", "served", "waited", "waiting", "waiting_seats", "watches", "watching",
    )  # fmt: skip

    def __init__(self, level: str, schema: str) -> None:
        self._labels = labels = (level, schema)
        self.executing = self.executing_seats = self.waiting = self.waiting_seats = 0
        self.dispatched = 0
        self.estimated = metrics.FLOW_ESTIMATED_SEATS.labels(*labels)
        self.queue_length = metrics.FLOW_QUEUE_LENGTH.labels(*labels)
        self.waited = metrics.FLOW_WAIT_SECONDS.labels(*labels, "true")
        self.served = metrics.FLOW_EXECUTION_SECONDS.labels(*labels, "regular")
        self.watching: Distribution | None = None
        self.watches: Distribution | None = None
        self.no_seat: Value | None = None
        self._refusals: dict[str, Value] = {}
        self._waited_in_vain: Distribution | None = None
        for family, name in _GAUGES:
            family.labels(*labels).set_function(partial(getattr, self, name))

    @property
    def idle(self) -> bool:
        return not self.executing and not self.waiting and not self.executing_seats

    def entered_alone(self) -> None:
        """Note a request that nothing waited before."""
        lengths = self.queue_length
        lengths.counts[_ONE] += 1
        lengths.sum += 1

    def served_at_once(self) -> None:
        """Note a request that waited for nothing but a few microseconds."""
        self.waited.counts[1] += 1

    def refused(self, reason: str, waited: float) -> None:
        """Count a refused request, which has waited that many seconds."""
        found = self._refusals.get(reason)
        if found is None:
            found = self._refusals[reason] = metrics.FLOW_REJECTED.labels(*self._labels, reason)
        found.inc()
        if self._waited_in_vain is None:
            self._waited_in_vain = metrics.FLOW_WAIT_SECONDS.labels(*self._labels, "false")
        self._waited_in_vain.observe(waited)

    def watched(self, seconds: float) -> None:
        """Note how long a watch took until it had begun."""
        if self.watching is None:
            self.watching = metrics.FLOW_EXECUTION_SECONDS.labels(*self._labels, "watch")
        self.watching.observe(seconds)

    def concerned(self, watches: int) -> None:
        """Note how many watches a write concerns."""
        if self.watches is None:
            self.watches = metrics.FLOW_WATCH_COUNT.labels(*self._labels)
        self.watches.observe(watches)

    def found_no_seat(self) -> None:
        """Count that the next request of a queue needs more seats than are free."""
        if self.no_seat is None:
            self.no_seat = metrics.FLOW_NO_ACCOMMODATION.labels(*self._labels)
        self.no_seat.inc()


_ONE = bisect_left(metrics.QUEUE_LENGTHS, 1)
_GAUGES = (
    (metrics.FLOW_EXECUTING, "executing"),
    (metrics.FLOW_EXECUTING_SEATS, "executing_seats"),
    (metrics.FLOW_WAITING, "waiting"),
    (metrics.FLOW_WAITING_SEATS, "waiting_seats"),
    (metrics.FLOW_DISPATCHED, "dispatched"),
)


FLOWS = tuple(
    family
    for family in vars(metrics).values()
    if isinstance(family, collectors.Counter | collectors.Gauge | collectors.Histogram)
    and family.label_names[:2] == ("priority_level", "flow_schema")
)
LEVELS = tuple(
    family
    for family in vars(metrics).values()
    if isinstance(family, collectors.Gauge | collectors.Histogram)
    and family.label_names[:1] == ("priority_level",)
    and family not in FLOWS
)


def remove_flows(removed: Collection[tuple[str, ...]]) -> None:
    """Show schemas no longer, each by its level and name."""
    for family in FLOWS if removed else ():
        for labels, _ in family.children():
            if labels[:2] in removed:
                family.remove(*labels)


def remove_levels(removed: Collection[str]) -> None:
    """Show levels no longer."""
    for family in LEVELS if removed else ():
        for labels, _ in family.children():
            if labels[0] in removed:
                family.remove(*labels)


State = tuple[int, int, int, int]
"""The load of a level at a moment: requests that are served and that wait, seats in use and waited for."""


class Demand(NamedTuple):
    """The seats that a level could use, over a time: `seconds` is its length."""

    seconds: float
    average: float
    deviation: float
    most: int


class Occupancy:
    """How long a level was in each state. One count for each change is enough for all of its metrics and for borrowing."""

    __slots__ = ("_average", "_most", "_nanoseconds", "_square", "seats_limit", "spent", "waiting_limit")

    MOST = 512
    """States that are kept apart until they are added up."""

    def __init__(self) -> None:
        self.spent: dict[State, int] = {}
        self.seats_limit = self.waiting_limit = 1
        self._nanoseconds = self._most = 0
        self._average = self._square = 0.0

    def add_up(self, level: str, present: State) -> None:
        """Add what was spent to the metrics of the level. `present` is the state now."""
        seats = metrics.LEVEL_SEATS.labels(level, "executing")
        executing = metrics.LEVEL_REQUESTS.labels(level, "executing")
        waiting = metrics.LEVEL_REQUESTS.labels(level, "waiting")
        demanded = metrics.LEVEL_DEMAND.labels(level)
        for state, nanoseconds in _and(self.spent, present):
            demand = state[2] + state[3]
            self._most = max(self._most, demand)
            self._nanoseconds += nanoseconds
            self._average += demand * nanoseconds
            self._square += demand * demand * nanoseconds
            seats.observe_for(state[2] / self.seats_limit, nanoseconds)
            executing.observe_for(state[0] / self.seats_limit, nanoseconds)
            waiting.observe_for(state[1] / self.waiting_limit, nanoseconds)
            demanded.observe_for(demand / self.seats_limit, nanoseconds)
        self.spent.clear()

    def demand(self, present: State) -> Demand:
        """Return the demand since the last call."""
        time = self._nanoseconds
        average = self._average / time if time else 0.0
        deviation = math.sqrt(max(0.0, self._square / time - average * average)) if time else 0.0
        found = Demand(time / 1e9, average, deviation, self._most)
        self._nanoseconds, self._average, self._square = 0, 0.0, 0.0
        self._most = present[2] + present[3]
        return found


def _and(spent: dict[State, int], present: State) -> Iterator[tuple[State, int]]:
    yield from spent.items()
    yield present, 0


class Kinds:
    """Requests by kind: how many are served and wait, now and over time. `limits` returns how many may be served and may wait."""

    __slots__ = ("_at", "_clock", "_limits", "_spent", "counts")

    MOST = 512

    def __init__(self, clock: Callable[[], int], limits: Callable[[], tuple[int, int]]) -> None:
        self.counts = [0, 0, 0, 0]
        """Reads and writes that are served, reads and writes that wait."""
        self._clock, self._limits = clock, limits
        self._at = clock()
        self._spent: dict[State, int] = {}
        for at, kind in enumerate(KINDS):
            metrics.IN_FLIGHT.labels(kind).set_function(partial(self.counts.__getitem__, at))
            metrics.IN_QUEUE.labels(kind).set_function(partial(self.counts.__getitem__, 2 + at))

    def change(self, at: int, by: int) -> None:
        """Count one more or less, after the time that passed in the former state."""
        now = self._clock()
        reads, writes, waiting_reads, waiting_writes = self.counts
        state, spent = (reads, writes, waiting_reads, waiting_writes), self._spent
        spent[state] = spent.get(state, 0) + now - self._at
        self._at = now
        self.counts[at] += by
        if len(spent) > self.MOST:
            self.add_up()

    def add_up(self) -> None:
        """Add the time of each state to the metric."""
        most = self._limits()
        for phase, name in enumerate(("executing", "waiting")):
            for kind, label in enumerate(KINDS):
                child = metrics.READ_WRITE_REQUESTS.labels(name, label)
                for state, nanoseconds in self._spent.items():
                    child.observe_for(state[2 * phase + kind] / (most[phase] or 1), nanoseconds)
        self._spent.clear()


KINDS = ("readOnly", "mutating")
