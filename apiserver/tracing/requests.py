"""Names and attributes of the spans of requests to this server.

Upstream: kubernetes/apiserver `pkg/endpoints/filters/traces.go`, `pkg/endpoints/handlers/{trace_util,helpers}.go`;
go.opentelemetry.io/contrib `instrumentation/net/http/otelhttp/internal/semconv/server.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.apimachinery.request import RequestInfo, User
from apiserver.runtime.spans import STANDARD_PORTS, Attributes, Value, method_attributes

PARENTS = frozenset({"system:masters", "system:monitoring"})
"""Groups whose members decide whether their requests are traced, and in which trace."""
HANDLERS = {
    "create": "Create",
    "update": "Update",
    "patch": "Patch",
    "delete": "Delete",
    "deletecollection": "Delete",
    "get": "Get",
    "list": "List",
}
"""The spans of verbs. A watch has one only while it sends its initial events."""


def decides(user: User) -> bool:
    """Return whether the sender's trace is continued."""
    return not PARENTS.isdisjoint(user.groups)


def name(info: RequestInfo) -> str:
    """Return the name of a request's span: its method and the form of its path."""
    if not info.is_resource:
        return info.method
    parts = [info.prefix, info.group, info.version] if info.group else [info.prefix, info.version]
    parts += ["namespaces/{:namespace}"] if info.namespace else []
    parts += [info.resource, *(["{:name}"] if info.name else []), *([info.subresource] if info.subresource else [])]
    return f"{info.method} /{'/'.join(parts)}"


def received(
    method: str,
    target: str,
    *,
    path: str,
    headers: Mapping[str, str],
    version: tuple[int, int],
    peer: Sequence[Any],
    audit_id: str,
) -> Attributes:
    """Return the attributes of a request over TLS. `peer` is the address and the port of the client, empty if they are unknown."""
    host, port = _split(headers.get("Host", ""))
    found: dict[str, Value] = {
        "server.address": host,
        **method_attributes(method),
        "url.scheme": "https",
        "url.path": path,
        "network.protocol.version": f"{version[0]}.{version[1]}",
        "http.target": target,
        "audit-id": audit_id,
    }
    if port is not None and port not in (0, STANDARD_PORTS["https"]):
        found["server.port"] = port
    if agent := headers.get("User-Agent"):
        found["user_agent.original"] = agent
    client = headers.get("X-Forwarded-For", "").partition(",")[0]
    if len(peer) > 1:
        found["network.peer.address"], found["network.peer.port"] = str(peer[0]), int(peer[1])
        client = client or str(peer[0])
    if client:
        found["client.address"] = client
    return found


def _split(host: str) -> tuple[str, int | None]:
    """Return host and port of a Host header, without brackets."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host.strip("[]"), None
    return name.strip("[]"), int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else None
