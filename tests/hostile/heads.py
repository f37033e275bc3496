"""Connections that never finish their headers, as many as a stranger opens: the server's memory must stay within its budget."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator

from apiserver.config.config import MAX_HEADER_BYTES
from apiserver.serving.unfinished import BUDGET_BYTES
from tests.hostile.campaign import Process, Target

CONNECTIONS = 256
"""With a mebibyte each this is four budgets."""
OVERHEAD_BYTES = 64 << 20
"""Bytes that so many connections take beside their heads: OpenSSL, buffers, memory that the allocator keeps."""

SHAPES = {
    "one long value": (b"X-A: ", b"a" * 16_000),
    "long lines": (b"", (b"X-A: " + b"a" * 993 + b"\r\n") * 16),
    "many short lines": (b"", b"".join(b"k%d: v\r\n" % n for n in range(1_000))),
}


@contextlib.asynccontextmanager
async def _connected(server: Target, context: ssl.SSLContext) -> AsyncIterator[asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    del reader
    try:
        yield writer
    finally:
        writer.transport.abort()


def _pieces(shape: str) -> Iterator[bytes]:
    """All of one head but its end: as long as a head may be, and no more lines than it may have."""
    first, piece = SHAPES[shape]
    yield b"GET /apis HTTP/1.1\r\nHost: server\r\n" + first
    most = MAX_HEADER_BYTES - (32 << 10)
    lines = piece.count(b"\n")
    for _ in range(min(most // len(piece), 4_000 // lines if lines else most)):
        yield piece


async def _hold(
    server: Target, context: ssl.SSLContext, shape: str, sent: asyncio.Semaphore, end: asyncio.Event
) -> None:
    """One connection. That the server closes it is what it may do."""
    with contextlib.suppress(OSError):
        async with _connected(server, context) as writer:
            for piece in _pieces(shape):
                writer.write(piece)
                await writer.drain()
            sent.release()
            await end.wait()
            return
    sent.release()


async def flood(server: Target, *, shape: str, certificate: bool, connections: int = CONNECTIONS) -> list[str]:
    """Open connections and send heads without their ends. Returns what is wrong: too much memory, or no answers for others."""
    process = Process(server.pid)
    context = server.context(certificate=certificate)
    await asyncio.to_thread(server.request, "GET", "/livez")
    before = process.memory()
    process.forget_peak()
    sent, end = asyncio.Semaphore(0), asyncio.Event()
    holders = [asyncio.create_task(_hold(server, context, shape, sent, end)) for _ in range(connections)]
    try:
        for _ in range(connections):
            await sent.acquire()
        answer = await asyncio.to_thread(server.request, "GET", "/livez")
        grown = process.peak() - before
    finally:
        end.set()
        await asyncio.gather(*holders)
    wrong = list[str]()
    if grown > BUDGET_BYTES + OVERHEAD_BYTES:
        wrong.append(f"unfinished heads, {shape}: the server grew by {grown >> 20} MiB")
    if answer.status != 200:
        wrong.append(f"unfinished heads, {shape}: /livez is {answer.status}")
    return wrong


async def every_flood(server: Target) -> list[str]:
    """Run floods of every shape, as a stranger and with a certificate."""
    return [
        wrong
        for certificate in (False, True)
        for shape in SHAPES
        for wrong in await flood(server, shape=shape, certificate=certificate)
    ]
