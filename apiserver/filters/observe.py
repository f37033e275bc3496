"""Count and time every request, and log it if enabled. Changes nothing.

Upstream: kubernetes/apiserver `pkg/endpoints/metrics/metrics.go` (label rules), `pkg/server/httplog/httplog.go`.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Collection

from aiohttp import web

from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.request import Query, RequestInfo
from apiserver.filters.request_info import Notes
from apiserver.filters.state import Handler, Request
from apiserver.metrics import RequestLabels, RequestMeter
from apiserver.wire.response import SWITCHING_PROTOCOLS

logger = logging.getLogger(__name__)

_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OBJECTS = frozenset({"POST", "PUT", "PATCH"})
_PATHS = frozenset(
    {
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/apis",
        "/statusz",
        "/flagz",
    }
)
"""Paths without resource that have label values of their own; a client must not be able to invent label values."""
APPLY = "application/apply-patch+yaml"
READING = frozenset({"GET", "HEAD"})
OTHER = "other"
"""The label value for everything that clients invent."""


def observe(
    handler: Handler,
    *,
    served: Collection[tuple[str, str, str]],
    clock: Callable[[], float],
    log_requests: Callable[[], bool],
) -> Handler:
    """Observe requests. `served` holds (group, version, plural), `log_requests` says whether to log them now.

    Errors pass through unrendered, so their size is unknown here.
    """
    meters = Meters(served)

    async def observing(request: Request) -> web.StreamResponse:
        started = clock()
        meter = meters.of(request)
        if meter.open is not None:
            meter.open.inc()
        code, size = 500, 0
        try:
            response = await handler(request)
            code, size = code_of(response), size_of(request, response)
            return response
        except (StatusError, TextError) as e:
            code = e.code
            if request.terminated:
                meter.terminated(code)
            raise
        except (CancelledError, ConnectionError):
            code = 499
            meter.aborted()
            raise
        finally:
            seconds = clock() - started
            if meter.open is not None:
                meter.open.dec()
            meter.record(code, seconds, size, waited=request.exchange.waits.seconds)
            if log_requests():
                _log(request, code, seconds)

    return observing


class Meters:
    """One meter per set of labels."""

    def __init__(self, served: Collection[tuple[str, str, str]]) -> None:
        self._served = served
        self._by_labels: dict[RequestLabels, RequestMeter] = {}
        self._known: Notes[RequestMeter] = Notes()

    def of(self, request: Request) -> RequestMeter:
        info = request.info
        if info.method == "PATCH":  # the kind of patch is in a header
            return self._meter(request, applied=request.exchange.content_type == APPLY)
        meter = self._known.get(info)
        return meter if meter is not None else self._known.keep(info, self._meter(request, applied=False))

    def _meter(self, request: Request, *, applied: bool) -> RequestMeter:
        labels = _labels(request.info, request.exchange.query, self._served, applied=applied)
        meter = self._by_labels.get(labels)
        if meter is None:
            meter = self._by_labels[labels] = RequestMeter(labels)
        return meter


def _labels(
    info: RequestInfo, query: Query, served: Collection[tuple[str, str, str]], *, applied: bool
) -> RequestLabels:
    scope = scope_of(info)
    verb = labelled_verb(info, scope, applied=applied)
    dry_run = "" if info.method in READING else dry_run_of(query)
    if (info.group, info.version, info.resource) not in served:
        path = info.path if info.path in _PATHS else ""
        return RequestLabels(verb, dry_run, subresource=path, scope=scope)
    subresource = info.subresource if info.subresource in ("", "status") else OTHER
    validation = field_validation_of(query) if info.method in _OBJECTS else None
    return RequestLabels(verb, dry_run, info.group, info.version, info.resource, subresource, scope, validation)


def scope_of(info: RequestInfo) -> str:
    """Return the scope of a path, as upstream labels its routes: a list narrowed to one name is still a list."""
    if len(info.parts) > 1 or info.verb == "create":
        return "resource"
    if info.namespace:
        return "namespace"
    return "cluster" if info.is_resource else ""


def labelled_verb(info: RequestInfo, scope: str, *, applied: bool) -> str:
    """Return the verb that upstream's metrics and traces show. `applied`: the patch is an apply."""
    if applied:
        return "APPLY"
    if info.long_running:
        return "WATCH"
    if info.method in READING:
        return "LIST" if scope in ("namespace", "cluster") else "GET"
    return info.method if info.method in _METHODS else OTHER


def dry_run_of(query: Query) -> str:
    values = query.all("dryRun")
    if not values:
        return ""
    return "All" if all(value == "All" for value in values) else "invalid"


def field_validation_of(query: Query) -> str:
    values = query.all("fieldValidation")
    if not values:
        return ""
    return values[0] if len(values) == 1 and values[0] in ("Ignore", "Warn", "Strict") else "invalid"


def code_of(response: web.StreamResponse) -> int:
    """Return the code that upstream counts: its meter does not see the status of a connection that becomes a WebSocket."""
    return 0 if response.status == SWITCHING_PROTOCOLS else response.status


def size_of(request: Request, response: web.StreamResponse) -> int:
    """Return the body bytes of a buffered response, or all bytes so far of a streamed one."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        return len(response.body)
    return request.writer.output_size


def _log(request: Request, code: int, seconds: float) -> None:
    logger.info(
        "HTTP",
        extra={
            "verb": request.info.verb,
            "uri": request.raw_path[:1024],
            "latency_ms": round(seconds * 1000, 3),
            "user_agent": request.headers.get("User-Agent", "")[:256],
            "audit_id": request.audit_id[:64],
            "source": request.remote or "",
            "code": code,
        },
    )
