"""A client as cheap as asyncio allows, so that the server is what is measured: HTTP/1.1 over TLS on kept-alive connections."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import yaml

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"


@dataclass
class Target:
    """A server, and with `context` the credentials for it."""

    host: str
    port: int
    group: str
    context: ssl.SSLContext
    version: str = "v1"

    @property
    def base(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    @classmethod
    def of(cls, kubeconfig: Path, group: str) -> Target:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        where = urlsplit(cluster["server"])
        context = ssl.create_default_context(cadata=_blob(cluster, "certificate-authority").decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(_blob(user, "client-certificate") + b"\n" + _blob(user, "client-key"))
            pair.flush()
            context.load_cert_chain(pair.name)
        return cls(where.hostname or "127.0.0.1", where.port or 443, group, context)

    @classmethod
    def local(cls, port: int, authority: bytes) -> Target:
        """Without credentials."""
        return cls("127.0.0.1", port, "", ssl.create_default_context(cadata=authority.decode()))


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
        self.last = False
        """Whether the server ends the connection with its last answer."""

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
        self.last = b"\r\nconnection: close\r\n" in lower
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


@dataclass
class Answer:
    """A summary of one answer: a status, lengths, and when its parts came after the request was sent (seconds)."""

    status: int = 0
    size: int = 0
    """Bytes of the body as they came, without the framing of chunks."""
    head: float = 0.0
    body: float = 0.0
    """The first byte of the body."""
    whole: float = 0.0
    start: bytes = b""
    """The beginning of the body, as long as was asked for."""


class Reader(asyncio.Protocol):
    """A kept-alive connection that counts what comes and keeps nothing, one request at a time: large answers cost its process little."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.transport: asyncio.Transport
        self._done: asyncio.Future[Answer] | None = None
        self._buffer = b""
        self._left = 0
        self._last = self._in_head = False
        self._keep = 0
        self._answer = Answer()
        self._began = 0.0

    async def open(self) -> Reader:
        t = self.target
        await asyncio.get_running_loop().create_connection(lambda: self, t.host, t.port, ssl=t.context)
        return self

    def close(self) -> None:
        self.transport.close()

    async def get(self, path: str, accept: str, *, gzip: bool = False, keep: int = 0) -> Answer:
        head = f"GET {path} HTTP/1.1\r\nHost: {self.target.host}\r\nAccept: {accept}\r\n"
        head += f"Accept-Encoding: {'gzip' if gzip else 'identity'}\r\n\r\n"
        self._done = asyncio.get_running_loop().create_future()
        self._answer, self._keep = Answer(), keep
        self._in_head, self._last, self._left, self._buffer = True, False, 0, b""
        self._began = time.perf_counter()
        self.transport.write(head.encode())
        return await self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the connection ended within an answer"))

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        if self._in_head:
            if not self._answer.head:
                self._answer.head = time.perf_counter() - self._began
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                return None
            self._head(data[:end].lower())
            data = data[end + 4 :]
        if data and not self._answer.body:
            self._answer.body = time.perf_counter() - self._began
        at = 0
        while at < len(data) or (self._last and not self._left):
            if self._left:
                at += self._pass(data, at)
            elif self._last:
                return self._finish()
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._buffer = data[at:]
                    return None
                length, at = int(data[at:end], 16), end + 2
                self._answer.size += length
                self._left, self._last = length + 2, not length
        return None

    def _head(self, head: bytes) -> None:
        self._in_head = False
        self._answer.status = int(head[9:12])
        _, found, length = head.partition(b"content-length:")
        if found:
            self._left, self._last = int(length.split(b"\r\n", 1)[0]), True
            self._answer.size = self._left

    def _pass(self, data: bytes, at: int) -> int:
        """Over what is here of the chunk."""
        count = min(self._left, len(data) - at)
        wanted = self._keep - len(self._answer.start)
        if wanted > 0 and not self._last:
            self._answer.start += data[at : at + max(0, min(count, self._left - 2, wanted))]
        elif wanted > 0 and self._answer.size:
            self._answer.start += data[at : at + min(count, wanted)]
        self._left -= count
        return count

    def _finish(self) -> None:
        self._answer.whole = time.perf_counter() - self._began
        assert self._done is not None
        self._done.set_result(self._answer)


class InitialEvents(asyncio.Protocol):
    """A connection for one watch-list: waits until the bookmark behind the initial events has come, and keeps what came if told to."""

    MARK = b"BOOKMARK"

    def __init__(self, target: Target, *, keep: bool = False) -> None:
        self.target = target
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.answer = Answer()
        self._keep = keep
        self._tail = b""
        self._done: asyncio.Future[Answer]
        self._began = 0.0

    async def open(self) -> InitialEvents:
        t = self.target
        self._done = asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_connection(lambda: self, t.host, t.port, ssl=t.context)
        return self

    async def get(self, path: str, accept: str) -> Answer:
        """Returns when all of them have come, and closes the connection."""
        head = f"GET {path} HTTP/1.1\r\nHost: {self.target.host}\r\nAccept: {accept}\r\n"
        self._began = time.perf_counter()
        self.transport.write(f"{head}Accept-Encoding: identity\r\n\r\n".encode())
        try:
            return await self._done
        finally:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the watch ended before its initial events had"))

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        if not answer.status:
            answer.head = answer.body = time.perf_counter() - self._began
            answer.status = int(data[9:12])
        answer.size += len(data)
        if self._keep:
            self.received += data
        if (answer.status != 200 or self.MARK in data or self.MARK in self._tail + data[:16]) and not self._done.done():
            answer.whole = time.perf_counter() - self._began
            self._done.set_result(answer)
        self._tail = data[-16:]


Seen = Callable[[bytes, bytes], None]


class WatchProtocol(asyncio.Protocol):
    """One watcher. `seen` is called with what came, behind the end of what came before: events need not come in one piece each."""

    TAIL = 64

    def __init__(self, request: bytes, seen: Seen) -> None:
        self.request = request
        self.seen = seen
        self.opened = asyncio.get_running_loop().create_future()
        self.lost = False
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(data[:12])
            _, _, data = data.partition(b"\r\n\r\n")
        if data:
            self.seen(self._tail, data)
            self._tail = (self._tail + data)[-self.TAIL :]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def watcher(target: Target, query: str, seen: Seen, *, accept: str = JSON) -> WatchProtocol:
    """Opens a watch and returns once its header has come."""
    request = f"GET {target.base}/resourceslices?{query} HTTP/1.1\r\nHost: {target.host}\r\nAccept: {accept}\r\n\r\n"
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: WatchProtocol(request.encode(), seen), target.host, target.port, ssl=target.context
    )
    status = await protocol.opened
    if not status.endswith(b"200"):
        raise RuntimeError(f"watch answered {status!r}")
    return protocol


class Lines(asyncio.Protocol):
    """One watch whose events are passed on one by one, as JSON without the end of the line. `ended` tells whether it ended as it should:
    with the last chunk of its body."""

    def __init__(self, request: bytes, line: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.status: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self.transport: asyncio.Transport
        self._request, self._line = request, line
        self._buffer, self._rest = bytearray(), b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.status.done():
            self.status.set_result(0)
        if not self.ended.done():
            self.ended.set_result(False)

    def data_received(self, data: bytes) -> None:
        if self.status.cancelled():
            return
        buffer = self._buffer
        buffer += data
        if not self.status.done():
            head = buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            self.status.set_result(int(buffer[9:12]))
            del buffer[: head + 4]
        if self.status.result() == 200:
            self._chunks(buffer)
        else:
            self.transport.close()

    def _chunks(self, buffer: bytearray) -> None:
        at = 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            start, size = end + 2, int(buffer[at:end], 16)
            if len(buffer) < start + size + 2:
                break
            if not size:
                self.ended.set_result(not self._rest)
                self.transport.close()
                break
            at = start + size + 2
            *lines, self._rest = (self._rest + buffer[start : start + size]).split(b"\n")
            for line in lines:
                self._line(line)
        del buffer[:at]


async def lines(target: Target, path: str, line: Callable[[bytes], None], *, accept: str = JSON) -> Lines:
    """Open a watch; returns when the head of the answer is there. Its status is 0 if the connection ended before. Raises OSError."""
    request = f"GET {path} HTTP/1.1\r\nHost: {target.host}\r\nAccept: {accept}\r\n\r\n"
    _, protocol = await asyncio.get_running_loop().create_connection(
        lambda: Lines(request.encode(), line), target.host, target.port, ssl=target.context
    )
    await protocol.status
    return protocol
