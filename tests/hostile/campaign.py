"""Sends hostile requests to a running server, one after the other, and holds the server to its budget during each of them.

The budget is that of one request that anybody may send: no 500 that upstream would not answer, no error of more than 1 MiB, 64 MiB of
memory while it is served and nothing that stays, no step of the event loop above 20 ms of CPU, and health checks on another connection
that do not wait. Time is judged together with the CPU time that the server used meanwhile, so that a busy machine is not mistaken for a
slow server.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.fixtures import steps
from tests.fixtures.server import DevServer
from tests.hostile.generator import COLLECTIONS, GROUP, SPECS, STANDING, Hostile

ERROR_BYTES = (1 << 20) + 4096
"""The largest error, with its headers."""
MEMORY_BYTES = 64 << 20
HEALTH_SECONDS = 0.1
PROBE_SECONDS = 0.02
ANSWER_SECONDS = 60.0
PANIC = b"caused apiserver to panic"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Breach:
    """What a request did that none may do. `number` is its place in the stream of its seed."""

    number: int
    request: Hostile
    what: str

    def __str__(self) -> str:
        first = self.request.head[:160].decode("utf-8", "replace").split("\r\n")[0]
        return f"#{self.number} ({self.request.family}) {self.what}: {first}"


@dataclass(slots=True)
class Report:
    """What a campaign found. Seconds are the longest that a health check waited, bytes the most that one request took."""

    breaches: list[Breach] = field(default_factory=list)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    sent: int = 0
    slowest_probe: float = 0.0
    most_memory: int = 0

    def __str__(self) -> str:
        lines = [f"{self.sent} requests, {len(self.breaches)} breaches"]
        lines += [
            f"longest wait of a health check {self.slowest_probe * 1000:.0f} ms, most memory of one request {self.most_memory >> 20} MiB"
        ]
        lines += [f"  {family} {code}: {count}" for (family, code), count in sorted(self.codes.items())]
        return "\n".join([*lines, *map(str, self.breaches)])


class Process:
    """What the kernel says about the server's process."""

    def __init__(self, pid: int) -> None:
        self._folder = pathlib.Path("/proc", str(pid))

    def cpu_seconds(self) -> float:
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"the kernel does not tell {name}")


class Lane:
    """One client's connection, made anew whenever the server ended it."""

    def __init__(self, server: DevServer, *, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, request: Hostile) -> tuple[int, bytes]:
        """(status, head and body); status 0 when the connection ended without an answer."""
        reader, writer = await self._connected()
        reading = asyncio.ensure_future(_answer(reader, streams=request.streams))
        try:
            writer.write(request.head)
            for at in range(0, len(request.body), 1 << 16):
                writer.write(request.body[at : at + (1 << 16)])
                await writer.drain()
            await writer.drain()
        except OSError:
            pass  # the answer may have come before all was sent
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                code, answer, goes_on = await reading
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            code, answer, goes_on = 0, b"", False
        if not goes_on:
            await self.close()
        return code, answer

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._server.port, ssl=self._context, limit=1 << 26
            )
        return self._reader, self._writer

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def _answer(reader: asyncio.StreamReader, *, streams: bool) -> tuple[int, bytes, bool]:
    """(status, all bytes, whether the connection can be used again)."""
    head = await reader.readuntil(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    code = int(head.split(b" ", 2)[1])
    body = b""
    goes_on = b"connection: close" not in lower and not streams
    if b"transfer-encoding: chunked" in lower:
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readuntil(b"\r\n")
        body = b"".join(parts)
    elif b"content-length: " in lower:
        length = int(lower.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        try:
            async with asyncio.timeout(1):  # of a HEAD nothing comes
                body = await reader.readexactly(length)
        except TimeoutError:
            goes_on = False
    else:
        body = await reader.read()
        goes_on = False
    return code, head + body, goes_on


class Campaign:
    """One server, one stream of requests."""

    def __init__(self, server: DevServer) -> None:
        assert server.process is not None
        self._server = server
        self._process = Process(server.process.pid)
        self._admin = Lane(server, context=server.context())
        self._nobody = Lane(server, context=server.context(certificate=False))
        self._probe = Lane(server, context=server.context())
        self._logged = server.log.stat().st_size
        self.report = Report()

    async def run(
        self, requests: Iterable[Hostile], *, most: int | None = None, seconds: float | None = None
    ) -> Report:
        """Until so many were sent, or so much time has passed."""
        until = time.monotonic() + seconds if seconds is not None else None
        await self._prepare()
        try:
            for request in requests:
                if self.report.sent == most or (until is not None and time.monotonic() > until):
                    break
                await self._one(request)
        finally:
            for lane in (self._admin, self._nobody, self._probe):
                await lane.close()
        return self.report

    async def _prepare(self) -> None:
        """An object of each kind that is always there, and everything warm that is made once."""
        for kind, collection in COLLECTIONS.items():
            metadata = {"name": STANDING, **({"namespace": "hostile"} if "namespaces" in collection else {})}
            obj = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": SPECS[kind]}
            reply = await asyncio.to_thread(self._server.request, "POST", collection, obj)
            assert reply.status in (201, 409), reply.text
        for path in ("/openapi/v2", "/openapi/v3", "/metrics", "/apis"):
            await asyncio.to_thread(self._server.request, "GET", path)

    async def _one(self, request: Hostile) -> None:
        report, number = self.report, self.report.sent
        report.sent += 1
        self._process.forget_peak()
        before = self._process.memory()
        done = asyncio.Event()
        probing = asyncio.ensure_future(self._watch_health(done))
        try:
            code, answer = await (self._nobody if request.anonymous else self._admin).send(request)
        except TimeoutError:
            code, answer = -1, b""
            self._found(number, request, f"no answer within {ANSWER_SECONDS:.0f} s")
        finally:
            done.set()
            waited = await probing
        report.codes[request.family, code] += 1
        took = self._process.peak() - before
        report.most_memory = max(report.most_memory, took)
        if took > MEMORY_BYTES:
            self._found(number, request, f"took {took >> 20} MiB of memory")
        if waited is not None:
            self._found(number, request, f"let a health check wait {waited * 1000:.0f} ms")
        if code >= 400 and len(answer) > ERROR_BYTES:
            self._found(number, request, f"was answered {code} with {len(answer)} bytes")
        if PANIC in answer[:4096]:
            self._found(number, request, "made the server panic")
        for step in steps.breaches():
            self._found(number, request, f"held the event loop: {step}")
        if (trace := self._stack_trace()) is not None:
            self._found(number, request, f"left a stack trace: {trace}")

    def _found(self, number: int, request: Hostile, what: str) -> None:
        self.report.breaches.append(Breach(number, request, what))

    def _stack_trace(self) -> str | None:
        size = self._server.log.stat().st_size
        if size == self._logged:
            return None
        with self._server.log.open("rb") as log:
            log.seek(self._logged)
            text = log.read().decode("utf-8", "replace")
        self._logged = size
        return text[-400:] if "Traceback" in text else None

    async def _watch_health(self, done: asyncio.Event) -> float | None:
        """Asks again and again until `done`: the longest wait that was the server's doing, if it was too long."""
        worst: float | None = None
        while not done.is_set():
            for path in ("livez", "readyz"):
                probe = Hostile("health", f"GET /{path} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
                started, used = time.monotonic(), self._process.cpu_seconds()
                code, answer = await self._probe.send(probe)
                waited, used = time.monotonic() - started, self._process.cpu_seconds() - used
                if code != 200:
                    self._found(self.report.sent - 1, probe, f"was answered {code}: {answer[-200:]!r}")
                self.report.slowest_probe = max(self.report.slowest_probe, min(waited, used))
                if min(waited, used) > HEALTH_SECONDS:
                    worst = max(worst or 0.0, waited)
            await _unless(done, PROBE_SECONDS)
        return worst


async def _unless(done: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        pass
