"""Connections to webhooks: opened, kept while they are idle, and what Go says of those that fail.

TLS is done between OpenSSL and the socket here, because only so can be told what a peer said that speaks no TLS. Upstream: golang/go
`src/net/http/transport.go`, `src/net/dial.go`, `src/crypto/tls/conn.go`, kubernetes/client-go `transport/cache.go`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from apiserver.admission.webhooks import causes, certificates, http1
from apiserver.admission.webhooks.causes import Broken
from apiserver.admission.webhooks.http1 import Answer
from apiserver.runtime.tls_records import Records, Refused

IDLE_SECONDS, MOST_IDLE = 90.0, 25
"""How long a connection is kept, and how many to one address, as client-go does it."""
MOST_PLACES = 32
"""Addresses to which connections of one webhook are kept: redirects may lead anywhere."""
STEP = 8 << 10
"""Bytes that are looked at in one step of the event loop."""
PIECE = 128 << 10
"""Bytes of a review that are encrypted in one step."""

Locate = Callable[[str, int], Awaitable[list[tuple[str, int]]]]
"""The addresses of a host and port. Raises Broken."""


class Connection(asyncio.Protocol):
    """One connection: one review at a time."""

    def __init__(self, tls: ssl.SSLContext | None, name: str) -> None:
        self.closed = False
        self.idle: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if tls is None else tls.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._records = Records(hello=True)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._answered: asyncio.Future[None] | None = None
        self._answer = Answer()
        self._first = b""
        self._backlog: deque[bytes] = deque()
        self._stepping = self._held = self._ends = False
        self._lost: Exception | None = None
        self._why: Exception | None = Broken("EOF")
        """Why one that is over before it was ever asked is so."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport
        self._ends_of_it: tuple[object, object] = ("", "")

    async def open(self) -> None:
        """Waits for the end of the handshake. Raises Broken, and SSLCertVerificationError for whom nobody vouches."""
        await self._opened

    @property
    def certificate(self) -> bytes | None:
        """The peer's, DER."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    @property
    def reusable(self) -> bool:
        return self._answer.complete and self._answer.kept and not self._backlog and not self.closed and not self._ends

    async def ask(self, request: tuple[bytes, bytes], answer: Answer) -> None:
        """Sends head and body, and waits until the answer is complete. Raises Broken, http1.Malformed, http1.BodyBroken."""
        self._answer, self._answered = answer, self._loop.create_future()
        if self._ends or self.closed:
            self._answered = None
            raise self._why or Broken("http: server closed idle connection", unsent=True)
        self._why = None
        try:
            if len(request[1]) < PIECE:
                self._send(b"".join(request))
            else:
                await self._send_slowly(request)
            await self._answered
        finally:
            self._answered = None

    def close(self) -> None:
        """Whoever still waits is told."""
        self.closed = True
        for waits in (self._opened, self._answered):
            if waits is not None and not waits.done():
                waits.set_exception(Broken("use of closed network connection"))
        if self.idle is not None:
            self.idle.cancel()
        self._transport.abort()

    # --------------------------------------------------------------------------------------------------------------- sending

    def _send(self, data: bytes) -> None:
        if self._tls is None:
            self._transport.write(data)
            return
        self._tls.write(data)
        self._flush()

    async def _send_slowly(self, request: tuple[bytes, bytes]) -> None:
        self._send(request[0])
        view = memoryview(request[1])
        for at in range(0, len(view), PIECE):
            if self._answered is None or self._answered.done():
                return  # the answer comes before the question is out, or the connection is gone
            self._send(bytes(view[at : at + PIECE]))
            await asyncio.sleep(0)
            await self._writable.wait()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._transport.write(data)

    # ------------------------------------------------------------------------------------------------------------- receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by name
        self._ends_of_it = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if self._tls is None:
            self._opened.set_result(None)
        else:
            self._shake()

    def data_received(self, data: bytes) -> None:
        self._backlog.extend(data[at : at + STEP] for at in range(0, len(data), STEP))
        self._step()

    def eof_received(self) -> bool:
        self._ends = True
        self._step()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc
        self._ends = True
        self._writable.set()
        self._step()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _step(self) -> None:
        """Looks at one piece of what came, and leaves the rest for another step of the loop."""
        if self._stepping:
            return
        try:
            if self._backlog:
                self._take(self._backlog.popleft())
            if not self._backlog and self._ends:
                self._over()
        except (Broken, http1.Malformed, http1.BodyBroken, ssl.SSLError) as error:
            self._fail(error)
        self._hold(held=bool(self._backlog))
        if self._backlog:
            self._stepping = True
            self._loop.call_soon(self._go_on)

    def _hold(self, *, held: bool) -> None:
        """While there is more than one step takes, no more is read: a peer may send faster than this."""
        if held != self._held and not self._transport.is_closing():
            self._held = held
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def _go_on(self) -> None:
        self._stepping = False
        self._step()

    def _take(self, data: bytes) -> None:
        if self._tls is None:
            self._receive(data)
            return
        if len(self._first) < 5:
            self._first += data[:5]
        at = 0
        while at < len(data) and not self.closed:
            try:
                end = self._records.take(data, at)
            except Refused as error:
                raise causes.of_tls(error, self._first) from None
            self._incoming.write(data[at:end])
            at = end
            if not self._opened.done():
                self._shake()
            if self._opened.done() and not self.closed:
                self._decrypt()

    def _shake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._fail(causes.of_tls(error, self._first))
            return
        self._flush()
        self._records.open = True
        self._opened.set_result(None)

    def _decrypt(self) -> None:
        assert self._tls is not None
        received = False
        try:
            while data := self._tls.read(STEP):
                received = True
                self._receive(data)
            self._ends = True
        except ssl.SSLWantReadError:
            self._flush()
            try:
                self._records.judge(data=received)
            except Refused as error:
                raise causes.of_tls(error, self._first) from None
        except ssl.SSLError as error:
            raise causes.of_tls(error, self._first) from None

    def _receive(self, data: bytes) -> None:
        if self._answered is None:
            self.close()  # nobody asked
            return
        self._answer.feed(data)
        if self._answer.complete and not self._answered.done():
            self._answered.set_result(None)

    def _over(self) -> None:
        """The peer has said all that it had to say."""
        if self.closed:
            return
        cut = self._tls is not None and not self._records.whole
        if not self._opened.done():
            raise causes.of_socket(self._lost, *self._ends_of_it, cut=cut)
        if self._answered is not None and not self._answered.done():
            if self._lost is not None or not self._answer.begun:
                raise causes.of_socket(self._lost, *self._ends_of_it, cut=cut)
            # Without a close_notify, Go takes the end of a record for the end of the answer; then it is no whole JSON.
            self._answer.end(cut=cut)
            self._answered.set_result(None)
        elif cut:
            raise Broken("unexpected EOF")
        self.close()

    def _fail(self, error: Exception) -> None:
        self._backlog.clear()
        self._why = self._why and error
        for waits in (self._opened, self._answered):
            if waits is not None and not waits.done():
                waits.set_exception(error)
        self.close()


class Pool:
    """The connections that are kept to some addresses, all with the same TLS settings. `name` is the one that certificates must have,
    the host's own where it is empty."""

    def __init__(self, tls: ssl.SSLContext, name: str, locate: Locate) -> None:
        self._tls, self._name, self._locate = tls, name, locate
        self._idle: dict[tuple[bool, str, int], list[Connection]] = {}
        self._all: set[Connection] = set()
        self._closed = False

    async def ask(
        self, host: str, port: int, request: tuple[bytes, bytes], answer: Answer, *, secure: bool = True
    ) -> None:
        """Leaves what came in `answer`, which is new.

        Raises Broken, http1.Malformed, http1.BodyBroken. A kept connection that turns out to be gone is replaced."""
        key = (secure, host, port)
        while True:
            connection = self._kept(key) or await self._open(key)
            try:
                await connection.ask(request, answer)
            except Broken as error:
                if error.unsent and not self._closed:
                    continue
                raise
            finally:
                self._all.discard(connection)
                if not connection.closed and not self._keep(key, connection):
                    connection.close()
            return

    async def reach(self, host: str, port: int) -> None:
        """Has a connection ready for whoever asks next. Raises Broken."""
        key = (True, host, port)
        connection = self._kept(key) or await self._open(key)
        self._all.discard(connection)
        if not connection.closed and not self._keep(key, connection):
            connection.close()

    def close(self) -> None:
        """Ends all connections, those that are in use too."""
        self._closed = True
        for connection in [*self._all, *(c for kept in self._idle.values() for c in kept)]:
            connection.close()
        self._idle.clear()

    def _kept(self, key: tuple[bool, str, int]) -> Connection | None:
        kept = self._idle.get(key, [])
        while kept:
            connection = kept.pop()
            if connection.idle is not None:
                connection.idle.cancel()
            if not connection.closed:
                self._all.add(connection)
                return connection
        return None

    def _keep(self, key: tuple[bool, str, int], connection: Connection) -> bool:
        if key not in self._idle and len(self._idle) >= MOST_PLACES:
            return False
        kept = self._idle.setdefault(key, [])
        kept[:] = [each for each in kept if not each.closed]
        if self._closed or not connection.reusable or len(kept) >= MOST_IDLE:
            return False
        connection.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, connection.close)
        kept.append(connection)
        return True

    async def _open(self, key: tuple[bool, str, int]) -> Connection:
        secure, host, port = key
        addresses = await self._locate(host, port)
        connection = await self._connected(addresses, self._tls if secure else None, self._name or host)
        self._all.add(connection)
        try:
            await connection.open()
        except ssl.SSLCertVerificationError as error:
            self._drop(connection)
            raise Broken(await self._words(error, addresses, self._name or host)) from None
        except BaseException:
            self._drop(connection)
            raise
        return connection

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        connection.close()

    async def _connected(self, addresses: list[tuple[str, int]], tls: ssl.SSLContext | None, name: str) -> Connection:
        """The first address that takes a connection; the first one's reason if none does."""
        loop, first = asyncio.get_running_loop(), None
        for host, port in addresses:
            try:
                _, made = await loop.create_connection(lambda: Connection(tls, name), host, port)
            except OSError as error:
                first = first or Broken(causes.of_dial(error, host, port))
            else:
                return made
        raise first or Broken("no addresses")

    async def _words(self, error: ssl.SSLCertVerificationError, addresses: list[tuple[str, int]], name: str) -> str:
        """OpenSSL decides, and shows nobody the certificate that it refused. It is fetched once more, for the words."""
        connection = await self._connected(addresses, certificates.anybody(), name)
        self._all.add(connection)
        try:
            await connection.open()
            shown = connection.certificate
        except (Broken, ssl.SSLError):
            shown = None
        finally:
            self._drop(connection)
        return certificates.words(error, shown, name)
