"""A server over real TLS that plays kube-apiserver, and a clock that only the test moves."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from apiserver.cluster.client import Client
from apiserver.cluster.credentials import Kubeconfig
from apiserver.serving import pki

NOW = dt.datetime.now(dt.UTC)
Reply = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Clock:
    """Sleeping moves it, and takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Seen:
    """One request as the server saw it."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    subject: str
    peer: tuple[Any, ...]


def status(code: int, message: str, **headers: str) -> Reply:
    """A Status, as kube-apiserver refuses."""
    return answer(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}, code, **headers
    )


def answer(body: Any, code: int = 200, **headers: str) -> Reply:
    async def reply(_request: web.BaseRequest) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=raw, status=code, headers={"Content-Type": "application/json", **named})

    return reply


async def hang(_request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def reset(request: web.BaseRequest) -> web.StreamResponse:
    """The connection breaks instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class Feed:
    """A watch that the test writes, event by event."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[web.BaseRequest] = asyncio.Queue()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gone = asyncio.Event()

    def event(self, kind: str, found: Mapping[str, Any]) -> None:
        self.send(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def send(self, chunk: bytes) -> None:
        self._chunks.put_nowait(chunk)

    def end(self) -> None:
        self._chunks.put_nowait(None)

    def cut(self) -> None:
        """Breaks the connection without the terminating chunk."""
        self._chunks.put_nowait(b"")

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.opened.put_nowait(request)
        try:
            while (chunk := await self._chunks.get()) is not None:
                if not chunk:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(chunk)
        finally:
            self.gone.set()
        await response.write_eof()
        return response


@dataclass
class Plane:
    """Answers each path with the replies queued for it, the last of them for ever; 404 otherwise."""

    folder: Path
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1")
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    ca: pki.Pair = field(default_factory=lambda: pki.make_ca("cluster", now=NOW))

    def on(self, path: str, *replies: Reply) -> None:
        self.replies[path] = list(replies)

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def start(self) -> Plane:
        pair = pki.make_serving(self.ca, "kube-apiserver", hosts=self.hosts, now=NOW)
        path = self.folder / "serving.pem"
        path.write_bytes(pair.cert_pem + pair.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca.cert_pem.decode())
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, handler_cancellation=True), shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        subject = dict(part[0] for part in certificate["subject"])["commonName"] if certificate else ""
        peer = request.transport.get_extra_info("peername")
        body = orjson.loads(raw) if raw else None
        self.seen.append(Seen(request.method, request.path, request.query, request.headers, body, subject, peer))
        replies = self.replies.get(request.path)
        if not replies:
            return await status(404, f"{request.path} not found")(request)
        return await (replies.pop(0) if len(replies) > 1 else replies[0])(request)

    # ------------------------------------------------------------------------------------------------------------ kubeconfigs

    def client_pair(self, name: str) -> pki.Pair:
        return pki.make_client(self.ca, name, groups=[], now=NOW)

    def kubeconfig(self, user: Mapping[str, Any], **cluster: Any) -> str:
        """A file that names this server and that user."""
        path = self.folder / "kubeconfig"
        server = {"server": self.url, "certificate-authority-data": encoded(self.ca.cert_pem), **cluster}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [
                {"name": "elsewhere", "context": {"cluster": "none", "user": "none"}},
                {"name": "here", "context": {"cluster": "plane", "user": "me"}},
            ],
            "clusters": [{"name": "plane", "cluster": {k: v for k, v in server.items() if v is not None}}],
            "users": [{"name": "me", "user": dict(user)}],
        }
        path.write_text(yaml.safe_dump(config))
        return str(path)

    async def client(self, clock: Clock, user: Mapping[str, Any] | None = None, **cluster: Any) -> Client:
        return await client_of(self.kubeconfig({"token": "ours"} if user is None else user, **cluster), clock)


async def client_of(path: str, clock: Clock) -> Client:
    return await Client.of(Kubeconfig(path, {}), clock=clock, sleep=clock.sleep, random=lambda: 0.0)


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


async def until(condition: Callable[[], Any]) -> None:
    """Lets everything else run until `condition` holds; the test's own timeout is the deadline."""
    while not condition():  # noqa: ASYNC110 - what is waited for is state, not an event
        await asyncio.sleep(0.001)
