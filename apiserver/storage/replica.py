"""One resource's memory, which follows its log: filled, fed entry by entry, and filled again when the chain breaks.

Index and hub change in one step without an await, only here. The replica never asks the store by itself; `store` decides when.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from apiserver import metrics
from apiserver.runtime.offload import READ_STORED
from apiserver.storage import log, losses
from apiserver.storage.bootstrap import Filled
from apiserver.storage.errors import Initializing
from apiserver.storage.functions import Commands, Head
from apiserver.storage.log import RawEntry, Record
from apiserver.storage.options import StoreOptions
from apiserver.watchcache import keys
from apiserver.watchcache.entry import (
    AdoptFunc,
    Entry,
    Event,
    EventType,
    IndexFunc,
    Key,
    Revision,
    Unreadable,
    is_whole,
    marked,
    splice,
    split,
)
from apiserver.watchcache.hub import Hub, Watcher
from apiserver.watchcache.mvcc import Diverged, Index
from apiserver.watchcache.ring import Budget

logger = logging.getLogger(__name__)

MARKS = 32
"""The floor moves in this many steps per retention time."""

AHEAD_MS = 86_400_000
"""An epoch may begin this far ahead of the store's clock: one day, for takeovers in quick succession and clocks that are off."""
SPARE = 64
LARGE = 1 << 20
"""Bytes of a value of a kind that is stored as it is shown, above which a thread reads it."""
REMEMBERED = 8
"""Large values that wait for their entries. A forgotten one is read again, in a thread where the log brings it."""

_BLANK = b'{"metadata":{}}'


class Progress:
    """Callbacks that wait for revisions to be applied."""

    def __init__(self) -> None:
        self._heap: list[tuple[Revision, int]] = []
        self._waiting: dict[int, Callable[[], None]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, revision: Revision, then: Callable[[], None]) -> int:
        """Call `then` once, when this revision is applied. Returns the number that `forget` takes."""
        self._sequence += 1
        self._waiting[self._sequence] = then
        heapq.heappush(self._heap, (revision, self._sequence))
        return self._sequence

    def forget(self, number: int) -> None:
        """Remove a callback. Clients may ask for revisions that never come: abandoned callbacks must not pile up."""
        self._waiting.pop(number, None)
        if len(self._heap) > 2 * len(self._waiting) + SPARE:
            self._heap = [place for place in self._heap if place[1] in self._waiting]
            heapq.heapify(self._heap)

    def reached(self, revision: Revision) -> None:
        while self._heap and self._heap[0][0] <= revision:
            then = self._waiting.pop(heapq.heappop(self._heap)[1], None)
            if then is not None:
                then()


_Parts = tuple[bool, bytes, bytes, str, Mapping[str, str], tuple[str, ...]]
"""Whether a value is shown otherwise than it is stored; its line, its verbatim part and its version; its labels and fields."""


def _read(value: bytes, adopt: AdoptFunc, index_func: IndexFunc) -> _Parts:
    """Read a stored value. Raises ValueError, LookupError, TypeError, RecursionError."""
    if not is_whole(value):
        raise ValueError("it does not begin as an object does, or is no text")
    own = adopt(value)
    line, behind = split(own)
    version = marked(behind) if behind else ""
    labels, fields = index_func.read(line)
    hash(value)  # bytes keep it, and the event loop will look them up
    return own is not value, line, b"" if version else behind, version, labels, fields


class Replica:
    """`filled`: index and hub hold what the log said up to `position`. `fault`: the store has lost this resource."""

    def __init__(
        self,
        resource: str,
        index_func: IndexFunc,
        *,
        options: StoreOptions,
        budget: Budget,
        clock: Callable[[], float],
        seen: Callable[[bytes, Entry], None],
        adopt: AdoptFunc | None = None,
    ) -> None:
        self.resource = resource
        self.commands = Commands(resource)
        self.index = Index(budget=budget)
        self.hub = Hub(self.index, clock=clock)
        self.progress = Progress()
        self.epoch = b"0"
        self.highest_epoch = 0
        """The highest epoch that this process may have shown to any client, whichever server sent it."""
        self.marker = ""
        self.fault: str | None = None
        self.filled = False
        self.ever_filled = False
        self.holds_unreadable = False
        """Since this process started, some value could not be read: lists must look for more of them."""
        self.versions: set[str] = set()
        """The versions that marks of values have named since memory was last filled: a state may hold objects in them."""
        self.seen_from = Revision(0)
        self.wants_filling = asyncio.Event()
        self.wants_filling.set()
        self.installed = asyncio.Event()
        self._options = options
        self._index_func = index_func
        self._adopt = adopt or _as_it_is
        self._prepared: dict[bytes, _Parts] = {}
        """Large values as they were read, for entries that will soon be made of them."""
        self._no_fields = ("",) * len(index_func.read(_BLANK)[1])
        self._clock = clock
        self._seen = seen
        self._last = b""
        self._unseen: dict[Revision, Key] = {}
        """Acknowledged writes that the log has not brought yet."""
        self._empty_since = clock()
        self._empty_because = "starting"
        self._marks: deque[tuple[float, Revision]] = deque()
        self.announced = Revision(0)
        self._behind_since = 0.0
        self.meter = _Meter(self)

    # Contents

    @property
    def applied(self) -> Revision:
        return self.index.applied

    def current(self, key: Key) -> Entry | None:
        return self.index.get(key)

    def require(self) -> None:
        """Raise Initializing while memory must not be read."""
        if not self.filled:
            raise Initializing(self._clock() - self._empty_since, self._empty_because if self.ever_filled else "")

    def entry(self, key: Key, revision: Revision, value: bytes) -> Entry:
        """Return the entry of a stored value. Revision 0 is that of a dry run which creates: its value has no resourceVersion."""
        try:
            changed, line, verbatim, version, labels, fields = self._parts(value)
            body = splice(line, revision) if revision else line
            if version:
                self.versions.add(version)
            return Entry(key, revision, body, labels, fields, verbatim=verbatim, adopted=changed, version=version)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            why = str(error)[:1024]
        # Another program wrote it. It must not stop the log.
        about = {"resource": self.resource, "key": key, "revision": revision, "error": why}
        logger.error("unreadable object", extra=about)
        self.meter.unreadable.inc()
        self.holds_unreadable = True
        return Unreadable.named(key, revision, self._no_fields)

    def unread(self, values: Sequence[bytes]) -> list[bytes]:
        """Return the values that `prepare` must read before their entries are made: those that take long."""
        least = LARGE if self._adopt is _as_it_is else READ_STORED.limit
        return [value for value in values if len(value) > least]

    async def prepare(self, values: Sequence[bytes]) -> None:
        """Read the large ones of these values in a thread. The next `entry` of each finds the result."""
        adopt, index_func = self._adopt, self._index_func
        for value in self.unread(values):
            with suppress(ValueError, LookupError, TypeError, RecursionError):  # `entry` reports them
                parts = await READ_STORED.run(_read, value, adopt, index_func)
                if (adopt, index_func) == (self._adopt, self._index_func):
                    self._prepared[value] = parts
        while len(self._prepared) > max(REMEMBERED, len(values)):
            del self._prepared[next(iter(self._prepared))]

    def _parts(self, value: bytes) -> _Parts:
        found = self._prepared.pop(value, None) if len(value) > READ_STORED.limit and self._prepared else None
        return found or _read(value, self._adopt, self._index_func)

    async def caught_up(self, revision: Revision) -> None:
        if self.filled and self.applied >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        number = self.progress.wait(revision, partial(_wake, future))
        try:
            await future
        finally:
            self.progress.forget(number)

    def holds(self, revision: Revision) -> bool | None:
        """Return whether the log that is followed has this entry, which it may have lost in a failover. None: it no longer tells."""
        return None if revision < self.index.floor else self.index.names_state(revision)

    def acknowledged(self, revision: Revision, key: Key) -> None:
        if revision > self.applied or not self.filled:
            self._unseen[revision] = key
        self._met(keys.parts(revision)[0])

    # Filling and giving up

    def install(self, filled: Filled) -> Iterator[None]:
        """Replace the contents by the store's state and window, in small steps. Memory is not read between them."""
        yield from self.index.clear()
        self.index.load(
            filled.objects,
            applied=filled.applied,
            floor=filled.floor,
            ended=filled.ended,
            listed_by=self._index_func.listed_by,
        )
        yield from self.index.preload(filled.events, since=filled.since)
        self.hub.end_all()
        if not self.ever_filled:
            self.meter.rebuilt("start")
        self._unseen = {revision: key for revision, key in self._unseen.items() if revision > filled.applied}
        self.filled = self.ever_filled = True
        self.installed.set()
        self.wants_filling.clear()
        self._go_on_in(keys.parts(filled.applied)[0])
        self.marker = filled.head.marker
        self.seen_from = filled.head.floor
        self._last = keys.stream_id(filled.applied).encode()
        self.announced = filled.applied
        self.meter.bytes_held = filled.size
        for token, entry in filled.tokens:
            self._seen(token, entry)
        self.progress.reached(filled.applied)

    def _go_on_in(self, epoch: int) -> None:
        self.epoch = b"%d" % epoch
        self._met(epoch)

    def _met(self, epoch: int) -> None:
        alike = keys.alike(epoch, self.highest_epoch)
        self.highest_epoch = max(self.highest_epoch, epoch) if alike else epoch

    def rebuild(self, reason: str, detail: str) -> None:
        """End all watches cleanly and ask to be filled anew, because the log cannot be followed from this state."""
        if not self.filled:
            return
        logger.warning(
            "memory is filled anew from the store",
            extra={"resource": self.resource, "reason": reason, "detail": detail},
        )
        self.meter.rebuilt(reason)
        self.filled = False
        self.versions.clear()
        self.installed.clear()
        self._marks.clear()  # they may name lost revisions
        self._empty_since, self._empty_because = self._clock(), detail
        self.hub.end_all()
        self.wants_filling.set()

    def read_otherwise(self, index_func: IndexFunc, *, adopt: AdoptFunc | None = None) -> None:
        """Read stored values otherwise from now on: end all watches cleanly, and ask to be filled anew."""
        self._index_func = index_func
        self._adopt = adopt or _as_it_is
        self._prepared.clear()
        self._no_fields = ("",) * len(index_func.read(_BLANK)[1])
        self.rebuild("definition", "the definition of the kind changed")

    def end(self, reason: str) -> None:
        """End all watches cleanly. Requests that still hold this replica find nothing to read from now on."""
        self.filled = False
        self._empty_since, self._empty_because = self._clock(), reason
        self.hub.end_all()

    def lost(self, reason: str) -> None:
        """Note that the store no longer holds this resource. Memory stays, for reads that it may serve."""
        if self.fault is None:
            logger.error("the store lost its data", extra={"resource": self.resource, "detail": reason})
            self.fault = f"the store lost its data: {reason}"

    def meet(self, head: Head, *, known: Revision, ahead: Sequence[Watcher] = ()) -> None:
        """Check a head from a process that owns the log: at the start of a session, when data came back, and now and then.

        `known` is the revision that was applied when the head was asked for; the log may have brought more meanwhile. `ahead` are
        the watches that waited for later versions at that moment. A watch is ended if its epoch lies above the store's but could
        have begun by now. A server outside this lineage gave it that revision: Sluice shows clients only what is in the log.
        """
        self.fault = None
        if not self.filled:
            return
        if head.marker != self.marker:
            self.rebuild("lineage", "the store was installed anew")
        elif head.last < known:
            self.rebuild("lineage", f"the store ends at {keys.stream_id(head.last)}, before {keys.stream_id(known)}")
        else:
            self._go_on_in(max(head.epoch, int(self.epoch)))
            self.raise_floor(head.floor)
            self.hub.expire(watch for watch in ahead if _begun(keys.parts(watch.start)[0], head))
            if head.last > self.applied >= self.announced:
                self._behind_since = self._clock()
            self.announced = head.last

    def lag(self) -> float:
        """For how many seconds the log has been known to hold more than is applied."""
        return self._clock() - self._behind_since if self.filled and self.announced > self.applied else 0.0

    # Following the log

    def position(self) -> bytes | None:
        return self._last if self.filled and self.fault is None else None

    def feed(self, entries: Sequence[RawEntry]) -> None:
        for raw in entries:
            if not self.filled:
                return
            try:
                record = log.decode(raw)
                if record.predecessor != self._last:
                    self._gap(record)
                    return
                self._apply(record)
            except (Diverged, log.Malformed) as error:
                self.rebuild("gap", str(error))
                return
            except Exception as error:
                # A second attempt would fail again, and it is unknown how much of the entry was applied.
                logger.exception("an entry of the log could not be applied", extra={"resource": self.resource})
                self.rebuild("gap", repr(error))
                return
            self._last = record.id
        self.meter.fed(len(entries))
        self.hub.deliver()
        self.progress.reached(self.index.applied)

    def nothing(self, announced: Revision) -> None:
        if self.filled and announced > self.applied:
            last = self._last.decode()
            self.rebuild("gap", f"nothing comes after {last}, the log goes on to {keys.stream_id(announced)}")

    def _apply(self, record: Record) -> None:
        kind, revision = record.kind, record.revision
        if kind == log.FENCE:
            ended = self.index.applied
            self.index.advance(revision)
            self.hub.fenced(ended, revision)
            self._go_on_in(keys.parts(revision)[0])
            return
        held = self.index.get(record.key)
        if held is not None and keys.stream_id(held.revision).encode() != record.previous:
            raise Diverged(f"{record.key} follows {record.previous.decode()}, not {keys.stream_id(held.revision)}")
        if record.value is not None:
            entry = self.entry(record.key, revision, record.value)
            change = EventType.CREATED if kind == log.CREATE else EventType.UPDATED
        elif held is not None:
            entry, change = held.at(revision), EventType.DELETED
        else:
            raise Diverged(f"{record.key} was deleted at {record.id.decode()}, and is absent")
        event = Event(revision, change, entry, None)
        self.index.apply(event)
        self.hub.publish(event)
        self.meter.changed(event)
        if self._unseen:
            self._unseen.pop(revision, None)
        self._seen(record.token, entry)
        if record.cut:
            self.raise_floor(revision)

    def _gap(self, record: Record) -> None:
        text = f"{record.id.decode()} follows {record.predecessor.decode()}, not {self._last.decode()}"
        self.rebuild("lineage" if record.kind == log.FENCE else "gap", text)

    async def count_lost(self, head_of: Callable[[int], Awaitable[Head]]) -> None:
        """Count the writes that were applied or acknowledged here and that the store no longer has. Called before `install`.

        `head_of` asks the store for its head and where an epoch ended. Raises what that raises.
        """
        if not self.ever_filled:
            return
        known = losses.highest(self.index.ended, (self.applied, *self._unseen))
        found = await losses.compare(known, head_of=head_of)
        if found.unknown:
            text = "whether acknowledged writes were lost cannot be told: the store has forgotten the epoch"
            logger.warning(text, extra={"resource": self.resource, "applied": keys.stream_id(self.applied)})
        if found.count:
            lost = losses.lost_keys(found, self._unseen, self.index.newest_first())
            logger.error(
                "acknowledged writes were lost", extra={"resource": self.resource, "count": found.count, "keys": lost}
            )
            self.meter.lost.inc(found.count)
            self._unseen = {revision: key for revision, key in self._unseen.items() if not found.lost(revision)}

    # The floor

    def raise_floor(self, floor: Revision) -> None:
        self.index.compact(floor)

    def mark(self) -> None:
        """Record the revision that is applied now, for `applied_before`."""
        now = self._clock()
        if self.filled and (not self._marks or now - self._marks[-1][0] >= self._options.retention_seconds / MARKS):
            self._marks.append((now, self.applied))

    def applied_before(self, seconds: float) -> Revision | None:
        """Return the revision that was applied so many seconds of serving ago; None if there was no serving then."""
        found, until = None, self._clock() - seconds
        while self._marks and self._marks[0][0] <= until:
            found = self._marks.popleft()
        if found is None:
            return None
        self._marks.appendleft(found)
        return found[1]


def _begun(epoch: int, head: Head) -> bool:
    """Whether an epoch above the store's own could have begun by now. It may be of a store of the other form, which this one replaced."""
    return head.epoch < epoch <= keys.epoch_at(head.now_ms + AHEAD_MS, like=epoch)


def _as_it_is(value: bytes) -> bytes:
    return value


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Meter:
    """The metrics of one replica."""

    def __init__(self, replica: Replica) -> None:
        group, _, plural = replica.resource.partition("/")
        name = self._name = metrics.resource_label(replica.resource)
        self.bytes_held = 0
        self.lost = metrics.LOST_WRITES.labels(name)
        self.unreadable = metrics.UNREADABLE_OBJECTS.labels(name)
        self.reconnects = metrics.TAIL_RECONNECTS.labels(name)
        self._received = metrics.EVENTS_RECEIVED.labels(group, plural)
        index, hub = replica.index, replica.hub
        self._gauges: list[tuple[metrics.Shown, tuple[str, ...], Callable[[], float]]] = [
            (metrics.RESOURCE_OBJECTS, (group, plural), lambda: len(index)),
            (metrics.STORAGE_OBJECTS, (name,), lambda: len(index)),
            (metrics.EVENT_WINDOW, (group, plural), lambda: index.ring_events),
            (metrics.OBJECT_BYTES, (name,), lambda: self.bytes_held),
            (metrics.HISTORY_BYTES, (name,), lambda: index.ring_bytes),
            (metrics.WATCHERS, (name, "in_sync"), lambda: len(hub) - hub.behind),
            (metrics.WATCHERS, (name, "behind"), lambda: hub.behind),
            (metrics.DROPPED_WATCHERS, (name,), lambda: hub.drops),
            (metrics.TAIL_LAG_SECONDS, (name,), replica.lag),
            (metrics.APPLIED_EPOCH, (name,), lambda: keys.parts(index.applied)[0]),
            (metrics.APPLIED_NUMBER, (name,), lambda: keys.parts(index.applied)[1]),
            (metrics.FLOOR_EPOCH, (name,), lambda: keys.parts(index.floor)[0]),
            (metrics.FLOOR_NUMBER, (name,), lambda: keys.parts(index.floor)[1]),
        ]
        self.show()

    def show(self) -> None:
        """Let scrapes show this replica, and no other one of the same resource."""
        for family, labels, function in self._gauges:
            family.labels(*labels).set_function(function)

    def hide(self) -> None:
        """Let scrapes show no replica of this resource. Its counts stay."""
        for family, labels, _ in self._gauges:
            family.remove(*labels)

    def fed(self, count: int) -> None:
        self._received.inc(count)

    def changed(self, event: Event) -> None:
        if event.type is not EventType.DELETED:
            self.bytes_held += event.entry.size
        if event.previous is not None:
            self.bytes_held -= event.previous.size

    def rebuilt(self, reason: str) -> None:
        metrics.REBUILDS.labels(self._name, reason).inc()
