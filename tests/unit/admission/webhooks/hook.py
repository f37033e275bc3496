"""A webhook over real TLS that answers with the bytes that a test chooses."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apiserver.serving import pki

NOW = dt.datetime.now(dt.UTC)
Play = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Seen:
    """One request as it came, and by which connection."""

    line: str
    headers: Mapping[str, str]
    body: bytes
    peer: int
    subject: str


@dataclass
class Exchange:
    """One request, and the way to answer it."""

    seen: Seen
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)


def answer(body: bytes | str, status: str = "200 OK", **headers: str) -> Play:
    """A whole answer. Underscores in the names of headers are dashes."""
    raw = body.encode() if isinstance(body, str) else body
    lines = {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items() if value)
    return says(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + raw)


def says(data: bytes, *, then_closes: bool = False) -> Play:
    """Exactly these bytes."""

    async def play(exchange: Exchange) -> None:
        exchange.send(data)
        if then_closes:
            exchange.writer.close()

    return play


async def hangs(exchange: Exchange) -> None:
    """No answer for as long as somebody waits."""
    await asyncio.Event().wait()


@dataclass
class Hook:
    """Plays what is queued for its path, the last of it for ever."""

    folder: Path
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "hook.space.svc")
    plays: list[Play] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    ca: pki.Pair = field(default_factory=lambda: pki.make_ca("webhooks", now=NOW))
    _server: asyncio.Server | None = None

    async def start(self) -> Hook:
        self._tasks: set[asyncio.Task[Any]] = set()
        await self.show()
        return self

    async def show(self, pair: pki.Pair | None = None, *, wants: ssl.VerifyMode = ssl.CERT_OPTIONAL) -> None:
        """Listens with this certificate, or a good one, and asks for the client's."""
        if self._server is not None:
            self._server.close()
        pair = pair or pki.make_serving(self.ca, "hook", hosts=self.hosts, now=NOW)
        path = self.folder / "hook.pem"
        path.write_bytes(pair.cert_pem + pair.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.verify_mode = wants
        context.load_verify_locations(cadata=self.ca.cert_pem.decode())
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def connections(self, *, most: int) -> int:
        """Return how many are open, once there are no more than `most`."""
        while len(self._tasks) > most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return len(self._tasks)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def config(self, path: str = "/judge", **changes: Any) -> dict[str, Any]:
        """The clientConfig of a webhook that lies here."""
        url = f"https://127.0.0.1:{self.port}{path}"
        return {"url": url, "caBundle": base64.b64encode(self.ca.cert_pem).decode(), **changes}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing():
                seen = await _request(reader, writer)
                self.seen.append(seen)
                await (self.plays.pop(0) if len(self.plays) > 1 else self.plays[0])(Exchange(seen, writer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = dict(each.split(": ", 1) for each in rest)
    body = await reader.readexactly(int(headers.get("Content-Length", 0)))
    certificate = writer.get_extra_info("peercert")
    subject = dict(part[0] for part in certificate["subject"])["commonName"] if certificate else ""
    return Seen(line, headers, body, writer.get_extra_info("peername")[1], subject)
