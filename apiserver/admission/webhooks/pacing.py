"""Bound what a webhook may send, and how much of it one step of the event loop parses.

aiohttp parses all that it is given at once. 128 KiB of tiny answers or interim answers would hold the event loop for 25 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from apiserver.admission.webhooks import causes
from apiserver.admission.webhooks.causes import BodyBroken, Broken
from apiserver.runtime.tls_records import CutOff

STEP = 16 << 10
"""Bytes that are parsed in one step of the event loop: 3 ms when every 16 of them are an interim answer."""
MOST_HEAD = 1 << 20
"""Bytes of an answer's head, interim answers included."""
MOST_BODY = 8 << 20
"""Bytes of an answer's body. The patch that replaces the largest object, in base64, is half of it."""
MOST_CODED = 2 * MOST_BODY
"""Bytes that a body may take on the wire, with what chunks add to it."""
MOST_SHOWN = 256
"""Bytes of a malformed status line that an error repeats."""


class Paced(asyncio.Transport, asyncio.Protocol):
    """The protocol of `transport`, and the transport of `inner`, which is aiohttp's protocol.

    Received data is handed on in steps. `ended` is called when the connection is over.
    """

    def __init__(self, transport: asyncio.Transport, inner: ResponseHandler, ended: Callable[[], None]) -> None:
        super().__init__()
        self.lost: Exception | None = None
        """The error that broke the connection; None if the peer closed it."""
        self.names = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        """The addresses of the two ends."""
        self._transport, self._inner, self._ended = transport, inner, ended
        self._backlog: deque[bytes] = deque()
        self._scheduled = self._held = self._over = self._told = False
        self.begin()
        inner.connection_made(self)
        transport.set_protocol(self)

    def begin(self) -> None:
        """Expect the answer to another request."""
        self._asked = True
        self.received, self.first = 0, b""
        self._most = MOST_HEAD
        self._body: StreamReader | None = None
        self._error: BodyBroken | None = None

    @property
    def reusable(self) -> bool:
        """Nothing came behind the last answer."""
        return not (self.is_closing() or self._backlog or self._inner.should_close)

    def rest(self, *, keep: bool) -> None:
        """Expect nothing, and have aiohttp close the connection if it is not to be kept."""
        self._asked = False
        if not keep:
            self._inner.force_close()

    async def read(self, body: StreamReader) -> bytes:
        """Return the whole body of an answer whose head has come. Raises BodyBroken, and aiohttp.ClientPayloadError."""
        self._body, self._most = body, self.received + MOST_CODED
        if self._error is not None:
            self._tell(self._error)
        found, size = list[bytes](), 0
        async for piece in body.iter_any():
            found.append(piece)
            size += len(piece)
            if size > MOST_BODY:
                raise BodyBroken("http: response body too large")
        return b"".join(found)

    # Called by aiohttp

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._over or self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def pause_reading(self) -> None:
        """How fast it is read is decided here, and how much may come is bounded."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    # Called by the transport

    def data_received(self, data: bytes) -> None:
        if not self._asked:
            self.abort()  # aiohttp would collect answers that nobody reads
            return
        begins = not self.received
        if len(self.first) < MOST_SHOWN:
            self.first = (self.first + data[:MOST_SHOWN])[:MOST_SHOWN]
        self.received += len(data)
        if self.received > self._most:
            self._refuse()
            return
        if begins:
            # aiohttp forgets a complete answer when malformed bytes follow it in the same call. So it gets the head alone.
            head, end, rest = data.partition(b"\r\n\r\n")
            if end and len(head) < STEP:
                self._parse(head + end)
                data = rest
        self._backlog.extend(data[at : at + STEP] for at in range(0, len(data), STEP))
        if not self._scheduled:
            self._step()

    def eof_received(self) -> None:
        self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        # As in Go, the end of a record is the end of what was said, also without a close_notify.
        self.lost, self._over = None if isinstance(exc, CutOff) and exc.whole else exc, True
        if not self._backlog:
            self._end()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # Steps

    def _step(self) -> None:
        self._scheduled = False
        if not self._asked:
            self._backlog.clear()
            self.abort()
        if self._backlog:
            self._parse(self._backlog.popleft())
        if self._backlog:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._step)
        self._hold(held=bool(self._backlog))
        if self._over and not self._backlog:
            self._end()

    def _parse(self, data: bytes) -> None:
        if self._error is not None:
            return
        self._inner.data_received(data)
        if isinstance(self._inner.exception(), HttpProcessingError):
            self._tell(BodyBroken("malformed chunked encoding"))

    def _hold(self, *, held: bool) -> None:
        """Read nothing more while some of it waits to be parsed: a peer may send faster than that."""
        if held != self._held and not self.is_closing():
            self._held = held
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def _end(self) -> None:
        if self._told:
            return
        self._told = True
        if isinstance(self.lost, OSError):
            self._tell(BodyBroken(str(causes.of_socket(self.lost, *self.names))))
        self._inner.connection_lost(self.lost)
        self._ended()

    def _refuse(self) -> None:
        """End a connection on which more comes than an answer may hold."""
        self._backlog.clear()
        if self._body is None:
            self._inner.set_exception(Broken(f"net/http: server response headers exceeded {MOST_HEAD} bytes; aborted"))
        else:
            self._tell(BodyBroken("chunked encoding contains too much non-data"))
        self._transport.abort()

    def _tell(self, error: BodyBroken) -> None:
        """End the reading of a body that stays incomplete. aiohttp tells its reader only of some errors."""
        self._error = error
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(error)
