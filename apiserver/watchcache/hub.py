"""Deliver changes to the watchers of one resource. Knows neither frames nor sockets; reads the index, never writes it.

The ring of `mvcc.Index` is the only queue. A watcher is a position in it, and in exactly one of these states:

               pull() until nothing is left, then join()
    BEHIND  ───────────────────────────────────────────►  in step  (wake is None)
       ▲                                                     │
       └─────────── its sink says False: buffer full ────────┘
    any state ── close(), end_all() ──► ENDED        BEHIND ── left the ring, or 30 s without a pull ──► DROPPED
    any state ── fenced(), expire() ──► EXPIRED

- BEHIND: the watcher's own task pulls events and sends them, with its client's backpressure. The hub does nothing for it.
- In step: the task sleeps in `wait()`. The pump, one task for all, calls `sink.event` for each event, synchronously.

    ring     … e5  e6  e7  e8  e9                  e6 is being handed out: `round` is the list of its candidates,
                   ▲            ▲                  `turn` the place in it. Candidates before `turn` have e6, the others
               horizon       applied               do not yet. pumped = e5.

Why no event is lost, doubled or reordered. `horizon` is the event that is being handed out, else the last one that was. Events up to
it belong to the ring, events above it to the pump:

1. Pulling stops at the horizon, so a watcher that is BEHIND never has an event that the pump is still to hand out.
2. Joining needs position == horizon. The round in progress was listed before, so it does not give e6 to a watcher that pulled it,
   also when that one was a candidate, fell behind at its turn and comes back in the middle of the same round.
3. A round is listed when it begins, from those in step then. From e7 on a watcher that has joined is found.
4. A sink that refuses e6 is moved to BEHIND before anything else happens, at position e5: it will pull e6.
5. One round ends before the next begins, and rounds are taken from the ring in order.
6. A watch may start above the horizon: at a state that the pump has not reached, or in the future. It has nothing to pull and may
   join, but is `early`: it becomes a candidate when a round begins whose event is above its start.
7. A start in the future is a promise that the log has to keep. When an epoch begins, every start between its beginning and the end
   of the one before names a state that was lost, or never was: that watch is EXPIRED.

Slices. The pump hands over until SLICE_SECONDS have passed, then lets the loop run; a round may take many slices. All moves above
happen between two awaits, so a slice's end is the only moment at which other tasks can see the hub. The first slice is a
short one, in the step that feeds the index (`deliver`): a change with few watchers leaves first in that turn of the loop, and
the pump sleeps on.

Gathering. A slice may hand over several events: the store answers with all that were committed meanwhile. Each event is a write to each
client, which costs this process a record and a system call, and the proxy in front more than that. So for a few watchers the slice first
asks their outlets to hold what they get, and releases it when it ends: one write for many events. Nothing is held between two slices.

Bookmarks. Each watcher that wants them has its next time in a bucket of one second: a minute ahead, or 2 s before the deadline. The first
one comes up to a quarter of a minute early, by chance, so that watchers who came together are not all served in the same second for ever.
`tick()` collects who is due; they are served as a round of its own between two events, so that `pumped` is exact for each of them. A round
has one `Bookmark`, whose frames all watchers of the round share. A quiet resource gets them too: the version that a watch may resume from
is then the same as before, but clients and proxies see that the connection lives.
Upstream: kubernetes/apiserver `pkg/storage/cacher/cacher.go` (watcherBookmarkTimeBuckets), `cache_watcher.go` (nextBookmarkTime).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

from apiserver.watchcache import scope as scopes
from apiserver.watchcache.entry import Event, Revision
from apiserver.watchcache.errors import Compacted, StorageError
from apiserver.watchcache.mvcc import Index
from apiserver.watchcache.scope import Route, Scope

__all__ = ["Bookmark", "Dropped", "Hub", "Scope", "Sink", "Wake", "Watcher"]

SLICE_SECONDS = 0.004
"""One step of the event loop stays below 5 ms."""
AT_ONCE_SECONDS = 0.001
"""Length of the slice in the step that has fed the index."""
STRIDE = 16
"""Watchers between two looks at the clock: at 20 µs each a slice is over by less than half a millisecond."""
FEW_LABELS = 64
"""Labels up to which a STRIDE takes so little. A selector may test every label."""
GATHERED_WATCHERS = 32
"""Watchers up to which the events of a slice are gathered. Their writes at its end take half a millisecond."""
BATCH = 64
"""Events that the pump takes from the ring at a time."""
STALL_SECONDS = 30.0
"""How long a watcher may be behind without a pull."""
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""Before the deadline. Both as upstream."""
BOOKMARK_SPREAD_SECONDS = 15.0
"""How much earlier a watcher's first bookmark may come. 10,000 watchers that reconnect together then cost 30 ms in each second of a quarter
of a minute, instead of half a second at once."""
TICK_SECONDS = 1.0

_NEVER = Revision(1 << 64)


class Dropped(StorageError):
    """This watch cannot go on: the ring no longer holds what comes next, or its client did not read."""


class Wake(Enum):
    """Why a watcher is not in step."""

    BEHIND = "behind"
    ENDED = "ended"
    EXPIRED = "expired"
    DROPPED = "dropped"


class Bookmark:
    """How far the watchers of one round are. `frames` holds what was made of it, by form and framing, for all of them."""

    __slots__ = ("frames", "revision")

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.frames: dict[str, bytes] = {}


class Sink(Protocol):
    """The watcher's end that writes to its client. Called by the pump, so it must return at once, and may close the watcher."""

    def event(self, event: Event) -> bool:
        """False: the buffer is full and nothing of this event was taken; the watcher will pull it."""

    def bookmark(self, bookmark: Bookmark) -> bool:
        """Everything up to its revision was handed over. False: the buffer is full; the bookmark is let go of (as upstream)."""


class Outlet(Protocol):
    """The connection that a sink writes to."""

    def hold(self) -> None:
        """Gather what the sink writes, until `release`."""

    def release(self) -> None:
        """Write what was gathered. Does nothing if nothing was."""


class Watcher:
    """One watch. Its task alternates: `pull()` until empty, `join()`, `await wait()`; and calls `close()` at its end.

        while True:
            while events := watcher.pull():             # raises Dropped
                ... send them, awaiting the client ...
            if watcher.join() and await watcher.wait() is not Wake.BEHIND:
                return                                  # ENDED or DROPPED: close the stream cleanly

    `pull` and `wait` raise Compacted when the version that the watch started from turned out to name no state.

    `wake`, `mark` and the others are the hub's to write.
    """

    __slots__ = (
        "bucket",
        "deadline",
        "hub",
        "mark",
        "outlet",
        "pulled",
        "route",
        "scope",
        "sink",
        "start",
        "waiter",
        "wake",
    )

    def __init__(
        self, hub: Hub, start: Revision, *, scope: Scope, sink: Sink, outlet: Outlet | None, deadline: float | None
    ) -> None:
        self.hub = hub
        self.outlet = outlet
        self.scope = None if scope == Scope() else scope
        self.route = scope.route
        self.sink = sink
        self.deadline = deadline
        self.start = start
        self.mark = start  # handed over up to here, when it last was BEHIND
        self.wake: Wake | None = Wake.BEHIND
        self.waiter: asyncio.Future[None] | None = None
        self.pulled: float | None = None  # when, by the hub's clock; None until the first time
        self.bucket: int | None = None

    @property
    def position(self) -> Revision:
        """Everything of the scope up to here was handed over (in the middle of a round perhaps the next event too)."""
        return self.mark if self.wake is not None else max(self.mark, self.hub.pumped)

    def pull(self, limit: int = 256) -> Sequence[Event]:
        """The next events of the scope, fewer when they are large. Empty: nothing found so far; `join()` says whether all is seen.

        Raises Dropped when the hub has given the watcher up, or does so now because the ring does not reach back to its position;
        Compacted when the watch turned out to start from no state.
        """
        return self.hub.pull(self, limit)

    def join(self) -> bool:
        """Get in step, if nothing is left to pull. True also when the watch is over: `wait` says so then."""
        return self.hub.join(self)

    async def wait(self) -> Wake:
        """Sleeps while in step. Raises Compacted when the watch turned out to start from no state."""
        while self.wake is None:
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        if self.wake is Wake.EXPIRED:
            raise self.hub.compacted(self)
        return self.wake

    def close(self) -> None:
        """The watch is over; nothing is handed to the sink any more. May be called twice, and by the sink itself."""
        self.hub.close(self)


class Hub:
    """The watchers of one index.

    The store calls `publish(event)` in the same step as `index.apply(event)`, and `deliver()` at the end of that step; `watch(…)`;
    `end_all()` at shutdown and before it loads the index again; and it keeps a task on `run()`, which never returns. When a sink raises,
    so does `run()`, after dropping that sink's watcher; it may then simply be started again.

    `clock` is the loop's time, in which deadlines are given; `draw` yields numbers from 0 to 1 by chance. Tests drive `pump()` and `tick()`
    by hand instead of `run()`.
    """

    def __init__(
        self,
        index: Index,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float] = random.random,
        slice_seconds: float = SLICE_SECONDS,
        stride: int = STRIDE,
    ) -> None:
        self._index = index
        self._clock = clock
        self._draw = draw
        self._slice_seconds = slice_seconds
        self._stride = stride
        # Every watcher that is not over, in order of arrival; then each of them in exactly one of the three sets behind it.
        self._watchers: dict[Watcher, None] = {}
        self._behind: dict[Watcher, None] = {}
        self._early: dict[Watcher, None] = {}
        self._early_low = _NEVER  # not above the lowest mark among them
        self._ahead: dict[
            Watcher, None
        ] = {}  # in whatever state: those whose start the log had not reached, when last looked at
        self._in_step: dict[Route, dict[Watcher, None]] = {}
        # The pump.
        self._pumped = index.applied
        self._batch: deque[Event] = deque()
        self._event: Event | None = None  # being handed out; None between rounds and while bookmarks are
        self._round: list[Watcher] = []
        self._turn = 0
        # Time.
        self._buckets: dict[int, dict[Watcher, None]] = {}
        self._due: list[Watcher] = []
        self._overdue = False
        self._bookmark = Bookmark(self._pumped)  # the one that is being handed out
        self._next_tick = clock() + TICK_SECONDS
        self._idle: asyncio.Future[None] | None = None
        self._raised: Exception | None = None  # by a sink, in a step that is not the pump's
        self.drops = 0
        """Watchers given up on so far, for metrics."""

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def behind(self) -> int:
        """How many watchers are catching up."""
        return len(self._behind)

    @property
    def pumped(self) -> Revision:
        """Everything up to here was handed to everyone in step."""
        return self._pumped

    @property
    def horizon(self) -> Revision:
        """Where the ring's part of a watch ends and the pump's begins (module docstring)."""
        return self._pumped if self._event is None else self._event.revision

    # For watchers

    def watch(
        self,
        *,
        after: Revision,
        scope: Scope,
        sink: Sink,
        outlet: Outlet | None = None,
        bookmarks: bool = False,
        deadline: float | None = None,
    ) -> Watcher:
        """A watcher of the events above `after`, BEHIND at first. Raises Compacted unless `after` names a state or lies ahead.

        Events are gathered for watchers that name an outlet.
        The deadline only tells when the last bookmark is due: ending the watch is its owner's business.
        """
        if after <= self._index.applied and not self._index.names_state(after):
            raise Compacted(after, self._index.floor)
        watcher = Watcher(self, after, scope=scope, sink=sink, outlet=outlet, deadline=deadline)
        self._watchers[watcher] = None
        self._behind[watcher] = None
        if after > self._index.applied:
            self._ahead[watcher] = None
        if bookmarks:
            self._schedule(watcher, self._clock(), early=self._draw() * BOOKMARK_SPREAD_SECONDS)
        return watcher

    def pull(self, watcher: Watcher, limit: int) -> Sequence[Event]:
        if watcher.wake is Wake.DROPPED:
            raise Dropped("the watch was given up")
        if watcher.wake is Wake.EXPIRED:
            raise self.compacted(watcher)
        if watcher.wake is not Wake.BEHIND:
            return ()
        watcher.pulled = self._clock()
        try:
            events, watcher.mark = self._index.events_after(
                watcher.mark, watcher.scope, limit=limit, until=self.horizon
            )
        except Compacted as e:
            self._drop(watcher)
            raise Dropped(str(e)) from e
        return events

    def join(self, watcher: Watcher) -> bool:
        if watcher.wake is not Wake.BEHIND:
            return True
        horizon = self.horizon
        if watcher.mark < horizon:
            return False
        del self._behind[watcher]
        watcher.wake = None
        if watcher.mark > horizon:
            self._early[watcher] = None
            self._early_low = min(self._early_low, watcher.mark)
        else:
            self._enter(watcher)
        return True

    def close(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._leave(watcher, Wake.ENDED)

    def compacted(self, watcher: Watcher) -> Compacted:
        return Compacted(watcher.start, self._index.floor)

    # For the store

    def ahead(self) -> list[Watcher]:
        """Watches that wait for a version which the log has not reached."""
        return [watcher for watcher in self._ahead if watcher.start > self._index.applied]

    def fenced(self, ended: Revision, begun: Revision) -> None:
        """The index has advanced from `ended`, the end of an epoch, to `begun`, the beginning of the next."""
        self.expire(watcher for watcher in self._ahead if ended < watcher.start < begun)
        self._ahead = {watcher: None for watcher in self._ahead if watcher.start > begun}

    def expire(self, watchers: Iterable[Watcher]) -> None:
        """End watches that start from no state of this log, with an error."""
        for watcher in list(watchers):
            if watcher in self._watchers:
                self._leave(watcher, Wake.EXPIRED)

    def publish(self, event: Event) -> None:
        """Take an event that the index has applied. The next `deliver` hands it over, unless there are no watchers."""
        if not self._nobody_listens():
            return
        self._batch.clear()
        self._pumped = event.revision

    def deliver(self) -> None:
        """Hand over what was published, for one short slice; the pump does the rest. Must not raise: its caller follows the log. So `run`
        raises the errors of sinks."""
        if self._nobody_listens():
            return
        try:
            more = self.pump(min(self._slice_seconds, AT_ONCE_SECONDS))
        except Exception as error:  # noqa: BLE001 - run() raises it
            self._raised, more = error, True
        if more:
            self._wake_pump()

    def _nobody_listens(self) -> bool:
        return not self._watchers and self._event is None

    def end_all(self, *, at_most: int | None = None) -> int:
        """End the oldest watches, or all: each `wait()` returns ENDED at once, each sink has had its last call. How many are left."""
        for watcher in list(self._watchers)[:at_most]:
            self._leave(watcher, Wake.ENDED)
        if not self._watchers:  # the event may belong to a lineage that is about to be replaced
            self._batch.clear()
            self._event, self._round, self._turn = None, [], 0
            self._due, self._overdue = [], False
            self._pumped = self._index.applied
        return len(self._watchers)

    async def run(self) -> None:
        """Pumps and ticks for ever."""
        loop = asyncio.get_running_loop()
        while True:
            if self._raised is not None:
                error, self._raised = self._raised, None
                raise error
            now = self._clock()
            if now >= self._next_tick:
                self.tick()
            if self.pump():
                await asyncio.sleep(0)
                continue
            self._idle = loop.create_future()
            timer = loop.call_later(self._next_tick - now, self._wake_pump)
            try:
                await self._idle
            finally:
                timer.cancel()
                self._idle = None

    def pump(self, seconds: float | None = None) -> bool:
        """One slice of handing over; False when nothing is left to do."""
        until = self._clock() + (self._slice_seconds if seconds is None else seconds)
        held = self._held()
        for outlet in held:
            outlet.hold()
        try:
            return self._pump(until)
        finally:
            for outlet in held:
                outlet.release()

    def _held(self) -> Sequence[Outlet]:
        """The outlets for which the events of this slice are gathered: those of few watchers, if there are several events."""
        if self._index.applied - self._pumped <= 1 or len(self._watchers) > GATHERED_WATCHERS:
            return ()
        return [watcher.outlet for watcher in self._watchers if watcher.outlet is not None and watcher.wake is None]

    def _pump(self, until: float) -> bool:
        while self._event is not None or self._round or self._open_round():
            self._hand_over(until)
            if self._turn < len(self._round):
                return True
            self._close_round()
            if self._clock() >= until:
                return True
        return False

    def tick(self) -> None:
        """Once a second: give up watchers that do not move, and see whose bookmark is due. The pump sends those."""
        now = self._clock()
        self._next_tick = now + TICK_SECONDS
        reach = self._index.reach
        for watcher in list(self._behind):
            stalled = watcher.pulled is not None and now - watcher.pulled > STALL_SECONDS
            if stalled or watcher.mark < reach:
                self._drop(watcher)
        self._overdue = bool(self._due)
        for bucket in sorted(second for second in self._buckets if second <= now):
            self._due += self._buckets.pop(bucket)

    # The pump

    def _open_round(self) -> bool:
        """List the candidates of the next event. Without one, or after a second full of them, list the watchers with a bookmark due."""
        event = None if self._overdue else self._next_event()
        if event is None:
            self._round, self._due = self._due, []
            self._overdue = False
            self._bookmark = Bookmark(self._pumped)
            return bool(self._round)
        if event.revision > self._early_low:
            self._admit(event.revision)
        self._event = event
        self._round = [watcher for route in scopes.routes(event) for watcher in self._in_step.get(route, ())]
        return True

    def _next_event(self) -> Event | None:
        if not self._batch:
            if self._pumped < self._index.reach:
                self._lose()
            events, position = self._index.events_after(self._pumped, limit=BATCH)
            if not events:
                self._pumped = position  # no event up to the head: fences count as handed out
                return None
            self._batch.extend(events)
        return self._batch.popleft()

    def _hand_over(self, until: float) -> None:
        """Go on with the round until it is over or the time is. A sink that raises is dropped, and the round goes on behind it."""
        round_, turn, size = self._round, self._turn, len(self._round)
        event, whole = self._event, False
        stride = self._stride if event is None or _few_labels(event) else 1
        try:
            while turn < size:
                for watcher in round_[turn : turn + stride]:
                    turn += 1
                    if event is None:
                        self._remind(watcher)
                    elif watcher.wake is not None:  # may have changed since the round was listed
                        continue
                    elif not watcher.sink.event(event) and watcher.wake is None:
                        watcher.mark = watcher.position  # everything pumped, and not the event that is being handed out
                        self._fall_behind(watcher)
                if self._clock() >= until:
                    break
            whole = True
        finally:
            self._turn = turn
            if not whole:
                self._drop(round_[turn - 1])

    def _close_round(self) -> None:
        if self._event is not None:
            self._pumped = self._event.revision
            self._event = None
        self._round, self._turn = [], 0

    def _admit(self, revision: Revision) -> None:
        """Those whose start lies below the event that is about to be handed out become candidates."""
        for watcher in [watcher for watcher in self._early if watcher.mark < revision]:
            del self._early[watcher]
            self._enter(watcher)
        self._early_low = min((watcher.mark for watcher in self._early), default=_NEVER)

    def _lose(self) -> None:
        """The ring was trimmed past the pump (it could not keep up): nobody in step can go on, and who is early pulls from now."""
        for watcher in [watcher for group in self._in_step.values() for watcher in group]:
            self._drop(watcher)
        self._pumped = self._index.applied
        for watcher in [watcher for watcher in self._early if watcher.mark < self._pumped]:
            self._fall_behind(watcher)

    # Moving a watcher from state to state

    def _enter(self, watcher: Watcher) -> None:
        self._in_step.setdefault(watcher.route, {})[watcher] = None

    def _fall_behind(self, watcher: Watcher) -> None:
        self._detach(watcher)
        self._behind[watcher] = None
        watcher.pulled = self._clock()
        self._rouse(watcher, Wake.BEHIND)

    def _drop(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self.drops += 1
            self._leave(watcher, Wake.DROPPED)

    def _leave(self, watcher: Watcher, wake: Wake) -> None:
        watcher.mark = watcher.position
        self._detach(watcher)
        del self._watchers[watcher]
        self._ahead.pop(watcher, None)
        if watcher.bucket in self._buckets:
            self._buckets[watcher.bucket].pop(watcher, None)  # it may be due, and in no bucket
        self._rouse(watcher, wake)

    def _detach(self, watcher: Watcher) -> None:
        if watcher.wake is Wake.BEHIND:
            del self._behind[watcher]
        elif watcher in self._early:
            del self._early[watcher]
        else:
            group = self._in_step[watcher.route]
            del group[watcher]
            if not group:
                del self._in_step[watcher.route]

    def _rouse(self, watcher: Watcher, wake: Wake) -> None:
        watcher.wake = wake
        if watcher.waiter is not None and not watcher.waiter.done():
            watcher.waiter.set_result(None)

    def _wake_pump(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # Bookmarks

    def _remind(self, watcher: Watcher) -> None:
        """Send a watcher its bookmark. One that catches up gets it when it is in step again, one that starts in the future gets none."""
        if watcher.wake is Wake.BEHIND:
            self._file(watcher, self._clock() + TICK_SECONDS)
        elif watcher.wake is None:
            self._schedule(watcher, self._clock())
            if self._bookmark.revision >= watcher.start:
                watcher.sink.bookmark(self._bookmark)

    def _schedule(self, watcher: Watcher, now: float, *, early: float = 0.0) -> None:
        due = now + BOOKMARK_SECONDS - early
        if watcher.deadline is not None:
            last = watcher.deadline - LAST_BOOKMARK_SECONDS
            if now < last < due and math.floor(last) != watcher.bucket:  # a bucket may come up to a second early
                due = last
        self._file(watcher, due)

    def _file(self, watcher: Watcher, due: float) -> None:
        watcher.bucket = math.floor(
            due
        )  # within a second of its time, as upstream; never so late that the watch is over
        self._buckets.setdefault(watcher.bucket, {})[watcher] = None


def _few_labels(event: Event) -> bool:
    previous = event.previous
    return len(event.entry.labels) <= FEW_LABELS and (previous is None or len(previous.labels) <= FEW_LABELS)
