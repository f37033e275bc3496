"""Connections and their requests, where aiohttp has no setting. Knows neither listening sockets nor what is served."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, cast

import yarl
from aiohttp import HttpVersion11, http_parser, web, web_protocol
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from apiserver.config import config
from apiserver.filters.drain import LeftToSuccessor
from apiserver.filters.recover import PANIC
from apiserver.filters.request_info import UNSUPPORTED_ENCODING
from apiserver.filters.state import Handler, Peer, Request
from apiserver.serving.sessions import ServerSession
from apiserver.serving.targets import HEAD_END, RequestLine
from apiserver.serving.unfinished import Unfinished

logger = logging.getLogger(__name__)

_OTHER_ENCODINGS = "Request has invalid `Transfer-Encoding`", "Invalid `Transfer-Encoding` header value"
MALFORMED_HOST = "malformed Host header"
TOO_LARGE = "431 Request Header Fields Too Large"
LINGER_SECONDS = 2.0
"""How long a refused body is read and discarded, so that the client sees the refusal and not a reset."""
SILENT_SECONDS = 1.0
"""A connection counts as unused after this long."""
TURNS_TO_READ = 2
"""Turns of the event loop in which it reads what has come: it may run a task again before it looks at sockets."""

NAMED = 128
"""Characters of a target in the name of the task that serves it."""

PIECE = 16 << 10
"""Bytes that may contain heads of requests and are parsed in one step. Five bytes make a header line, which costs half a microsecond."""
SHORT_HEAD = 4 << 10
"""Bytes of a head that takes little of a step: 0.4 ms at most."""
PIECES_SECONDS = 0.002
"""How long one step parses pieces, heads or chunks of a body. Six bytes make a chunk, which costs as much as a megabyte inside one."""
LONGEST_BODY = (1 << 63) - 1
"""The largest Content-Length, as in Go (int64)."""
_HOST = re.compile(r"[\w!$%&'()*+,\-.:;=\[\]~]*", re.ASCII)
"""Upstream: golang/net `http/httpguts/httplex.go` ValidHostHeader."""

ReadPeer = Callable[[ServerSession], Peer | None]


class Protocol(web.RequestHandler):
    """One connection: aiohttp's, with limits on the time and size of headers, and parser errors in Go's words.

    `peer` is the identity that the client presented in the handshake. This class reads aiohttp's own state:

    * `_request_count`: requests with complete headers
    * `_messages`, `_current_request`: requests that wait, each with its body; the one being served
    * `_reading_paused`, `_buffer_paused`: a body, or the queue of requests, is full
    * `_next_keepalive_close_time`: of an idle connection, counted from its last response
    """

    __slots__ = (
        "_body",
        "_body_length",
        "_fed",
        "_header_bytes",
        "_header_timer",
        "_host",
        "_last",
        "_line",
        "_made",
        "_read_peer",
        "_rest",
        "_split",
        "_turn",
        "_unfinished",
        "kept",
        "leaving",
        "peer",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        read_peer: ReadPeer,
        unfinished: Callable[[Peer | None], Unfinished],
        **settings: Any,
    ) -> None:
        super().__init__(manager, **settings)
        self._read_peer = read_peer
        self._unfinished = unfinished
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._body: StreamReader | None = None
        self._body_length = 0
        self._line = RequestLine()
        self._rest = b""
        self._fed = 0
        """Bytes of `_rest` that were parsed already: cutting them off each time would copy the others."""
        self._split = b""
        """The part of a head's end with which the last piece ended."""
        self._last = False
        """The last request has come. Bytes after it are not read."""
        self._host = ""
        """The last well-formed Host."""
        self._turn: asyncio.Handle | None = None
        self._made = 0.0
        self.peer: Peer | None = None
        self.kept = False
        """A request was complete on this connection."""
        self.leaving = False
        """The connection ends with its next answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = self._loop.time()
        connection = transport.get_extra_info("ssl_object")
        if connection is not None:
            self.peer = self._read_peer(connection)
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._headers_complete()
        self._rest = b""
        super().connection_lost(exc)
        self._body = None  # it refers to this protocol

    def data_received(self, data: bytes) -> None:
        """Parse data in small pieces, except bodies. Without data, aiohttp goes on with what it has been fed."""
        if self._rest and data:
            self._rest, self._fed = self._rest[self._fed :] + data, 0
        elif self._is_one_piece(data):
            self._feed(data)
        else:
            self._rest, self._fed = self._without_request(data), 0
            if self._rest:
                self._feed_rest()

    def _is_one_piece(self, data: bytes) -> bool:
        """Return whether the data may be parsed in one go: part of a body, or one head with nothing after it."""
        if self._in_body:
            return len(data) <= self._body_left
        if self._last or self._split:
            return not data
        end = data.find(HEAD_END)
        return len(data) <= PIECE and (end < 0 or end + len(HEAD_END) == len(data))

    def _without_request(self, data: bytes) -> bytes:
        """Parse a short head, and what follows if all of it belongs to its body, as in most writes. Return what was not parsed."""
        if self._in_body or self._last or self._split or self._upgraded:
            return data
        end = data.find(HEAD_END, 0, SHORT_HEAD)
        if end < 0:
            return data
        end += len(HEAD_END)
        self._feed(data[:end])
        left = data[end:]
        held = self._reading_paused or self._buffer_paused or self._close or self._force_close
        if held or len(left) > self._body_left:
            return left
        super().data_received(left)
        return b""

    def _feed_rest(self) -> None:
        """Parse the rest of the present body, then pieces for as long as a step may take. Then other tasks get their turn."""
        self._turn = None
        until = perf_counter() + PIECES_SECONDS
        while self._rest:
            if self._close or self._force_close or (self._last and not self._in_body):
                self._rest = b""
            elif self._reading_paused or self._buffer_paused:
                return
            else:
                self._feed(self._next_piece())
                late = self._upgraded or perf_counter() > until
                if late and len(self._rest) - self._fed > self._body_left:
                    self._pause_transport_reading()
                    self._await_turn()
                    return
        if not (self._reading_paused or self._buffer_paused):
            super()._resume_transport_reading()

    def _next_piece(self) -> bytes:
        """Take as much of the rest as may be parsed in one go.

        aiohttp drops the requests of a piece when it finds an error after them. So a piece ends where a head ends, or a chunked body,
        whose end looks the same.
        """
        left = self._body_left
        piece = self._rest[self._fed : self._fed + (left or PIECE)]
        if not left:
            piece = piece[: self._head_length(piece)]
        self._fed += len(piece)
        if self._fed == len(self._rest):
            self._rest, self._fed = b"", 0
        return piece

    def _head_length(self, piece: bytes) -> int:
        """Return the length up to the end of a head or chunked body, or all of it. The end may have begun in the piece before."""
        split = len(self._split)
        end = (self._split + piece).find(HEAD_END) if split else piece.find(HEAD_END)
        return len(piece) if end < 0 else end + len(HEAD_END) - split

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Go on if reading was paused. A reader calls this for each chunk that it takes, and thousands may have one byte."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        """Go on reading; aiohttp calls this when a buffer has space again. Bytes that were read come before bytes that were not."""
        if self._rest:
            self._await_turn()
        else:
            super()._resume_transport_reading()

    def _await_turn(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._feed_rest)

    @property
    def _in_body(self) -> bool:
        """Whether a body is being read."""
        return self._body is not None and not self._body.is_eof()

    @property
    def _body_left(self) -> int:
        """Bytes that are known to belong to the body that is being read."""
        if self._body is None or self._body.is_eof():
            return 0
        return max(self._body_length - self._body.total_bytes, 0)

    def _feed(self, data: bytes) -> None:
        if self._upgraded:  # not HTTP any more: a WebSocket's reader takes it, or nobody
            super().data_received(data)
            if len(self._message_tail) >= PIECE and not self._buffer_paused:
                self._pause_reading_for_buffer()
            return
        before, in_body, body = self._request_count, self._in_body, self._body
        shown = data if in_body or self._line.named else self._line.parsable(data)
        plain = in_body or shown.isascii()
        super().data_received(shown if plain else self._line.escaped(shown))
        self._split = _begun_end(self._split + data if self._split else data)
        if self._request_count != before:
            self._headers_complete()
            if self._line.method:
                self._name_method()
            self._line.again()
            self._body = None
            if self._messages:
                message, self._body = self._messages[-1]
                if isinstance(message, RawRequestMessage):
                    self._begin(message)
                else:
                    self._malformed(message.exc, body)
        elif data and not in_body:
            if plain:
                self._line.escaped(shown)  # it has nothing to escape, but may end the line
            self._header_bytes += len(data)
            self._unfinished(self.peer).grow(self, data)
            if self._header_timer is None:
                self._await_headers()
            if self._header_bytes > config.MAX_HEADER_BYTES:
                self._refuse(TOO_LARGE)

    def _name_method(self) -> None:
        """Restore the method that was hidden from the parser."""
        message, body = self._messages[-1]
        if isinstance(message, RawRequestMessage):
            self._messages[-1] = message._replace(method=self._line.method), body

    def _begin(self, message: RawRequestMessage) -> None:
        """Make the checks of a head that Go makes and aiohttp does not. Nothing is read after a request that ends the connection."""
        self._last = message.should_close and not message.upgrade
        host = message.headers.get("Host", "")
        if host != self._host:
            if _HOST.fullmatch(host) is None:
                return self._reject(MALFORMED_HOST)
            self._host = host
        if self._in_body:
            self._body_length = int(message.headers.get("Content-Length", 0))
            if self._body_length > LONGEST_BODY:
                self._reject("bad Content-Length")
        return None

    def _reject(self, why: str) -> None:
        """Answer the last request as if it could not be parsed."""
        self._last = True
        error = BadHttpMessage(why)
        self._body = EMPTY_PAYLOAD
        self._messages[-1] = web_protocol._ErrInfo(error.code, error, error.message), EMPTY_PAYLOAD

    def _malformed(self, exc: BaseException, body: StreamReader | None) -> None:
        """End the connection after a parser error.

        The error must hold no frames, because they reference it and all that was sent. If a body is malformed in the middle, its reader
        gets an error; otherwise it would wait for the rest for ever.
        """
        self._rest = b""
        self._last = True
        exc.__traceback__ = exc.__context__ = None
        if body is not None and not body.is_eof():
            body.set_exception(web.RequestPayloadError("malformed in its transfer encoding"))

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log what ends a connection unexpectedly. A malformed rest of a body that nobody reads is the client's affair."""
        if not isinstance(kwargs.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **kwargs)

    @property
    def _busy(self) -> bool:
        return self._current_request is not None or bool(self._messages)

    def leave(self) -> None:
        """End the connection with its next answer, if possible the one to the present request."""
        self.leaving = True
        if isinstance(self._current_request, Request):
            self._current_request.last = True

    def used(self, now: float) -> float:
        """Return when the connection was used last."""
        if self._busy or self._header_bytes or self._rest:
            return now
        return max(self._made, self._next_keepalive_close_time - config.KEEP_ALIVE_SECONDS)

    def _await_headers(self) -> None:
        self._header_timer = self._loop.call_later(config.HEADER_SECONDS, self._headers_late)

    def _headers_late(self) -> None:
        if self._busy:  # the client sent part of its next request early, and this one is still being answered
            self._await_headers()
        else:
            self._give_up_head()

    def give_up(self) -> None:
        """Close the connection: its unfinished head takes memory that others need. Writing an answer would take too long."""
        logger.debug("a connection with unfinished headers was closed", extra={"bytes": self._header_bytes})
        if self.transport is not None:
            self.transport.abort()
        self._give_up_head()

    def _give_up_head(self) -> None:
        """End the connection. Its head takes no more memory, even while the transport still waits for the client."""
        self.force_close()
        self._parser = None
        self._headers_complete()

    def _headers_complete(self) -> None:
        if self._header_bytes:
            self._header_bytes = 0
            self._unfinished(self.peer).drop(self)
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, text: str) -> None:
        """Answer bytes that never became a request, unless that would land in the middle of another answer."""
        if self.transport is not None and not self._busy:
            head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
            self.transport.write(head.encode("ascii"))
        self._give_up_head()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not parse, or what even `filters.recover` could not answer."""
        if request.writer.output_size > 0 or isinstance(exc, LeftToSuccessor):
            raise ConnectionResetError("the connection ends without an answer, or in the middle of one")
        if isinstance(exc, HttpProcessingError):
            text = parser_words(exc)
            if text == UNSUPPORTED_ENCODING:
                status = 501
            logger.debug("malformed request", extra={"error": str(exc)[:256], "source": request.remote})
        else:
            text = PANIC
            logger.error("a response could not be sent", exc_info=exc)
        return _last(
            request, int(text[:3]) if text[:3].isdigit() else status, text.encode(), "text/plain; charset=utf-8"
        )


def _last(request: web.BaseRequest, status: int, body: bytes, media: str) -> web.StreamResponse:
    """Make an answer that ends the connection."""
    response = web.Response(status=status, body=body, headers={"Content-Type": media})
    response.force_close()
    return response


def parser_words(error: HttpProcessingError) -> str:
    """Turn a parser error into Go's words: net/http says nearly nothing about what was wrong."""
    message = error.message
    if isinstance(error, LineTooLong) or "Too many headers" in message:
        return TOO_LARGE
    if "'Host'" in message and "issing" in message:
        return "400 Bad Request: missing required Host header"
    if message == MALFORMED_HOST:
        return f"400 Bad Request: {message}"
    if message.startswith(_OTHER_ENCODINGS):
        return UNSUPPORTED_ENCODING
    return "400 Bad Request"


def _begun_end(data: bytes) -> bytes:
    """Return the part of a head's end with which a piece ends."""
    if data[-1:] not in (b"\r", b"\n") or data.endswith(HEAD_END):
        return b""
    return next((HEAD_END[:length] for length in (3, 2, 1) if data.endswith(HEAD_END[:length])), b"")


class Connections(web.Server):
    """Makes a `Protocol` for each connection, and for each request a `Request` that knows its peer."""

    def __init__(self, handler: Handler, *, read_peer: ReadPeer) -> None:
        super().__init__(_named(handler), request_factory=self._request, handler_cancellation=True)  # type: ignore[arg-type]
        self._read_peer = read_peer
        self._of_strangers, self._of_peers = Unfinished(), Unfinished()

    def unfinished(self, peer: Peer | None) -> Unfinished:
        """Return the budget for heads of such connections. A certificate's trust is known only when a head is complete."""
        return self._of_strangers if peer is None else self._of_peers

    def _request(  # noqa: PLR0917 - aiohttp's signature
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> Request:
        foreign = message.version.major != 1
        if foreign or message is web_protocol.ERROR:  # aiohttp gives what it could not parse the version 1.0
            message = message._replace(version=HttpVersion11)
        request = Request(message, payload, protocol, writer, task, self._loop)
        connection = cast("Protocol", protocol)
        request.peer = connection.peer
        request.kept, connection.kept = connection.kept, True
        request.last = connection.leaving
        if message.upgrade:
            request.upgrade = True
        if foreign:
            request.foreign = True
        return request

    def leave(self) -> None:
        """End each connection that is open now with its next answer, which says so (`Connection: close`).

        Clients open their next connection where the load balancer sends it by then. Connections that are idle stay open, because a client
        may be about to send. Later ones are kept: while the load balancer still sends them here, each would cost a handshake.
        Upstream: kubernetes/apiserver `pkg/server/genericapiserver.go` (RunWithContext); golang/go `src/net/http/server.go` (Shutdown),
        which closes idle connections at once.
        """
        for connection in self.connections:
            if isinstance(connection, Protocol):
                connection.leave()

    async def silence(self) -> None:
        """Wait until no connection has been used for a while.

        A client may send its next request at the very moment at which its idle connection is closed. It must not repeat that request if
        it is a write. Clients that send often have had a response with `Connection: close` by then; the others are unlikely to send
        just now. If this process stood still, its timers are late, and run before what has come meanwhile is read.
        """
        while True:
            for _ in range(TURNS_TO_READ):
                await asyncio.sleep(0)
            wait = self._used_last() + SILENT_SECONDS - self._loop.time()
            if wait <= 0:
                return
            await asyncio.sleep(wait)

    def _used_last(self) -> float:
        now = self._loop.time()
        return max((c.used(now) for c in self.connections if isinstance(c, Protocol)), default=-math.inf)

    def __call__(self) -> web.RequestHandler:
        return Protocol(
            self,
            read_peer=self._read_peer,
            unfinished=self.unfinished,
            loop=self._loop,
            keepalive_timeout=config.KEEP_ALIVE_SECONDS,
            access_log=None,
            max_line_size=config.MAX_HEADER_BYTES,
            max_field_size=config.MAX_HEADER_BYTES,
            max_headers=config.MAX_HEADER_LINES,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
            logger=logger,
        )


def _named(handler: Handler) -> Handler:
    """Name the task after its request, so that logs can show which step took long and what was cancelled."""

    def naming(request: Request) -> Awaitable[web.StreamResponse]:
        task = asyncio.current_task()
        if task is not None:
            task.set_name(f"{request.method} {request.raw_path[:NAMED]}")
        return handler(request)

    return naming


def check_parser() -> None:
    """Require aiohttp's parser in C: the one in Python has had smuggling bugs that the one in C does not."""
    if http_parser.HttpRequestParser.__module__ == http_parser.__name__:
        raise config.ConfigError(["aiohttp was installed without its C extensions, which this server requires"])


def remember_no_targets() -> None:
    """Turn yarl's caches off: each keeps 128 or 256 arguments of any length, so request targets could take a gigabyte."""
    yarl.cache_configure(idna_encode_size=0, idna_decode_size=0, encode_host_size=0)
    for name, function in tuple(vars(yarl._url).items()):
        if isinstance(function, functools._lru_cache_wrapper) and function.cache_parameters()["maxsize"]:
            setattr(yarl._url, name, function.__wrapped__)
