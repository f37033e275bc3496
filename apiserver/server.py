"""The process as a server: sockets and handshakes, what aiohttp has no setting for, signals, and a stop that nobody notices.

Knows no resources. A stop goes in this order (trap T17): unready at once, everything served for a while, every watch ended with its last
chunk while new ones are told 429, requests finished, and only then is the port closed. Where a successor has the listening socket too,
it gets all new connections before the first watch ends here, and no watch that comes back meets the one that goes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import resource
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import HttpVersion11, http_parser, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from apiserver import app as composition
from apiserver import config, metrics
from apiserver.app import App
from apiserver.delegation import Delegates
from apiserver.filters.recover import PANIC
from apiserver.filters.state import Handler, Peer, Request
from apiserver.schema import attributes
from apiserver.storage.store import StoreOptions, Stores, open_stores
from apiserver.tls import BadCertificates, Certificates, Chains

logger = logging.getLogger(__name__)

PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
TLS_RECORD = 0x16
"""First byte of a ClientHello."""
TOO_LARGE = "431 Request Header Fields Too Large"
ACCEPTS_AT_ONCE = 64
"""Connections taken before other work gets its turn."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
EXHAUSTED_SECONDS = 1.0
KEEP_ALIVE_PROBES = {"TCP_KEEPIDLE": 180, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
"""Seconds of silence before the first probe (as upstream), between probes, and how many go unanswered."""
CERTIFICATE_POLL_SECONDS = 10.0
LINGER_SECONDS = 2.0
"""How long a refused body is read and thrown away, so that the client sees the refusal and not a reset."""
HAND_OVER_SECONDS = 10.0
"""How long a socket with a predecessor is left to it while this process is not ready. There may be none, and then clients wait."""
LAST_HANDSHAKES_SECONDS = 2.0
"""How long a stop waits for handshakes that had begun."""
SILENT_SECONDS, SILENCE_SECONDS = 1.0, 5.0
"""After how long a connection counts as unused, and how long a stop waits for all to become so."""

ReadPeer = Callable[[ssl.SSLObject], Peer | None]


# ---------------------------------------------------------------------------------------------------------------- connections


class Protocol(web.RequestHandler):
    """One connection: aiohttp's, with a limit on the time and size of headers, and parser errors in Go's words.

    `peer` is what the client presented in the handshake. aiohttp's own state that is looked at: `_request_count` (requests whose headers
    are complete), `_messages` (those that wait, each with its body), `_current_request`, and `_next_keepalive_close_time` (of an idle
    connection, counted from its last response).
    """

    __slots__ = ("_body", "_header_bytes", "_header_timer", "_made", "_read_peer", "peer")

    def __init__(self, manager: web.Server, *, read_peer: ReadPeer, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._read_peer = read_peer
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._body: StreamReader | None = None
        self._made = 0.0
        self.peer: Peer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = self._loop.time()
        connection = transport.get_extra_info("ssl_object")
        if connection is not None:
            self.peer = self._read_peer(connection)
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._headers_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        in_body = self._body is not None and not self._body.is_eof()
        super().data_received(data)
        if self._request_count != before:
            self._headers_complete()
            self._body = self._messages[-1][1] if self._messages else None
            self._fail_unfinished_body()
        elif data and not in_body:
            self._header_bytes += len(data)
            if self._header_timer is None:
                self._await_headers()
            if self._header_bytes > config.MAX_HEADER_BYTES:
                self._refuse(TOO_LARGE)

    def _fail_unfinished_body(self) -> None:
        """A body that is malformed in the middle would leave its reader waiting for the rest for ever."""
        request = self._current_request
        if request is None or not self._messages or isinstance(self._messages[-1][0], RawRequestMessage):
            return
        if not request.content.is_eof():
            request.content.set_exception(web.RequestPayloadError("malformed in its transfer encoding"))

    @property
    def _busy(self) -> bool:
        return self._current_request is not None or bool(self._messages)

    def used(self, now: float) -> float:
        """When it was used last."""
        if self._busy or self._header_bytes:
            return now
        return max(self._made, self._next_keepalive_close_time - config.KEEP_ALIVE_SECONDS)

    def _await_headers(self) -> None:
        self._header_timer = self._loop.call_later(config.HEADER_SECONDS, self._headers_late)

    def _headers_late(self) -> None:
        if self._busy:  # the client sent the beginning of its next request early, and this one is still being answered
            self._await_headers()
        else:
            self.force_close()

    def _headers_complete(self) -> None:
        self._header_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, text: str) -> None:
        """Answers what never became a request, unless that would land in the middle of another answer."""
        if self.transport is not None and not self._busy:
            head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
            self.transport.write(head.encode("ascii"))
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp could not parse, or what even `filters.recover` could not answer."""
        if request.writer.output_size > 0:
            raise ConnectionResetError("the response had begun")
        if isinstance(exc, HttpProcessingError):
            text = parser_words(exc)
            logger.debug("malformed request", extra={"error": str(exc)[:256], "source": request.remote})
        else:
            text = PANIC
            logger.error("a response could not be sent", exc_info=exc)
        request._version = HttpVersion11  # aiohttp gives what it could not parse the version 1.0
        response = web.Response(
            status=int(text[:3]) if text[:3].isdigit() else 500,
            body=text.encode(),
            headers={"Content-Type": "text/plain; charset=utf-8"},
        )
        response.force_close()
        return response


def parser_words(error: HttpProcessingError) -> str:
    """Go's net/http says nearly nothing about what was wrong."""
    message = error.message
    if isinstance(error, LineTooLong) or "Too many headers" in message:
        return TOO_LARGE
    if "'Host'" in message:
        wrong = "missing required Host header" if "issing" in message else "too many Host headers"
        return f"400 Bad Request: {wrong}"
    return "400 Bad Request"


class Connections(web.Server):
    """Makes a `Protocol` for each connection, and for each request one that knows its peer."""

    def __init__(self, handler: Handler, *, read_peer: ReadPeer) -> None:
        super().__init__(handler, request_factory=self._request, handler_cancellation=True)  # type: ignore[arg-type]
        self._read_peer = read_peer

    def _request(  # noqa: PLR0917 - aiohttp's signature
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> Request:
        request = Request(message, payload, protocol, writer, task, self._loop)
        request.peer = protocol.peer  # type: ignore[attr-defined]
        return request

    async def silence(self) -> None:
        """Returns once no connection has been used for a while.

        A client may send its next request at the very moment at which its idle connection is closed, and must then not repeat it if it
        is a write. Those that send often have had a response with `Connection: close` by then; the others are unlikely to send just now.
        """
        while True:
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


# ---------------------------------------------------------------------------------------------------------------- listening


class Listener:
    """Takes connections from one socket and does their TLS handshakes, each with the newest certificates.

    aiohttp's and asyncio's own listeners neither answer plain HTTP on a TLS port nor tell of failed handshakes.
    """

    def __init__(
        self, sock: socket.socket, *, protocol: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext]
    ) -> None:
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port, *_ = self._sock.getsockname()
        return host, port

    def open(self) -> None:
        self._sock.settimeout(0)
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Takes no more connections. What waits in the accept queue belongs to a successor that shares the socket, if there is one;
        what was taken from it is ours, and its handshakes go on."""
        if self._retry is not None:
            self._retry.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    async def settled(self) -> None:
        """Returns when no handshake is under way."""
        while self._opening:
            await asyncio.wait(self._opening)

    async def abort(self) -> None:
        """Breaks off the handshakes that are under way."""
        for task in tuple(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                self._cannot_accept(e)
                return
            connection.settimeout(0)
            task = self._loop.create_task(self._shake_hands(connection, str(address[0])))
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, connection))

    def _opened(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():  # perhaps before it began
            connection.close()

    def _cannot_accept(self, error: OSError) -> None:
        """Out of descriptors: pause, or the loop would spin. Anything else is the trouble of one connection that is gone already."""
        logger.error("a connection could not be accepted", extra={"error": error.strerror})
        if error.errno in EXHAUSTED:
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(EXHAUSTED_SECONDS, self.open)

    async def _shake_hands(self, connection: socket.socket, source: str) -> None:
        try:
            async with asyncio.timeout(config.TLS_HANDSHAKE_SECONDS):
                first = await _first_byte(connection)
            if first == TLS_RECORD:
                await self._loop.connect_accepted_socket(
                    self._protocol, connection, ssl=self._context(), ssl_handshake_timeout=config.TLS_HANDSHAKE_SECONDS
                )
                return
            if first is not None and 0x41 <= first <= 0x5A:  # a capital letter: the beginning of an HTTP method
                connection.recv(65536)  # unread data would turn the close into a reset that overtakes the answer
                connection.send(PLAIN_HTTP)
            self._failed(connection, source, "no TLS handshake" if first is not None else "EOF")
        except (OSError, TimeoutError) as e:
            self._failed(connection, source, str(e) or type(e).__name__)
        except BaseException:
            connection.close()
            raise

    def _failed(self, connection: socket.socket, source: str, why: str) -> None:
        connection.close()
        metrics.TLS_HANDSHAKE_ERRORS.only.inc()
        logger.debug("TLS handshake error", extra={"source": source, "error": why[:256]})


async def _first_byte(connection: socket.socket) -> int | None:
    """Left in the socket for whoever reads next; None at the end of the stream."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            readable = loop.create_future()
            loop.add_reader(connection, _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(connection)
        else:
            return data[0] if data else None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def is_handed_over(environ: Mapping[str, str], *, pid: int) -> bool:
    """Whether a predecessor or a service manager passed us its listening socket (`LISTEN_FDS`, as systemd does)."""
    return environ.get("LISTEN_FDS", "") not in ("", "0") and environ.get("LISTEN_PID", str(pid)) == str(pid)


def listening_socket(address: str, port: int, *, environ: Mapping[str, str], pid: int) -> socket.socket:
    """The socket that was handed over, else a new one.

    Handing over one socket keeps the accept queue; two sockets with SO_REUSEPORT lose what waits in that of the one that closes.
    """
    if is_handed_over(environ, pid=pid):
        return socket.socket(fileno=3)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.create_server((address, port), family=family, backlog=config.BACKLOG)
    except OSError as e:
        raise OSError(f"cannot listen: {e.strerror}") from None
    # Inherited by every connection: a client that vanished is noticed even on a watch that has nothing to send.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE_PROBES.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


# ---------------------------------------------------------------------------------------------------------------- life


class Stop:
    """The stop signals: the first begins the stop, the second hurries it."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.hurry = asyncio.Event()

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.signal)

    def signal(self) -> None:
        (self.hurry if self.wanted.is_set() else self.wanted).set()

    async def or_done(self, work: Awaitable[None]) -> None:
        """Does the work, unless the first signal comes before it is done. Its errors are the caller's."""
        task, wanted = asyncio.ensure_future(work), asyncio.ensure_future(self.wanted.wait())
        try:
            await asyncio.wait((task, wanted), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
        finally:
            for pending in (task, wanted):
                pending.cancel()
            await asyncio.gather(task, wanted, return_exceptions=True)

    async def patiently(self, waiting: Awaitable[object], *, seconds: float) -> None:
        """Waits, but neither longer than that nor past the second signal."""
        task, hurry = asyncio.ensure_future(waiting), asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait((task, hurry), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pending in (task, hurry):
                pending.cancel()
            outcome, _ = await asyncio.gather(task, hurry, return_exceptions=True)
            if isinstance(outcome, Exception):
                logger.error("a step of the stop failed", exc_info=outcome)


class Server:
    """One listening process: opened, then stopped once. `shared`: others have the listening socket too."""

    def __init__(self, app: App, certificates: Certificates, sock: socket.socket, *, shared: bool) -> None:
        self._app = app
        self._certificates = certificates
        self._shared = shared
        self._connections = Connections(app.handler, read_peer=Chains().peer)
        self._listener = Listener(sock, protocol=self._connections, context=lambda: certificates.context)
        self._watching_files = asyncio.get_running_loop().create_task(self._renew())

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.address

    def open(self) -> None:
        self._listener.open()

    async def _renew(self) -> None:
        """Certificates are read again when they change; connections that are open keep their handshake, not their rights."""
        while True:
            await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
            try:
                if self._certificates.refresh():
                    logger.info("certificates read again")
            except BadCertificates as e:
                logger.error("changed certificates are not used", extra={"error": str(e)})

    async def stop(self, stop: Stop, shutdown: config.Shutdown, *, request_seconds: float) -> None:
        """Everything between the first signal and the last connection."""
        app = self._app
        logger.info("stopping", extra={"delay_seconds": shutdown.delay_seconds})
        app.stopping = True
        await stop.patiently(asyncio.Event().wait(), seconds=shutdown.delay_seconds)
        if self._shared:
            self._listener.close()
        app.drain.stop()
        await stop.patiently(app.end_watches(shutdown.watch_seconds), seconds=shutdown.watch_seconds + 1)
        await stop.patiently(app.finish(), seconds=request_seconds)
        self._listener.close()
        logger.info("the port is closed", extra={"requests": app.drain.requests, "watches": app.drain.watches})
        await stop.patiently(self._listener.settled(), seconds=LAST_HANDSHAKES_SECONDS)
        await self._listener.abort()
        await stop.patiently(self._connections.silence(), seconds=SILENCE_SECONDS)
        await stop.patiently(app.finish(), seconds=request_seconds)
        await self._connections.shutdown(0.1)
        self._watching_files.cancel()


Ready = Callable[[int, Stores], Awaitable[None]]


async def serve(
    settings: config.Config,
    options: StoreOptions,
    certificates: Certificates,
    *,
    delegates: Delegates,
    stop: Stop,
    ready: Ready,
    environ: Mapping[str, str],
) -> None:
    """Serves until told to stop. `ready` is called with the port once everything is served.

    The port opens before memory is full, so that health checks can say what is missing and watches are told to wait instead of refused.
    Only a port that somebody else may still be serving is left to them for a while.
    """
    check_parser()
    raise_descriptor_limit()
    served = composition.kinds(settings.serving.group)
    address, port = settings.serving.bind_address, settings.serving.secure_port
    shared = is_handed_over(environ, pid=os.getpid())
    sock = listening_socket(address, port, environ=environ, pid=os.getpid())
    stores = await open_stores(options, {composition.store_name(r): attributes.reader(r) for r in served.values()})
    try:
        app = composition.build(settings, served, stores=stores, trust=lambda: certificates.trust, delegates=delegates)
        server = Server(app, certificates, sock, shared=shared)
        complete = asyncio.ensure_future(_complete(stores, delegates))
        try:
            await stop.or_done(_announce(server, complete, patience=HAND_OVER_SECONDS if shared else 0.0))
            if not stop.wanted.is_set():
                await stop.or_done(ready(server.address[1], stores))
            await stop.wanted.wait()
        except BaseException:
            stop.hurry.set()  # a server that never worked keeps nobody waiting
            raise
        finally:
            complete.cancel()
            await asyncio.gather(complete, return_exceptions=True)
            await server.stop(stop, settings.shutdown, request_seconds=settings.limits.request_seconds)
    finally:
        await stores.close()


async def _complete(stores: Stores, delegates: Delegates) -> None:
    """Returns when everything is known that has to be known to serve."""
    await delegates.ready()
    await stores.ready()


async def _announce(server: Server, complete: asyncio.Future[None], *, patience: float) -> None:
    """Opens the port after `patience`, or as soon as all is complete, and returns when it is."""
    await asyncio.wait((complete,), timeout=patience)
    if complete.done():
        await complete
    server.open()
    address, port = server.address
    logger.info("listening", extra={"address": address, "port": port})
    await complete
    logger.info("ready")


def raise_descriptor_limit() -> None:
    """Each watch is a connection of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_parser() -> None:
    """aiohttp's parser in Python has had smuggling bugs that the one in C does not."""
    if http_parser.HttpRequestParser.__module__ == http_parser.__name__:
        raise config.ConfigError(["aiohttp was installed without its C extensions, which this server requires"])
