"""Read one request and write its answer on an aiohttp connection. No other module of this package uses HTTP's machinery.

Answers are written under backpressure. A client that reads nothing for STALL_SECONDS is disconnected. Large answers are compressed in
pieces.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/responsewriters/writers.go`, `pkg/endpoints/handlers/{rest,watch}.go`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any, cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import NO_QUERY, Annotations, Query, Recording, Waits, Warnings, query_of
from apiserver.listcache import gzip, piece
from apiserver.listcache.piece import LONG, PORTION, FirstPiece, Piece
from apiserver.runtime import offload, turns
from apiserver.wire import frames, negotiation, websocket
from apiserver.wire.frames import Framing

BODY_LIMIT = 3 << 20
"""Bytes of a request body, unless the store takes larger objects: upstream's MaxRequestBodyBytes."""
HEADER_READ = 4096
"""Characters of a header that are read before the client is authenticated."""
SLICE = 256 << 10
"""Bytes of an answer that are written at once. Longer answers are written in slices, so that a client that stops reading is noticed."""
GATHERED = 128 << 10
"""Bytes that are compressed at once, or written at once after compression."""
FIRST = 2 << 10
"""The same for the first ones: clients see early that the answer begins."""
SOON_SECONDS = 0.001
"""If gathering took longer, because the data had to be made, it is written in pieces of GATHERED bytes: one large write would delay other
tasks."""
STALL_SECONDS = 30.0
BACKLOG = 1 << 20
"""Unsent bytes of a watch above which no further event is pushed."""
RECORD = 16 << 10
"""Bytes of one record of TLS."""
SWITCHING_PROTOCOLS = 101


def _nothing() -> None:
    return None


class Exchange:
    """The parts of a request that a handler needs, and the ways to answer it.

    * `until` is the deadline, by the event loop's clock, at which a filter answers with a timeout.
    * `received` counts the bytes of the body that were read.
    * `heavy`: freeing the objects of the request takes a good part of a step of the event loop.
    * `relayed`: a proxy passes the answer on to the client.
    * `recording` is what audit records.
    * `upgrades`: the client asks for a WebSocket and offers `subprotocols`.
    * `begun` is called when the initial events of a watch are sent.
    """

    __slots__ = (
        "_accept",
        "_body_limit",
        "_held",
        "_query",
        "annotations",
        "begun",
        "heavy",
        "received",
        "recording",
        "relayed",
        "request",
        "subprotocols",
        "until",
        "upgrades",
        "waits",
        "warnings",
    )

    def __init__(self, request: web.Request, *, body_limit: int = BODY_LIMIT) -> None:
        self.request = request
        self._body_limit = body_limit
        self.warnings = Warnings()
        self.annotations = Annotations()
        self.waits = Waits()
        self.until = math.inf
        self.received = 0
        self.heavy = False
        self.relayed = False
        self.upgrades = False
        self.begun: Callable[[], None] = _nothing
        self.subprotocols: list[str] = []
        self.recording: Recording | None = None
        self._held: list[Any] = []
        self._query: Query | None = None
        self._accept: str | None = None

    def hold(self, *made: Any, size: int) -> None:
        """Keep these values until `free`, if `size`, an estimate of their bytes, is large: else the last function that uses them frees
        them, on the event loop. Without values: if the request fails, keep what its functions have made."""
        if size > offload.FREE.limit:
            self.heavy = True
            self._held += made

    def free(self) -> None:
        """Free the held values, once the functions that made them have returned.

        Three places call this: the outermost filter for every request, the write loop after each round, and an answer that a client may
        read slowly.
        """
        held, self._held = self._held, []
        offload.free(held)

    @property
    def query(self) -> Query:
        if self._query is None:
            self._query = query_of(self.request.raw_path.partition("?")[2])
        return self._query

    @property
    def accept(self) -> str:
        if self._accept is None:
            self._accept = negotiation.readable(self.request.headers.get("Accept", ""))
        return self._accept

    @property
    def content_type(self) -> str:
        return self.request.headers.get("Content-Type", "")[:HEADER_READ]

    @property
    def user_agent(self) -> str:
        return self.request.headers.get("User-Agent", "")

    @property
    def accepts_gzip(self) -> bool:
        """Whether the client accepts gzip, as upstream reads Accept-Encoding: a bare, lower-case `gzip`, without parameters."""
        header = self.request.headers.get("Accept-Encoding", "")[:HEADER_READ]
        return any(token.strip() == "gzip" for token in header.split(","))

    async def body(self) -> bytes:
        """Return the whole request body. Raises 413 if it is longer than the limit."""
        limit = self._body_limit
        parts: list[bytes] = []
        while part := await self.request.content.readany():
            self.received += len(part)
            if self.received > limit:
                raise errors.request_entity_too_large(f"limit is {limit}")
            parts.append(part)
        return b"".join(parts)

    def _headers(self, media: str, more: Mapping[str, str] | None) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict(more) if more else CIMultiDict()
        if media:
            headers["Content-Type"] = media
        for warning in self.warnings.headers():
            headers.add("Warning", warning)
        return headers

    async def respond(
        self, code: int, media: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Send a complete answer."""
        out = self._headers(media, headers)
        compressed = len(body) > LONG and self.accepts_gzip
        if compressed:
            _mark_compressed(out)
        if len(body) <= SLICE:
            return web.Response(status=code, body=gzip.member(body) if compressed else body, headers=out)
        self.free()  # a client may take minutes to read the answer
        response = web.StreamResponse(status=code, headers=out)
        if not compressed:
            response.content_length = len(body)
        await self._send(response, _chain(_slices(body)), compressed=compressed)
        return response

    async def stream(
        self,
        code: int,
        media: str,
        parts: AsyncIterator[bytes | Piece],
        *,
        length: int | None = None,
        large: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Send an answer in parts. A short answer is sent as a whole.

        `length` is its length in bytes, if known. `large`: it is certainly LONG. A part of type FirstPiece says the same later.
        """
        compressed = self.accepts_gzip and (length is None or length > LONG)
        first: list[bytes | Piece] = []
        if not large and (length is None or not compressed):
            first = await _first(parts, LONG if compressed else 0)
            large = bool(first) and isinstance(first[-1], FirstPiece)
            following = None if large else await anext(parts, None)
            if following is not None:
                first.append(following)
            elif not large:
                return await self.respond(code, media, b"".join(map(piece.text, first)), headers)
        out = self._headers(media, headers)
        if compressed:
            _mark_compressed(out)
        response = web.StreamResponse(status=code, headers=out)
        if length is not None and not compressed:
            response.content_length = length
        await self._send(response, _chain(first, parts), compressed=compressed, soon=large)
        return response

    async def _send(
        self,
        response: web.StreamResponse,
        parts: AsyncIterator[bytes | Piece],
        *,
        compressed: bool,
        soon: bool = False,
    ) -> None:
        outlet = await self._prepare(response)
        if self.request.method == "HEAD":
            return
        chunked = outlet.chunked and response.content_length is None
        async for some in packed(parts, soon=soon) if compressed else gathered(parts, soon=soon):
            outlet.write_all(frames.chunk_of(some) if chunked else some)
            await outlet.drain()
            await turns.next_turn()  # the next piece takes time
        await outlet.drain()
        await response.write_eof()

    async def _prepare(self, response: web.StreamResponse) -> _Outlet:
        framed = self.request.version >= HttpVersion11 and not isinstance(response, _UntilClosed)
        if not framed and response.content_length is None:
            response.force_close()  # only the end of the connection ends the answer, even if the client would keep it
        writer = await response.prepare(self.request)
        assert writer is not None
        return _Outlet(self.request, writer, chunked=framed)

    async def open_watch(self, media: str, *, compresses: bool = False) -> WatchStream:
        """Return a stream of events in that media type, whose headers are being sent. `compresses`: a client that accepts gzip gets it.
        Raises TextError for a malformed WebSocket handshake."""
        if self.upgrades:
            return await self._open_websocket(websocket.FRAMINGS[media])
        if self.recording is not None:
            await self.recording.begun(200)
        make = _UntilClosed if self.relayed else web.StreamResponse
        headers, framing = self._headers(negotiation.STREAMED[media], None), frames.CHUNKS
        if compresses and self.accepts_gzip:
            _mark_compressed(headers)
            framing = frames.COMPRESSED_CHUNKS
        response = make(headers=headers)
        return WatchStream(response, await self._prepare(response), framing)

    async def _open_websocket(self, framing: Framing) -> WatchStream:
        head = websocket.accept(self.request.headers, self.subprotocols)
        if self.recording is not None:
            await self.recording.begun(SWITCHING_PROTOCOLS)
        response = _Switched()
        outlet = await self._prepare(response)
        outlet.write(head)
        stream = WebSocketStream(response, outlet, framing)
        self.request.protocol.set_parser(stream.receiver)  # type: ignore[arg-type]
        return stream


class Internal(Exchange):
    """The exchange of a write that this process makes itself: without a request to read and without a client."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(cast("web.Request", None))

    @property
    def query(self) -> Query:
        return NO_QUERY

    @property
    def accept(self) -> str:
        return ""

    @property
    def content_type(self) -> str:
        return ""

    @property
    def user_agent(self) -> str:
        return ""

    async def body(self) -> bytes:
        return b""


class _UntilClosed(web.StreamResponse):
    """A watch that ends when its connection ends, for a proxy. So a killed process ends it as cleanly as one that stops.

    A reverse proxy in Go resets its client's stream when chunks end without the last one. client-go treats that as an error and lists
    again. After a clean end it continues the watch (net/http/httputil `reverseproxy.go`, apimachinery `pkg/watch/streamwatcher.go`). A
    watch may end anywhere, so nothing incomplete looks complete.
    """

    _length_check = False

    def __init__(self, *, headers: CIMultiDict[str]) -> None:
        super().__init__(headers=headers)
        self.force_close()


class _Switched(web.StreamResponse):
    """The answer that switches a connection to a WebSocket. Its head is upstream's, with the handshake only."""

    _length_check = False

    def __init__(self) -> None:
        super().__init__(status=SWITCHING_PROTOCOLS)
        self.force_close()

    async def _write_headers(self) -> None:
        """Do nothing: `_open_websocket` writes the head."""


def _mark_compressed(headers: CIMultiDict[str]) -> None:
    headers["Content-Encoding"] = "gzip"
    headers.add("Vary", "Accept-Encoding")


def _slices(body: bytes) -> Iterator[bytes]:
    if len(body) <= 2 * SLICE:
        yield from (body,) if body else ()
        return
    for start in range(0, len(body), SLICE):
        yield body[start : start + SLICE]


async def _chain(
    known: Iterable[bytes | Piece], rest: AsyncIterator[bytes | Piece] | None = None
) -> AsyncIterator[bytes | Piece]:
    for part in known:
        yield part.data if isinstance(part, FirstPiece) else part
    if rest is not None:
        async for part in rest:
            yield part


async def _first(parts: AsyncIterator[bytes | Piece], more_than: int) -> list[bytes | Piece]:
    """Return the first part, and further ones until they exceed a size or it is certain that they will."""
    found: list[bytes | Piece] = []
    size = 0
    async for part in parts:
        found.append(part)
        size += len(piece.text(part))
        if size > more_than or isinstance(part, FirstPiece):
            break
    return found


async def gathered(parts: AsyncIterator[bytes | Piece], *, soon: bool) -> AsyncIterator[list[bytes]]:
    """Yield the text in lists that are worth a write. `soon`: the very first part comes alone, at any size."""
    pending: list[bytes] = []
    size, enough, began = 0, 1 if soon else FIRST, perf_counter()
    async for part in parts:
        for text in piece.texts(part):
            for some in (text,) if len(text) <= 2 * PORTION else _slices(text):
                pending.append(some)
                size += len(some)
                if size >= enough:
                    yield pending
                    pending, size, enough = [], 0, FIRST if enough < FIRST else PORTION
                    began = perf_counter()
        if size >= GATHERED and perf_counter() - began > SOON_SECONDS:
            yield pending
            pending, size, began = [], 0, perf_counter()
    if size:
        yield pending


async def packed(parts: AsyncIterator[bytes | Piece], *, soon: bool = False) -> AsyncIterator[list[bytes]]:
    """Yield one gzip member in pieces. Each is half a millisecond of work or worth a write.

    Adjacent texts are compressed together; with `soon`, all but the very first. Pieces are sent as they are.
    """
    member = gzip.Member()
    ready: list[bytes] = [member.HEAD]
    texts: list[bytes] = []
    size, text_size, enough, text_enough = 0, 0, FIRST, 1 if soon else GATHERED
    async for part in parts:
        if not isinstance(part, bytes):
            if texts:
                ready.append(member.add(gzip.compress(_one(texts))))
                texts, text_size = [], 0
            for compressed in part.compressed():
                ready.append(member.add(compressed))
                size += len(compressed.data)
        else:
            texts.append(part)
            text_size += len(part)
            if text_size < text_enough:
                continue
            text_enough = GATHERED
            for some in _slices(_one(texts)):
                ready.append(member.add(gzip.compress(some)))
                yield ready
                ready = []
            texts, text_size, size = [], 0, 0
        if size >= enough:
            yield ready
            ready, size, enough = [], 0, GATHERED
    if texts:
        ready.append(member.add(gzip.compress(_one(texts))))
    ready.append(member.end())
    yield ready


def _one(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Outlet:
    """The connection of a response that has begun.

    Writes directly to the transport instead of aiohttp's writer, because the bytes are framed already. Both write to the same transport and
    neither buffers, so their order is kept.
    """

    def __init__(self, request: web.Request, writer: AbstractStreamWriter, *, chunked: bool) -> None:
        if request.transport is None:
            raise ConnectionResetError("the client has disconnected")
        self.transport: asyncio.WriteTransport = request.transport
        self._request = request
        self._writer = writer
        self._draining: asyncio.Future[None] | None = None
        self.chunked = chunked

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client; BACKLOG if it has disconnected."""
        return BACKLOG if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Write bytes. Raises ConnectionResetError if the client has disconnected."""
        if self.transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._writer.output_size += len(data)
        self.transport.write(data)

    def write_all(self, parts: list[bytes]) -> None:
        """Write several pieces. Raises ConnectionResetError if the client has disconnected."""
        if self.transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._writer.output_size += sum(map(len, parts))
        self.transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until the client has read nearly everything. Disconnect a client that reads nothing.

        The wait is never cancelled, only left: all writers of a connection wait for the same future of aiohttp.
        """
        if self._draining is None:
            if not self._request.protocol.writing_paused:
                return
            self._draining = asyncio.ensure_future(self._writer.drain())
            # When the client disconnects, the waiting task is cancelled, so nobody retrieves this result.
            self._draining.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        left = self.backlog
        while True:
            done, _ = await asyncio.wait((self._draining,), timeout=STALL_SECONDS)
            if done:
                self._draining.result()
                self._draining = None
                return
            before, left = left, self.backlog
            if left >= before:
                self.abort()
                raise ConnectionResetError("the client stalled")

    def abort(self) -> None:
        self.transport.abort()


class WatchStream:
    """An open watch. `write` and `send` wait for the client; `push` never does. `send` and `push` take frames made by `framing`.

    The fields that `push` reads are attributes of the stream itself. A thousand watchers do not fit into the processor's caches. Apart from
    encryption and the system call, a delivery costs as many cache misses as it reads places of memory.
    """

    __slots__ = ("_bare", "_compresses", "_held", "_held_size", "_outlet", "_response", "_transport", "framing")

    def __init__(self, response: web.StreamResponse, outlet: _Outlet, framing: Framing = frames.CHUNKS) -> None:
        self.framing = framing
        self._response = response
        self._outlet = outlet
        self._transport = outlet.transport
        self._held: list[bytes] | None = None
        """Frames that `push` gathers, if it does."""
        self._held_size = 0
        self._compresses = framing is frames.COMPRESSED_CHUNKS
        self._bare = framing in {frames.CHUNKS, frames.COMPRESSED_CHUNKS} and not outlet.chunked
        """The client gets the contents of chunks, without chunk framing."""

    def when_left(self, call: Callable[[], None]) -> None:
        """Set a function that is called when the client asks for the end of the stream. Only WebSocket clients can do that."""

    async def write(self, events: bytes) -> None:
        """Write one or more whole events."""
        if events and self._compresses:
            events = await offload.run_sized(offload.COMPRESS, len(events), gzip.member, events)
        if events:
            self._outlet.write_all([events] if self._bare else frames.chunk_of([events]))
            await self._outlet.drain()

    async def send(self, frame: bytes) -> None:
        """Send a finished frame. Raises ConnectionResetError if the client has disconnected or stalled."""
        self._outlet.write(_unchunked(frame) if self._bare else frame)
        await self._outlet.drain()

    def push(self, frame: bytes) -> bool:
        """Send a finished frame if the client keeps up. Return False, with nothing written, if it is too far behind or has disconnected.
        Runs once per event and watcher.

        aiohttp's count of sent bytes is not updated: nothing reads it for a watch.
        """
        transport = self._transport
        if transport.is_closing() or transport.get_write_buffer_size() >= BACKLOG:
            return False
        data = _unchunked(frame) if self._bare else frame
        if self._held is None:
            transport.write(data)
        else:
            self._hold(self._held, data)
        return True

    def hold(self) -> None:
        """Gather what is pushed, up to a record of TLS, until `release`. Nothing else may be written meanwhile."""
        self._held, self._held_size = [], 0

    def release(self) -> None:
        """Write what was gathered, in one piece."""
        held, self._held = self._held, None
        if held:
            self._transport.write(_one(held))

    def _hold(self, held: list[bytes], data: bytes) -> None:
        if held and self._held_size + len(data) > RECORD:
            self._transport.write(_one(held))
            held.clear()
            self._held_size = 0
        held.append(data)
        self._held_size += len(data)

    async def finish(self) -> web.StreamResponse:
        """End the stream cleanly. Ignores a client that has disconnected."""
        try:
            await self._outlet.drain()
            await self._response.write_eof()
        except ConnectionError:
            pass
        return self._response


class WebSocketStream(WatchStream):
    """A watch over a WebSocket: each event is a message, and a close frame ends it."""

    __slots__ = ("_left", "_when_left", "receiver")

    def __init__(self, response: web.StreamResponse, outlet: _Outlet, framing: Framing) -> None:
        super().__init__(response, outlet, framing)
        self.receiver = websocket.Receiver(answer=self._answer, ended=self._ended)
        self._left = False
        self._when_left: Callable[[], None] | None = None

    def when_left(self, call: Callable[[], None]) -> None:
        self._when_left = call
        if self._left:
            call()

    async def write(self, events: bytes) -> None:
        if events:
            self._outlet.write(self.framing.frame(events))
            await self._outlet.drain()

    async def finish(self) -> web.StreamResponse:
        self.receiver.stop()
        try:
            await self._outlet.drain()
            self._outlet.write(websocket.close(websocket.NORMAL))
        except ConnectionError:
            return self._response
        return await super().finish()

    def _answer(self, data: bytes) -> None:
        """Send pongs. A client that does not read them gets no more, so that its pings cannot fill memory."""
        self.push(data)

    def _ended(self) -> None:
        self._left = True
        if self._when_left is not None:
            self._when_left()


def _unchunked(chunk: bytes) -> bytes:
    return chunk[chunk.index(b"\r\n") + 2 : -2]
