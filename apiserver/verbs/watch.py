"""WATCH: where the stream starts, what each change means for this watcher, how the stream ends.

A watcher first catches up by pulling from the log's ring in its own task, under backpressure; once nothing is left it joins the hub,
which hands it every further event as one ready-made frame shared with all others. A client that reads too slowly falls back to pulling.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, `pkg/storage/cacher/{cacher,cache_watcher}.go`.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver import collectors, metrics
from apiserver.apimachinery import errors, options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import ListOptions
from apiserver.apimachinery.request import RequestInfo
from apiserver.listcache import piece
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.encoding import TimedEncoding
from apiserver.runtime.fairqueue import Turnstile
from apiserver.schema.resource import Resource
from apiserver.storage.errors import Initializing
from apiserver.verbs import failures, read, rendering, selection
from apiserver.verbs.context import Call, Services
from apiserver.verbs.selection import Selection
from apiserver.watchcache.entry import Entry, Event, EventType, Revision
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.hub import Bookmark, Dropped, Wake, Watcher
from apiserver.watchcache.mvcc import View
from apiserver.wire import negotiation
from apiserver.wire.forms.form import Form, NoFrame
from apiserver.wire.frames import Framing
from apiserver.wire.response import WatchStream

BATCH_EVENTS, BATCH_BYTES = 64, 256 << 10
"""Objects, and their bytes, after which other tasks have their turn."""
TYPES = {EventType.CREATED: "ADDED", EventType.UPDATED: "MODIFIED", EventType.DELETED: "DELETED"}


async def watch(services: Services, call: Call) -> Any:
    """Streams changes until the watch's time is over, the client leaves, or this server stops."""
    exchange = call.exchange
    accepted = negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent)
    wanted = options.parse_list(exchange.query, watch=True)
    chosen = selection.select(call, wanted)
    meter = Meter(call.resource)
    if wanted.shard_selector:
        chosen = await selection.within_shard(services, chosen, wanted, missed=meter.missed)
    with failures.translated(call.info):
        start = await _start_or_refusal(call, wanted)
    form = rendering.form_of(services, call, negotiation.streamed(accepted))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _seconds(services, wanted)
    stream = await exchange.open_watch(form.media)
    encoder = Encoder(form, services, stream.framing)
    try:
        async with asyncio.timeout_at(deadline) as left:
            stream.when_left(functools.partial(_end, left))
            await asyncio.sleep(0)  # lets a time that is over already end the watch before its first event
            if isinstance(start, StatusError):
                await stream.write(encoder.error(start))
            else:
                kind = AgingSink if encoder.ages else Sink
                sink = kind(stream, encoder, chosen, meter, sending=services.sending)
                await _run(call, sink, start, bookmarks=wanted.allow_bookmarks, deadline=deadline)
    except (TimeoutError, NoFrame):
        pass
    return await stream.finish()


def _end(left: asyncio.Timeout) -> None:
    """The client of a watch has said that it wants no more: its time is over."""
    if not left.expired():
        left.reschedule(asyncio.get_running_loop().time())


def _seconds(services: Services, wanted: ListOptions) -> float:
    """How long the watch lives: as the client says, else a drawn time. A negative one is over at once."""
    # Upstream multiplies into nanoseconds of 64 bits, which wrap around (kubernetes/apiserver pkg/endpoints/handlers/get.go).
    nanoseconds = ((wanted.timeout_seconds or 0) * 10**9 + (1 << 63)) % (1 << 64) - (1 << 63)
    return nanoseconds / 1e9 or services.watch_seconds()


@dataclass(frozen=True, slots=True)
class Start:
    """`initial` is the state that is sent as synthetic ADDED events, `after` the version whose successors follow."""

    after: Revision
    initial: View | None = None
    marker: bool = False


async def _start_or_refusal(call: Call, wanted: ListOptions) -> Start | StatusError:
    """Where to start, or the error that the stream consists of: what storage refuses comes as an event, not as a response."""
    try:
        return await _start(call, wanted)
    except Future as e:
        return errors.too_large_resource_version(e.revision, e.current)


async def _start(call: Call, wanted: ListOptions) -> Start:
    """Unset initial events with no version happen on the deprecated paths alone: the state in memory, and no marker after it."""
    revision = read.raw_version(wanted.resource_version)
    legacy = wanted.send_initial_events is None and not revision
    if wanted.send_initial_events and revision:
        await call.store.reach(revision)
    elif not wanted.resource_version and not legacy:
        await call.store.barrier()
    view = call.store.view()
    if wanted.send_initial_events or legacy:
        return Start(view.revision, view, marker=wanted.allow_bookmarks and not legacy)
    return Start(revision or view.revision)


async def _run(call: Call, sink: Sink, start: Start, *, bookmarks: bool, deadline: float) -> None:
    sink.meter.shards(sink.chosen, 1)
    try:
        await _serve(call, sink, start, bookmarks=bookmarks, deadline=deadline)
    except Compacted as e:
        refusal = errors.expired(f"too old resource version: {e.revision} ({e.floor})")
        await sink.stream.write(sink.encoder.error(refusal))
    finally:
        sink.meter.shards(sink.chosen, -1)


async def _serve(call: Call, sink: Sink, start: Start, *, bookmarks: bool, deadline: float) -> None:
    """Raises Compacted, at once or once it is known, when the start names no state."""
    time = asyncio.get_running_loop().time
    try:
        watcher = call.store.watch(
            after=start.after, scope=sink.chosen.scope, sink=sink, bookmarks=bookmarks, deadline=deadline
        )
    except Initializing:
        return  # memory was given up since the headers went out: a clean end, as for every running watch
    try:
        if start.initial is not None:
            began = time()
            await _send_initial(sink, start.initial, marker=start.marker)
            if start.marker:
                sink.meter.list_seconds(call.info).observe(time() - began)
        await _follow(watcher, sink)
    finally:
        watcher.close()


async def _send_initial(sink: Sink, view: View, *, marker: bool) -> None:
    """The state as synthetic ADDED events, sorted by key, then the marker that it is complete."""
    entries: list[Entry] = []
    async for found in read.matching(view, sink.chosen):
        entries += [entry for entry in found if entry.readable]
    batch: list[bytes] = []
    size, whole = 0, not sink.chosen.prefix
    range_ = ListRange(view.revision, sink.chosen.test is not None, begins=whole, ends=whole)
    async for frames_ in sink.encoder.initial(entries, range_):
        batch.append(frames_)
        size += len(frames_)
        if size >= piece.PORTION:
            await sink.stream.write(b"".join(batch))
            await asyncio.sleep(0)  # a client that takes everything at once never makes us wait
            batch, size = [], 0
    sink.meter.initial.inc(len(entries))
    if marker:
        batch.append(sink.encoder.bookmark(view.revision, marker=True))
        sink.encoder.sent()
    await sink.stream.write(b"".join(batch))


async def _follow(watcher: Watcher, sink: Sink) -> None:
    """Pull until nothing is left, join the hub, and pull again whenever the client fell behind."""
    while True:
        try:
            while events := watcher.pull(BATCH_EVENTS):
                size = 0
                for event in events:
                    size += event.entry.size
                    if size > sink.encoder.most:
                        await asyncio.sleep(0)
                        size = event.entry.size
                    chunk = await sink.made(event)
                    if chunk is not None:
                        await sink.send(chunk)
                await asyncio.sleep(0)
        except Dropped:
            sink.meter.dropped.inc()
            return
        if not watcher.join():
            await asyncio.sleep(0)  # the pump stands between two watchers of one event: let it go on
        elif (wake := await watcher.wait()) is not Wake.BEHIND:
            sink.meter.dropped.inc(wake is Wake.DROPPED)
            return


class Meter:
    """What watches of one kind are counted by."""

    __slots__ = ("_resource", "dropped", "initial", "sizes")

    def __init__(self, resource: Resource) -> None:
        labels = resource.group, resource.version, resource.plural
        self._resource = resource
        self.sizes = sizes = metrics.WATCH_EVENT_BYTES.labels(*labels)
        """Of the frames that went out. How many those were is asked of it too, so that a delivery is counted once."""
        metrics.WATCH_EVENTS.labels(*labels).set_function(lambda: sizes.count)
        self.initial = metrics.INIT_EVENTS.labels(resource.group, resource.plural)
        self.dropped = metrics.TERMINATED_WATCHERS.labels(resource.group, resource.plural)

    @property
    def missed(self) -> Callable[[], None]:
        """To be called for each object of an event that lies in another shard."""
        return metrics.FILTERED_EVENTS.labels(self._resource.group, self._resource.plural).inc

    def shards(self, chosen: Selection, more: int) -> None:
        """Counts running watches of a shard."""
        if chosen.shard:
            metrics.WATCH_SHARDS.labels(self._resource.group, self._resource.plural).inc(more)

    def list_seconds(self, info: RequestInfo) -> collectors.Distribution:
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
        r = self._resource
        return metrics.WATCH_LIST_SECONDS.labels(r.group, r.version, r.plural, scope)


class NotMade(Exception):
    """A frame that takes too long for a step of the event loop, and that nobody has made yet."""


class Encoder:
    """Frames in one form. A frame of an event is made once and remembered on the event for every watcher; one that tells ages, for as long
    as these stay as they are."""

    __slots__ = (
        "_encodings", "_form", "_frame", "_key", "_keys", "_later_keys", "ages", "clock", "first", "most", "workers",
    )  # fmt: skip

    def __init__(self, form: Form, services: Services, framing: Framing) -> None:
        self._form = form
        self._frame = framing.frame
        self._key = _key(form.key, framing.key)
        self.ages = form.ages
        """Whether what is remembered is `TimedEncoding`, and holds for a while by this clock."""
        self.clock = form.clock
        self.workers = services.workers
        self.most = min(BATCH_BYTES, form.reach)
        """Bytes of objects whose frames are made in one step."""
        self._encodings = services.encodings
        self._later_keys = _keys(self._key)
        self.first = form.varies
        self._keys = {t: f"first {key}" for t, key in self._later_keys.items()} if self.first else self._later_keys

    @property
    def shared(self) -> Mapping[EventType, str] | None:
        """What the next frames of changes are remembered under, for who is told every change of an object; None before a first frame."""
        return None if self.first else _keys_by_change(self._key)

    def sent(self) -> None:
        """A frame has gone out. The first one of a Table names the columns, and the others do not."""
        self.first = False
        self._keys = self._later_keys

    async def initial(self, entries: Sequence[Entry], range_: ListRange) -> AsyncIterator[bytes]:
        """Synthetic ADDED events, some at a time, which will be sent."""
        pieces = self._form.initial(entries, range_, first=self.first)
        if entries:
            self.sent()
        async for part in rendering.made(pieces, self.workers):
            yield piece.text(part)

    def chunk(self, event: Event, event_type: str, entry: Entry) -> bytes:
        """The frame as it is sent, from the event's memory when another watcher already needed it. Raises NotMade."""
        held, key = event.encodings, self._keys[event_type]
        found = held.get(key) if held is not None else None
        chunk: bytes | None = found.at(self.clock()) if found is not None and self.ages else found
        if chunk is not None:
            return chunk
        if self._form.heavy(entry.size):
            raise NotMade
        return self._made(key, event, event_type, entry, first=self.first)

    async def made(self, event: Event, event_type: str, entry: Entry) -> bytes:
        """The same, made in a thread if it takes long: once for all who wait for it."""
        try:
            return self.chunk(event, event_type, entry)
        except NotMade:
            key = self._keys[event_type]
            make = functools.partial(self._made, key, event, event_type, entry, first=self.first)
            return await self.workers.once((event, key), make)

    def _made(self, key: str, event: Event, event_type: str, entry: Entry, *, first: bool) -> bytes:
        if self.ages:
            return self._timed(key, event, self._form.timed_frame(event_type, entry, first=first))
        chunk = self._frame(self._form.frame(event_type, entry, first=first))
        self._encodings.remember(event, key, chunk, size=len(chunk))
        return chunk

    def _timed(self, key: str, event: Event, timed: TimedEncoding[bytes]) -> bytes:
        """Cache a frame with its time, instead of one with older ages."""
        chunk = self._frame(timed.value)
        self._encodings.remember(event, key, timed._replace(value=chunk, size=len(chunk)), size=len(chunk))
        return chunk

    def bookmark(self, revision: Revision, *, marker: bool = False) -> bytes:
        """A bookmark: the zero object of the kind with nothing but a version (and the mark that the initial events are over)."""
        return self._form.bookmark(revision, marker=marker, first=self.first)

    def reminder(self, bookmark: Bookmark) -> bytes:
        """The frame of a bookmark as it is sent, made once for all watchers of its round that want this form."""
        key = self._keys["BOOKMARK"]
        chunk = bookmark.frames.get(key)
        if chunk is None:
            chunk = bookmark.frames[key] = self._frame(self.bookmark(bookmark.revision))
        return chunk

    def error(self, error: StatusError) -> bytes:
        return self._form.error(error.status())


@functools.lru_cache(maxsize=256)
def _key(form_key: str, framing_key: str) -> str:
    return sys.intern(f"{form_key} {framing_key}") if framing_key else form_key


# Texts remember their hash, which is asked for once per event and watcher.
@functools.lru_cache(maxsize=256)
def _keys(form_key: str) -> Mapping[str, str]:
    """What frames are remembered under, by the type of the event."""
    return {event_type: sys.intern(f"{event_type} {form_key}") for event_type in (*TYPES.values(), "BOOKMARK")}


@functools.lru_cache(maxsize=256)
def _keys_by_change(form_key: str) -> Mapping[EventType, str]:
    return {change: _keys(form_key)[event_type] for change, event_type in TYPES.items()}


class Sink:
    """This watcher's end of the hub: turns a change into what it means here, and writes it without waiting."""

    __slots__ = ("_keys", "_lengthy", "_sending", "_sizes", "_test", "chosen", "encoder", "meter", "stream")

    def __init__(
        self, stream: WatchStream, encoder: Encoder, chosen: Selection, meter: Meter, *, sending: Turnstile
    ) -> None:
        self._sending = sending
        self.meter = meter
        self.stream = stream
        self.encoder = encoder
        self.chosen = chosen
        self._test, self._lengthy = chosen.test, chosen.lengthy
        self._keys = encoder.shared if chosen.test is None else None
        self._sizes = meter.sizes

    def event(self, event: Event) -> bool:
        """False when the event was not sent: the client's buffer is full, the frame has to be made in a thread first, or what it means
        found there, or it is so large that writing it takes a step of its own. The watcher's own task does what is left.

        Runs once per event and watcher. Without a selector, a frame that is there for this type of change is what everybody is told.
        """
        keys, held = self._keys, event.encodings
        if keys is None or held is None or (chunk := held.get(keys[event.type])) is None:
            return self._event(event)
        size = len(chunk)
        if size > BATCH_BYTES or not self.stream.push(chunk):
            return False
        self._sizes.observe(size)
        return True

    def _event(self, event: Event) -> bool:
        if self._is_lengthy(event):
            return False
        try:
            meant = self._meant(event)
            if meant is None:
                return True
            event_type, entry = meant
            chunk = self.encoder.chunk(event, event_type, entry)
        except (NoFrame, NotMade):
            return False
        return self._pushed(chunk)

    def _pushed(self, chunk: bytes) -> bool:
        sent = len(chunk) <= BATCH_BYTES and self.stream.push(chunk)
        if sent:
            self.sent(chunk)
        return sent

    async def made(self, event: Event) -> bytes | None:
        """The frame of a change for this watcher, however long it takes; None when the change does not concern it."""
        lengthy = self._is_lengthy(event)
        meant = await self.encoder.workers.run_patiently(self._meant, event) if lengthy else self._meant(event)
        return None if meant is None else await self.encoder.made(event, *meant)

    async def send(self, chunk: bytes) -> None:
        """Writes it and waits for the client. All watchers of a large object are roused at the same moment, and to encrypt a megabyte takes
        a millisecond: each has a turn of the event loop to itself, between which others have theirs."""
        if len(chunk) > BATCH_BYTES:
            await self._sending.pass_through()
        await self.stream.send(chunk)
        self.sent(chunk)

    def sent(self, chunk: bytes) -> None:
        self._sizes.observe(len(chunk))
        self._begun()

    def _begun(self) -> None:
        """A frame has gone out."""
        if self.encoder.first:
            self.encoder.sent()
        if self._keys is None and self._test is None:
            self._keys = self.encoder.shared

    def bookmark(self, bookmark: Bookmark) -> bool:
        """A bookmark is dropped, not kept for later, when it cannot be sent."""
        try:
            sent = self.stream.push(self.encoder.reminder(bookmark))
        except NoFrame:
            return False
        if sent:
            self._begun()
        return sent

    def _is_lengthy(self, event: Event) -> bool:
        lengthy, previous = self._lengthy, event.previous
        return lengthy is not None and (lengthy(event.entry) or (previous is not None and lengthy(previous)))

    def _meant(self, event: Event) -> tuple[str, Entry] | None:
        """What this change looks like to this watcher; None when it does not concern it.

        An object that stops matching is DELETED with its old content at the version of the change, and so is one that cannot be read.
        """
        test = self._test
        entry, previous = event.entry, event.previous
        if test is None:
            if entry.readable and (previous is None or previous.readable):
                return TYPES[event.type], entry
            test = _any_entry
        matches = event.type is not EventType.DELETED and entry.readable and test(entry)
        matched = previous is not None and previous.readable and test(previous)
        if matches:
            return "MODIFIED" if matched else "ADDED", event.entry
        if not matched:
            return None
        if event.type is EventType.DELETED or event.previous is None:
            return "DELETED", event.entry
        return "DELETED", event.previous.at(event.revision)


class AgingSink(Sink):
    """One for frames that tell ages: a frame that is there holds only for a while."""

    __slots__ = ("_clock",)

    def __init__(
        self, stream: WatchStream, encoder: Encoder, chosen: Selection, meter: Meter, *, sending: Turnstile
    ) -> None:
        super().__init__(stream, encoder, chosen, meter, sending=sending)
        self._clock = encoder.clock

    def event(self, event: Event) -> bool:
        keys, held = self._keys, event.encodings
        told: TimedEncoding[bytes] | None = (
            held.get(keys[event.type]) if keys is not None and held is not None else None
        )
        if told is None or (chunk := told.at(self._clock())) is None:
            return self._event(event)
        return self._pushed(chunk)


def _any_entry(_: Entry) -> bool:
    return True
