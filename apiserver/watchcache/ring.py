"""Recent events: those of one resource above a revision, in order, in segments. Pure; does not judge revisions.

    ┌─ segment ──────────┐┌─ segment ──────────┐┌─ segment ──────────┐┌─ open segment ─────┐
    │ event event … event││ event event … event││ event event … event││ event event        │
    └────────────────────┘└───────────────state└────────────────────┘└────────────────────┘
    reach        floor                                                               newest

A closed segment can hold the state behind its last event: a checkpoint, put there by the caller of `close`. Dropping is by whole
segments, oldest first, so that a step costs no more than freeing one segment's objects.

Retention. The store moves the floor on by time (five minutes of serving behind the head), and every event above the floor
stays, so that a revision that the floor allows is always served. When the ring exceeds its share of the byte budget, `overflow`
names the floor that would help, for the store to raise it for all replicas. Only when that does not happen until the ring has twice
its share does it drop events above the floor. Below the floor at least LEAST_EVENTS stay while the budget allows: a compaction does
not end running watches that lag a little.

The budget is one for the rings of all resources. A ring may hold what the others leave, and an equal part of it in any case: one that
is busy uses what others do not need, and cannot push out a quiet one's history.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from apiserver.watchcache import scope as scopes
from apiserver.watchcache.blocks import Frozen
from apiserver.watchcache.entry import Event, EventType, Revision
from apiserver.watchcache.scope import Scope, Touched

LEAST_EVENTS = 1000
"""A compaction never takes the newest 1,000 entries (as in k3s-io/kine `pkg/logstructured/sqllog/sql.go`)."""
SEGMENT_EVENTS = 256
SEGMENTS_IN_BUDGET = 16
"""Large objects close a segment early, so that dropping one is a small part of the budget."""
EVENT_BYTES = 512
"""Cost of an event beside bodies: itself, the superseded entry, its share of a checkpoint."""
PULL_BYTES = 1 << 20
PULL_EXAMINED = 16384
"""Bounds of one step of `after`: what it returns, and how many events it looks at (some milliseconds at most)."""

_revision = attrgetter("revision")
_last = attrgetter("last")


class EventSlice(NamedTuple):
    """All events of a scope between the revision that was asked for and `position`."""

    events: Sequence[Event]
    position: Revision


class Segment:
    """`state` is what was behind the last event, if this is a checkpoint."""

    __slots__ = ("_touched", "events", "size", "state")

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.size = sum(map(_cost, events))
        self.state: Frozen | None = None
        self._touched: Touched | None = None

    @property
    def last(self) -> Revision:
        """The revision of the last event; not to be asked of the open segment, which may be empty."""
        return self.events[-1].revision

    def behind(self, revision: Revision) -> int:
        """The place of the first event above `revision`."""
        if not self.events or self.events[-1].revision <= revision:
            return len(self.events)
        return bisect_right(self.events, revision, key=_revision)

    def concerns(self, scope: Scope) -> bool:
        """Only for closed segments: what they touch is worked out once, by the first catch-up with a narrow scope."""
        if self._touched is None:
            self._touched = scopes.touched(self.events)
        return scope.within(self._touched)

    def forget_encodings(self) -> None:
        """Drop the frames. They are for watchers in step; a watcher that comes later makes its own."""
        for event in self.events:
            _forget(event)


class Budget:
    """Bytes that the rings of all resources may hold together."""

    __slots__ = ("bytes", "rings", "used")

    def __init__(self, bytes_: int) -> None:
        self.bytes = bytes_
        self.rings = 0
        self.used = 0

    def share(self, size: int, *, times: int = 1) -> int:
        """Return how many bytes a ring of that size may hold, with `times` the budget."""
        whole = times * self.bytes
        return max(whole // max(1, self.rings), whole - (self.used - size))


class Ring:
    """Every event above `reach`. The last segment is open and may be empty, the others are closed and not empty.

    The oldest `bare` segments are history that was put there without checkpoints.
    """

    __slots__ = ("bare", "budget", "count", "reach", "segments", "size")

    def __init__(self, reach: Revision, *, budget: Budget) -> None:
        self.reach = reach
        self.budget = budget
        budget.rings += 1
        self.segments = [Segment([])]
        self.bare = 0
        self.count = 0
        self.size = 0

    def leave(self) -> None:
        """It is not used any more: what it holds is the others' to use."""
        self.budget.rings -= 1
        self._grow(-self.size)

    def _grow(self, size: int) -> None:
        self.size += size
        self.budget.used += size

    @property
    def excessive(self) -> bool:
        """It holds so much that it may drop what the floor still allows."""
        return self.size > self.budget.share(self.size, times=2)

    def append(self, event: Event) -> bool:
        """True when the open segment is full now, by events or bytes: `close` it."""
        segment = self.segments[-1]
        segment.events.append(event)
        cost = _cost(event)
        segment.size += cost
        self._grow(cost)
        self.count += 1
        return len(segment.events) >= SEGMENT_EVENTS or segment.size * SEGMENTS_IN_BUDGET >= self.budget.bytes

    def close(self, state: Frozen | None) -> None:
        self.segments[-1].state = state
        if len(self.segments) > 1:
            self.segments[-2].forget_encodings()
        self.segments.append(Segment([]))

    def extend_back(self, events: Sequence[Event], *, since: Revision) -> Iterator[None]:
        """`events` are all those in (since, reach]. One step per segment, and the last one puts them in."""
        older = []
        for at in range(0, len(events), SEGMENT_EVENTS):
            older.append(Segment(list(events[at : at + SEGMENT_EVENTS])))
            yield
        self.segments[:0] = older
        self.bare += len(older)
        self.count += len(events)
        self._grow(sum(segment.size for segment in older))
        self.reach = min(self.reach, since)

    def newest_first(self) -> Iterator[Event]:
        """All events, backwards."""
        for segment in reversed(self.segments):
            yield from reversed(segment.events)

    def place(self, revision: Revision) -> tuple[int, int]:
        """(segment, place in it) of the first event above `revision`; the end of the open segment if there is no such event."""
        at = len(self.segments) - 1
        if at and self.segments[at - 1].last > revision:
            at = bisect_right(self.segments, revision, hi=at, key=_last)
        return at, self.segments[at].behind(revision)

    def to_checkpoint(self, place: int) -> tuple[Frozen | None, list[Event]]:
        """The first checkpoint at or behind a segment's end, and the events from that end to it; None means the present."""
        events: list[Event] = []
        for segment in self.segments[place:]:
            if segment is not self.segments[place]:
                events += segment.events
            if segment.state is not None:
                return segment.state, events
        return None, events

    def from_checkpoint(self, place: int) -> tuple[Frozen | None, list[Event]]:
        """The last checkpoint before a segment, and the events from it to that segment; None if no segment before it has one."""
        for at in range(place - 1, -1, -1):
            state = self.segments[at].state
            if state is not None:
                return state, [event for segment in self.segments[at + 1 : place] for event in segment.events]
        return None, []

    def after(self, revision: Revision, scope: Scope | None, *, limit: int, end: Revision) -> EventSlice:
        """A first part of the events of a scope (None: of all) in (revision, end].

        Complete when `position` is `end`, else to be continued from `position`, even if nothing was found: at most `limit`
        events, about PULL_BYTES, and PULL_EXAMINED events looked at in one call. `revision` must not be below the reach.
        """
        if limit < 1:
            raise ValueError(f"a limit of {limit} would pass over events")
        if end <= revision:
            return EventSlice((), revision)
        found: list[Event] = []
        looked, left = 0, PULL_BYTES
        first, at = self.place(revision)
        for segment in self.segments[first:]:
            stop = segment.behind(end)
            for event in self._of_scope(segment, scope, slice(at, min(stop, at + limit) if scope is None else stop)):
                found.append(event)
                left -= event.entry.size
                if left <= 0 or len(found) == limit:
                    return EventSlice(found, event.revision)
            looked += stop - at
            if stop < len(segment.events):
                break
            if looked >= PULL_EXAMINED and stop and segment.last < end:
                return EventSlice(found, segment.last)
            at = 0
        return EventSlice(found, end)

    def _of_scope(self, segment: Segment, scope: Scope | None, part: slice) -> Sequence[Event]:
        if scope is None:
            return segment.events[part]
        if segment is not self.segments[-1] and not segment.concerns(scope):
            return ()
        return scope.among(segment.events[part])

    def trim(self, floor: Revision) -> bool:
        """Drop the oldest segment if it may go; False when nothing was dropped."""
        if len(self.segments) == 1:
            return False
        oldest = self.segments[0]
        if oldest.last > floor:
            may_go = self.excessive
        else:
            may_go = self.count - len(oldest.events) >= LEAST_EVENTS or self.size > self.budget.share(self.size)
        if may_go:
            del self.segments[0]
            self.bare = max(0, self.bare - 1)
            self.reach = oldest.last
            self.count -= len(oldest.events)
            self._grow(-oldest.size)
        return may_go

    def overflow(self, floor: Revision) -> Revision | None:
        """The floor above `floor` that would bring the ring back into its share, or as near as the newest 1,000 events allow."""
        wanted = floor
        count, spare = self.count, self.size - self.budget.share(self.size)
        for segment in self.segments[:-1]:
            count -= len(segment.events)
            if spare <= 0 or count < LEAST_EVENTS:
                break
            spare -= segment.size
            wanted = segment.last
        return wanted if wanted > floor else None


def _forget(event: Event) -> None:
    if event.encodings is not None:
        event.encodings.forget()
        event.encodings = None


def _cost(event: Event) -> int:
    """The current state pays for current entries, so an event pays for what it superseded, and a deletion for its own copy."""
    own = event.entry.size if event.type is EventType.DELETED else 0
    return EVENT_BYTES + own + (event.previous.size if event.previous is not None else 0)
