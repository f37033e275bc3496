"""The listening socket, new or handed over, and the TLS handshakes on it. Knows no requests."""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from OpenSSL import SSL

from apiserver import metrics
from apiserver.config import config
from apiserver.runtime.fairqueue import FairQueue
from apiserver.serving import ports, tls

logger = logging.getLogger(__name__)

PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
TLS_RECORD = 0x16
"""First byte of a ClientHello."""
ACCEPTS_AT_ONCE = 64
"""Connections accepted before other work gets its turn."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
EXHAUSTED_SECONDS = 1.0
LOOK_SECONDS = 0.05
"""Between two looks at the accept queue. A process that serves empties it within one step of its event loop."""
KEEP_ALIVE_PROBES = {"TCP_KEEPIDLE": 180, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
"""Seconds of silence before the first probe (as upstream) and between probes, and how many may go unanswered."""

HANDED_OVER = 3
"""The first descriptor that is handed over (systemd: SD_LISTEN_FDS_START)."""


class PortInUse(OSError):
    """Another process listens on the port."""


class Listener:
    """Accepts connections from one socket and does their TLS handshakes, each with the newest certificates.

    aiohttp's and asyncio's own listeners do not answer plain HTTP on a TLS port, do not report failed handshakes, and do not choose the
    order of handshakes.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        protocol: Callable[[], asyncio.Protocol],
        context: Callable[[], SSL.Context],
        fair_queue: FairQueue,
    ) -> None:
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._fair_queue = fair_queue
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port, *_ = self._sock.getsockname()
        return host, port

    async def unaccepted(self, seconds: float) -> None:
        """Wait until the accept queue was never empty for so long: no process with this socket accepts connections.

        A process that does empties it again and again. An empty queue tells nothing, but then nobody waits.
        """
        queue, looks = select.poll(), 0
        queue.register(self._sock, select.POLLIN)
        while looks * LOOK_SECONDS < seconds:
            await asyncio.sleep(LOOK_SECONDS)
            looks = looks + 1 if queue.poll(0) else 0

    def open(self) -> None:
        self._sock.settimeout(0)
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Stop accepting. A successor that shares the socket gets the accept queue; accepted connections go on with their handshakes."""
        if self._retry is not None:
            self._retry.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    async def handshakes_done(self) -> None:
        """Wait until no handshake is under way."""
        while self._opening:
            await asyncio.wait(self._opening)

    async def abort(self) -> None:
        """Cancel the handshakes that are under way."""
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
        """Pause when descriptors run out, otherwise the loop would spin. Every other error concerns one closed connection."""
        logger.error("a connection could not be accepted", extra={"error": error.strerror})
        if error.errno in EXHAUSTED:
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(EXHAUSTED_SECONDS, self.open)

    async def _shake_hands(self, connection: socket.socket, source: str) -> None:
        try:
            async with asyncio.timeout(config.TLS_HANDSHAKE_SECONDS):
                first = await _first_byte(connection)
                if first == TLS_RECORD:
                    await self._fair_queue.pass_through()
            if first == TLS_RECORD:
                async with asyncio.timeout(config.TLS_HANDSHAKE_SECONDS):
                    await tls.accept(connection, self._context(), self._protocol)
                return
            if first is not None and 0x41 <= first <= 0x5A:  # a capital letter begins an HTTP method
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
    """Return the first byte and leave it in the socket; None at the end of the stream."""
    while True:
        try:
            data = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await tls.readable(connection)
        else:
            return data[0] if data else None


def is_handed_over(environ: Mapping[str, str], *, pid: int) -> bool:
    """Return whether a predecessor or a service manager passed its listening socket (`LISTEN_FDS`, as systemd does)."""
    return environ.get("LISTEN_FDS", "") not in ("", "0") and environ.get("LISTEN_PID", str(pid)) == str(pid)


def errors(environ: Mapping[str, str], *, pid: int) -> Iterator[str]:
    """Yield the errors of a socket that was handed over."""
    if not is_handed_over(environ, pid=pid):
        return
    count = environ["LISTEN_FDS"]
    if not count.isdecimal():
        yield f"LISTEN_FDS: {count!r} is not a whole number"
        return
    try:
        socket.socket(fileno=HANDED_OVER).detach()
    except OSError:
        yield f"LISTEN_FDS: descriptor {HANDED_OVER} is not a socket"


def listening_socket(address: str, port: int, *, environ: Mapping[str, str], pid: int) -> socket.socket:
    """Return the socket that was handed over, or a new one.

    Handing over one socket keeps the accept queue. Two sockets with SO_REUSEPORT lose the queue of the one that closes.
    """
    if is_handed_over(environ, pid=pid):
        return socket.socket(fileno=HANDED_OVER)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.create_server((address, port), family=family, backlog=config.BACKLOG)
    except OSError as e:
        made = PortInUse if e.errno == errno.EADDRINUSE else OSError
        raise made(f"cannot listen: {_why(e, address, port)}") from None
    # Inherited by every connection: even a watch that has nothing to send notices a vanished client.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE_PROBES.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def _why(error: OSError, address: str, port: int) -> str:
    """Return the error for people, with a remedy."""
    match error.errno:
        case errno.EADDRINUSE:
            holder = ports.holder(port)
            held = f" by {holder}" if holder else ""
            return f"port {port} of {address} is in use{held}: stop that process, or choose another port with --secure-port PORT"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no address {address}: choose another with --bind-address IP"
        case errno.EACCES:
            return f"this user may not use port {port}: choose one above 1023 with --secure-port PORT"
    return error.strerror or str(error)
