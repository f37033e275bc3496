"""A client as cheap as asyncio allows, so that the server is what is measured: HTTP/1.1 over TLS on kept-alive connections."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import yaml

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"


class Target:
    """A server and the credentials for it, read from a kubeconfig."""

    def __init__(self, kubeconfig: str, group: str) -> None:
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        where = urlsplit(cluster["server"])
        self.host, self.port = where.hostname or "127.0.0.1", where.port or 443
        self.base = f"/apis/{group}/v1"
        self.group = group
        self.context = ssl.create_default_context(cadata=_blob(cluster, "certificate-authority").decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(_blob(user, "client-certificate") + b"\n" + _blob(user, "client-key"))
            pair.flush()
            self.context.load_cert_chain(pair.name)


def _blob(part: dict[str, str], name: str) -> bytes:
    if f"{name}-data" in part:
        return base64.b64decode(part[f"{name}-data"])
    return Path(part[name]).read_bytes()


class Connection:
    """One kept-alive connection, one request at a time."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> Connection:
        t = self.target
        self.reader, self.writer = await asyncio.open_connection(t.host, t.port, ssl=t.context, limit=1 << 24)
        return self

    def close(self) -> None:
        self.writer.close()

    async def request(
        self, method: str, path: str, body: bytes = b"", *, gzip: bool = False, kind: str = JSON, accept: str = JSON
    ) -> tuple[int, int]:
        """(status, bytes of the body as they came)."""
        status, data = await self.fetch(method, path, body, gzip=gzip, keep=False, kind=kind, accept=accept)
        return status, int(data or b"0")

    async def fetch(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        gzip: bool = False,
        keep: bool = True,
        kind: str = JSON,
        accept: str = JSON,
    ) -> tuple[int, bytes]:
        """(status, body), or (status, its length as text) when it is not to be kept."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.target.host}\r\nAccept: {accept}\r\n"
        head += f"Accept-Encoding: {'gzip' if gzip else 'identity'}\r\n"
        if body:
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(head.encode() + b"\r\n" + body)
        header = await self.reader.readuntil(b"\r\n\r\n")
        status = int(header[9:12])
        lower = header.lower()
        kept, size = bytearray(), 0
        at = lower.find(b"content-length:")
        if at >= 0:
            left = int(lower[at + 15 : lower.index(b"\r\n", at)])
            while left:
                part = await self.reader.read(min(left, 1 << 20))
                left -= len(part)
                size += len(part)
                if keep:
                    kept += part
        else:
            while True:
                length = int(await self.reader.readline(), 16)
                part = await self.reader.readexactly(length + 2)
                if not length:
                    break
                size += length
                if keep:
                    kept += part[:-2]
        return status, bytes(kept) if keep else str(size).encode()


class WatchProtocol(asyncio.Protocol):
    """One watcher that only counts lines and notes when they came."""

    def __init__(self, request: bytes, seen: Callable[[bytes], None]) -> None:
        self.request = request
        self.seen = seen
        self.opened = asyncio.get_running_loop().create_future()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(data[:12])
            _, _, data = data.partition(b"\r\n\r\n")
        if data:
            self.seen(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def watcher(target: Target, query: str, seen: Callable[[bytes], None]) -> WatchProtocol:
    """Opens a watch and returns once its header has come."""
    request = (
        f"GET {target.base}/resourceslices?{query} HTTP/1.1\r\nHost: {target.host}\r\nAccept: application/json\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: WatchProtocol(request.encode(), seen), target.host, target.port, ssl=target.context
    )
    status = await protocol.opened
    if not status.endswith(b"200"):
        raise RuntimeError(f"watch answered {status!r}")
    return protocol
