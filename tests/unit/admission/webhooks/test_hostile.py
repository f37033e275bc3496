"""HTTP attacks of a hostile webhook. The meter of the event loop judges each step of a call, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
from collections.abc import Mapping

import pytest

from apiserver.admission.webhooks import client, pacing
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from tests.fixtures.tls_servers import server_side, serving
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import Hook

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
POST = 'Post "https://127.0.0.1:PORT/v?timeout=60s": '.replace("60s", "1m0s")
BROKEN = POST + "net/http: HTTP/1.x transport connection broken: "
HEAD_TOO_LONG = POST + f"net/http: server response headers exceeded {pacing.MOST_HEAD} bytes; aborted"
UNREAD = "unexpected error when reading response body. Please retry. Original error: "
TOO_LARGE = UNREAD + "http: response body too large"
MEBIBYTE = 1 << 20
PACKED_ZEROS = "64 MiB of zeros, packed"
"""They are packed by the test that needs them, not by each process that collects it."""

WHOLE: Mapping[str, tuple[bytes, str]] = {
    "more header lines than may be": (OK + b"a: b\r\n" * 200_000 + b"\r\n", BROKEN + "Too many headers received"),
    "header lines of one byte": (OK + b"a:\r\n" * 300_000, BROKEN + "Too many headers received"),
    "a name without end": (OK + b"x" * MEBIBYTE, BROKEN + f"Got more than {client.MOST_LINE} bytes"),
    "a value without end": (OK + b"a: " + b"x" * MEBIBYTE, BROKEN + f"Got more than {client.MOST_LINE} bytes"),
    "a reason without end": (b"HTTP/1.1 200 " + b"x" * MEBIBYTE, BROKEN + f"Got more than {client.MOST_LINE} bytes"),
    "folded lines without end": (OK + b"a: b\r\n" + b" c\r\n" * 300_000, BROKEN + f"Got more than {client.MOST_LINE} bytes"),
    "a version without end": (b"HTTP/1." + b"1" * MEBIBYTE, BROKEN + 'malformed HTTP response "HTTP/1.' + "1" * 249 + '"'),
    "empty lines": (b"\r\n" * 600_000, HEAD_TOO_LONG),
    "interim answers without end": (b"HTTP/1.1 103\r\n\r\n" * 70_000, HEAD_TOO_LONG),
    "interim answers with headers": (b"HTTP/1.1 103\r\nLink: x\r\n\r\n" * 50_000, HEAD_TOO_LONG),
    "binary zeros": (bytes(MEBIBYTE), BROKEN + 'malformed HTTP response "' + r"\x00" * 256 + '"'),
    "a zero in a header": (OK + b"a: \0\r\n\r\n", BROKEN + "Invalid HTTP header: b'\\x00'"),
    "a length of 2^64": (OK + b"Content-Length: 18446744073709551616\r\n\r\n", BROKEN + "Content-Length overflow"),
    "a negative length": (OK + b"Content-Length: -1\r\n\r\n", BROKEN + "Invalid character in Content-Length"),
    "two lengths": (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", BROKEN + "Duplicate Content-Length"),
    "one length twice": (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", BROKEN + "Duplicate Content-Length"),
    "a body of 9 MiB": (OK + b"Content-Length: 9437184\r\n\r\n" + b" " * (9 * MEBIBYTE), TOO_LARGE),
    "a chunk of 9 MiB": (CHUNKED + b"900000\r\n" + b" " * (9 * MEBIBYTE), TOO_LARGE),
    "chunks of one byte": (
        CHUNKED + b"1\r\n \r\n" * (pacing.MOST_CODED // 6 + MEBIBYTE),
        UNREAD + "chunked encoding contains too much non-data",
    ),
    "extensions of chunks": (
        CHUNKED + b"1;" + b"a" * (pacing.MOST_CODED + 2 * MEBIBYTE),
        UNREAD + "chunked encoding contains too much non-data",
    ),
    "a size of 2^68": (CHUNKED + b"1" * 17 + b"\r\n", UNREAD + "malformed chunked encoding"),
    "trailers without end": (CHUNKED + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 200_000, UNREAD + "malformed chunked encoding"),
    "a gzip bomb": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED_ZEROS.encode(),
        UNREAD + "http: response body too large",
    ),
    "both framings": (
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        BROKEN + "Transfer-Encoding can't be present with Content-Length",
    ),
    "a protocol of its own": (b"HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + bytes(MEBIBYTE),
        "0-length response with status code: 101 and content type: application/json"),
    "a cookie for everybody": (OK + b"Set-Cookie: a=b; Domain=127.0.0.1\r\n" * 900 + b"Content-Length: 2\r\n\r\n{}", ""),
}  # fmt: skip


async def called(caller: Caller, hook: Hook) -> str:
    """Return what a call fails with, nothing when it does not."""
    try:
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=60)
    except CallFailed as error:
        return str(error).replace(str(hook.port), "PORT")
    return ""


@pytest.mark.parametrize("what", WHOLE)
async def test_hostile_answer_fails_soon_and_holds_nothing_up(what: str, hook: Hook, caller: Caller) -> None:
    data, said = WHOLE[what]
    if what == "a gzip bomb":
        data = data.replace(PACKED_ZEROS.encode(), gzip.compress(bytes(64 * MEBIBYTE)))

    async def pour(exchange: plays.Exchange) -> None:
        for at in range(0, len(data), 1 << 18):
            exchange.send(data[at : at + (1 << 18)])
            await exchange.writer.drain()
        exchange.writer.close()

    hook.plays = [pour]
    assert await called(caller, hook) == said


async def test_unsolicited_answer_ends_the_connection(hook: Hook, caller: Caller) -> None:
    """It comes with another answer, or while nobody asks."""
    answer = OK + b"Content-Length: 2\r\n\r\n{}"
    forged = OK + b"Content-Length: 6\r\n\r\nforged"
    later = asyncio.Event()

    async def says_more(exchange: plays.Exchange) -> None:
        exchange.send(answer)
        await later.wait()
        exchange.send(forged)

    hook.plays = [plays.says(answer + forged), says_more, plays.says(answer)]
    for _ in range(2):
        assert await caller.call(Target.of(hook.config("/v")), b"{}", seconds=60) == b"{}"
    later.set()
    assert await hook.connections(most=0) == 0
    assert await caller.call(Target.of(hook.config("/v")), b"{}", seconds=60) == b"{}"


async def test_flood_behind_a_redirect_to_plain_http_holds_nothing_up(hook: Hook, caller: Caller) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b"HTTP/1.1 103\r\n\r\n" * 5000)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    hook.plays = [plays.answer("", "307 Elsewhere", Location=url)]
    assert await called(caller, hook) == HEAD_TOO_LONG.replace("https://127.0.0.1:PORT/v?timeout=1m0s", url)
    server.close()


async def test_answer_is_taken_although_garbage_follows_it(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.says(OK + b"Content-Length: 2\r\n\r\n{}\r\ngarbage\r\n\r\n")]
    for _ in range(2):
        assert await called(caller, hook) == ""
    assert len({seen.peer for seen in hook.seen}) == 2


async def test_malformed_chunk_that_comes_later_fails_at_once(hook: Hook, caller: Caller) -> None:
    async def breaks(exchange: plays.Exchange) -> None:
        exchange.send(CHUNKED + b"1\r\n{\r\n")
        for _ in range(20):
            await asyncio.sleep(0)
        exchange.send(b"zz\r\n")
        await plays.hangs(exchange)

    hook.plays = [breaks]
    assert await called(caller, hook) == UNREAD + "malformed chunked encoding"


async def test_webhook_that_never_reads_a_long_review_fails_in_time(hook: Hook, caller: Caller) -> None:
    over = threading.Event()

    def ignore(sock: socket.socket) -> None:
        pair = hook.folder / "hook.pem"
        with server_side(pair, pair).wrap_socket(sock, server_side=True):
            over.wait()

    with serving(ignore) as port:
        target = Target.of(hook.config(url=f"https://127.0.0.1:{port}/v"))
        with pytest.raises(CallFailed, match=r"context deadline exceeded$"):
            await caller.call(target, bytes(16 * MEBIBYTE), seconds=0.5)
        over.set()


async def test_at_most_so_many_idle_connections_are_kept(hook: Hook, caller: Caller) -> None:
    all_asked = asyncio.Barrier(2 * client.MOST_IDLE)

    async def together(exchange: plays.Exchange) -> None:
        if len(hook.seen) <= 2 * client.MOST_IDLE:
            await all_asked.wait()
        await plays.answer("{}")(exchange)

    hook.plays = [together]
    calls = (caller.call(Target.of(hook.config("/v")), b"{}", seconds=60) for _ in range(2 * client.MOST_IDLE))
    await asyncio.gather(*calls)
    assert await hook.connections(most=client.MOST_IDLE) == client.MOST_IDLE
