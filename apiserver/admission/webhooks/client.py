"""HTTP to one webhook: aiohttp's client, with the addresses, limits, idle connections and error texts of a Go client.

Upstream: golang/go `src/net/http/transport.go`, `src/net/dial.go`, kubernetes/client-go `transport/cache.go`.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from apiserver.admission.webhooks import causes, certificates
from apiserver.admission.webhooks.causes import BodyBroken, Broken
from apiserver.admission.webhooks.pacing import MOST_BODY, Paced
from apiserver.admission.webhooks.resolution import Address
from apiserver.runtime.tls_records import CutOff

IDLE_SECONDS, MOST_IDLE = 90.0, 25
"""Seconds for which an idle connection is kept, and the most that are kept for one webhook. Both are client-go's."""
MOST_LINES, MOST_LINE = 1000, 64 << 10
"""Lines of an answer's head, and bytes of one."""
PIECE = 128 << 10
"""Bytes of a review that are encrypted in one step."""

Locate = Callable[[str, int], Awaitable[list[Address]]]
"""Finds the addresses of a host and port. Raises Broken."""


class Answer(NamedTuple):
    """The answer to a request, complete."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Return the first value, "" for none. Bytes that are no UTF-8 are replaced, because it may stand in an error."""
        return self.headers.get(name, "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Exchange:
    """One request, and how far it has come."""

    def __init__(self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes | None) -> None:
        self.method, self.url, self.headers, self.body = method, url, headers, body
        self.headed = False
        """The head of the answer has come."""
        self.began = False
        """The request was written to a connection that was open."""
        self.connection: Paced | None = None
        self.reused = False
        self.addresses: list[Address] | None = None
        """Addresses that were not tried yet; None before the host is looked up."""
        self.address: Address = ("", 0)
        """The address that was tried last."""

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. aiohttp asks for the first when it is about to write."""
        assert self.body is not None
        self.began = self.connection is not None and not self.connection.is_closing()
        view = memoryview(self.body)
        for at in range(0, len(view), PIECE):
            if at:
                await asyncio.sleep(0)
            yield bytes(view[at : at + PIECE])


_CURRENT: ContextVar[Exchange] = ContextVar("_CURRENT")
"""The exchange for which this task asks aiohttp. aiohttp hands no argument on to its connector and its resolver."""


class Client:
    """Make it inside the event loop that uses it, and `close` it.

    `name` is what certificates must be valid for; empty: the host of each URL. `locate` finds hosts.
    """

    def __init__(self, tls: ssl.SSLContext, name: str, locate: Locate) -> None:
        self._name = name or None
        self._connector = _Connector(tls, name, locate)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            read_bufsize=MOST_BODY,
            max_line_size=MOST_LINE,
            max_field_size=MOST_LINE,
            max_headers=MOST_LINES,
        )

    async def send(self, exchange: Exchange) -> Answer:
        """Return the answer, and follow no redirect. Raises Broken before there is a head, BodyBroken after that."""
        token = _CURRENT.set(exchange)
        try:
            while True:
                try:
                    return await self._send(exchange)
                except Broken:
                    # The webhook closed a kept connection while nobody used it.
                    if not exchange.reused or exchange.began or self._session.closed:
                        raise
        finally:
            _CURRENT.reset(token)

    async def reach(self, url: str) -> None:
        """Open a connection that the next call uses. Raises Broken."""
        exchange = Exchange("POST", url, (), None)
        _CURRENT.set(exchange)
        loop = asyncio.get_running_loop()
        request = aiohttp.ClientRequest("POST", URL(url, encoded=True), loop=loop, server_hostname=self._name)
        (await self._connector.connect(request, [], aiohttp.ClientTimeout())).release()

    async def close(self) -> None:
        """End all connections, those in use too."""
        await self._session.close()

    async def _send(self, exchange: Exchange) -> Answer:
        if self._session.closed:
            raise Broken(causes.CLOSED)
        try:
            async with self._session.request(
                exchange.method,
                URL(exchange.url, encoded=True),
                headers=exchange.headers,
                data=None if exchange.body is None else aiohttp.AsyncIterablePayload(exchange.content()),
                allow_redirects=False,
                server_hostname=self._name,
            ) as response:
                exchange.headed = True
                assert exchange.connection is not None
                return Answer(response.status, response.headers, await exchange.connection.read(response.content))
        except aiohttp.ClientPayloadError:
            raise BodyBroken("unexpected EOF") from None
        except aiohttp.ClientResponseError as error:
            raise causes.of_head(
                error.message, b"" if exchange.connection is None else exchange.connection.first
            ) from None
        except aiohttp.ClientConnectionError as error:
            raise _disconnected(error, exchange.connection) from None
        except aiohttp.ClientError as error:
            raise Broken(str(error)) from None


def _disconnected(error: aiohttp.ClientConnectionError, connection: Paced | None) -> Exception:
    if connection is None:
        return Broken(causes.CLOSED)
    lost = connection.lost or (error if isinstance(error, OSError) and error.errno else None)
    if connection.received and (lost is None or isinstance(lost, CutOff)):
        return causes.of_head("unexpected EOF")
    return causes.of_socket(lost, *connection.names)


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector, one address at a time. The error of an unreachable host is about its first address, as in Go."""

    def __init__(self, tls: ssl.SSLContext, name: str, locate: Locate) -> None:
        resolver = _Resolver(locate)
        super().__init__(ssl=tls, limit=0, keepalive_timeout=IDLE_SECONDS, use_dns_cache=False, resolver=resolver)
        self._server_name = name
        self._open = self._used = 0

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Raises Broken."""
        exchange = _CURRENT.get()
        exchange.reused, exchange.connection = False, None
        while True:
            connection = await self._dial(req, traces, timeout, exchange)
            transport, protocol = connection.transport, connection.protocol
            assert transport is not None
            assert protocol is not None
            exchange.reused = isinstance(transport, Paced)
            if not isinstance(transport, Paced):
                self._open += 1
                transport = Paced(transport, protocol, self._ended)
                break
            if transport.reusable:
                break
            connection.close()
        transport.begin()
        exchange.connection = transport
        self._used += 1
        connection.add_callback(functools.partial(self._released, transport))
        return connection

    def _ended(self) -> None:
        self._open -= 1

    def _released(self, connection: Paced) -> None:
        self._used -= 1
        connection.rest(keep=self._open - self._used <= MOST_IDLE)

    async def _dial(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout, exchange: Exchange
    ) -> Connection:
        first: Broken | None = None
        exchange.addresses, exchange.address = None, (req.host, req.port or 0)
        while True:
            try:
                return await super().connect(req, traces, timeout)
            except aiohttp.ClientConnectorCertificateError as error:
                refused = cast(ssl.SSLCertVerificationError, error.certificate_error)
                raise await self._distrusted(refused, exchange.address, self._server_name or req.host) from None
            except aiohttp.InvalidURL:  # an address in an old form, such as 127.1
                raise Broken(f"dial tcp: lookup {req.host}: no such host") from None
            except aiohttp.ClientConnectorSSLError as error:
                raise causes.of_tls(cast(ssl.SSLError, error.os_error)) from None
            except aiohttp.ClientConnectorError as error:
                first = first or causes.of_dial(error.os_error, *exchange.address)
            if not exchange.addresses:
                raise first from None

    async def _distrusted(self, error: ssl.SSLCertVerificationError, address: Address, name: str) -> Broken:
        """OpenSSL shows nobody the certificate that it refused. Fetch it once more, for the words."""
        shown = None
        try:
            made, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, *address, ssl=certificates.anybody(), server_hostname=name
            )
        except OSError:
            pass
        else:
            shown = made.get_extra_info("ssl_object").getpeercert(binary_form=True)
            made.abort()
        return Broken(certificates.words(error, shown, name))


class _Resolver(AbstractResolver):
    """Gives out the addresses of a host one by one."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        exchange = _CURRENT.get()
        if exchange.addresses is None:
            exchange.addresses = list(await self._locate(host, port))
        if not exchange.addresses:
            raise Broken("no addresses")
        exchange.address = address = exchange.addresses.pop(0)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        return [ResolveResult(hostname=host, host=address[0], port=address[1], family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass
