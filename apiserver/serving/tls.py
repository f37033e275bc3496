"""TLS on an accepted socket: the handshake, then asyncio's transport. Knows neither what is spoken nor who listens.

    socket ─► SSLSocket ─► protocol.data_received
    write  ─► SSLSocket ─► socket, in the same call; what the socket does not take waits in `_unsent` as it was given

asyncio's and uvloop's transports encrypt into memory, copy that out, and take it through a queue to the socket. For an event that goes to
a thousand watchers, whose objects lie in no cache of the processor, this costs a fifth of what encryption and system call do, and each
client that is behind has a copy of its own. And here each step is one of the loop, which is measured (`steps`).
Upstream of the interface: python/cpython `Lib/asyncio/transports.py`, `sslproto.py`; of the end of a connection: golang/go
`src/net/http/server.go` closeWriteAndWait.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

RECORD = 16 << 10
"""The most that one record of TLS holds, and so one call reads."""
RECORDS = 16
"""Read in one step: a quarter of a millisecond."""
SHORT = 1 << 10
"""A record that is shorter, and the first, is most often all that is there: a request without a body. To ask for more costs as much again;
who sends long texts in short records (Go does at first) sends longer ones than this."""
PIECE = 64 << 10
"""What is encrypted in one go, and so what a client that is slow takes of a long text at a time."""
PIECES = 8
"""Written in one step."""
HIGH, LOW = 512 << 10, 128 << 10
"""Unsent bytes from which on a protocol is asked to pause, and with which it may go on."""
FLUSH_SECONDS = 30.0
"""How long the client of a connection that ends may take for what it has not been sent."""
LINGER_SECONDS = 2.0
"""How long it may take to close its end. If it still sends when ours is gone, what it has not read yet is lost to it."""


async def accept(sock: socket.socket, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]) -> None:
    """Shakes hands on a socket that does not block, and connects a new protocol to it. Raises OSError (of it ssl.SSLError) when that
    fails; the socket is closed then."""
    tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await readable(tls)
            except ssl.SSLWantWriteError:
                await _writable(tls)
        Transport(tls, protocol()).open()
    except BaseException:
        tls.close()
        raise


async def readable(sock: socket.socket) -> None:
    """Returns when there is something to be read, the end of the stream among it."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


async def _writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(sock, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(sock)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Transport(asyncio.Transport):
    """A connection after its handshake.

    `_reading`: the protocol takes more. `_waiting`: the socket is asked to say when it does. `_closing`: nothing more is written, and
    what was is still being sent until it is `_over`, or the `_timer` ends it.
    """

    __slots__ = (
        "_closing", "_encrypt", "_ended", "_loop", "_over", "_paused", "_protocol", "_reading", "_sock", "_timer", "_unsent",
        "_unsent_size", "_waiting",
    )  # fmt: skip

    def __init__(self, sock: ssl.SSLSocket, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._encrypt = sock.write
        self._protocol = protocol
        self._unsent = deque[bytes | bytearray | memoryview]()
        self._unsent_size = 0
        self._paused = False
        """The protocol was told to write no more for now."""
        self._reading = self._waiting = self._closing = self._over = False
        self._ended = False
        """The client has sent its last byte."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._protocol.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's transports: `socket`, `peername`, `sockname`, `sslcontext`, and as `ssl_object` who is there."""
        try:
            match name:
                case "socket" | "ssl_object":
                    return self._sock
                case "sslcontext":
                    return self._sock.context
                case "peername":
                    return self._sock.getpeername()
                case "sockname":
                    return self._sock.getsockname()
        except OSError:  # the client is gone
            pass
        return default

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # Reading

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    def resume_reading(self) -> None:
        if not (self._reading or self._ended or self._closing):
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        """Hands on together what came in some records. What is left of more makes the socket readable again."""
        parts, ended, broken = list[bytes](), False, None
        read = self._sock.read
        try:
            for _ in range(RECORDS):
                part = read(RECORD)
                parts.append(part)
                if not part:
                    ended = True
                    break
                if len(part) < SHORT and len(parts) == 1:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:
            ended = True
        except OSError as e:  # also where a client wants its keys changed and does not take the answer
            broken = e
        if parts:
            self._hand_on(parts[0] if len(parts) == 1 else b"".join(parts))
        if broken is not None:
            self._break(broken)
        elif ended:
            self._end_of_stream()

    def _hand_on(self, data: bytes) -> None:
        try:
            if data:
                self._protocol.data_received(data)
        except Exception as e:  # noqa: BLE001 - whatever it is, this connection ends
            about = {"message": "a protocol failed with what it received", "exception": e, "transport": self}
            self._loop.call_exception_handler(about)
            self._break(e)

    def _end_of_stream(self) -> None:
        """Who has asked already and does not listen any more gets no answer, as from Go's server."""
        self.pause_reading()
        self._ended = True
        if not self._closing:
            self._protocol.eof_received()
            self.close()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends it, or keeps it until the client takes more. To one that is gone nothing is sent."""
        if self._closing or not data:
            return
        if len(data) > PIECE:
            whole = memoryview(data)
            for at in range(0, len(whole), PIECE):
                self.write(whole[at : at + PIECE])
            return
        if not self._unsent:
            try:
                self._encrypt(data)
                return
            except ssl.SSLWantWriteError:
                self._await_room()
            except OSError as e:
                self._break(e)
                return
        self._unsent.append(data)
        self._unsent_size += len(data)
        if self._unsent_size > HIGH and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Put together: what each record and its system call cost is more than a copy."""
        self.write(b"".join(list_of_data))

    def _await_room(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        unsent = self._unsent
        try:
            for _ in range(min(len(unsent), PIECES)):
                self._encrypt(unsent[0])
                self._unsent_size -= len(unsent.popleft())
        except ssl.SSLWantWriteError:
            pass
        except OSError as e:
            self._break(e)
            return
        if not unsent:
            self._waiting = False
            self._loop.remove_writer(self._sock)
        if self._paused and self._unsent_size <= LOW:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing and not unsent:
            self._end_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return LOW, HIGH

    def can_write_eof(self) -> bool:
        return False

    # The end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """What was written is sent, then that it was all."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        self._timer = self._loop.call_later(FLUSH_SECONDS, self._break, None)
        if not self._unsent:
            self._end_writing()

    def _end_writing(self) -> None:
        try:
            self._sock.unwrap()
        except ssl.SSLWantWriteError:
            self._await_room()
            return
        except (OSError, ValueError):  # it would wait for the client to say the same, or that is gone
            pass
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._ended = True
        if self._ended:
            self._break(None)
            return
        assert self._timer is not None
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._break, None)
        self._loop.add_reader(self._sock, self._drop)

    def _drop(self) -> None:
        """What comes now nobody is told."""
        try:
            if not self._sock.recv(PIECE):
                self._break(None)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._break(None)

    def abort(self) -> None:
        """At once, whatever is left to be sent."""
        self._break(None)

    def _break(self, error: Exception | None) -> None:
        """Nothing more can be done for this connection. Its protocol is told in a step of its own."""
        if self._over:
            return
        self._over = self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.pause_reading()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._unsent.clear()
        self._unsent_size = 0
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
