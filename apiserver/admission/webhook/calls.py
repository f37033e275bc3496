"""Calls of webhooks over HTTPS, as client-go makes them: whom to reach, for how long, and how often.

Upstream: kubernetes/apiserver `pkg/util/webhook/client.go`, kubernetes/client-go `rest/{request,with_retry,url_utils}.go`, golang/go
`src/net/http/client.go`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import posixpath
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from yarl import URL

from apiserver import workers
from apiserver.admission.webhook import causes
from apiserver.apimachinery.fieldpath import go_quote

AGENT = "kube-apiserver-admission"
CLIENTS = 200
"""Targets whose connections are kept."""
MOST_ANSWER = 8 << 20
"""Bytes of an answer. The patch that replaces the largest object, in base64, is half of it; upstream reads without end."""
RETRIES = 10
IDLE_SECONDS = 90.0
REDIRECTS = 10
_HEADERS = {"User-Agent": AGENT, "Accept": "application/json, */*", "Content-Type": "application/json"}
_PATH = "/:@&=+$,;-_.~"
"""What Go leaves as it is in a path, beside letters and digits."""


class CallFailed(Exception):
    """There was no answer to be read. The text is Go's wording of the cause; `prefix` is what upstream puts before it."""

    def __init__(self, text: str, *, prefix: str = "failed to call webhook") -> None:
        super().__init__(text)
        self.prefix = prefix


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook is: `host` as it stands in URLs and in certificates, a clean `path`, and the CAs that vouch for it, the system's
    where `ca_bundle` is empty. `service` is (namespace, name) where it is a Service of the cluster."""

    host: str
    port: int
    path: str
    ca_bundle: bytes = b""
    service: tuple[str, str] | None = None
    authority: str = ""

    @classmethod
    def of(cls, client_config: Mapping[str, Any]) -> Target:
        """Of a webhook's clientConfig. Raises CallFailed for what cannot be called at all."""
        bundle = _bundle(client_config.get("caBundle"))
        service = client_config.get("service")
        if service is not None:
            name, namespace, port = service.get("name", ""), service.get("namespace", ""), service.get("port") or 443
            host = f"{name}.{namespace}.svc"
            path = _clean(service.get("path") or "")
            return cls(host, port, path, bundle, (namespace, name), f"{host}:{port}")
        url = client_config.get("url")
        if not url:
            raise _no_client("webhook configuration must have either service or URL")
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise _no_client(f"the URL {go_quote(url)} of the webhook is not one of https")
        return cls(
            parts.hostname,
            parts.port or 443,
            _clean(unquote(parts.path)),
            bundle,
            None,
            parts.netloc.rpartition("@")[2],
        )

    def url(self, seconds: float) -> str:
        """That of one call. The webhook is told by when it has to answer, in whole seconds."""
        whole = math.ceil(seconds)
        timeout = f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
        return f"https://{self.authority}{quote(self.path, safe=_PATH)}?timeout={timeout}"


class Caller:
    """Keeps connections to webhooks. Make it inside the event loop that uses it, and `close` it."""

    def __init__(self) -> None:
        self._clients: OrderedDict[Target, _Client] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, target: Target, review: bytes, *, seconds: float) -> bytes:
        """What the webhook answers to a review within `seconds`: the body of a 2xx. Raises CallFailed."""
        url = target.url(seconds)
        try:
            async with asyncio.timeout(seconds), self._client(target) as client:
                return await client.post(url, review)
        except TimeoutError:
            raise CallFailed(f'Post "{url}": context deadline exceeded') from None

    async def close(self) -> None:
        """Lets go of all connections; calls on their way fail."""
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*(client.close() for client in clients), *self._closing)

    @asynccontextmanager
    async def _client(self, target: Target) -> AsyncIterator[_Client]:
        client = self._clients.get(target)
        if client is None:
            tls = await workers.BODIES.run_patiently(_context, target.ca_bundle)
            client = self._clients.setdefault(target, _Client(target, tls))
            if len(self._clients) > CLIENTS:
                self._forget(self._clients.popitem(last=False)[1])
        self._clients.move_to_end(target)
        client.calls += 1
        try:
            yield client
        finally:
            client.calls -= 1
            if client.forgotten:
                self._forget(client)

    def _forget(self, client: _Client) -> None:
        """Closes it once nobody waits for an answer any more."""
        client.forgotten = True
        if not client.calls:
            task = asyncio.ensure_future(client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class _Client:
    """The connections to one target."""

    def __init__(self, target: Target, tls: ssl.SSLContext) -> None:
        self.calls = 0
        self.forgotten = False
        self._tls = tls
        self._name = target.host
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )

    async def post(self, url: str, review: bytes) -> bytes:
        """Raises CallFailed, TimeoutError."""
        for attempt in range(RETRIES + 1):
            response = await self._send(url, review)
            async with response:
                body = await _read(response)
            pause = causes.pause(response.status, response.headers.get("Retry-After", ""))
            if pause is None or attempt == RETRIES:
                break
            await asyncio.sleep(pause)
        why = causes.refusal(response.status, response.headers.get("Content-Type", ""), body)
        if why:
            raise CallFailed(why)
        return body

    async def close(self) -> None:
        await self._session.close()

    async def _send(self, url: str, review: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._session.post(
                URL(url, encoded=True), data=review, server_hostname=self._name, max_redirects=REDIRECTS
            )
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise CallFailed(f'Post "{url}": {causes.words(error)}') from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Raises CallFailed."""
    pieces, size = [], 0
    try:
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > MOST_ANSWER:
                response.close()
                raise CallFailed(causes.unread("http: response body too large"))
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise CallFailed(causes.unread(causes.words(error))) from None
    return b"".join(pieces)


def _bundle(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise _no_client("unable to load root certificates: unable to parse bytes as PEM block") from None


def _no_client(text: str) -> CallFailed:
    return CallFailed(text, prefix="could not get REST client")


def _clean(path: str) -> str:
    """As Go joins paths: no repeated slashes, no dots, no slash at the end."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _context(bundle: bytes) -> ssl.SSLContext:
    """Raises CallFailed. Takes tens of milliseconds for the system's roots."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    if not bundle:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise _no_client("unable to load root certificates: unable to parse bytes as PEM block") from None
    return context
