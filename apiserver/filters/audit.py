"""Record requests for auditing: after authentication, and at their end.

A request may end before authentication, hence two filters: `audit` encloses everything that can refuse a request, `receive` comes after
authentication. Handlers put objects into `exchange.recording`. Upstream: kubernetes/apiserver
`pkg/endpoints/filters/{audit,authn_audit,request_deadline}.go`; kubernetes/apimachinery `pkg/util/net/http.go` SourceIPs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache, partial

from aiohttp import web

from apiserver.audit.record import Auditor, Origin
from apiserver.filters.recover import failure_of
from apiserver.filters.request_info import internal_error
from apiserver.filters.state import Handler, Request
from apiserver.wire import negotiation

USER_AGENT_BYTES, TRUNCATED = 1024, "...TRUNCATED"
FORWARDED_CHARACTERS, LONGEST_ADDRESS = 4096, 64
"""The most characters of a header with addresses: proxies append their addresses at its end."""


def audit(handler: Handler, *, auditor: Auditor) -> Handler:
    """Record the last stage of every request."""

    async def auditing(request: Request) -> web.StreamResponse:
        request.received = auditor.now()
        try:
            response = await handler(request)
        except Exception as e:
            await auditor.finish(_failed(request, e, auditor))
            raise
        except BaseException:  # the client has disconnected, or the process stops
            if request.record is not None:
                auditor.finish(request.record.left())
            raise
        if request.record is not None:
            await auditor.finish(request.record.succeeded(response.status))
        return response

    return auditing


async def _failed(request: Request, error: Exception, auditor: Auditor) -> None:
    record, exchange = request.record, request.exchange
    failure = failure_of(error)
    if failure is None:
        if record is not None:
            await (record.left() if isinstance(error, ConnectionError) else record.panicked(error))
        return
    shown = negotiation.for_error(exchange.accept, exchange.query, exchange.user_agent) is not None
    if record is not None:
        await record.failed(failure, shown=shown)
    if request.known:
        return
    refused = auditor.record(request.info, None, partial(origin_of, request), exchange.annotations)
    if refused is not None:
        await refused.refused(failure, shown=shown)


def receive(handler: Handler, *, auditor: Auditor) -> Handler:
    """Record the first stage. Raises 500 for a request that must not be served unrecorded."""

    async def receiving(request: Request) -> web.StreamResponse:
        record = auditor.record(request.info, request.user, partial(origin_of, request), request.exchange.annotations)
        if record is not None:
            if not await record.received():
                auditor.reject()
                raise internal_error(request.raw_path, "failed to store audit event")
            request.record, request.exchange.recording = record, record.recording
        return await handler(request)

    return receiving


def origin_of(request: Request) -> Origin:
    """Return what the request says about itself."""
    return Origin(
        audit_id=request.audit_id,
        uri=_text(request.raw_path),
        source_ips=list(source_ips(request)),
        user_agent=user_agent(request.exchange.user_agent),
        received=request.received,
    )


def source_ips(request: Request) -> Iterator[str]:
    """Yield the addresses that the proxies report, nearest last, then the peer's. All but the last may be forged."""
    said = request.headers.get("X-Forwarded-For", "")[-FORWARDED_CHARACTERS:]
    found = [address for part in said.split(",") if (address := _address(part.strip(" ")))]
    real = _address(request.headers.get("X-Real-Ip", ""))
    if real and real not in found:
        found.append(real)
    yield from found
    peer = _address(request.remote or "")
    if peer and found[-1:] != [peer]:
        yield peer


def _address(text: str) -> str:
    """Return the address as Go writes it; empty for an invalid one."""
    return _read_address(text) if len(text) <= LONGEST_ADDRESS else ""


@lru_cache(1024)
def _read_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def user_agent(sent: str) -> str:
    """Return a header as upstream records it: cut, and as valid text."""
    raw = sent.encode("utf-8", "surrogateescape")
    text = raw[:USER_AGENT_BYTES].decode("utf-8", "replace")
    return text + TRUNCATED if len(raw) > USER_AGENT_BYTES else text


def _text(target: str) -> str:
    return target.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
