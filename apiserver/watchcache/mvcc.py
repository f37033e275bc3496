"""The objects of one resource in memory: what is, and what was at each revision that is still kept. Pure.

No awaits, no clock, no Redis: whoever tails the log tells an `Index` what happened, in log order, and nothing else changes it.
It is an ordered map of what is (`blocks`) and a ring of what happened (`ring`); a state of the past is the next later checkpoint
with the events between undone, or the last earlier one with them done again.

Life of one key, `ns/a`, beside others (revisions written as epoch-n, in truth one number, see `keys`):

    log        7-1 create v1    7-2 (other key)    7-3 update v2    7-4 delete    8-0 fence    8-1 create v3
    event      C(v1, –)         …                  U(v2, v1)        D(v2', v2)                 C(v3, –)
    ns/a at    7-1: v1          7-2: v1            7-3: v2          7-4: –        8-0: –       8-1: v3
               v2' is v2 with the resourceVersion 7-4

    view()         {ns/a: v3} at 8-1; O(1), valid for ever.
    view_at(7-2)   The next checkpoint behind it ({ns/a: v3}, now) and the events between, oldest first: 7-3 says "before me v1".
                   The first word on a key counts, so 7-4 and 8-1 are not asked about it any more: {ns/a: v1} at 7-2.
    view_at(7-9)   Compacted. Epoch 7 ended at 7-4, so the write 7-9, if there ever was one, was lost: it names no state.
    view_at(8-0)   The state after all events up to there: ns/a is absent. A fence is a revision like any other.
    view_at(8-2)   Future.
    compact(7-3)   From now on view_at(7-2) is Compacted, whatever is physically left. 7-3 is the lowest revision to watch from:
                   {ns/a: v2}, then D, C.

Costs beside bodies and entries: 16 bytes per object for the current state. A checkpoint pins the blocks that are copied
after it, again 8 to 16 bytes per object; there is one for as many events as a sixteenth of the objects, not fewer than 256. So
history costs at most 256 bytes per event for them, about as much garbage collection as the events themselves, and a view of the
past costs half that many events. Each field by which lists find objects costs a reference per object and, for each value, a place in a
dictionary and a tuple (`lookup`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

from apiserver.watchcache import keys
from apiserver.watchcache.blocks import Blocks, Frozen
from apiserver.watchcache.entry import Entry, Event, EventType, Key, Revision
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.lookup import Lookup
from apiserver.watchcache.ring import Budget, EventSlice, Ring
from apiserver.watchcache.scope import Field, Scope

RING_BYTES = 256 << 20
"""Bytes that the rings of all resources may hold together: about 50,000 changes of 4 KB objects."""
LINKED_AT_ONCE = 1000
"""Events per step of a preload, or as many times LABELS_AT_ONCE labels: a few milliseconds."""
LABELS_AT_ONCE = 32
"""So many labels are compared in the time that the rest of an event takes."""
CHECKPOINT_EVENTS = 256
CHECKPOINT_SHARE = 16
EXACT_VIEWS = 8
"""Views of the past that are remembered: the pages of so many chunked lists that walk at the same time."""
FEW_KEYS = 256
SCANNED_PER_KEY = 4
"""Objects of a scan that cost as much as one object that is looked up."""

_NONE = Revision(0)


class Diverged(Exception):
    """The log and this memory contradict each other. Nothing was changed; only a rebuild (`load`) helps."""


class View(Frozen):
    """The state at `revision`: get, scan and count of `blocks.Frozen`. Immutable, valid for ever."""

    __slots__ = ("_lookup", "revision")

    def __init__(self, state: Frozen, revision: Revision, lookup: Lookup) -> None:
        super().__init__(state.blocks, state.lows)
        self.revision = revision
        self._lookup = lookup

    def having(self, field: Field, prefix: str = "", *, start: str = "") -> Iterator[Entry] | None:
        """Return those of the entries of `scan` that have a value at a place. None: they are not known, or a scan costs less."""
        keys = self._lookup.keys(field, prefix, start=start, at=self.revision)
        if keys is None:
            return None
        if len(keys) > FEW_KEYS and len(keys) * SCANNED_PER_KEY > self.count(prefix, start=start):
            return None
        return (entry for key in keys if (entry := self.get(key)) is not None)


class Index:
    """All of the above, for one resource.

    The store calls, in this order:

    1. `clear()`, if it held anything, then `load(objects, applied=…, floor=…, ended=…)`: the state at `applied`, once scan and log
       agree on it.
    2. `preload(events, since=floor)`, once, after the load: the events after `since` up to the `applied` of the load. Then every
       revision from the floor on is served. `backfill()` until it says False, at leisure.
    3. For each log entry, in order: `apply(event)`, and `hub.publish(event)` in the same step; `advance(revision)` for an entry
       that changes no object (a fence). After some of them `hub.deliver()`. `Diverged` means rebuild: end the hub's watches and start at
       1 again.
    4. `compact(floor)` when the log's floor has moved, then `trim()` until it says False; `overflow()` now and then.

    `clear` and `preload` are iterators of steps of a few milliseconds; nothing may be read before their last one.

    Entries and events given to it belong to it: it makes equal parts of them shared before anyone else sees them.
    """

    __slots__ = (
        "_applied",
        "_budget",
        "_current",
        "_ended",
        "_exact",
        "_floor",
        "_lookup",
        "_objects",
        "_ring",
        "_uncovered",
    )

    def __init__(self, *, budget: Budget | None = None) -> None:
        """`budget` is shared with the other indexes of the process."""
        self._budget = Budget(RING_BYTES) if budget is None else budget
        self._ring = Ring(_NONE, budget=self._budget)
        self.load(Blocks.of(()), applied=_NONE, floor=_NONE)

    # State

    @property
    def applied(self) -> Revision:
        """The last log entry that this memory contains."""
        return self._applied

    @property
    def floor(self) -> Revision:
        """The lowest revision that one can still watch from or list at: the logical floor unless memory had to give up more."""
        return max(self._floor, self._ring.reach)

    @property
    def reach(self) -> Revision:
        """Every event above it is in the ring."""
        return self._ring.reach

    @property
    def ring_events(self) -> int:
        return self._ring.count

    @property
    def ring_bytes(self) -> int:
        """An estimate: bodies that only the ring keeps alive, and a kilobyte for each event."""
        return self._ring.size

    @property
    def ended(self) -> Mapping[int, int]:
        """The epochs from the floor on that a fence closed: epoch → its last n."""
        return self._ended

    def newest_first(self) -> Iterator[Event]:
        """The events of the window, backwards. Not to be used across a change."""
        return self._ring.newest_first()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Entry | None:
        """The object as it is now, without making a view of everything."""
        return self._objects.get(key)

    # Filling it

    def clear(self) -> Iterator[None]:
        """Forget everything. A hundred thousand objects are not let go of in one step; views that are being read stay valid."""
        objects, segments, lookup = self._objects.parts(), self._ring.segments, self._lookup
        self.load(Blocks.of(()), applied=_NONE, floor=_NONE)
        yield from lookup.clear()
        for parts in (objects, segments):
            while parts:
                parts.pop()
                yield

    def load(
        self,
        objects: Blocks,
        *,
        applied: Revision,
        floor: Revision,
        ended: Mapping[int, int] | None = None,
        listed_by: Sequence[int] = (),
    ) -> None:
        """Forget everything; from now on the state at `applied` is `objects`, which belong to the index.

        `ended` is the log's table of fenced epochs: epoch → its last n. `listed_by` are the places of fields by which views find objects.
        Nothing before `applied` is served until `preload`.
        """
        self._objects = objects
        self._lookup = Lookup(listed_by, since=None if len(objects) else applied)
        self._applied = applied
        self._floor = floor
        self._ended = dict(ended or {})
        self._ring.leave()
        self._ring = Ring(applied, budget=self._budget)
        self._uncovered = 0  # events since the last checkpoint, in closed segments
        self._current: View | None = None
        self._exact: dict[Revision, View] = {}

    def preload(self, events: Sequence[Event], *, since: Revision) -> Iterator[None]:
        """Extend the ring backwards: `events` is all that happened after `since` and up to the `applied` of the load, ascending.

        `previous` may be None on an update or deletion whose predecessor is among the events. Where it is not and the log does
        not hold the old value either (it omits large ones), history is not known any further back, and the reach ends there.
        """
        if events and events[-1].revision > self._ring.reach:
            raise Diverged(f"history up to {events[-1].revision} overlaps what is known after {self._ring.reach}")
        yield from self._lookup.fill(self.view(), at=self._applied)
        told_from, since = yield from self._link(events, since)
        yield from self._ring.extend_back(events[told_from:] if told_from else events, since=since)
        while self._ring.excessive and self.trim():
            yield

    def backfill(self) -> bool:
        """Work out one more checkpoint of preloaded history, from the newest to the oldest. Return False if all are made.

        A few milliseconds. `view_at` makes by itself all that it needs when it goes so far back: see `approach`.
        """
        ring = self._ring
        if not ring.bare:
            return False
        place, events = ring.bare - 1, 0
        while place > 0 and events < self._checkpoint_events():
            events += len(ring.segments[place].events)
            place -= 1
        ring.segments[place].state = self._end_of(place)
        ring.bare = place
        return True

    def approach(self, revision: Revision) -> bool:
        """One step of `backfill`, if `view_at` of this revision needs it; False when that is a few milliseconds by itself."""
        ring = self._ring
        return (
            bool(ring.bare) and self.names_state(revision) and ring.place(revision)[0] < ring.bare and self.backfill()
        )

    def apply(self, event: Event) -> None:
        """The next change of the log. Raises Diverged when it does not follow from what is held.

        `previous` may be left None: it becomes the entry that is held, or must have that one's revision.
        """
        held = self._check(event)
        event.previous = held
        if held is not None:
            _share(event.entry, held)
            held.supersede()
        if event.type is EventType.DELETED:
            self._objects.remove(event.entry.key)
        else:
            self._objects.put(event.entry)
        self._lookup.follow(event)
        self.advance(event.revision)
        if self._ring.append(event):
            self._close_segment()

    def advance(self, revision: Revision) -> None:
        """The log went on to `revision`. If that is another epoch, the one before ended with what was applied last:
        each entry names its predecessor, and the store has checked that this was it."""
        if revision <= self._applied:
            raise Diverged(f"{revision} came after {self._applied}")
        epoch, n = keys.parts(self._applied)
        if keys.parts(revision)[0] != epoch:
            self._ended[epoch] = n
        self._applied = revision
        self._current = None

    # Reading it

    def names_state(self, revision: Revision) -> bool:
        """Whether this revision is one that the log passed, and nothing from there on is forgotten.

        So it is iff it lies between floor and applied, and its epoch is the present one or had not ended before it: numbers of
        lost writes and of unknown epochs name nothing, though later revisions are higher (docs/storage.md).
        Nothing else in Sluice decides about 410.
        """
        if not self.floor <= revision <= self._applied:
            return False
        epoch, n = keys.parts(revision)
        return epoch == keys.parts(self._applied)[0] or n <= self._ended.get(epoch, -1)

    def view(self) -> View:
        """The state at `applied`."""
        if self._current is None:
            self._current = View(self._objects.freeze(), self._applied, self._lookup)
        return self._current

    def view_at(self, revision: Revision) -> View:
        """The state after all events up to `revision`, which may lie between two events. Raises Compacted or Future."""
        if revision > self._applied:
            raise Future(revision, self._applied)
        if not self.names_state(revision):
            raise Compacted(revision, self.floor)
        if revision == self._applied:
            return self.view()
        view = self._exact.pop(revision, None)
        if view is None:
            view = self._past(revision)
        self._exact[revision] = view
        if len(self._exact) > EXACT_VIEWS:
            del self._exact[next(iter(self._exact))]
        return view

    def events_after(
        self, revision: Revision, scope: Scope | None = None, *, limit: int = 256, until: Revision | None = None
    ) -> EventSlice:
        """A first part of the events of a scope in (revision, until] (`ring.Ring.after`); `until` defaults to applied.

        Raises Compacted when `revision` is below the reach: this is about what is physically here, not about the floor.
        """
        if revision < self._ring.reach:
            raise Compacted(revision, self.floor)
        return self._ring.after(revision, scope, limit=limit, end=self._applied if until is None else until)

    # Forgetting

    def compact(self, floor: Revision) -> None:
        """The log's floor is `floor` now. It never goes back. One step of `trim` is included."""
        if floor <= self._floor:
            return
        self._floor = floor
        epoch = keys.parts(floor)[0]
        self._ended = {ended: n for ended, n in self._ended.items() if ended >= epoch}
        self._exact = {revision: view for revision, view in self._exact.items() if revision >= floor}
        self.trim()

    def trim(self) -> bool:
        """Let go of some of what the floor or the budget no longer allow; False when there is nothing to let go of."""
        return self._ring.trim(self._floor)

    def overflow(self) -> Revision | None:
        """The floor that the store should ask the log for, because the ring exceeds its budget; None when all is well."""
        return self._ring.overflow(self._floor)

    # Inside

    def _check(self, event: Event) -> Entry | None:
        if event.revision <= self._applied:
            raise Diverged(f"{event.revision} came after {self._applied}")
        key = event.entry.key
        held = self._objects.get(key)
        if (held is None) is not (event.type is EventType.CREATED):
            state = "absent" if held is None else f"at {held.revision}"
            raise Diverged(f"{key} was {event.type.name} at {event.revision}, and is {state}")
        if held is not None:
            _follows(event, held)
        return held

    def _close_segment(self) -> None:
        """Two segments may go for each that is filled, so what compaction allowed to go cannot pile up."""
        self._uncovered += len(self._ring.segments[-1].events)
        covered = self._uncovered >= self._checkpoint_events()
        self._ring.close(self.view() if covered else None)
        if covered:
            self._uncovered = 0
        if self.trim():
            self.trim()

    def _checkpoint_events(self) -> int:
        return max(CHECKPOINT_EVENTS, len(self._objects) // CHECKPOINT_SHARE)

    def _past(self, revision: Revision) -> View:
        """From the nearer of the two checkpoints around it: back from the later one, or on from the earlier one."""
        place, at = self._ring.place(revision)
        while place < self._ring.bare:
            self.backfill()
        inside = self._ring.segments[place].events
        later, behind = self._ring.to_checkpoint(place)
        earlier, before = self._ring.from_checkpoint(place)
        if earlier is not None and len(before) + at < len(inside) - at + len(behind):
            return View(_done(earlier, before + inside[:at]), revision, self._lookup)
        return View(_undone(self.view() if later is None else later, inside[at:] + behind), revision, self._lookup)

    def _end_of(self, place: int) -> Frozen:
        """The state behind a segment's last event."""
        state, events = self._ring.to_checkpoint(place)
        return _undone(self.view() if state is None else state, events)

    def _link(self, events: Sequence[Event], since: Revision) -> Generator[None, None, tuple[int, Revision]]:
        """Let the `previous` of each event be the very entry of the event before, as far back as known. Return from where."""
        last: dict[Key, Event] = {}
        told_from = work = 0
        for at, event in enumerate(events):
            work += 1 + len(event.entry.labels) // LABELS_AT_ONCE
            if work >= LINKED_AT_ONCE:
                yield
                work = 0
            key = event.entry.key
            before = last.get(key)
            like = self._objects.get(key) if before is None else before.entry
            if like is not None:
                _share(event.entry, like)
            if event.type is not EventType.CREATED and before is not None:
                _follows(event, before.entry)
                event.previous = before.entry
            elif event.previous is not None:
                _share(event.previous, event.entry)
            elif event.type is not EventType.CREATED:
                told_from, since = at + 1, event.revision
            last[key] = event
        for at, (key, event) in enumerate(last.items()):
            if at % LINKED_AT_ONCE == LINKED_AT_ONCE - 1:
                yield
            held = self._objects.get(key)
            if held is not None and held.revision == event.revision and event.type is not EventType.DELETED:
                event.entry = held
        for at, event in enumerate(events):
            if at % LINKED_AT_ONCE == LINKED_AT_ONCE - 1:
                yield
            # `apply` never sees these entries, so they are marked here.
            if event.previous is not None:
                event.previous.supersede()
            if self._objects.get(event.entry.key) is not event.entry:
                event.entry.supersede()
        return told_from, since


def _follows(event: Event, held: Entry) -> None:
    stated = event.previous
    if stated is not None and stated.revision != held.revision:
        raise Diverged(f"{held.key} at {event.revision} follows {stated.revision}, and is at {held.revision}")


def _share(entry: Entry, other: Entry) -> None:
    """Let equal parts of two states of an object be one: most changes touch neither labels nor indexed fields."""
    entry.key = other.key
    if entry.labels == other.labels:
        entry.labels = other.labels
    if entry.fields == other.fields:
        entry.fields = other.fields


def _undone(state: Frozen, events: Sequence[Event]) -> Frozen:
    """The state before `events`, which are all that led to `state`, oldest first: the first word on a key counts."""
    return _changed(state, {event.entry.key: event.previous for event in reversed(events)})


def _done(state: Frozen, events: Sequence[Event]) -> Frozen:
    """The state after `events`, which are all that followed on `state`, oldest first: the last word on a key counts."""
    gone = EventType.DELETED
    return _changed(state, {event.entry.key: None if event.type is gone else event.entry for event in events})


def _changed(state: Frozen, words: Mapping[Key, Entry | None]) -> Frozen:
    if not words:
        return state
    objects = state.thaw()
    for key, entry in words.items():
        if entry is None:
            objects.remove(key)
        else:
            objects.put(entry)
    return objects.freeze()
