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
from urllib.parse import quote, unquote, urljoin, urlsplit

from apiserver.admission.webhooks import causes, certificates, http1
from apiserver.admission.webhooks.causes import Broken
from apiserver.admission.webhooks.connections import Pool
from apiserver.admission.webhooks.credentials import Credentials, User
from apiserver.admission.webhooks.http1 import Answer
from apiserver.admission.webhooks.resolution import Address, Cluster, Resolver, lookup
from apiserver.runtime import workers
from kubetext.quoting import go_quote

AGENT = "kube-apiserver-admission"
CLIENTS = 200
"""Targets whose connections are kept."""
RETRIES, REDIRECTS = 10, 10
_PATH = "/:@&=+$,;-_.~"
"""What Go leaves as it is in a path, beside letters and digits."""


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
        """Of a webhook's clientConfig. Raises CallFailed for what cannot be called at all."""
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
        """That of one call. The webhook is told by when it has to answer, in whole seconds."""
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
        self._clients: OrderedDict[Target, _Client] = OrderedDict()

    async def call(self, target: Target, review: bytes, *, seconds: float) -> bytes:
        """What the webhook answers to a review within `seconds`: the body of a 2xx. Raises CallFailed."""
        url = target.url(seconds)
        call = _Call(url, review)
        try:
            async with asyncio.timeout(seconds), self._client(target) as client:
                return await call.made(client)
        except TimeoutError:
            raise call.late() from None

    async def reach(self, target: Target, *, seconds: float) -> None:
        """Connects to a webhook, and keeps the connection for the next call. Raises CallFailed."""
        try:
            async with asyncio.timeout(seconds), self._client(target) as client:
                await client.pool.reach(target.host, target.port)
        except TimeoutError:
            raise CallFailed("context deadline exceeded") from None
        except Broken as error:
            raise CallFailed(str(error)) from None

    async def close(self) -> None:
        """Ends all connections; calls on their way fail."""
        for client in self._clients.values():
            client.pool.close()
        self._clients.clear()

    @contextlib.asynccontextmanager
    async def _client(self, target: Target) -> AsyncIterator[_Client]:
        client = self._clients.get(target)
        if client is None:
            made = await self._made(target)
            client = self._clients.setdefault(target, made)
            if len(self._clients) > CLIENTS:
                self._clients.popitem(last=False)[1].leave()
        self._clients.move_to_end(target)
        client.calls += 1
        try:
            yield client
        finally:
            client.calls -= 1
            if client.left:
                client.leave()

    async def _made(self, target: Target) -> _Client:
        try:
            user = self._credentials.of(target.host, target.port)
            # One for all who call for the first time at once.
            tls = await workers.BODIES.once((self, target), functools.partial(_context, target.ca_bundle, user))
        except (ValueError, OSError, certificates.Unusable) as error:
            raise _no_client(str(error)) from None
        return _Client(target, user, tls, self._resolver)


class Callers(NamedTuple):
    """Each plugin's own."""

    mutating: Caller
    validating: Caller

    async def close(self) -> None:
        for caller in self:
            await caller.close()


class _Client:
    """The connections to one target, and who is calling."""

    def __init__(self, target: Target, user: User, tls: ssl.SSLContext, resolver: Resolver) -> None:
        self.user = user
        self.calls = 0
        self.left = False
        self._target, self._resolver = target, resolver
        self.pool = Pool(tls, target.host if target.service else "", self._locate)

    def leave(self) -> None:
        """Lets go of the connections once nobody waits for an answer any more."""
        self.left = True
        if not self.calls:
            self.pool.close()

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
        self._answer = Answer()

    async def made(self, client: _Client) -> bytes:
        """Asks until the webhook does not ask for a pause any more. Raises CallFailed."""
        for attempt in range(RETRIES + 1):
            self.url = self._start
            answer = await self._followed(client)
            pause = causes.pause(answer.status, answer.header("retry-after"))
            if pause is None or attempt == RETRIES:
                break
            self._answer = Answer()
            await asyncio.sleep(pause)
        body = await _unpacked(answer)
        try:
            why = causes.refusal(answer.status, answer.header("content-type"), body)
        except ValueError as error:
            raise CallFailed(f"Internal error occurred: {error}") from None
        if why is not None:
            raise CallFailed(why)
        return body

    def late(self) -> CallFailed:
        """What is said when the time is over."""
        why = "context deadline exceeded"
        return CallFailed(causes.unread(why) if self._answer.headed else f'Post "{self.url}": {why}')

    async def _followed(self, client: _Client) -> Answer:
        """The answer behind all redirects. A review stays one with 307 and 308; with the others the new place is only looked at."""
        post, referer = True, ""
        for _ in range(REDIRECTS):
            answer = await self._asked(client, post=post, referer=referer)
            location = answer.header("location")
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

    async def _asked(self, client: _Client, *, post: bool, referer: str) -> Answer:
        try:
            parts = urlsplit(self.url)
            secure, host = parts.scheme == "https", parts.hostname or ""
            if parts.scheme not in ("http", "https"):
                raise Broken(f"unsupported protocol scheme {go_quote(parts.scheme)}")
            if not host:
                raise Broken("http: no Host in request URL")
            port = parts.port or (443 if secure else 80)
            head = self._head(client.user, post=post, referer=referer)
            self._answer = answer = Answer()
            await client.pool.ask(host, port, (head, self._review if post else b""), answer, secure=secure)
            return answer
        except http1.BodyBroken as error:
            raise CallFailed(causes.unread(str(error))) from None
        except (Broken, http1.Malformed, ssl.SSLError, ValueError) as error:
            raise CallFailed(f'Post "{self.url}": {error}') from None

    def _head(self, user: User, *, post: bool, referer: str) -> bytes:
        parts = urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{'POST' if post else 'GET'} {quote(target, safe=_TARGET)} HTTP/1.1"]
        lines += [f"Host: {parts.netloc.rpartition('@')[2]}", f"User-Agent: {AGENT}"]
        if post:
            lines.append(f"Content-Length: {len(self._review)}")
        lines.append("Accept: application/json, */*")
        lines += [f"{name}: {value}" for name, value in user.headers()]
        if post:
            lines.append("Content-Type: application/json")
        if referer and not (referer.startswith("https:") and parts.scheme == "http"):
            lines.append(f"Referer: {referer}")
        lines += ["Accept-Encoding: gzip", "", ""]
        return "\r\n".join(lines).encode("utf-8", "replace")


_TARGET = "/:@&=+$,;-_.~?%!*'()[]"


async def _unpacked(answer: Answer) -> bytes:
    """The body of an answer. Raises CallFailed."""
    if answer.header("content-encoding").lower() != "gzip" or not answer.body:
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
        found = unpacking.decompress(data, http1.MOST_BODY)
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
