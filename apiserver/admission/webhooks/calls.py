"""Calls of webhooks over HTTPS, as client-go makes them: whom to reach, for how long, and how often.

Upstream: kubernetes/apiserver `pkg/util/webhook/client.go`, kubernetes/client-go `rest/{request,with_retry,url_utils}.go`, golang/go
`src/net/http/client.go`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import math
import posixpath
import ssl
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from apiserver.admission.webhooks import causes, certificates
from apiserver.admission.webhooks.causes import BodyBroken, Broken
from apiserver.admission.webhooks.client import Answer, Client, Exchange
from apiserver.admission.webhooks.credentials import Credentials, User
from apiserver.admission.webhooks.pacing import MOST_BODY
from apiserver.admission.webhooks.resolution import Address, Cluster, Resolver, lookup
from apiserver.runtime import spans, workers
from kubetext.quoting import go_quote

AGENT = "kube-apiserver-admission"
CLIENTS = 200
"""Targets whose connections are kept."""
RETRIES, REDIRECTS = 10, 10
LATE = "context deadline exceeded"
"""Go's words for a call that takes longer than its request may."""
_PATH = "/:@&=+$,;-_.~"
"""Characters that Go does not escape in a path, beside letters and digits."""


class CallFailed(Exception):
    """There was no answer to be read. The text is Go's wording of the cause; `prefix` is what upstream puts before it."""

    def __init__(self, text: str, *, prefix: str = "failed to call webhook") -> None:
        super().__init__(text)
        self.prefix = prefix


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook is: `authority` as it stands in URLs, a clean `path`, and the CAs that vouch for it, the system's where `ca_bundle`
    is empty. `service` is (namespace, name) where it is a Service of the cluster."""

    host: str
    port: int
    authority: str
    path: str
    ca_bundle: bytes = b""
    service: tuple[str, str] | None = None

    @classmethod
    def of(cls, client_config: Mapping[str, Any]) -> Target:
        """Read a webhook's clientConfig. Raises CallFailed if it cannot be called at all."""
        bundle = _bundle(client_config.get("caBundle"))
        service = client_config.get("service")
        if service is not None:
            name, namespace, port = (
                service.get("name") or "",
                service.get("namespace") or "",
                service.get("port") or 443,
            )
            host, path = f"{name}.{namespace}.svc", _clean(service.get("path") or "")
            return cls(host, port, f"{host}:{port}", path, bundle, (namespace, name))
        url = client_config.get("url")
        if not url:
            raise _no_client("webhook configuration must have either service or URL")
        try:
            host, port, authority, path = _parts(url)
        except ValueError as error:
            raise _no_client(f"Unparsable URL: {error}") from None
        return cls(host, port, authority, path, bundle)

    def url(self, seconds: float) -> str:
        """Return the URL of one call. It tells the webhook its timeout, in whole seconds."""
        whole = max(math.ceil(seconds), 1)
        timeout = f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
        return f"https://{self.authority}{quote(self.path, safe=_PATH)}?timeout={timeout}"


class Caller:
    """Keeps connections to webhooks. Make it inside the event loop that uses it, and `close` it.

    `cluster` is asked for Services that DNS does not know.
    """

    def __init__(self, credentials: Credentials | None = None, cluster: Cluster | None = None) -> None:
        self._credentials = credentials or Credentials()
        self._resolver = Resolver(cluster)
        self._kept: OrderedDict[Target, _Connections] = OrderedDict()

    async def call(self, target: Target, review: bytes, *, seconds: float, late: str = LATE) -> bytes:
        """Return what the webhook answers to a review within `seconds`: the body of a 2xx. Raises CallFailed. `late` is why when there is
        no answer in time."""
        call = _Call(target.url(seconds), review)
        try:
            async with asyncio.timeout(seconds), self._connections(target) as connections:
                return await call.made(connections)
        except TimeoutError:
            raise call.late(late) from None

    async def reach(self, target: Target, *, seconds: float) -> None:
        """Connect to a webhook, and keep the connection for the next call. Raises CallFailed."""
        try:
            async with asyncio.timeout(seconds), self._connections(target) as connections:
                await connections.client.reach(target.url(seconds))
        except TimeoutError:
            raise CallFailed(LATE) from None
        except (Broken, ValueError) as error:
            raise CallFailed(str(error)) from None

    async def close(self) -> None:
        """End all connections. Calls in progress fail."""
        left = list(self._kept.values())
        self._kept.clear()
        for connections in left:
            await connections.client.close()

    @contextlib.asynccontextmanager
    async def _connections(self, target: Target) -> AsyncIterator[_Connections]:
        found = self._kept.get(target)
        if found is None:
            user, tls = await self._identity(target)
            found = self._kept.get(target) or _Connections(target, user, tls, self._resolver)
            self._kept[target] = found
            if len(self._kept) > CLIENTS:
                await self._kept.popitem(last=False)[1].leave()
        self._kept.move_to_end(target)
        found.calls += 1
        try:
            yield found
        finally:
            found.calls -= 1
            if found.left:
                await found.leave()

    async def _identity(self, target: Target) -> tuple[User, ssl.SSLContext]:
        """Return the user who calls a target, and the TLS context. Raises CallFailed."""
        try:
            user = self._credentials.of(target.host, target.port)
            # One for all who call for the first time at once.
            tls = await workers.BODIES.once((self, target), functools.partial(_context, target.ca_bundle, user))
        except (ValueError, OSError, certificates.Unusable) as error:
            raise _no_client(str(error)) from None
        return user, tls


class Callers(NamedTuple):
    """Each plugin's own, and that for conversions."""

    mutating: Caller
    validating: Caller
    conversion: Caller

    async def close(self) -> None:
        for caller in self:
            await caller.close()


class _Connections:
    """The connections to one target, and how many calls use them."""

    def __init__(self, target: Target, user: User, tls: ssl.SSLContext, resolver: Resolver) -> None:
        self.user = user
        self.calls = 0
        self.left = False
        self._target, self._resolver = target, resolver
        self.client = Client(tls, target.host if target.service else "", self._locate)

    async def leave(self) -> None:
        """Close the connections once no call is in progress."""
        self.left = True
        if not self.calls:
            await self.client.close()

    async def _locate(self, host: str, port: int) -> list[Address]:
        service = self._target.service
        if service is not None and (host, port) == (self._target.host, self._target.port):
            return await self._resolver.service(*service, port)
        return await lookup(host, port)


class _Call:
    """One review on its way. `url` is where it is now."""

    def __init__(self, url: str, review: bytes) -> None:
        self.url = self._start = url
        self._review = review
        self._exchange: Exchange | None = None

    async def made(self, connections: _Connections) -> bytes:
        """Ask until the webhook does not ask for a pause any more. Raises CallFailed."""
        for attempt in range(RETRIES + 1):
            self.url = self._start
            answer = await self._followed(connections)
            pause = causes.pause(answer.status, answer.header("Retry-After"))
            if pause is None or attempt == RETRIES:
                break
            self._exchange = None
            await asyncio.sleep(pause)
        body = await _unpacked(answer)
        try:
            why = causes.refusal(answer.status, answer.header("Content-Type"), body)
        except ValueError as error:
            raise CallFailed(f"Internal error occurred: {error}") from None
        if why is not None:
            raise CallFailed(why)
        return body

    def late(self, why: str) -> CallFailed:
        """Return what a call fails with when its time is over."""
        headed = self._exchange is not None and self._exchange.headed
        return CallFailed(causes.unread(why) if headed else f'Post "{self.url}": {why}')

    async def _followed(self, connections: _Connections) -> Answer:
        """Return the answer behind all redirects. A review stays one with 307 and 308. Others turn it into a GET, as in Go."""
        post, referer = True, ""
        for _ in range(REDIRECTS):
            answer = await self._asked(connections, post=post, referer=referer)
            location = answer.header("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return answer
            post = post and answer.status in (307, 308)
            referer, self.url = self.url, self._next(location)
        raise CallFailed(f'Post "{location}": stopped after {REDIRECTS} redirects')

    def _next(self, location: str) -> str:
        try:
            _check_url(location)
            return urljoin(self.url, location)
        except ValueError as error:
            text = f"failed to parse Location header {go_quote(location)}: parse {go_quote(location)}: {error}"
            raise CallFailed(f'Post "{self.url}": {text}') from None

    async def _asked(self, connections: _Connections, *, post: bool, referer: str) -> Answer:
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https"):
                raise Broken(f"unsupported protocol scheme {go_quote(parts.scheme)}")
            if not parts.hostname:
                raise Broken("http: no Host in request URL")
            headers = self._headers(connections.user, parts, post=post, referer=referer)
            method, url = "POST" if post else "GET", _encoded(parts)
            with spans.sending(method, lambda: url) as span:
                headers += spans.sent_headers()
                self._exchange = Exchange(method, url, headers, self._review if post else None)
                answer = await connections.client.send(self._exchange)
                spans.answered(span, answer.status)
                return answer
        except BodyBroken as error:
            raise CallFailed(causes.unread(str(error))) from None
        except (Broken, ValueError) as error:
            raise CallFailed(f'Post "{self.url}": {error}') from None

    def _headers(self, user: User, parts: SplitResult, *, post: bool, referer: str) -> list[tuple[str, str]]:
        found = [("Host", parts.netloc.rpartition("@")[2]), ("User-Agent", AGENT)]
        if post:
            found.append(("Content-Length", str(len(self._review))))
        found += [("Accept", "application/json, */*"), *user.headers()]
        if post:
            found.append(("Content-Type", "application/json"))
        if referer and not (referer.startswith("https:") and parts.scheme == "http"):
            found.append(("Referer", referer))
        return [*found, ("Accept-Encoding", "gzip")]


_TARGET = "/:@&=+$,;-_.~?%!*'()[]"


def _encoded(parts: SplitResult) -> str:
    """Return a URL without user and fragment, as its bytes stand in a request."""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{quote(target, safe=_TARGET)}"


async def _unpacked(answer: Answer) -> bytes:
    """Return the body of an answer. Raises CallFailed."""
    if answer.header("Content-Encoding").lower() != "gzip" or not answer.body:
        return answer.body
    try:
        return await workers.BODIES.run_patiently(_gunzipped, answer.body)
    except ValueError as error:
        raise CallFailed(causes.unread(str(error))) from None


def _gunzipped(data: bytes) -> bytes:
    """Raises ValueError with Go's words."""
    if len(data) < 10:
        raise ValueError("unexpected EOF")
    if data[:3] != b"\x1f\x8b\x08":
        raise ValueError("gzip: invalid header")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(data, MOST_BODY)
    except zlib.error as error:
        raise ValueError("gzip: invalid checksum" if "check" in str(error) else "flate: corrupt input") from None
    if unpacking.unconsumed_tail:
        raise ValueError("http: response body too large")
    if not unpacking.eof:
        raise ValueError("unexpected EOF")
    return found


def _context(bundle: bytes, user: User) -> ssl.SSLContext:
    """Raises Unusable, ValueError, OSError."""
    authority = user.authority()
    return certificates.context(b"\n".join(filter(None, (authority, bundle))), *user.pair())


def _parts(url: str) -> tuple[str, int, str, str]:
    """Host, port, authority and clean path of a webhook's URL. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"parse {go_quote(url)}: invalid URI for request")
    return parts.hostname, parts.port or 443, parts.netloc.rpartition("@")[2], _clean(unquote(parts.path))


def _check_url(url: str) -> None:
    """Raises ValueError with Go's words for what is no URL (golang/go `src/net/url/url.go`)."""
    if url.startswith(":"):
        raise ValueError("missing protocol scheme")
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in url):
        raise ValueError("net/url: invalid control character in URL")
    authority = url.partition("//")[2].partition("/")[0] if "//" in url else ""
    if authority.startswith("[") and "]" not in authority:
        raise ValueError("missing ']' in host")
    urlsplit(url)


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
