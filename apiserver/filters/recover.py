"""The outermost filter: gives every request an audit id, and is the only place that turns an error into a response.

A client never sees a trace or the text of an unexpected exception. Upstream: kubernetes/apiserver
`pkg/endpoints/filters/audit_init.go`, `pkg/server/filters/wrap.go`, `pkg/endpoints/handlers/responsewriters/{writers,errors}.go`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from aiohttp import web

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.filters.state import Handler, Request
from apiserver.runtime.workers import Busy, Workers
from apiserver.wire import negotiation
from apiserver.wire.forms import form as forms
from apiserver.wire.response import Exchange

logger = logging.getLogger(__name__)

PANIC = "This request caused apiserver to panic. Look in the logs for details.\n"
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
BUSY = errors.too_many_requests("Too many requests, please try again later.", retry_after=1)
"""The queue of this kind of work is full."""
BROKEN_BODY = StatusError(
    400, "BadRequest", "the request body is not valid in its transfer encoding", headers={"Connection": "close"}
)


def recover(handler: Handler, *, new_id: Callable[[], str], body_limit: int, workers: Workers) -> Handler:
    """Recover from errors. `new_id` makes the id of a request without one. `body_limit` is the bytes of the longest request body."""

    async def recovering(request: Request) -> web.StreamResponse:
        sent = request.headers.get("Audit-ID")
        request.audit_id = _printable(sent) if sent else new_id()
        exchange = request.exchange = Exchange(request, body_limit=body_limit)
        try:
            try:
                return await handler(request)
            except ConnectionError:
                raise  # the client has disconnected
            except Exception as e:
                failure = failure_of(e)
                if failure is None:
                    logger.exception("unhandled exception", extra=_about(request))
                    failure = TextError(500, PANIC)
            _detach(failure, exchange)
            return await _answer(request, failure, workers)
        finally:
            if exchange.heavy:
                exchange.hold(*exchange.query.let_go(), size=sys.maxsize)
                exchange.free()
            # They reference each other: without this, all that they hold waits for the garbage collector.
            del exchange.request

    return recovering


def failure_of(error: Exception) -> StatusError | TextError | None:
    """Return the answer to an error; None for an unexpected one."""
    if isinstance(error, StatusError | TextError):
        return error
    if isinstance(error, Busy):
        return BUSY
    return BROKEN_BODY if isinstance(error, web.RequestPayloadError) else None


async def _answer(request: Request, failure: StatusError | TextError, workers: Workers) -> web.StreamResponse:
    if request.writer.output_size > 0:
        _break_off(request, failure)
    if failure.headers.get("Connection") == "close":
        request.last = True
    if isinstance(failure, StatusError):
        return await _status(request.exchange, failure, workers)
    return _text(failure)


def _detach(failure: BaseException, exchange: Exchange) -> None:
    """Separate an error from the frames that it passed through. They reference the error and hold the request."""
    size = sys.maxsize if exchange.heavy else exchange.received
    exchange.hold(failure.__traceback__, failure.__context__, failure.__cause__, size=size)
    failure.__traceback__ = failure.__context__ = failure.__cause__ = None


def _printable(audit_id: str) -> str:
    """Return the id as sent. Bytes that are not UTF-8 cannot be sent back and are replaced."""
    return audit_id.encode("utf-8", "replace").decode()


async def _status(exchange: Exchange, error: StatusError, workers: Workers) -> web.StreamResponse:
    """Answer in the client's media type, or in indented JSON if the client accepts none that Sluice has."""
    chosen = negotiation.for_error(exchange.accept, exchange.query, exchange.user_agent) or negotiation.INDENTED
    headers = dict(error.headers)
    if error.retry_after > 0:
        headers["Retry-After"] = str(error.retry_after)
    text = forms.status(chosen, error.status())
    body = await workers.run_patiently(text.run) if text.heavy else text.run()
    return await exchange.respond(error.code, chosen.media, body, headers)


def _text(error: TextError) -> web.StreamResponse:
    headers = {"Content-Type": "text/plain; charset=utf-8", **(NOSNIFF if error.nosniff else {}), **error.headers}
    return web.Response(status=error.code, body=error.text.encode("utf-8", "surrogateescape"), headers=headers)


def _break_off(request: Request, failure: StatusError | TextError) -> None:
    """Break the connection off. The response has begun, so the client can only learn from a stream without its last chunk."""
    logger.error("response broken off", extra={**_about(request), "error": str(failure)})
    request.last = True
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("response broken off")


def _about(request: Request) -> dict[str, str]:
    return {"method": request.method, "uri": request.raw_path[:1024], "audit_id": request.audit_id}
