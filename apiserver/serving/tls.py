"""TLS on a socket: the handshake, then asyncio's transport. Knows neither what is spoken nor who listens.

    socket ─► 16 KiB ─► records are counted ─► Session ─► protocol.data_received
    write  ─► Session ─► socket, in the same call; what the socket does not take waits in `_unsent` as it was given

OpenSSL gets at most 16 KiB at a time, and no socket: it would read for as long as a peer sends records without data. A connection ends
when a peer sends too many of them (`apiserver.runtime.tls_records`).

asyncio's and uvloop's transports take ciphertext through a queue to the socket, so each slow client has a copy of its own. Here slow
clients share the plaintext that they are owed. And each step is one of the loop, which is measured (`steps`).
Upstream of the interface: python/cpython `Lib/asyncio/transports.py`, `sslproto.py`; of the end of a connection: golang/go
`src/net/http/server.go` closeWriteAndWait.
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
"""How often that is done in one step, while a quarter of it is data."""
SHAKEN = 4 << 10
"""Bytes that are read in one step of a handshake. 700 records of one byte take 3 ms."""
PIECES = 8
"""Written in one step."""
HIGH, LOW = 512 << 10, 128 << 10
"""Unsent bytes from which on a protocol is asked to pause, and with which it may go on."""
FLUSH_SECONDS = 30.0
"""How long the peer of a connection that ends may take for what it has not been sent."""
LINGER_SECONDS = 2.0
"""How long a client may take to close its end. If it still sends when ours is closed, what it has not read yet is lost to it."""


_NOTHING = memoryview(b"")


async def accept(sock: socket.socket, context: SSL.Context, protocol: Callable[[], asyncio.Protocol]) -> None:
    """Shake hands on a socket that does not block, and connect a new protocol to it. Raises OSError (of it ssl.SSLError) when that
    fails; the socket is closed then."""
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
    """Shake hands as the client of a server with this name, and connect the protocol, which is told of it when `made`. Otherwise as
    `accept`."""
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
    """Return what came after the handshake and was not looked at."""
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
            if len(data) == SHAKEN:  # more may be there already, and others have their turn first
                await asyncio.sleep(0)
            data, at = await _received(sock), 0
        end = session.records.take(data, at)
        session.feed(data[at:end])
        at = end
    try:
        await _send_all(sock, session.output())
    except ConnectionError:  # a client may say all it has to say and leave: reading tells
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
    """Send the alert that says what is wrong. Whether the peer learns it is all the same."""
    try:
        sock.send(session.output())
    except OSError:
        pass


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
    what was is still being sent until it is `_over`, or the `_timer` ends it. `lingers`: at the end the peer gets time to close first.
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
        """What came with the end of the handshake and was not decrypted yet."""
        self._unsent: deque[bytes | bytearray | memoryview] = deque()
        self._unsent_size = 0
        self._sealed = _NOTHING
        """Encrypted and not taken by the socket yet. While there is some, nothing else is encrypted."""
        self._paused = False
        """The protocol was told to write no more for now."""
        self._reading = self._waiting = self._closing = self._over = self._said_end = False
        self._stalled = False
        """The peer has not taken what answers its records, and nothing is read before it does."""
        self._asked = False
        """OpenSSL may have something to say to what was read. It has nothing to say to a record of data."""
        self._ended = False
        """The peer has sent its last byte."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self, rest: bytes = b"", *, made: bool = True) -> None:
        """`rest`: what came after the handshake. `made`: the protocol is told."""
        self._rest = rest
        if made:
            self._protocol.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's transports: `socket`, `peername`, `sockname`, `sslcontext`, and as `ssl_object` who is there."""
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
        except OSError:  # the peer is gone
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
        """Hand on together what came in some records.

        Data that is left makes the socket readable again. A reset does not: libuv reports it once, perhaps together with data.
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
            broken = e
        try:
            if self._asked:
                self._answer()
        except OSError as e:
            broken = broken or e
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
        """Raise OSError if the peer has reset the connection. This is quicker than to read once more."""
        if error := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))

    def _decrypt(self, received: bytes, parts: list[bytes]) -> bool:
        """Return whether the peer said that nothing follows. Raises ssl.SSLError."""
        session, records, at, size = self._session, self._session.records, 0, len(received)
        while at < size:
            start, at, found = at, records.take(received, at), False
            session.feed(received if at - start == size else received[start:at])
            try:
                while part := session.read():
                    parts.append(part)
                    found = True
                    if records.single:  # so there is no more to be read
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
        """Send what OpenSSL has to say to what was read: new keys, an alert. Until the peer takes it, nothing more is read: there would be
        more to say. Raises OSError."""
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
        if self._sealed or self._unsent:
            self._unsent.append(data)
            self._unsent_size += len(data)
        else:
            try:
                self._send(self._session.encrypt(data))
            except OSError as e:
                self._break(e)
                return
        if self._unsent_size > HIGH and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Put together: what each record and its system call cost is more than a copy."""
        self.write(b"".join(list_of_data))

    def _send(self, sealed: bytes | memoryview) -> None:
        """What the socket does not take waits. Raises OSError."""
        try:
            sent = self._sock.send(sealed)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(sealed):
            self._sealed = memoryview(bytes(sealed[sent:]))
            self._await_room()

    def _await_room(self) -> None:
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
        self._sealed, self._rest = _NOTHING, b""
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
