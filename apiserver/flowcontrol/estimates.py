"""Estimate the work of a request in seats, before it is served. Pure.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/request/{width,list_work_estimator,mutating_work_estimator,config}.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from apiserver.apimachinery.request import Query, RequestInfo
from apiserver.flowcontrol.watches import Watches
from kubetext import strconv

SEAT_SECONDS = 10**8
"""Units of work in a second of a seat, as upstream counts. All work is whole numbers of these."""
UNIT_NANOSECONDS = 10**9 // SEAT_SECONDS
SERVICE_NANOSECONDS = 3_000_000
"""How long a request is expected to be served, as upstream."""
LEAST_SEATS = 1
MOST_SEATS, MOST_SEATS_BY_SIZE = 10, 100
"""Upstream's limits of a write or a list by count, and of a list by size."""
OBJECTS_PER_SEAT = 100.0
BYTES_PER_SEAT = 100_000
MOST_CACHED_BYTES = 1_000_000
"""A list from memory is streamed, so it counts at most as these bytes."""
LARGEST_OBJECT = 1_500_000
WATCHES_PER_SEAT = 10.0
EVENT_NANOSECONDS = 5_000_000
WRITES = frozenset({"create", "update", "patch", "delete"})


class Estimate:
    """`initial` seats while the request is served, `final` ones for `latency` nanoseconds after that."""

    __slots__ = ("final", "initial", "latency", "seats", "work")

    def __init__(self, initial: int, final: int = 0, latency: int = 0) -> None:
        self.initial = initial
        self.final = final
        self.latency = latency
        self.seats = max(initial, final)
        self.work = (initial * SERVICE_NANOSECONDS + final * latency) // UNIT_NANOSECONDS

    def __repr__(self) -> str:
        return f"Estimate({self.initial}, {self.final}, {self.latency})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Estimate) and (self.initial, self.final, self.latency) == (
            other.initial,
            other.final,
            other.latency,
        )

    __hash__ = None  # type: ignore[assignment]

    def within(self, seats: int) -> Estimate:
        """Return the same work with at most so many final seats, for longer."""
        return Estimate(self.initial, seats, self.final * self.latency // seats)


ONE = Estimate(LEAST_SEATS)


class Stored(NamedTuple):
    """How many objects of a resource are stored, and their bytes."""

    objects: int
    size: int


class Estimator:
    """`stored` returns what is known about a resource, or None. `by_size` is the gate SizeBasedListCostEstimate."""

    def __init__(
        self, stored: Callable[[RequestInfo], Stored | None], watches: Watches, *, by_size: bool = True
    ) -> None:
        self._stored = stored
        self._watches = watches
        self._by_size = by_size
        self._most_of_list = MOST_SEATS_BY_SIZE if by_size else MOST_SEATS

    def __call__(self, info: RequestInfo, query: Query, level_seats: int) -> Estimate:
        """Estimate a request. `level_seats` are the most that its priority level gives a request, 0 if it says nothing."""
        if not info.is_resource:
            return ONE
        verb = info.verb
        if verb in ("list", "watch"):
            most = min(level_seats or self._most_of_list, self._most_of_list)
            return self._of_list(info, query, most)
        if verb in WRITES:
            return self._of_write(info, min(level_seats or MOST_SEATS, MOST_SEATS))
        return ONE

    def _of_list(self, info: RequestInfo, query: Query, most: int) -> Estimate:
        watch = info.verb == "watch"
        try:
            limit = _number(query, "limit")
            _number(query, "timeoutSeconds")
        except ValueError:
            return _seats(most)
        version = query.text("resourceVersion")
        if watch and not (version in ("", "0") or _true(query, "sendInitialEvents")):
            return ONE
        stored = self._stored(info)
        if stored is None:
            return ONE
        cached = watch or not _beyond_cache(query, version, limit)
        count = self._by_bytes if self._by_size else _by_count
        selects = bool(query.text("labelSelector") or query.text("fieldSelector"))
        wanted = count(stored, limit, cached=cached, selects=selects, single=bool(info.name))
        return _seats(min(max(wanted, LEAST_SEATS), most))

    @staticmethod
    def _by_bytes(stored: Stored, limit: int, *, cached: bool, selects: bool, single: bool) -> int:
        objects, size = stored
        average = size // objects if size > 0 and objects else LARGEST_OBJECT if objects else 0
        limited = limit if 0 < limit < objects else objects
        if single:
            loaded = 1
        elif not cached and selects:
            loaded = max(limited, objects // 2)
        else:
            loaded = limited
        used = loaded * average
        return math.ceil((min(used, MOST_CACHED_BYTES) if cached else used) / BYTES_PER_SEAT)

    def _of_write(self, info: RequestInfo, most: int) -> Estimate:
        if info.resource == "serviceaccounts" and info.subresource == "token":
            return ONE
        watches = self._watches.concerned(info)
        if watches < WATCHES_PER_SEAT:
            return ONE
        seats = math.ceil(watches / WATCHES_PER_SEAT)
        return Estimate(LEAST_SEATS, seats, EVENT_NANOSECONDS).within(min(seats, most))


def _by_count(stored: Stored, limit: int, *, cached: bool, selects: bool, single: bool) -> int:
    objects = stored.objects
    limited = limit if 0 < limit < objects else objects
    if single:
        read = 1
    elif cached:
        read = objects
    else:
        read = objects + limited if selects else 2 * limited
    return math.ceil(read / OBJECTS_PER_SEAT)


def _beyond_cache(query: Query, version: str, limit: int) -> bool:
    """Return whether a list needs a state of the past (kubernetes/apiserver `pkg/storage/cacher/delegator/interface.go`)."""
    match = query.text("resourceVersionMatch")
    if match:
        return match != "NotOlderThan"
    return bool(query.text("continue")) or (limit > 0 and version not in ("", "0"))


def _number(query: Query, name: str) -> int:
    text = query.first(name)
    return strconv.parse_int(text) if text is not None else 0


def _true(query: Query, name: str) -> bool:
    text = query.first(name)
    return text is not None and text.lower() not in ("false", "0")


_KNOWN = tuple(Estimate(seats) for seats in range(MOST_SEATS_BY_SIZE + 1))


def _seats(seats: int) -> Estimate:
    return _KNOWN[seats]
