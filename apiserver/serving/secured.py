"""Use `tls` for the TLS connections that libraries open through the event loop, so that no peer can block it.

asyncio's and uvloop's own TLS gives OpenSSL up to 256 KiB at a time, and reads for as long as a peer sends records without data.
Upstream of the interface: python/cpython `Lib/asyncio/base_events.py` (create_connection, start_tls).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from apiserver.serving import tls

HANDSHAKE_SECONDS = 60.0
"""As asyncio's."""


class Secured(asyncio.AbstractEventLoop):
    """Mixed into an event loop class. The arguments are asyncio's."""

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: Any = None, **settings: Any
    ) -> tuple[Any, Any]:
        context, name = settings.pop("ssl", None), settings.pop("server_hostname", None)
        seconds = settings.pop("ssl_handshake_timeout", None)
        settings.pop("ssl_shutdown_timeout", None)
        if not context:
            return await super().create_connection(protocol_factory, host, port, **settings)
        if name is None:
            if not host:
                raise ValueError("You must set server_hostname when using ssl without a host")
            name = host
        sock = settings.pop("sock", None)
        if sock is None:
            transport, _ = await super().create_connection(asyncio.Protocol, host, port, **settings)
            sock = _taken(transport)
        if context is True:
            context = ssl.create_default_context()
        protocol = protocol_factory()
        return await _secure(sock, context, protocol, name=name, seconds=seconds), protocol

    async def start_tls(
        self, transport: Any, protocol: Any, sslcontext: ssl.SSLContext, **settings: Any
    ) -> asyncio.Transport | None:
        if settings.get("server_side"):
            return await super().start_tls(transport, protocol, sslcontext, **settings)
        name, seconds = settings.get("server_hostname"), settings.get("ssl_handshake_timeout")
        sock = _taken(transport)
        return await _secure(sock, sslcontext, protocol, name=name, seconds=seconds, made=False)


async def _secure(
    sock: socket.socket,
    context: ssl.SSLContext,
    protocol: asyncio.BaseProtocol,
    *,
    name: str | None,
    seconds: float | None,
    made: bool = True,
) -> tls.Transport:
    sock.settimeout(0)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seconds = HANDSHAKE_SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds):
            return await tls.connect(sock, context, protocol, name=name or None, made=made)
    except TimeoutError:
        raise ConnectionAbortedError(f"SSL handshake is taking longer than {seconds} seconds") from None


def _taken(transport: asyncio.BaseTransport) -> socket.socket:
    """Take a transport's socket. The transport is unusable afterwards."""
    sock = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    transport.set_protocol(asyncio.Protocol())
    transport.abort()  # type: ignore[attr-defined]  # closes one of two descriptors
    return sock
