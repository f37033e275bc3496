"""Flow control of a process: the configuration in force, the levels with their queues, and the seats that levels lend each other.

Every change of the configuration is digested as a whole. A level that is no longer configured stays until its last request is served.
Upstream: kubernetes/apiserver `pkg/util/flowcontrol/{apf_controller,apf_filter}.go`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from apiserver import metrics
from apiserver.apimachinery.request import RequestInfo, User
from apiserver.flowcontrol import allocation, bootstrap, classification, meters, shufflesharding
from apiserver.flowcontrol.allocation import Claim, Impossible
from apiserver.flowcontrol.estimates import SEAT_SECONDS, SERVICE_NANOSECONDS, UNIT_NANOSECONDS, Estimate
from apiserver.flowcontrol.meters import FlowMeter
from apiserver.flowcontrol.queueset import Flow, QueueSet, Ticket
from apiserver.flowcontrol.retry_after import RetryAfter
from apiserver.flowcontrol.types import FlowSchema, PriorityLevel

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
"""How often limits are adjusted to demand, as upstream."""
SMOOTHING = 0.977
"""The part of a former demand that counts after a period, as upstream: half of it after 5 minutes."""
MOST_OF_A_LEVEL = 0.15
"""The part of a level's seats that one request may take, as upstream."""
REMEMBERED_FLOWS, REMEMBERED_LENGTH, REMEMBERED_GROUPS = 4096, 512, 32
"""Limits of the cache of flows, about 4 MiB: entries, characters of what clients make up, groups of a user."""

Schemas = Sequence[FlowSchema]


class Level:
    """A priority level in force. `nominal`, `lower`, `upper` and `current` are numbers of seats."""

    __slots__ = (
        "config", "current", "lower", "nominal", "queues", "quiescing", "retry_after", "smoothed", "upper",
    )  # fmt: skip

    def __init__(self, config: PriorityLevel, queues: QueueSet) -> None:
        self.config = config
        self.queues = queues
        self.nominal = self.lower = self.upper = self.current = 0
        self.smoothed = 0.0
        self.quiescing = False
        self.retry_after = RetryAfter()


class FlowControl:
    """`seats` returns the number of requests that the server serves at a time, without those of exempt levels. It may change.

    It begins with the default configuration. Used on the event loop only.
    """

    def __init__(
        self,
        seats: Callable[[], int],
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._seats = seats
        self._total = seats()
        self.levels: dict[str, Level] = {}
        self._clock = clock
        self._later = _on_the_loop if later is None else later
        self._schemas: Schemas = ()
        self._meters: dict[tuple[str, str], FlowMeter] = {}
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._nominal_sum = 0
        self._ticking = False
        self.kinds = meters.Kinds(clock, self._limits_of_kinds)
        self.configure(bootstrap.SCHEMAS, bootstrap.LEVELS)

    # ------------------------------------------------------------------------------------------------------------ a request

    def flow_of(self, user: User, info: RequestInfo) -> Flow:
        """Return the flow of a request. Flows that come again are cached."""
        key: tuple[object, ...]
        if info.is_resource:
            made_up = info.namespace
            key = (user.name, user.groups, info.verb, info.group, info.resource, info.subresource, made_up)
        else:
            made_up = info.path
            key = (user.name, user.groups, info.verb, made_up)
        found = self._flows.get(key)
        if found is not None:
            return found
        found = self._made_flow(user, info)
        told = (user.name, made_up, info.verb, info.group, info.resource, info.subresource, *user.groups)
        if sum(map(len, told)) <= REMEMBERED_LENGTH and len(user.groups) <= REMEMBERED_GROUPS:
            if len(self._flows) >= REMEMBERED_FLOWS:
                del self._flows[next(iter(self._flows))]
            self._flows[key] = found
        return found

    def _made_flow(self, user: User, info: RequestInfo) -> Flow:
        schema = classification.schema_for(self._schemas, user, info)
        meter = self._meters.get((schema.level, schema.name))
        if meter is None:
            meter = self._meters[schema.level, schema.name] = FlowMeter(schema.level, schema.name)
        distinguisher = classification.distinguisher_of(schema, user, info)
        level = self.levels[schema.level]
        return Flow(schema, level.config, queues=level.queues, distinguisher=distinguisher, meter=meter)

    def start(self, flow: Flow, estimate: Estimate, user: User, info: RequestInfo) -> Ticket:
        """Take in a request. One that is served, now or when `Ticket.decided` is called, must be finished."""
        if not self._ticking:
            self._ticking = True
            self._later(PERIOD_SECONDS, self._tick)
        ticket = Ticket(flow, estimate, user, info)
        flow.meter.estimated.observe(estimate.seats)
        flow.queues.start(ticket)
        return ticket

    def refused(self, flow: Flow) -> int:
        """Note that a request got 429. Return the seconds after which its client should try again."""
        level = self.levels.get(flow.level.name)
        found = RetryAfter() if level is None else level.retry_after
        found.refused(int(self._clock() // 10**9) + 100)
        return found.seconds

    def _limits_of_kinds(self) -> tuple[int, int]:
        queues = (level.config.queuing for level in self.levels.values())
        return self._nominal_sum, sum(found.queues * found.length for found in queues if found is not None)

    # ------------------------------------------------------------------------------------------------------------ configuration

    def configure(self, schemas: Iterable[FlowSchema], levels: Iterable[PriorityLevel]) -> None:
        """Put a configuration in force. Levels whose queues cannot be dealt are ignored, and schemas without a level."""
        wanted = {one.name: one for one in levels if _usable(one)}
        in_force = dict(self.levels)
        self._schemas = classification.in_order(schemas, wanted)
        for mandatory in (bootstrap.EXEMPT_LEVEL, bootstrap.CATCH_ALL_LEVEL):
            if mandatory.name not in wanted:
                kept = in_force.get(mandatory.name)
                wanted[mandatory.name] = mandatory if kept is None else kept.config
        for name, level in in_force.items():
            level.quiescing = name not in wanted
        self._remove_idle()
        for name, config in wanted.items():
            present = in_force.get(name)
            if present is None:
                self.levels[name] = Level(config, self._queues(config))
            else:
                present.config = config
        self._flows.clear()
        self._forget_meters()
        self._share()
        self._adjust()

    def _queues(self, config: PriorityLevel) -> QueueSet:
        made = QueueSet(config.name, queuing=config.queuing, exempt=config.exempt, clock=self._clock, later=self._later)
        name = config.name
        metrics.LEVEL_CURRENT_R.labels(name).set_function(lambda: made.current_r / SEAT_SECONDS)
        metrics.LEVEL_DISPATCH_R.labels(name).set_function(lambda: made.dispatched_r / SEAT_SECONDS)
        metrics.LEVEL_LATEST_S.labels(name).set_function(lambda: made.latest_s / SEAT_SECONDS)
        for bound, choose in (("min", min), ("max", max)):
            for family, discounts in ((metrics.LEVEL_NEXT_S, False), (metrics.LEVEL_NEXT_DISCOUNTED_S, True)):
                family.labels(name, bound).set_function(partial(_bound, made, choose, discounts=discounts))
        return made

    def _forget_meters(self) -> None:
        """Show schemas no longer that are neither in force nor in use."""
        in_force = {(schema.level, schema.name) for schema in self._schemas}
        removed = {labels for labels, meter in self._meters.items() if labels not in in_force and meter.idle}
        for labels in removed:
            del self._meters[labels]
        meters.remove_flows(removed)

    def _share(self) -> None:
        """Give each level its share of the seats, rounded up."""
        self._total = self._seats()
        shares = sum(level.config.shares for level in self.levels.values())
        self._nominal_sum = 0
        for name, level in self.levels.items():
            config, queuing = level.config, level.config.queuing
            first = not level.upper
            nominal = math.ceil(self._total * config.shares / shares) if shares else 0
            lendable = _rounded(nominal * config.lendable / 100)
            borrowed = self._total if config.borrowing is None else _rounded(nominal * config.borrowing / 100)
            level.nominal, level.lower, level.upper = nominal, nominal - lendable, nominal + borrowed
            self._nominal_sum += nominal
            if queuing is not None:
                level.queues.most_of_request = max(
                    1, min(math.ceil(nominal * MOST_OF_A_LEVEL), nominal // queuing.hand)
                )
            else:
                level.queues.most_of_request = 0
            if first:
                level.current = nominal - lendable // 2
            metrics.LEVEL_NOMINAL_SEATS.labels(name).set(level.nominal)
            metrics.LEVEL_LOWER_SEATS.labels(name).set(level.lower)
            metrics.LEVEL_UPPER_SEATS.labels(name).set(level.upper)

    # ------------------------------------------------------------------------------------------------------------ borrowing

    def _tick(self) -> None:
        self._later(PERIOD_SECONDS, self._tick)
        self.kinds.add_up()
        for level in self.levels.values():
            level.queues.advance()
        if self._remove_idle() or self._seats() != self._total:
            self._forget_meters()
            self._share()
        self._adjust()

    def _remove_idle(self) -> bool:
        """Remove levels that are no longer configured and serve nothing. Return whether there were any."""
        idle = [name for name, level in self.levels.items() if level.quiescing and level.queues.idle]
        for name in idle:
            del self.levels[name]
        meters.remove_levels(idle)
        return bool(idle)

    def _adjust(self) -> None:
        """Adjust the limits of all levels to their demand of the last period."""
        claims: dict[str, Claim] = {}
        most: dict[str, int] = {}
        remaining = self._nominal_sum
        for name, level in self.levels.items():
            demand = self._demand(level)
            if level.config.exempt:
                most[name] = max(level.lower, demand)
                remaining -= most[name]
            else:
                least = max(level.lower, min(level.nominal, demand))
                claims[name] = Claim(max(float(least), level.smoothed), least, level.upper)
        limits = {**most, **self._limits(remaining, claims)}
        for name, level in self.levels.items():
            level.current = limits[name]
            if name in claims:
                metrics.LEVEL_TARGET_SEATS.labels(name).set(claims[name].target)
            metrics.LEVEL_CURRENT_SEATS.labels(name).set(level.current)
            self._enforce(level)

    def _demand(self, level: Level) -> int:
        """Smooth the demand of a level. Return the most seats that it could use at a time."""
        queues, name = level.queues, level.config.name
        queues.occupancy.add_up(name, queues.state)
        demand = queues.occupancy.demand(queues.state)
        if demand.seconds > 0:
            envelope = demand.average + demand.deviation
            level.smoothed = max(envelope, SMOOTHING * level.smoothed + (1 - SMOOTHING) * envelope)
            metrics.LEVEL_DEMAND_AVERAGE.labels(name).set(demand.average)
            metrics.LEVEL_DEMAND_DEVIATION.labels(name).set(demand.deviation)
        metrics.LEVEL_DEMAND_MOST.labels(name).set(demand.most)
        metrics.LEVEL_DEMAND_SMOOTHED.labels(name).set(level.smoothed)
        return demand.most

    def _limits(self, remaining: int, claims: Mapping[str, Claim]) -> dict[str, int]:
        """Return the limits of levels that are not exempt. `remaining` seats are left for them by exempt levels."""
        lower = sum(self.levels[name].lower for name in claims)
        least = sum(int(claim.lower) for claim in claims.values())
        share = 0.0
        if remaining <= lower:
            found = {name: self.levels[name].lower for name in claims}
        elif remaining <= least:
            part = (remaining - lower) / (least - lower)
            found = {
                name: self.levels[name].lower + _rounded((claim.lower - self.levels[name].lower) * part)
                for name, claim in claims.items()
            }
        else:
            try:
                divided, share = allocation.divide(self._nominal_sum, list(claims.values()))
                found = {name: _rounded(seats) for name, seats in zip(claims, divided, strict=True)}
            except Impossible as error:
                logger.error("seats cannot be divided: the limits stay", extra={"reason": str(error)})
                found = {name: self.levels[name].current for name in claims}
        metrics.FAIR_SHARE.only.set(share)
        return found

    def _enforce(self, level: Level) -> None:
        queuing = level.config.queuing
        occupancy = level.queues.occupancy
        occupancy.seats_limit = level.current or max(1, round(self._total / 10))
        occupancy.waiting_limit = max(1, queuing.length * queuing.queues if queuing is not None else 1)
        level.queues.configure(queuing, level.current)


def _usable(level: PriorityLevel) -> bool:
    queuing = level.queuing
    why = shufflesharding.error(queuing.queues, queuing.hand) if queuing is not None else ""
    if why:
        logger.warning("a priority level is ignored", extra={"priorityLevel": level.name[:253], "reason": why})
    return not why


def _bound(seats: QueueSet, choose: Callable[..., int], *, discounts: bool) -> float:
    """Return the lowest or highest progress of the queues that wait. A scrape calls this, in another thread."""
    found = [
        queue.next_r - discounts * queue.seats * SERVICE_NANOSECONDS // UNIT_NANOSECONDS
        for queue in list(seats.queues.values())
        if queue.waiting
    ]
    return choose(found, default=0) / SEAT_SECONDS


def _rounded(number: float) -> int:
    """Round halves up, as Go does with positive numbers."""
    return math.floor(number + 0.5)


def _on_the_loop(seconds: float, function: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, function)
