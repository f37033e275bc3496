"""TLS on a socket: the handshake, then an asyncio transport. Knows neither the protocol on top nor the listener.

    socket ─► 16 KiB ─► records are counted ─► Session ─► protocol.data_received
    write  ─► Session ─► socket, in the same call; what the socket does not take waits in `_unsent` as it was given

OpenSSL gets at most 16 KiB at a time, and no socket: it would read for as long as a peer sends records without data. A connection ends
when a peer sends too many of them (`apiserver.runtime.tls_records`).

asyncio's and uvloop's transports queue ciphertext, so each slow client has a copy of its own. Here slow clients share the plaintext
that they are owed. Each step is a measured step of the loop (`steps`). Upstream of the interface: python/cpython
`Lib/asyncio/transports.py`, `sslproto.py`. Upstream of the end of a connection: golang/go `src/net/http/server.go` closeWriteAndWait.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from OpenSSL import SSL

from apiserver.serving.sessions import PIECE, ClientSession, ServerSession, Session

RECEIVED = 16 << 10
"""Bytes that are read from the socket and decrypted in one go."""
RECEIPTS = 8
"""How often that is done in one step, while at least a quarter of it is data."""
SHAKEN = 4 << 10
"""Bytes that are read in one step of a handshake. 700 records of one byte take 3 ms."""
PIECES = 8
"""Pieces that are written in one step, when the client takes more."""
AT_ONCE = 1 << 20
"""Bytes of one write that are sent in the same step, two to four milliseconds. The client gets the rest in later steps."""
HIGH, LOW = 512 << 10, 128 << 10
"""Above HIGH unsent bytes a protocol must pause, and at LOW it may go on."""
FLUSH_SECONDS = 30.0
"""How long the peer of a closing connection may take to read what is still unsent."""
LINGER_SECONDS = 2.0
"""How long a client may take to close its end. A client that still sends when ours closes loses what it has not read."""


_NOTHING = memoryview(b"")


async def accept(sock: socket.socket, context: SSL.Context, protocol: Callable[[], asyncio.Protocol]) -> None:
    """Shake hands on a non-blocking socket, and connect a new protocol to it.

    On failure it closes the socket and raises OSError (its subclass ssl.SSLError among them).
    """
    try:
        session = ServerSession(context, sock)
        rest = await _shake_hands(sock, session)
        Transport(sock, session, protocol()).open(rest)
    except BaseException:
        sock.close()
        raise


async def connect(
    sock: socket.socket, context: ssl.SSLContext, protocol: asyncio.BaseProtocol, *, name: str | None, made: bool = True
) -> Transport:
    """Shake hands as the client of the server `name`, and connect the protocol. `made`: call its `connection_made`. Fails like `accept`."""
    try:
        session = ClientSession(context, name)
        rest = await _shake_hands(sock, session)
        transport = Transport(sock, session, protocol, lingers=False)
        transport.open(rest, made=made)
    except BaseException:
        sock.close()
        raise
    return transport


async def _shake_hands(sock: socket.socket, session: Session) -> bytes:
    """Shake hands. Return the bytes after the handshake, not yet examined."""
    data, at = b"", 0
    while True:
        try:
            session.shake()
            break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            _try_to_send(sock, session)
            raise
        await _send_all(sock, session.output())
        if at == len(data):
            if len(data) == SHAKEN:  # more may be there already, but others get their turn first
                await asyncio.sleep(0)
            data, at = await _received(sock), 0
        end = session.records.take(data, at)
        session.feed(data[at:end])
        at = end
    try:
        await _send_all(sock, session.output())
    except ConnectionError:  # a client may send everything and leave: reading shows that
        pass
    return data[at:]


async def _received(sock: socket.socket) -> bytes:
    while True:
        try:
            data = sock.recv(SHAKEN)
        except (BlockingIOError, InterruptedError):
            await readable(sock)
            continue
        if not data:
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF")
        return data


async def _send_all(sock: socket.socket, data: bytes | memoryview) -> None:
    if not data:
        return
    left = memoryview(bytes(data))
    while left:
        try:
            left = left[sock.send(left) :]
        except (BlockingIOError, InterruptedError):
            await _writable(sock)


def _try_to_send(sock: socket.socket, session: Session) -> None:
    """Send the alert that explains the failure. It does not matter whether the peer gets it."""
    try:
        sock.send(session.output())
    except OSError:
        pass


async def readable(sock: socket.socket) -> None:
    """Wait until the socket is readable, or at the end of its stream."""
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

    `_reading`: the protocol takes more. `_waiting`: the loop watches the socket for space to write. `_closing`: no more is written, and
    unsent data is still being sent until `_over`, or until `_timer` fires. `lingers`: at the end the peer gets time to close first.
    """

    __slots__ = (
        "_asked", "_closing", "_ended", "_lingers", "_loop", "_over", "_paused", "_protocol", "_reading", "_rest", "_said_end", "_sealed",
        "_session", "_sock", "_stalled", "_timer", "_unsent", "_unsent_size", "_waiting",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, session: Session, protocol: asyncio.BaseProtocol, *, lingers: bool = True
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._session = session
        self._lingers = lingers
        self.set_protocol(protocol)
        self._rest = b""
        """Bytes that came with the end of the handshake and were not decrypted yet."""
        self._unsent: deque[bytes | bytearray | memoryview] = deque()
        self._unsent_size = 0
        self._sealed = _NOTHING
        """Encrypted bytes that the socket has not taken yet. Nothing else is encrypted meanwhile."""
        self._paused = False
        """The protocol was asked to pause writing."""
        self._reading = self._waiting = self._closing = self._over = self._said_end = False
        self._stalled = False
        """The peer has not taken the answers to its records, and nothing is read before it does."""
        self._asked = False
        """OpenSSL may have output for what was read. It has none for a record of data."""
        self._ended = False
        """The peer has sent its last byte."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self, rest: bytes = b"", *, made: bool = True) -> None:
        """Start reading. `rest`: bytes after the handshake. `made`: call the protocol's `connection_made`."""
        self._rest = rest
        if made:
            self._protocol.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the same values as asyncio's transports: `socket`, `peername`, `sockname`, `sslcontext`, `ssl_object` (the session's
        info).
        """
        try:
            match name:
                case "socket":
                    return self._sock
                case "ssl_object":
                    return self._session.info
                case "sslcontext":
                    return self._session.context
                case "peername":
                    return self._sock.getpeername()
                case "sockname":
                    return self._sock.getsockname()
        except OSError:  # the peer has disconnected
            pass
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

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
            self._await_data()

    def _await_data(self) -> None:
        if self._reading and not self._stalled:
            self._loop.add_reader(self._sock, self._readable)
            if self._rest:
                self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        """Pass on the data of several records together.

        Unread data makes the socket readable again. A reset does not: libuv reports it once, perhaps together with data.
        """
        if not self._reading or self._stalled:
            return
        parts: list[bytes] = []
        ended, broken, more = False, None, False
        try:
            for _ in range(RECEIPTS):
                received, self._rest = self._rest or self._sock.recv(RECEIVED), b""
                if not received:
                    ended = True
                    self._session.eof()
                    break
                before = len(parts)
                ended = self._decrypt(received, parts)
                if ended:
                    break
                if len(received) < RECEIVED:
                    self._check_reset()
                    break
                if 4 * sum(map(len, parts[before:])) < len(received):
                    more = True
                    break
            else:
                more = True
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            broken = e.with_traceback(None)  # a traceback would hold this frame, and so the error itself
        try:
            if self._asked:
                self._answer()
        except OSError as e:
            broken = broken or e.with_traceback(None)
        if broken is None and not ended:
            self._session.trim()
        self._hand_on(parts[0] if len(parts) == 1 else b"".join(parts))
        if broken is not None:
            self._break(broken)
        elif ended:
            self._end_of_stream()
        elif more:
            self._loop.call_soon(self._readable)

    def _check_reset(self) -> None:
        """Raise OSError if the peer has reset the connection. This is quicker than another read."""
        if error := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))

    def _decrypt(self, received: bytes, parts: list[bytes]) -> bool:
        """Decrypt received bytes into `parts`. Return whether the peer sent close_notify. Raises ssl.SSLError."""
        session, records, at, size = self._session, self._session.records, 0, len(received)
        while at < size:
            start, at, found = at, records.take(received, at), False
            session.feed(received if at - start == size else received[start:at])
            try:
                while part := session.read():
                    parts.append(part)
                    found = True
                    if records.single:  # so it has no more data
                        break
                else:
                    self._asked = True
                    return True
                if at - start < size:
                    self._asked = True
            except ssl.SSLWantReadError:
                self._asked = True
            except ssl.SSLError:
                self._asked = True
                raise
            records.judge(data=found)
        return False

    def _answer(self) -> None:
        """Send OpenSSL's output for what was read: new keys, an alert. Raises OSError.

        Nothing more is read until the peer takes it, because each read may add output.
        """
        self._asked = False
        output = self._session.output()
        if not output or self._over:
            return
        if self._sealed:
            self._sealed = memoryview(bytes(self._sealed) + bytes(output))
        else:
            self._send(output)
        if self._sealed:
            self._stalled = True
            self._loop.remove_reader(self._sock)

    def _hand_on(self, data: bytes) -> None:
        try:
            if data:
                self._protocol.data_received(data)
        except Exception as e:  # noqa: BLE001 - whatever it is, this connection ends
            about = {"message": "a protocol failed with what it received", "exception": e, "transport": self}
            self._loop.call_exception_handler(about)
            self._break(e)

    def _end_of_stream(self) -> None:
        """Close the connection. A client that closes its write side gets no answer to a request in progress, as from Go's server."""
        self.pause_reading()
        self._ended = True
        if not self._closing:
            self._protocol.eof_received()
            self.close()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, or keep it until the client takes more. Does nothing on a closing connection."""
        if self._closing or not data:
            return
        if len(data) > PIECE:
            self._write_all((data,))
        elif self._sealed or self._unsent:
            self._defer(data)
        else:
            try:
                self._send(self._session.encrypt(data))
            except OSError as e:
                self._break(e)

    def _write_all(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send data piece by piece, and keep what follows the first AT_ONCE bytes."""
        left = AT_ONCE
        for part in parts:
            whole = memoryview(part)
            for at in range(0, len(whole), PIECE):
                piece = whole[at : at + PIECE]
                if left > 0 or self._closing:
                    self.write(piece)
                else:
                    self._defer(piece)
                left -= len(piece)

    def _defer(self, data: bytes | bytearray | memoryview) -> None:
        """Keep data until the socket takes more than it did in this step."""
        self._unsent.append(data)
        self._unsent_size += len(data)
        self._await_writable()
        if self._unsent_size > HIGH and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Join the parts, unless they are large: a record and its system call cost more than a copy."""
        parts = list(list_of_data)
        if sum(map(len, parts)) <= AT_ONCE:
            self.write(b"".join(parts))
        else:
            self._write_all(parts)

    def _send(self, sealed: bytes | memoryview) -> None:
        """Send encrypted bytes; keep what the socket does not take. Raises OSError."""
        try:
            sent = self._sock.send(sealed)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(sealed):
            self._sealed = memoryview(bytes(sealed[sent:]))
            self._await_writable()

    def _await_writable(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        unsent = self._unsent
        try:
            if self._sealed:
                self._sealed = self._sealed[self._sock.send(self._sealed) :]
            for _ in range(PIECES):
                if self._sealed or not unsent:
                    break
                piece = unsent.popleft()
                self._unsent_size -= len(piece)
                self._send(self._session.encrypt(piece))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            self._break(e)
            return
        if not (self._sealed or unsent):
            self._waiting = False
            self._loop.remove_writer(self._sock)
        if self._stalled and not self._sealed:
            self._stalled = False
            self._await_data()
        if self._paused and self._unsent_size <= LOW:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing and not (self._sealed or unsent):
            self._end_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_size + len(self._sealed)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return LOW, HIGH

    def can_write_eof(self) -> bool:
        return False

    # Closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what was written, then close_notify."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        self._timer = self._loop.call_later(FLUSH_SECONDS, self._break, None)
        if not (self._sealed or self._unsent):
            self._end_writing()

    def _end_writing(self) -> None:
        try:
            if not self._said_end:
                self._said_end = True
                self._send(self._session.end())
                if self._sealed:
                    return
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._ended = True
        if self._ended or not self._lingers:
            self._break(None)
            return
        assert self._timer is not None
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._break, None)
        self._loop.add_reader(self._sock, self._drop)

    def _drop(self) -> None:
        """Discard what still comes."""
        try:
            if not self._sock.recv(PIECE):
                self._break(None)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._break(None)

    def abort(self) -> None:
        """Close at once and discard unsent data."""
        self._break(None)

    def _break(self, error: Exception | None) -> None:
        """End the connection at once. Its protocol learns that in a step of its own."""
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
        self._sealed, self._rest = _NOTHING, b""
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
