"""Trace requests: the span of each request, those of its filters and of its verb, and the trace that its sender states.

Only members of some groups may choose the trace and decide about sampling. Other senders' traces are linked.
Upstream: kubernetes/apiserver `pkg/endpoints/filters/traces.go`, `pkg/endpoints/filterlatency/filterlatency.go`,
`pkg/endpoints/handlers/trace_util.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial

from aiohttp import web

from apiserver.filters.audit import source_ips, user_agent
from apiserver.filters.observe import APPLY, labelled_verb, scope_of, size_of
from apiserver.filters.recover import failure_of
from apiserver.filters.state import Filter, Handler, Request
from apiserver.runtime import spans
from apiserver.runtime.spans import Attributes, Kind, Span, Tracer, Value
from apiserver.tracing import propagation, requests
from apiserver.tracing.propagation import PassedOn

AUDIT_ID_CHARACTERS = 64


def trace(handler: Handler, *, tracer: Tracer) -> Handler:
    """Trace the requests that are sampled. The user must be known."""

    async def tracing(request: Request) -> web.StreamResponse:
        span = _begun(request, tracer)
        if span is None:
            return await handler(request)
        with span:
            try:
                response = await handler(request)
            except Exception as e:
                failure = failure_of(e)
                _ended(span, request, 500 if failure is None else failure.code)
                raise
            _ended(span, request, response.status)
            span.note({"http.response.body.size": size_of(request, response)})
            return response

    return tracing


def pass_on(handler: Handler) -> Handler:
    """Let the trace that a sender states go on to webhooks, where this server records nothing."""

    def passing(request: Request) -> Awaitable[web.StreamResponse]:
        headers = request.headers
        if propagation.PARENT in headers or propagation.BAGGAGE in headers:
            return carrying(request)
        return handler(request)

    async def carrying(request: Request) -> web.StreamResponse:
        with PassedOn(propagation.passed_on(request.headers)):
            return await handler(request)

    return passing


NAMES = {
    "receive": "audit",
    "impersonate": "impersonation",
    "priority_and_fairness": "priorityandfairness",
    "authorize": "authorization",
}
"""The spans of filters inside the request's span, by their functions."""


def traced(filters: Iterable[Filter], tracer: Tracer, *, constrained: bool) -> list[Filter]:
    """Give filters the spans that upstream's have. `constrained`: impersonation is of that kind."""
    return [partial(_traced, made=made, tracer=tracer, constrained=constrained) for made in filters]


def _traced(inner: Handler, *, made: Filter, tracer: Tracer, constrained: bool) -> Handler:
    function = getattr(made, "func", made).__name__
    if function == "authenticate":
        return _outside(made(inner), name="authentication", tracer=tracer)
    name = NAMES.get(function)
    if name is None:
        return made(inner)
    return _inside(made(inner), name=f"constrained{name}" if constrained and function == "impersonate" else name)


def _outside(handler: Handler, *, name: str, tracer: Tracer) -> Handler:
    """Give the filter outside the request's own span a trace of its own."""

    async def tracing(request: Request) -> web.StreamResponse:
        span = tracer.root(name, dict, Kind.FILTER, audit_id=_audit_id(request))
        if span is None:
            return await handler(request)
        with span:
            return await handler(request)

    return tracing


def _inside(handler: Handler, *, name: str) -> Handler:
    """Give a filter, and all that it encloses, a span inside the request's."""

    async def tracing(request: Request) -> web.StreamResponse:
        with spans.span(name, kind=Kind.FILTER):
            return await handler(request)

    return tracing


def handling(request: Request, action: str) -> Span:
    """Begin the span of a verb."""
    name = requests.HANDLERS.get(action)
    return spans.NOTHING if name is None else spans.span(name, lambda: _of_verb(request))


def _begun(request: Request, tracer: Tracer) -> Span | None:
    """Begin the span of a request. Where it is not sampled, only its headers go on."""
    headers, name = request.headers, requests.name(request.info)
    stated = propagation.stated(headers)

    def attributes() -> Attributes:
        return _of_request(request)

    if stated is None and requests.decides(request.user):
        outer = spans.present()
        span = outer.child(name, attributes(), Kind.SERVER) if outer.recording else None
    elif stated is None:
        span = tracer.root(name, attributes, Kind.SERVER, audit_id=_audit_id(request))
    elif requests.decides(request.user):
        span = tracer.root(name, attributes, Kind.SERVER, audit_id=_audit_id(request), parent=stated)
        return span or PassedOn(propagation.written(stated))
    else:
        span = tracer.linked(name, attributes, Kind.SERVER, audit_id=_audit_id(request), link=stated)
    if span is None and (baggage := propagation.baggage(headers)):
        return PassedOn({propagation.BAGGAGE: baggage})
    return span


def _ended(span: Span, request: Request, code: int) -> None:
    span.note({"http.response.status_code": code})
    if received := request.exchange.received:
        span.note({"http.request.body.size": received})
    if not 100 <= code < 500:
        span.fail()


def _audit_id(request: Request) -> str:
    return request.audit_id[:AUDIT_ID_CHARACTERS]


def _of_request(request: Request) -> Attributes:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return requests.received(
        request.method,
        request.raw_path,
        path=request.info.path,
        headers=request.headers,
        version=request.version,
        peer=peer or (),
        audit_id=_audit_id(request),
    )


def _of_verb(request: Request) -> Attributes:
    info, exchange = request.info, request.exchange
    scope = scope_of(info)
    found: dict[str, Value] = {
        "accept": request.headers.get("Accept", ""),
        "audit-id": _audit_id(request),
        "client": next(source_ips(request), "unknown"),
        "api-group": info.group,
        "api-version": info.version,
        "name": info.name,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "protocol": f"HTTP/{request.version.major}.{request.version.minor}",
        "resource": info.resource,
        "scope": scope,
        "url": info.path,
        "user-agent": user_agent(exchange.user_agent) or "unknown",
        "verb": labelled_verb(info, scope, applied=exchange.content_type == APPLY),
    }
    return found
