"""WATCH: where the stream starts, what each change means for this watcher, how the stream ends.

A watcher first catches up by pulling from the log's ring in its own task, under backpressure; once nothing is left it joins the hub,
which hands it every further event as one ready-made frame shared with all others. A client that reads too slowly falls back to pulling.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, `pkg/storage/cacher/{cacher,cache_watcher}.go`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from apiserver import metrics
from apiserver.apimachinery import errors, options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import ListOptions
from apiserver.apimachinery.request import RequestInfo
from apiserver.schema.resource import Resource
from apiserver.storage.errors import Initializing
from apiserver.verbs import failures, read, selection
from apiserver.verbs.context import Call, Services
from apiserver.verbs.selection import Selection
from apiserver.watchcache.entry import Entry, Event, EventType, Revision
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.hub import Dropped, Wake, Watcher
from apiserver.watchcache.mvcc import View
from apiserver.wire import frames, negotiation, representation
from apiserver.wire.negotiation import Representation
from apiserver.wire.response import WatchStream

INITIAL_BATCH = 64
"""Objects whose initial events go out in one write."""
TYPES = {EventType.CREATED: "ADDED", EventType.UPDATED: "MODIFIED", EventType.DELETED: "DELETED"}


async def watch(services: Services, call: Call) -> Any:
    """Streams changes until the watch's time is over, the client leaves, or this server stops."""
    exchange = call.exchange
    rep = negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent, watch=True)
    wanted = options.parse_list(exchange.query, watch=True)
    chosen = selection.select(call, wanted)
    encoder = Encoder(call, rep, representation.include_object(rep, exchange.query), services)
    with failures.translated(call.info):
        start = await _start_or_refusal(call, wanted)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _seconds(services, wanted)
    stream = await exchange.open_watch(rep.media)
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.sleep(0)  # lets a time that is over already end the watch before its first event
            if isinstance(start, StatusError):
                await stream.write(encoder.error(start))
            else:
                sink = Sink(stream, encoder, chosen, Meter(call.resource))
                await _run(call, sink, start, bookmarks=wanted.allow_bookmarks, deadline=deadline)
    except (TimeoutError, NoFrame):
        pass
    return await stream.finish()


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
    time = asyncio.get_running_loop().time
    try:
        watcher = call.store.watch(
            after=start.after, scope=sink.chosen.scope, sink=sink, bookmarks=bookmarks, deadline=deadline
        )
    except Compacted as e:
        refusal = errors.expired(f"too old resource version: {e.revision} ({e.floor})")
        await sink.stream.write(sink.encoder.error(refusal))
        return
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
    batch = []
    for entry in read.matching(view, sink.chosen):
        batch.append(sink.encoder.frame("ADDED", entry))
        if len(batch) == INITIAL_BATCH:
            sink.meter.initial.inc(len(batch))
            await sink.stream.write(b"".join(batch))
            batch.clear()
    sink.meter.initial.inc(len(batch))
    if marker:
        batch.append(sink.encoder.bookmark(view.revision, marker=True))
    await sink.stream.write(b"".join(batch))


async def _follow(watcher: Watcher, sink: Sink) -> None:
    """Pull until nothing is left, join the hub, and pull again whenever the client fell behind."""
    while True:
        try:
            while events := watcher.pull():
                for event in events:
                    chunk = sink.chunk(event)
                    if chunk is not None:
                        await sink.stream.send(chunk)
                        sink.meter.sent(chunk)
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

    __slots__ = ("_bytes", "_events", "_resource", "dropped", "initial")

    def __init__(self, resource: Resource) -> None:
        labels = resource.group, resource.version, resource.plural
        self._resource = resource
        self._events = metrics.WATCH_EVENTS.labels(*labels)
        self._bytes = metrics.WATCH_EVENT_BYTES.labels(*labels)
        self.initial = metrics.INIT_EVENTS.labels(resource.group, resource.plural)
        self.dropped = metrics.TERMINATED_WATCHERS.labels(resource.group, resource.plural)

    def sent(self, chunk: bytes) -> None:
        self._events.inc()
        self._bytes.observe(len(chunk))

    def list_seconds(self, info: RequestInfo) -> metrics.Distribution:
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
        r = self._resource
        return metrics.WATCH_LIST_SECONDS.labels(r.group, r.version, r.plural, scope)


class NoFrame(Exception):
    """The negotiated form has no event form (a list of partial metadata): the stream ends at its first event, as upstream's does."""


class Encoder:
    """Frames in one representation. A frame of an event is built once and remembered on the event for every watcher."""

    __slots__ = ("_call", "_first", "_include", "_keys", "_rep", "_services")

    def __init__(self, call: Call, rep: Representation, include: str, services: Services) -> None:
        self._call = call
        self._rep = rep
        self._include = include
        self._services = services
        self._first = True
        # Texts remember their hash, which is asked for once per event and watcher. Each version of a kind has frames of its own.
        version = call.resource.version
        self._keys = {event_type: f"{version} {event_type} {rep} {include}" for event_type in TYPES.values()}

    @property
    def counts_frames(self) -> bool:
        """A Table's first frame differs from the others, so none may be made that is not sent."""
        return self._first and self._rep.target is not None

    def frame(self, event_type: str, entry: Entry) -> bytes:
        """One event as a line. A Table names its columns in the first event only."""
        first, self._first = self._first, False
        line = representation.frame(
            self._rep,
            self._call.resource,
            event_type,
            entry.body,
            first=first,
            include_object=self._include,
            now=self._services.now(),
        )
        return _framed(line)

    def chunk(self, event: Event, event_type: str, entry: Entry) -> bytes:
        """The frame as an HTTP chunk, from the event's memory when another watcher already needed it."""
        if self.counts_frames:
            return frames.chunk(self.frame(event_type, entry))
        key = self._keys[event_type]
        remembered = event.frames
        if remembered is None:
            remembered = event.frames = {}
        chunk = remembered.get(key)
        if chunk is None:
            chunk = remembered[key] = frames.chunk(self.frame(event_type, entry))
        return chunk

    def bookmark(self, revision: Revision, *, marker: bool = False) -> bytes:
        """A bookmark: the zero object of the kind with nothing but a version (and the mark that the initial events are over)."""
        first, self._first = self._first, False
        line = representation.bookmark(
            self._rep,
            self._call.resource,
            revision,
            marker=marker,
            first=first,
            include_object=self._include,
            now=self._services.now(),
        )
        return _framed(line)

    def error(self, error: StatusError) -> bytes:
        return representation.error_frame(self._rep, error.status())


def _framed(line: bytes) -> bytes:
    """An empty chunk would end the response on the wire while the watch still runs."""
    if not line:
        raise NoFrame
    return line


class Sink:
    """This watcher's end of the hub: turns a change into what it means here, and writes it without waiting."""

    __slots__ = ("_test", "chosen", "encoder", "meter", "stream")

    def __init__(self, stream: WatchStream, encoder: Encoder, chosen: Selection, meter: Meter) -> None:
        self.meter = meter
        self.stream = stream
        self.encoder = encoder
        self.chosen = chosen
        self._test = chosen.test

    def event(self, event: Event) -> bool:
        """False when the client's buffer is full: the event was not sent."""
        if self.encoder.counts_frames and not self.stream.writable:
            return False
        try:
            chunk = self.chunk(event)
        except NoFrame:
            return False  # the watcher's own task meets it again, and ends the stream
        if chunk is None:
            return True
        sent = self.stream.push(chunk)
        if sent:
            self.meter.sent(chunk)
        return sent

    def bookmark(self, revision: Revision) -> bool:
        """A bookmark is dropped, not kept for later, when it cannot be sent."""
        try:
            return self.stream.writable and self.stream.push(frames.chunk(self.encoder.bookmark(revision)))
        except NoFrame:
            return False

    def chunk(self, event: Event) -> bytes | None:
        """What this change looks like to this watcher; None when it does not concern it.

        An object that stops matching is DELETED with its old content at the version of the change.
        """
        test = self._test
        if test is None:
            return self.encoder.chunk(event, TYPES[event.type], event.entry)
        matches = event.type is not EventType.DELETED and test(event.entry)
        matched = event.previous is not None and test(event.previous)
        if matches:
            return self.encoder.chunk(event, "MODIFIED" if matched else "ADDED", event.entry)
        if not matched:
            return None
        gone = (
            event.entry
            if event.type is EventType.DELETED or event.previous is None
            else event.previous.at(event.revision)
        )
        return self.encoder.chunk(event, "DELETED", gone)
