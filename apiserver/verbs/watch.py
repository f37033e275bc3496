"""Serve WATCH: where the stream starts, what each change means for this watcher, how the stream ends.

A watcher first catches up by pulling from the log's ring in its own task, under backpressure. Then it joins the hub, which hands it every
further event as one finished frame shared with all others. A client that reads too slowly falls back to pulling.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, `pkg/storage/cacher/{cacher,cache_watcher}.go`.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apiserver import collectors, metrics
from apiserver.apimachinery import errors, options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import ListOptions
from apiserver.apimachinery.releases import V1_37, since
from apiserver.apimachinery.request import RequestInfo
from apiserver.config import features
from apiserver.conversion.converter import Converter, Unconvertible
from apiserver.listcache import piece
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.encoding import TimedEncoding
from apiserver.runtime import spans, turns
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
"""Objects, and their bytes, after which other tasks run."""
WATCH_LIST_BUCKETS = since(
    V1_37,
    (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300),
    before=(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60),
    what="`apiserver_watch_list_duration_seconds` has more buckets",
)
"""Upper bounds in seconds of the buckets of `metrics.WATCH_LIST_SECONDS` (kubernetes/apiserver `pkg/endpoints/metrics/metrics.go`)."""
TYPES = {EventType.CREATED: "ADDED", EventType.UPDATED: "MODIFIED", EventType.DELETED: "DELETED"}


async def watch(services: Services, call: Call) -> Any:
    """Stream changes until the watch times out, the client disconnects, or this server stops."""
    exchange = call.exchange
    accepted = rendering.negotiated(call)
    wanted = options.parse_list(exchange.query, watch=True)
    chosen = selection.select(call, wanted)
    meter = Meter(call.resource)
    if wanted.shard_selector:
        chosen = await selection.within_shard(services, chosen, wanted, missed=meter.missed)
    with failures.translated(call.info), read.listing_span(call, "cacher.Watch"):
        start = await _start_or_refusal(call, wanted)
    if isinstance(start, Start) and (converter := call.converter_of_view()) is not None:
        start = await _converted(converter, start, chosen)
    form = rendering.form_of(services, call, negotiation.streamed(accepted))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _seconds(services, wanted)
    lists = bool(wanted.send_initial_events) and wanted.allow_bookmarks
    stream = await exchange.open_watch(
        form.media, compresses=lists and services.gates.enabled(features.WATCH_LIST_COMPRESSION)
    )
    encoder = Encoder(form, services, stream.framing)
    try:
        async with asyncio.timeout_at(deadline) as left:
            stream.when_left(functools.partial(_end, left))
            await asyncio.sleep(0)  # lets a timeout of zero end the watch before its first event
            if isinstance(start, StatusError):
                await stream.write(encoder.error(start))
            else:
                kind = AgingSink if encoder.ages else Sink
                sink = kind(stream, encoder, chosen, meter)
                if call.converter is not None:
                    sink = ConvertingSink(sink, call.converter)
                await _run(call, sink, start, bookmarks=wanted.allow_bookmarks, deadline=deadline)
    except (TimeoutError, NoFrame, Unconvertible):
        pass
    return await stream.finish()


def _end(left: asyncio.Timeout) -> None:
    """End the watch: its client wants no more events."""
    if not left.expired():
        left.reschedule(asyncio.get_running_loop().time())


def _seconds(services: Services, wanted: ListOptions) -> float:
    """Return how long the watch lives: as the client says, otherwise a drawn time. A negative one ends at once."""
    # Upstream multiplies into nanoseconds of 64 bits, which wrap around (kubernetes/apiserver pkg/endpoints/handlers/get.go).
    nanoseconds = ((wanted.timeout_seconds or 0) * 10**9 + (1 << 63)) % (1 << 64) - (1 << 63)
    return nanoseconds / 1e9 or services.watch_seconds()


@dataclass(frozen=True, slots=True)
class Start:
    """`initial` is the state that is sent as synthetic ADDED events. Events after the version `after` follow. `converted` are the selected
    objects of this state where a webhook had to convert them."""

    after: Revision
    initial: View | None = None
    marker: bool = False
    converted: Sequence[Entry] | None = None


async def _converted(converter: Converter, start: Start, chosen: Selection) -> Start:
    """Convert the initial state before the stream begins, so that a failure is the response. Raises StatusError."""
    if start.initial is None:
        return start
    matching = read.matching(start.initial, chosen, converter=converter)
    return replace(start, converted=[entry async for found in matching for entry in found])


async def _start_or_refusal(call: Call, wanted: ListOptions) -> Start | StatusError:
    """Return where to start, or the error that the stream consists of: storage errors are sent as an event, not as a response."""
    try:
        return await _start(call, wanted)
    except Future as e:
        return errors.too_large_resource_version(e.revision, e.current)


async def _start(call: Call, wanted: ListOptions) -> Start:
    """Return where to start. With neither sendInitialEvents nor a version, possible on deprecated paths only, it is the state in memory,
    without a marker."""
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
    """Send all events. Raises Compacted, at once or when it becomes known, if the start names no state."""
    time = asyncio.get_running_loop().time
    try:
        watcher = call.store.watch(
            after=start.after,
            scope=sink.chosen.scope,
            sink=sink,
            outlet=sink.stream,
            bookmarks=bookmarks,
            deadline=deadline,
        )
    except Initializing:
        return  # memory was discarded after the headers were sent: a clean end, as for every running watch
    try:
        if start.initial is not None:
            began = time()
            with spans.span("WatchServer.HandleHTTP", call.answering):
                await _send_initial(sink, start.initial, marker=start.marker, converted=start.converted)
            if start.marker:
                sink.meter.list_seconds(call.info).observe(time() - began)
        call.exchange.begun()
        await _follow(watcher, sink)
    finally:
        watcher.close()


async def _send_initial(sink: Sink, view: View, *, marker: bool, converted: Sequence[Entry] | None) -> None:
    """Send the state as synthetic ADDED events, sorted by key, then the marker that it is complete."""
    entries: list[Entry] = []
    if converted is None:
        async for found in read.matching(view, sink.chosen):
            entries += [entry for entry in found if entry.readable]
    else:
        entries += [entry for entry in converted if entry.readable]
    batch: list[bytes] = []
    size, whole = 0, not sink.chosen.prefix
    range_ = ListRange(view.revision, sink.chosen.test is not None, begins=whole, ends=whole)
    async for frames_ in sink.encoder.initial(entries, range_):
        batch.append(frames_)
        size += len(frames_)
        if size >= piece.PORTION:
            await sink.stream.write(b"".join(batch))
            await turns.next_turn()  # a client that reads as fast as we write never makes us wait
            batch, size = [], 0
    sink.meter.initial.inc(len(entries))
    if marker:
        batch.append(sink.encoder.bookmark(view.revision, marker=True))
        sink.encoder.sent()
    await sink.stream.write(b"".join(batch))


async def _follow(watcher: Watcher, sink: Sink) -> None:
    """Pull until no event is left, join the hub, and pull again whenever the client falls behind."""
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
            await asyncio.sleep(0)  # the pump is between two watchers of one event: let it continue
        elif (wake := await watcher.wait()) is not Wake.BEHIND:
            sink.meter.dropped.inc(wake is Wake.DROPPED)
            return


class Meter:
    """The metrics of watches of one kind."""

    __slots__ = ("_resource", "dropped", "initial", "sizes")

    def __init__(self, resource: Resource) -> None:
        labels = resource.group, resource.version, resource.plural
        self._resource = resource
        self.sizes = sizes = metrics.WATCH_EVENT_BYTES.labels(*labels)
        """Sizes of the frames sent. WATCH_EVENTS reads its count too, so that a delivery is counted once."""
        metrics.WATCH_EVENTS.labels(*labels).set_function(lambda: sizes.count)
        self.initial = metrics.INIT_EVENTS.labels(resource.group, resource.plural)
        self.dropped = metrics.TERMINATED_WATCHERS.labels(resource.group, resource.plural)

    @property
    def missed(self) -> Callable[[], None]:
        """Return a function that counts an object of an event that lies in another shard."""
        return metrics.FILTERED_EVENTS.labels(self._resource.group, self._resource.plural).inc

    def shards(self, chosen: Selection, more: int) -> None:
        """Count running watches of a shard."""
        if chosen.shard:
            metrics.WATCH_SHARDS.labels(self._resource.group, self._resource.plural).inc(more)

    def list_seconds(self, info: RequestInfo) -> collectors.Distribution:
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
        r = self._resource
        return metrics.WATCH_LIST_SECONDS.labels(r.group, r.version, r.plural, scope)


class NotMade(Exception):
    """The frame takes too long for a step of the event loop, and is not cached."""


class Encoder:
    """Encodes events in one form. A frame is encoded once and cached on the event for all watchers. A frame with ages is cached until an
    age changes."""

    __slots__ = (
        "_encodings", "_form", "_frame", "_key", "_keys", "_later_keys", "ages", "clock", "first", "most", "workers",
    )  # fmt: skip

    def __init__(self, form: Form, services: Services, framing: Framing) -> None:
        self._form = form
        self._frame = framing.frame
        self._key = _key(form.key, framing.key)
        self.ages = form.ages
        """Whether cached frames are `TimedEncoding`, which this clock expires."""
        self.clock = form.clock
        self.workers = services.workers
        self.most = min(BATCH_BYTES, form.reach)
        """Bytes of objects whose frames are encoded in one step."""
        self._encodings = services.encodings
        self._later_keys = _keys(self._key)
        self.first = form.varies
        self._keys = {t: f"first {key}" for t, key in self._later_keys.items()} if self.first else self._later_keys

    @property
    def shared(self) -> Mapping[EventType, str] | None:
        """Return the cache keys of the next frames of changes, for watchers that get every change. None before the first frame."""
        return None if self.first else _keys_by_change(self._key)

    def sent(self) -> None:
        """Note that a frame was sent. Only the first frame of a Table has the column definitions."""
        self.first = False
        self._keys = self._later_keys

    async def initial(self, entries: Sequence[Entry], range_: ListRange) -> AsyncIterator[bytes]:
        """Yield synthetic ADDED events in batches. The caller sends all of them."""
        pieces = self._form.initial(entries, range_, first=self.first)
        if entries:
            self.sent()
        async for part in rendering.made(pieces, self.workers):
            yield piece.text(part)

    def chunk(self, event: Event, event_type: str, entry: Entry) -> bytes:
        """Return the frame as it is sent, from the event's cache if another watcher needed it before. Raises NotMade."""
        held, key = event.encodings, self._keys[event_type]
        found = held.get(key) if held is not None else None
        chunk: bytes | None = found.at(self.clock()) if found is not None and self.ages else found
        if chunk is not None:
            return chunk
        if self._form.heavy(entry.size):
            raise NotMade
        return self._made(key, event, event_type, entry, first=self.first)

    async def made(self, event: Event, event_type: str, entry: Entry) -> bytes:
        """Return the same, encoded in a thread if that takes long: once for all watchers that wait for it."""
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
        """Return a bookmark: the zero object of the kind with nothing but a version (and the mark that the initial events are complete)."""
        return self._form.bookmark(revision, marker=marker, first=self.first)

    def reminder(self, bookmark: Bookmark) -> bytes:
        """Return the frame of a bookmark, encoded once for all watchers of its round with this form."""
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


# Strings cache their hash, which is needed once per event and watcher.
@functools.lru_cache(maxsize=256)
def _keys(form_key: str) -> Mapping[str, str]:
    """Return the cache keys of frames, by the type of the event."""
    return {event_type: sys.intern(f"{event_type} {form_key}") for event_type in (*TYPES.values(), "BOOKMARK")}


@functools.lru_cache(maxsize=256)
def _keys_by_change(form_key: str) -> Mapping[EventType, str]:
    return {change: _keys(form_key)[event_type] for change, event_type in TYPES.items()}


class Sink:
    """This watcher's end of the hub: finds what a change means for this watcher, and writes it without waiting."""

    __slots__ = ("_keys", "_lengthy", "_sizes", "_test", "chosen", "encoder", "meter", "stream")

    def __init__(self, stream: WatchStream, encoder: Encoder, chosen: Selection, meter: Meter) -> None:
        self.meter = meter
        self.stream = stream
        self.encoder = encoder
        self.chosen = chosen
        self._test, self._lengthy = chosen.test, chosen.lengthy
        self._keys = encoder.shared if chosen.test is None else None
        self._sizes = meter.sizes

    def event(self, event: Event) -> bool:
        """Send an event. Return False if it was not sent; the watcher's own task then sends it.

        An event is not sent if the client's buffer is full, if the frame or its meaning needs a thread, or if writing it takes a step of
        its own.

        Runs once per event and watcher. Without a selector, the cached frame of the change is correct for every watcher.
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
        """Return the frame of a change for this watcher, however long it takes; None if the change does not concern it."""
        lengthy = self._is_lengthy(event)
        meant = await self.encoder.workers.run_patiently(self._meant, event) if lengthy else self._meant(event)
        return None if meant is None else await self.encoder.made(event, *meant)

    async def send(self, chunk: bytes) -> None:
        """Write a frame and wait for the client.

        All watchers of a large object wake at the same moment, and encrypting a megabyte takes a millisecond. So each large frame waits for
        its own turn of the event loop, and other tasks run in between.
        """
        if len(chunk) > BATCH_BYTES:
            await turns.next_turn()
        await self.stream.send(chunk)
        self.sent(chunk)

    def sent(self, chunk: bytes) -> None:
        self._sizes.observe(len(chunk))
        self._begun()

    def _begun(self) -> None:
        """Note that a frame was sent."""
        if self.encoder.first:
            self.encoder.sent()
        if self._keys is None and self._test is None:
            self._keys = self.encoder.shared

    def bookmark(self, bookmark: Bookmark) -> bool:
        """Send a bookmark, or drop it if it cannot be sent now."""
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
        """Return event type and entry of a change as this watcher sees it; None if the change does not concern it.

        An object that stops matching is DELETED with its old content at the version of the change. So is one that cannot be read.
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
    """A sink for frames with ages: a cached frame expires."""

    __slots__ = ("_clock",)

    def __init__(self, stream: WatchStream, encoder: Encoder, chosen: Selection, meter: Meter) -> None:
        super().__init__(stream, encoder, chosen, meter)
        self._clock = encoder.clock

    def event(self, event: Event) -> bool:
        keys, held = self._keys, event.encodings
        told: TimedEncoding[bytes] | None = (
            held.get(keys[event.type]) if keys is not None and held is not None else None
        )
        if told is None or (chunk := told.at(self._clock())) is None:
            return self._event(event)
        return self._pushed(chunk)


class ConvertingSink(Sink):
    """A sink for changes that may have to be converted. One that was not converted yet is left to the watcher's own task: the first that
    gets there calls the webhook for all."""

    __slots__ = ("_converter", "_sink")

    def __init__(self, sink: Sink, converter: Converter) -> None:
        super().__init__(sink.stream, sink.encoder, sink.chosen, sink.meter)
        self._sink = sink
        self._converter = converter

    def event(self, event: Event) -> bool:
        found = self._converter.known_event(event)
        return found is not None and self._sink.event(found)

    async def made(self, event: Event) -> bytes | None:
        return await self._sink.made(await self._converter.event(event))

    def sent(self, chunk: bytes) -> None:
        self._sink.sent(chunk)

    def bookmark(self, bookmark: Bookmark) -> bool:
        return self._sink.bookmark(bookmark)


def _any_entry(_: Entry) -> bool:
    return True
