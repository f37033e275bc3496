"""The span of the present task: the parts of a request add to it, and its headers go on to other servers.

Knows no tracing library. Where no request is traced, a part of a request costs one look at a context variable.
Upstream: kubernetes/component-base `tracing/tracing.go`; go.opentelemetry.io/contrib `instrumentation/net/http/otelhttp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

Value = str | int | bool
Attributes = Mapping[str, Value]
MakeAttributes = Callable[[], Attributes]
"""Makes attributes, which is done only for a span that is recorded."""
NO_HEADERS: Mapping[str, str] = {}


class Kind(Enum):
    """The kinds of spans, by their subject."""

    INTERNAL = "a part of a request"
    FILTER = "a filter and all that it encloses"
    SERVER = "a request to this server"
    CLIENT = "a request to another server"
    STORE = "a request to the store"


class Span:
    """A span that nobody records. As a context manager it is the present one, and ends with the block."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token: Token[Span | None] | None = None

    @property
    def recording(self) -> bool:
        """Whether the span will be exported."""
        return False

    @property
    def audit_id(self) -> str:
        """The audit id of the request."""
        return ""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of requests that this process sends on behalf of the request."""
        return NO_HEADERS

    def child(self, name: str, attributes: Attributes, kind: Kind) -> Span:
        """Begin a span inside this one."""
        raise NotImplementedError

    def event(self, name: str, **attributes: Value) -> None:
        """Note that something has happened now."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, text: str = "") -> None:
        """Mark the span as failed."""

    def end(self) -> None:
        """End the span. It is exported later, in another thread."""

    def __enter__(self) -> Span:
        self._token = _PRESENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _PRESENT.reset(self._token)
        self.end()


class _Nothing(Span):
    """Changes nothing, not even the present span."""

    __slots__ = ()

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Remote:
    """The place in a trace that the sender of a request states. `state` is empty or valid; `baggage` goes on unchanged."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""
    baggage: str = ""


class Tracer(Protocol):
    """Begins spans that are inside no other span of this process."""

    def root(
        self, name: str, attributes: MakeAttributes, kind: Kind, *, audit_id: str, parent: Remote | None = None
    ) -> Span | None:
        """Begin a span; None if it is not sampled. `parent` is the sender's span, whose sampling is respected."""

    def linked(self, name: str, attributes: MakeAttributes, kind: Kind, *, audit_id: str, link: Remote) -> Span | None:
        """Begin the span of a request whose sender does not decide about sampling. `link` is the sender's span."""

    def close(self) -> None:
        """Export what is left. Blocks for seconds: call it in a thread."""


_PRESENT: ContextVar[Span | None] = ContextVar("_PRESENT", default=None)
NOTHING = _Nothing()
"""Ignores everything."""


def present() -> Span:
    """Return the span of this task, or one that ignores everything."""
    return _PRESENT.get() or NOTHING


def span(name: str, attributes: MakeAttributes | None = None, *, kind: Kind = Kind.INTERNAL) -> Span:
    """Begin a span inside the present one, if that is recorded. `attributes` are made only then."""
    parent = _PRESENT.get()
    if parent is None or not parent.recording:
        return NOTHING
    return parent.child(name, {} if attributes is None else attributes(), kind)


def event(name: str, **attributes: Value) -> None:
    """Note in the present span that something has happened now."""
    parent = _PRESENT.get()
    if parent is not None:
        parent.event(name, **attributes)


def audit_id() -> str:
    """Return the audit id of the traced request, for the attributes of its parts."""
    return present().audit_id


# ---------------------------------------------------------------------------------------------------------------- requests to others

STANDARD_PORTS = {"https": 443, "http": 80}
METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})


def sending(method: str, url: Callable[[], str]) -> Span:
    """Begin the span of a request to another server. `headers` of the result belong to that request."""
    return span(f"HTTP {method}", lambda: _of_request(method, url()), kind=Kind.CLIENT)


def answered(span: Span, code: int) -> None:
    """Note the answer to a request to another server."""
    if not span.recording:
        return
    span.note({"http.response.status_code": code})
    if not 100 <= code < 400:
        span.note({"error.type": str(code)})
        span.fail()


def _of_request(method: str, url: str) -> Attributes:
    parts = urlsplit(url)
    found: dict[str, Value] = {
        **method_attributes(method),
        "url.full": parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
        "server.address": parts.hostname or "",
        "network.protocol.version": "1.1",
    }
    port = parts.port
    if port and port != STANDARD_PORTS.get(parts.scheme):
        found["server.port"] = port
    return found


def method_attributes(method: str) -> Attributes:
    """Return the attributes of an HTTP method: unknown ones have one value in common, and are named beside it."""
    if method in METHODS:
        return {"http.request.method": method}
    upper = method.upper()
    return {"http.request.method": upper if upper in METHODS else "_OTHER", "http.request.method_original": method}


def sent_headers() -> Sequence[tuple[str, str]]:
    """Return the headers that tell another server which trace this task works for."""
    parent = _PRESENT.get()
    return () if parent is None else tuple(parent.headers().items())
