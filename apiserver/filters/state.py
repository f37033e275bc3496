"""The request class: the filters' knowledge about one request, and the hook that each of its responses passes once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus

from aiohttp import web

from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.audit.record import Record
from apiserver.flowcontrol.queueset import Flow
from apiserver.wire.response import Exchange

CACHE_CONTROL = "no-cache, private"
LEVEL_UID, SCHEMA_UID = "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Kubernetes-Pf-Flowschema-Uid"
"""As Go writes these names. Uids and no names: users need not learn how administrators call their requests."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The certificates that the client presented in its TLS handshake, as DER. `key` names exactly this set."""

    leaf: bytes
    intermediates: tuple[bytes, ...]
    key: bytes

    @staticmethod
    def of(leaf: bytes, intermediates: tuple[bytes, ...]) -> Peer:
        digest = sha256(leaf)
        for certificate in intermediates:
            digest.update(sha256(certificate).digest())
        return Peer(leaf, intermediates, digest.digest())


class Request(web.Request):
    """aiohttp's request with the results of the filters. They are attributes, not aiohttp keys, because each is read many times.

    * `peer`: None without a client certificate.
    * `audit_id` and `exchange`: set by recover.
    * `info`: set by request_info.
    * `user`: the user who acts, set by authenticate or impersonate.
    * `impersonator`: the sender of an impersonating request, else None.
    * `decision`: the authorizer's, None before it.
    * `terminated`: a filter ended the request to protect the server.
    * `last`: the connection ends with this response.
    * `kept`: another request came before it on its connection.
    * `upgrade`: the parser read it as a request for another protocol.
    * `foreign`: its version is not HTTP/1; the answer is HTTP/1.1.
    * `received`: when it came, in microseconds since the epoch.
    * `record`: its audit record, if it has one.
    * `flow`: its flow, if requests are queued fairly.
    """

    ATTRS = web.Request.ATTRS | {
        "peer",
        "audit_id",
        "exchange",
        "info",
        "user",
        "impersonator",
        "decision",
        "terminated",
        "last",
        "kept",
        "upgrade",
        "foreign",
        "received",
        "record",
        "flow",
    }

    peer: Peer | None = None
    audit_id: str = ""
    exchange: Exchange
    info: RequestInfo
    user: User
    impersonator: User | None = None
    decision: Decision | None = None
    terminated: bool = False
    last: bool = False
    kept: bool = False
    upgrade: bool = False
    foreign: bool = False
    received: int = 0
    record: Record | None = None
    flow: Flow | None = None

    @property
    def known(self) -> bool:
        """Whether the user is known."""
        return "user" in self.__dict__

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Set the headers of a response. aiohttp calls this once per response, buffered or streamed, just before its headers are
        written.
        """
        headers = response.headers
        del headers["Server"]
        if self.audit_id:
            headers["Audit-Id"] = self.audit_id
        if "info" in self.__dict__ and "Cache-Control" not in headers:
            headers["Cache-Control"] = CACHE_CONTROL
        flow = self.flow
        if flow is not None:
            headers[LEVEL_UID] = flow.level.uid
            headers[SCHEMA_UID] = flow.schema.uid
        if self.last and response.status != HTTPStatus.SWITCHING_PROTOCOLS:
            headers["Connection"] = "close"
            response.force_close()


Handler = Callable[[Request], Awaitable[web.StreamResponse]]
"""The type of a filter, and of what it wraps."""
Filter = Callable[[Handler], Handler]
"""A filter before it is composed, which `app` does once."""
