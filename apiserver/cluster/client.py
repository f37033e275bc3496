"""One identity at one API server: requests with retries, and watches. Knows no resources.

kubernetes_asyncio only finds the credentials (`credentials`). The requests are plain aiohttp, because its client takes half a second to
import and loses watches. Upstream: kubernetes/client-go `rest/request.go`, kubernetes/apiserver `pkg/util/webhook/webhook.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random as randomness
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import orjson
from yarl import URL

from apiserver import __version__, metrics
from apiserver.cluster.credentials import Identity, Kubeconfig, ServiceAccount, Source, in_pod
from apiserver.cluster.errors import ClusterError, Refused, TooLong, Unreadable
from apiserver.cluster.pace import ONCE, Backoff, Throttle
from apiserver.codecs.json import surrogates
from apiserver.runtime import spans

__all__ = ["Client", "ClusterError", "Events", "Refused", "in_pod"]

logger = logging.getLogger(__name__)

CONNECTIONS = 100
IDLE_SECONDS = 60.0
"""Below the 90 s after which kube-apiserver closes idle connections, so that none is used while it does."""
RENEW_SECONDS = 50.0
"""The age at which credentials are read again (client-go's NewCachedFileTokenSource: a minute less 10 s)."""
REFUSED_SECONDS = 5.0
"""The age from which a 401 makes the client read credentials again, and the pause before a failed read is repeated."""
LOAD_SECONDS = 30.0
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A server that vanished silently is noticed within a minute, by a watch too (client-go pings over HTTP/2 instead)."""
AGENT = f"sluice/{__version__}"
JSON = "application/json"
NO_ANSWER = "<error>"
"""The `code` of a request without an answer, in upstream's metrics."""

_Done = TypeVar("_Done")

Content = bytes | Sequence[bytes]
"""A request body; each piece is sent in one step of the event loop."""
Counted = Callable[[str, float], None]
"""Receives the code and the seconds of each attempt."""


class Page(NamedTuple):
    """A page of a list: its metadata, and its objects as they came. Pass each to `decoded`."""

    metadata: Mapping[str, Any]
    items: Sequence[bytes | memoryview]


class Probe(NamedTuple):
    """An answer of any status, for callers that judge the server: `seconds` is the time from the request to the end of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


class Client:
    """Make it with `of_kubeconfig` or `in_cluster`, inside the event loop that uses it, and `close` it."""

    def __init__(
        self,
        source: Source,
        identity: Identity,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        throttled: bool = True,
        accept: str = JSON,
    ) -> None:
        self.clock, self.sleep, self.random = clock, sleep, random
        self._source = source
        self._identity = identity
        self._loaded = clock()
        self._renew = self._loaded + RENEW_SECONDS
        self._doubted = False
        self._throttle, self._throttled = Throttle(clock), throttled
        self._tasks: set[asyncio.Task[Any]] = set()
        self._session = aiohttp.ClientSession(
            # Not trust_env: it reads ~/.netrc in a thread for each request. `proxies` reads the environment's proxies.
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS, socket_factory=_lasting_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": AGENT, "Accept": accept, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )

    @classmethod
    async def of_kubeconfig(cls, path: str, *, environ: Mapping[str, str] = os.environ) -> Client:
        """Open a client as the user of the current context. Raises ClusterError."""
        return await cls.of(Kubeconfig(path, environ))

    @classmethod
    async def in_cluster(cls, *, environ: Mapping[str, str] = os.environ) -> Client:
        """Open a client as the service account of this pod. Raises ClusterError."""
        return await cls.of(ServiceAccount(environ))

    @classmethod
    async def of(
        cls,
        source: Source,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
        throttled: bool = True,
        accept: str = JSON,
    ) -> Client:
        """Open a client with the identity of `source`. Raises ClusterError.

        `throttled`: limit the requests per second. `accept`: the Accept header.
        """
        identity = await _load(source, anew=False)
        return cls(source, identity, clock=clock, sleep=sleep, random=random, throttled=throttled, accept=accept)

    @property
    def server(self) -> str:
        return self._identity.server

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float = 10.0,
        within: float = 30.0,
        backoff: Backoff = ONCE,
        throttle: Throttle | None = None,
        flow: str = "",
        counted: Counted | None = None,
    ) -> Mapping[str, Any]:
        """Return the decoded JSON of a 2xx. Raises ClusterError.

        Each attempt may take `seconds`, all of them `within`; upstream's rule decides which errors are retried. `throttle` replaces the
        client's own rate limit, and `flow` names the fair-queuing flow of the request.
        """
        raw = await self.fetch(
            method,
            path,
            query=query,
            content=None if body is None else _encoded(body),
            seconds=seconds,
            within=within,
            backoff=backoff,
            throttle=throttle,
            flow=flow,
            counted=counted,
        )
        return decoded(raw, self._what(method, _target(path, query)))

    async def page(self, path: str, query: Mapping[str, str], *, seconds: float, most: int) -> Page:
        """Return a list, or the page of it that the query asks for. Raises ClusterError.

        An answer of more than `most` bytes raises TooLong, and its rest is not read.
        """
        return _page(await self.fetch("GET", path, query=query, seconds=seconds, within=seconds, most=most), path)

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: Content | None = None,
        seconds: float = 10.0,
        within: float = 30.0,
        backoff: Backoff = ONCE,
        throttle: Throttle | None = None,
        flow: str = "",
        counted: Counted | None = None,
        most: int | None = None,
    ) -> bytes:
        """Return the body of a 2xx as it came, which keeps numbers as they were written. Otherwise like `ask`.

        `content` is JSON, in pieces if it is long. Raises TooLong for more than `most` bytes.
        """
        target = _target(path, query)
        until = self.clock() + within
        pauses = backoff.pauses(self.random)
        while True:
            try:
                await self._take_turn(throttle or self._throttle, flow, until)
                async with self._limit(method, target, min(seconds, until - self.clock())):
                    return await self._exchange(method, target, content, counted=counted, most=most)
            except ClusterError as error:
                pause = next(pauses, None) if error.transient else None
                if pause is None:
                    raise
                pause = max(pause, _asked_pause(error))
                if self.clock() + pause >= until:
                    raise
            await self.sleep(pause)

    async def probe(self, path: str, *, query: Mapping[str, str] | None = None, seconds: float = 10.0) -> Probe:
        """GET a path once, and return the answer whatever its status. Raises ClusterError without an answer."""
        target, started = _target(path, query), self.clock()
        async with self._limit("GET", target, seconds):
            response = await self._send("GET", target, None)
            raw = await _body(response, self._what("GET", target))
        return Probe(response.status, response.headers, raw, self.clock() - started)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], *, seconds: float = 10.0) -> AsyncIterator[Events]:
        """Open a watch; the server must begin to answer within `seconds`. Raises ClusterError, also during iteration."""
        target = _target(path, {**query, "watch": "true"})
        async with self._limit("GET", target, seconds):
            response = await self._send("GET", target, None)
            if response.status != 200:
                raw = await _body(response, self._what("GET", target))
                raise self._refusal(response, raw, "GET", target)
        try:
            yield Events(response, self._what("GET", target))
        finally:
            response.close()

    def start(self, work: Coroutine[Any, Any, _Done]) -> asyncio.Task[_Done]:
        """Run `work` for as long as this client is open, whichever callers wait for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel what `start` started, and close the connections. Later requests raise ClusterError."""
        await self._session.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------------------ one request

    async def _take_turn(self, throttle: Throttle, flow: str, until: float) -> None:
        if throttle is self._throttle and not self._throttled:
            return
        turn = throttle.enter(flow)
        if turn is not None:
            with turn:
                while (wait := turn.seconds()) <= until - self.clock():
                    if not wait:
                        return
                    await self.sleep(wait)
        raise ClusterError(f"too many requests wait for {self.server}")

    @contextlib.asynccontextmanager
    async def _limit(self, method: str, target: str, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise ClusterError(f"{self._what(method, target)}: no answer within {seconds:.3g} s") from None

    async def _exchange(
        self, method: str, target: str, content: Content | None, *, counted: Counted | None, most: int | None
    ) -> bytes:
        started, code = self.clock(), NO_ANSWER
        try:
            response = await self._send(method, target, content)
            code = str(response.status)
            raw = await _body(response, self._what(method, target), most)
        finally:
            seconds = self.clock() - started
            metrics.CLIENT_SECONDS.labels(method, self._host).observe(seconds)
            if counted is not None:
                counted(code, seconds)
        if not 200 <= response.status < 300:
            raise self._refusal(response, raw, method, target)
        return raw

    async def _send(self, method: str, target: str, content: Content | None) -> aiohttp.ClientResponse:
        """Send a request and return the beginning of its answer. The caller must read it to its end or close it."""
        identity, code = await self._current(), NO_ANSWER
        if self._session.closed:
            raise ClusterError("the client is closed")
        headers = {"Authorization": identity.authorization} if identity.authorization else {}
        if content is not None:
            headers["Content-Type"] = JSON
        if content is not None and not isinstance(content, bytes):
            headers["Content-Length"] = str(sum(map(len, content)))
        url = identity.server + target
        try:
            with _translated(self._what(method, target)), spans.sending(method, lambda: url) as span:
                headers.update(spans.sent_headers())
                response = await self._session.request(
                    method,
                    URL(url, encoded=True),
                    data=content if content is None or isinstance(content, bytes) else _each(content),
                    headers=headers,
                    ssl=True if identity.tls is None else identity.tls,
                    server_hostname=identity.server_name or None,
                    proxy=identity.proxy or None,
                    allow_redirects=False,
                )
                spans.answered(span, response.status)
            code = str(response.status)
        finally:
            metrics.CLIENT_REQUESTS.labels(code, method, self._host).inc()
        if response.status == 401:
            self._doubted = True
            self._renew = min(self._renew, self._loaded + REFUSED_SECONDS)
        return response

    def _refusal(self, response: aiohttp.ClientResponse, raw: bytes, method: str, target: str) -> Refused:
        """Return the Status's own message, as client-go does; of other bodies only the beginning."""
        status = _status(raw)
        text = status.get("message")
        if not isinstance(text, str) or not text:
            text = f"{self._what(method, target)}: HTTP {response.status}: {raw[:200].decode('utf-8', 'replace')!r}"
        return Refused(
            text,
            code=response.status,
            retry_after=_retry_after(response.headers.get("Retry-After"), status),
            status=status,
        )

    def _what(self, method: str, target: str) -> str:
        """Describe the request as Go's client does at the beginning of its errors."""
        return f'{method.capitalize()} "{self.server}{target}"'

    @property
    def _host(self) -> str:
        return urlsplit(self.server).netloc

    # ------------------------------------------------------------------------------------------------------------ credentials

    async def _current(self) -> Identity:
        now = self.clock()
        if now >= self._renew:
            self._renew = now + RENEW_SECONDS  # concurrent requests use the present ones
            doubted, self._doubted = self._doubted, False
            # The read must not end with the request that happened to start it.
            await asyncio.shield(self.start(self._read_again(anew=doubted)))
        return self._identity

    async def _read_again(self, *, anew: bool) -> None:
        try:
            self._identity = await _load(self._source, anew=anew)
            self._loaded = self.clock()
        except ClusterError as error:
            self._renew = self.clock() + REFUSED_SECONDS
            self._doubted = self._doubted or anew
            logger.warning("credentials could not be renewed", extra={"server": self.server, "error": str(error)})


class Events:
    """The events of a watch, as (type, object). Ends when the server ends the watch."""

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._content = response.content
        self._what = what
        self._buffer = bytearray()
        self._searched = 0

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> tuple[str, Mapping[str, Any]]:
        event = decoded(await self._line(), self._what)
        kind, found = event.get("type"), event.get("object")
        if not isinstance(kind, str) or not isinstance(found, dict):
            raise Unreadable(f"{self._what}: the answer holds no watch event")
        return kind, found

    async def _line(self) -> bytes:
        """Return the next line. Raises StopAsyncIteration at the end.

        A last line without a line end was cut off; the server sends it again to a client that resumes.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                if line.strip():
                    return line
                continue
            self._searched = len(self._buffer)
            with _translated(self._what):
                chunk = await self._content.readany()
            if not chunk:
                raise StopAsyncIteration
            self._buffer += chunk


async def _load(source: Source, *, anew: bool) -> Identity:
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            with _translated("reading the credentials"):  # an OpenID provider may be asked for them
                return await source.load(anew=anew)
    except TimeoutError:
        raise ClusterError(f"the credentials took longer than {LOAD_SECONDS:g} s") from None


# ---------------------------------------------------------------------------------------------------------------- HTTP


async def _each(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def _body(response: aiohttp.ClientResponse, what: str, most: int | None = None) -> bytes:
    if not _ends_by_itself(response):
        response.close()
        raise ClusterError(f"{what}: the answer does not say where it ends")
    with _translated(what):
        if most is None:
            return await response.read()
        found = bytearray()
        async for chunk in response.content.iter_any():
            found += chunk
            if len(found) > most:
                response.close()
                raise TooLong(f"{what}: the answer is longer than {most} bytes")
        return bytes(found)


def _ends_by_itself(response: aiohttp.ClientResponse) -> bool:
    """Return whether a cut-off answer can be detected. aiohttp takes the end of a connection for the end of any other answer."""
    headers = response.headers
    chunked = headers.get("Transfer-Encoding", "").lower().endswith("chunked")
    return chunked or "Content-Length" in headers or response.status in (204, 304)


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise ClusterError(f"the question fits no JSON: {error}") from None


class _List(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


_list = surrogates.kept(msgspec.json.Decoder(_List).decode)
_loads = surrogates.replaced(orjson.loads)


def _page(raw: bytes, path: str) -> Page:
    """Split a list without decoding its objects, which takes a fifth to a twentieth of the time."""
    try:
        found = _list(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Unreadable(f"{path}: the answer is no list") from None
    return Page(found.metadata, [memoryview(item) for item in found.items or ()])


def decoded(raw: bytes | memoryview, what: str) -> Mapping[str, Any]:
    """Decode the object that an answer holds. Raises Unreadable."""
    try:
        found = _loads(raw)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unreadable(f"{what}: the answer is no JSON object")
    return found


def _status(raw: bytes) -> Mapping[str, Any]:
    """Return the Status in an error's body, empty if it is something else."""
    try:
        found = orjson.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def _retry_after(header: str | None, status: Mapping[str, Any]) -> float | None:
    """Return the seconds from the header (kube-apiserver writes no dates) or the Status."""
    if header is not None and header.isascii() and header.isdigit():
        return float(header)
    details = status.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else None


def _asked_pause(error: ClusterError) -> float:
    return (error.retry_after if isinstance(error, Refused) else None) or 0.0


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise ClusterError(f"{what}: {_cause(error)}", transient=_was_reset(error)) from None


def _cause(error: aiohttp.ClientError | OSError) -> str:
    """Describe the error without the addresses of Python objects that aiohttp puts into its texts."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server's certificate is not accepted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        known = cause.errno is not None and cause.errno in errno.errorcode
        reason = os.strerror(cause.errno).lower() if known and cause.errno else cause.strerror or str(cause)
        return f"connecting to {error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return str(error) or type(error).__name__


def _was_reset(error: aiohttp.ClientError | OSError) -> bool:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.errno == errno.ECONNRESET
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return True
    return isinstance(error, OSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


def _lasting_socket(info: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*info[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
