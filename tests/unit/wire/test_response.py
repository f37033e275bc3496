"""Over real sockets: what `Exchange` promises is what arrives at a client, plain and under TLS, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
import uvloop
from aiohttp import web

from apiserver.apimachinery.errors import StatusError
from apiserver.listcache.piece import LONG, PORTION, FirstPiece, Piece
from apiserver.wire import frames, response
from apiserver.wire.response import BODY_LIMIT, Exchange, WatchStream
from tests.unit.wire.tls_pair import server_context

JSON = "application/json"
GZIP = {"Accept-Encoding": "gzip"}
Handler = Callable[[Exchange], Awaitable[web.StreamResponse]]
Story = Callable[[], Awaitable[None]]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Runs a story on one of the event loops."""
    return uvloop.run if request.param == "uvloop" else asyncio.run  # type: ignore[return-value]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that answers with `handler`."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(Exchange(request))  # type: ignore[arg-type]
        except StatusError as e:
            return web.Response(status=e.code, text=e.message)

    server = web.Server(handle, handler_cancellation=True, auto_decompress=False)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.shutdown(1)


@asynccontextmanager
async def asking(
    port: int, *, tls: bool = False, path: str = "/", method: str = "GET", **how: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    connector = aiohttp.TCPConnector(ssl=False) if tls else aiohttp.TCPConnector()
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}{path}"
    async with (
        aiohttp.ClientSession(
            connector=connector, auto_decompress=False, skip_auto_headers=["Accept-Encoding"]
        ) as session,
        session.request(method, url, **how) as answer,
    ):
        yield answer


async def asked(handler: Handler, **how: Any) -> tuple[aiohttp.ClientResponse, bytes]:
    async with serving(handler) as port, asking(port, **how) as answer:
        return answer, await answer.read()


# Requests.


def test_a_request_is_read_as_it_was_sent() -> None:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        assert exchange.query.first("ab") == "c+d"
        assert (exchange.accept, exchange.content_type, exchange.user_agent) == ("x/y", "text/plain", "me/1")
        assert await exchange.body() == b"hello"
        assert not exchange.accepts_gzip
        return await exchange.respond(200, JSON, b"{}")

    async def story() -> None:
        headers = {"Accept": "x/y", "Content-Type": "text/plain", "User-Agent": "me/1"}
        answer, _ = await asked(handler, path="/x?a%62=c%2Bd&z", method="POST", data=b"hello", headers=headers)
        assert answer.status == 200

    asyncio.run(story())


async def _echo_length(exchange: Exchange) -> web.StreamResponse:
    return await exchange.respond(200, JSON, str(len(await exchange.body())).encode())


async def _in_chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65536):
        yield b"x" * 65536
    yield b"x" * (size % 65536)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_three_mebibytes_long_and_no_longer(chunked: bool) -> None:
    async def story() -> None:
        for size in (BODY_LIMIT, BODY_LIMIT + 1):
            data = _in_chunks(size) if chunked else io.BytesIO(b"x" * size)
            answer, body = await asked(_echo_length, method="POST", data=data)
            if size == BODY_LIMIT:
                assert (answer.status, body) == (200, b"3145728")
            else:
                assert (answer.status, body) == (413, b"Request entity too large: limit is 3145728")

    asyncio.run(story())


def test_a_compressed_body_is_not_unpacked() -> None:
    async def story() -> None:
        packed = gzip.compress(b"x" * 100_000)
        _, body = await asked(_echo_length, method="POST", data=packed, headers={"Content-Encoding": "gzip"})
        assert int(body) == len(packed)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip", True),
        ("compress, gzip", True),
        ("gzip, compress", True),
        (" gzip ", True),
        ("gzip;q=1", False),
        ("GZIP", False),
        ("*", False),
        ("identity", False),
        ("br,gzip;q=0", False),
        ("", False),
    ],
)
def test_only_a_bare_gzip_counts(header: str, taken: bool) -> None:
    seen: list[bool] = []

    async def handler(exchange: Exchange) -> web.StreamResponse:
        seen.append(exchange.accepts_gzip)
        return await exchange.respond(200, JSON, b"")

    async def story() -> None:
        await asked(handler, headers={"Accept-Encoding": header})

    asyncio.run(story())
    assert seen == [taken]


# Answers.


def responding(body: bytes, *warnings: str, **how: Any) -> Handler:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        for text in warnings:
            exchange.warnings.add(text)
        return await exchange.respond(201, JSON, body, **how)

    return handler


async def in_turn(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def streaming(pieces: list[bytes], *, known: bool = False) -> Handler:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        return await exchange.stream(200, JSON, in_turn(pieces), length=sum(map(len, pieces)) if known else None)

    return handler


def test_an_answer_has_the_bare_media_type_and_a_header_for_each_warning() -> None:
    async def story() -> None:
        answer, body = await asked(responding(b"{}\n", "one", 'say "two" ü', headers={"Retry-After": "1"}))
        assert (answer.status, body) == (201, b"{}\n")
        assert answer.headers["Content-Type"] == JSON
        assert answer.headers["Content-Length"] == "3"
        assert answer.headers.getall("Warning") == ['299 - "one"', '299 - "say \\"two\\" ü"']
        assert answer.headers["Retry-After"] == "1"
        assert "Vary" not in answer.headers

    asyncio.run(story())


@pytest.mark.parametrize(("size", "compressed"), [(LONG - 1, False), (LONG, False), (LONG + 1, True)])
def test_compression_starts_at_a_threshold_exact_to_the_byte(size: int, compressed: bool) -> None:
    data = b"x" * size

    async def story() -> None:
        for handler in (
            responding(data),
            streaming([data[:100], data[100:]]),
            streaming([data[:-1], data[-1:]], known=True),
        ):
            answer, body = await asked(handler, headers=GZIP)
            assert (answer.headers.get("Content-Encoding") == "gzip") is compressed
            assert answer.headers.getall("Vary", []) == (["Accept-Encoding"] if compressed else [])
            assert (gzip.decompress(body) if compressed else body) == data

    asyncio.run(story())


def test_without_being_asked_nothing_is_compressed() -> None:
    async def story() -> None:
        data = b"x" * (1 << 20)
        answer, body = await asked(responding(data))
        assert body == data
        assert answer.headers["Content-Length"] == str(len(data))
        assert "Content-Encoding" not in answer.headers

    asyncio.run(story())


PIECES = [b"%05d" % i * 5000 for i in range(200)]


def test_a_stream_of_known_length_states_it(run: Callable[[Any], None]) -> None:
    async def story() -> None:
        answer, body = await asked(streaming(PIECES, known=True))
        assert answer.headers["Content-Length"] == str(len(body))
        assert "Transfer-Encoding" not in answer.headers
        assert body == b"".join(PIECES)

    run(story())


def test_a_stream_of_unknown_length_is_chunked(run: Callable[[Any], None]) -> None:
    async def story() -> None:
        answer, body = await asked(streaming(PIECES))
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert "Content-Length" not in answer.headers
        assert body == b"".join(PIECES)

    run(story())


def test_a_stream_that_turns_out_short_is_sent_as_a_whole() -> None:
    async def story() -> None:
        answer, body = await asked(streaming([b"short"]))
        assert (answer.headers["Content-Length"], body) == ("5", b"short")
        answer, body = await asked(streaming([b"a", b"b", b"c"]), headers=GZIP)
        assert (answer.headers["Content-Length"], body) == ("3", b"abc")
        assert "Content-Encoding" not in answer.headers

    asyncio.run(story())


@pytest.mark.parametrize("known", [False, True])
def test_a_large_stream_is_compressed_piece_by_piece(known: bool, run: Callable[[Any], None]) -> None:
    async def story() -> None:
        answer, body = await asked(streaming(PIECES, known=known), headers=GZIP)
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "Content-Length" not in answer.headers
        assert gzip.decompress(body) == b"".join(PIECES)
        assert len(body) < len(b"".join(PIECES)) / 10

    run(story())


@pytest.mark.parametrize("more", ["", "Accept-Encoding: gzip\r\n"], ids=["identity", "gzip"])
@pytest.mark.parametrize("beginning", [b"what it is", FirstPiece(b"what it is")], ids=["known before", "told"])
def test_the_beginning_of_a_large_stream_does_not_wait_for_the_rest(more: str, beginning: bytes | Piece) -> None:
    arrived, large = asyncio.Event(), isinstance(beginning, bytes)

    async def parts() -> AsyncIterator[bytes | Piece]:
        yield beginning
        await arrived.wait()
        yield rest

    async def story() -> None:
        async with serving(lambda exchange: exchange.stream(200, JSON, parts(), large=large)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\n{more}Connection: close\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            length = int(await reader.readline(), 16)
            first = await reader.readexactly(length)
            begun = zlib.decompressobj(31).decompress(first) if more else first
            assert begun == b"what it is"
            arrived.set()
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()

    rest = b"x" * LONG
    asyncio.run(story())


def test_an_answer_to_head_has_no_body() -> None:
    async def story() -> None:
        for handler in (
            responding(b"{}"),
            responding(b"x" * (1 << 20)),
            streaming(PIECES),
            streaming(PIECES, known=True),
        ):
            async with serving(handler) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(
                    b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
                first = await reader.readuntil(b"\r\n\r\n")
                assert b"transfer-encoding" not in first.lower()
                assert (await reader.readexactly(9)).startswith(b"HTTP/1.1 ")
                writer.close()

    asyncio.run(story())


@pytest.mark.parametrize(("each", "most"), [(0.0, PORTION), (0.0004, response.GATHERED)])
def test_slow_parts_are_written_in_smaller_pieces(each: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now, part = 0.0, bytes(16 << 10)
    monkeypatch.setattr(response, "perf_counter", lambda: now)

    async def parts() -> AsyncIterator[bytes]:
        nonlocal now
        for _ in range(200):
            now += each
            yield part

    async def story() -> list[int]:
        return [sum(map(len, some)) async for some in response.gathered(parts(), soon=True)]

    sizes = asyncio.run(story())
    assert sum(sizes) == 200 * len(part)
    assert set(sizes[2:-1]) == {most}


def test_other_work_goes_on_between_the_pieces_of_a_list() -> None:
    turns = 0

    async def handler(exchange: Exchange) -> web.StreamResponse:
        return await exchange.stream(200, JSON, counted())

    async def counted() -> AsyncIterator[bytes]:
        nonlocal turns
        before = -1
        for _ in range(50):
            assert turns > before
            before = turns if before >= 0 else -1
            yield b"x"

    async def ticking() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> None:
        ticker = asyncio.ensure_future(ticking())
        _, body = await asked(handler)
        ticker.cancel()
        assert len(body) == 50

    asyncio.run(story())


# Watches.


def frame(i: int) -> bytes:
    return b'{"type":"ADDED","object":{"n":%d,"x":"%b"}}\n' % (i, b"x" * 200)


@pytest.mark.parametrize("tls", [False, True])
def test_all_ways_to_send_an_event_keep_their_order(tls: bool, run: Callable[[Any], None]) -> None:
    """aiohttp writes the headers and the end, pushes go straight to the transport between them."""
    count = 3000

    async def handler(exchange: Exchange) -> web.StreamResponse:
        stream = await exchange.open_watch(JSON)
        for i in range(0, count, 3):
            await stream.write(frame(i))
            await stream.send(frames.chunk(frame(i + 1)))
            assert stream.push(frames.chunk(frame(i + 2)))
        return await stream.finish()

    async def story() -> None:
        async with serving(handler, tls=server_context() if tls else None) as port, asking(port, tls=tls) as answer:
            assert answer.headers["Content-Type"] == JSON
            assert answer.headers["Transfer-Encoding"] == "chunked"
            assert await answer.read() == b"".join(map(frame, range(count)))

    run(story())


@pytest.mark.parametrize("tls", [False, True])
def test_the_headers_of_a_watch_arrive_before_its_first_event(tls: bool, run: Callable[[Any], None]) -> None:
    async def story() -> None:
        arrived = asyncio.Event()

        async def handler(exchange: Exchange) -> web.StreamResponse:
            stream = await exchange.open_watch(JSON)
            await arrived.wait()
            await stream.write(frame(1) + frame(2))
            return await stream.finish()

        async with serving(handler, tls=server_context() if tls else None) as port, asking(port, tls=tls) as answer:
            assert answer.status == 200
            arrived.set()
            assert await answer.read() == frame(1) + frame(2)

    run(story())


def test_a_connection_can_be_used_again_after_a_watch() -> None:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        stream = await exchange.open_watch(JSON)
        assert stream.push(frames.chunk(frame(1)))
        await stream.write(b"")
        return await stream.finish()

    async def story() -> None:
        async with serving(handler) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert await reader.readuntil(b"\r\n0\r\n\r\n") == frames.chunk(frame(1)) + frames.chunk(b"")
            writer.close()

    asyncio.run(story())


def test_a_client_of_http_1_0_gets_its_events_unframed() -> None:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        stream = await exchange.open_watch(JSON)
        await stream.write(frame(1))
        assert stream.push(frames.chunk(frame(2)))
        return await stream.finish()

    async def story() -> None:
        async with serving(handler) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert b"Transfer-Encoding" not in head
            assert body == frame(1) + frame(2)
            writer.close()

    asyncio.run(story())


@pytest.mark.parametrize("answer", ["a watch", "a list", "a list of known length"])
def test_http_1_0_client_learns_the_end_of_an_answer_despite_keep_alive(answer: str) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield frame(1)
        yield frame(2)

    async def handler(exchange: Exchange) -> web.StreamResponse:
        if answer != "a watch":
            length = len(frame(1) + frame(2)) if answer == "a list of known length" else None
            return await exchange.stream(200, JSON, parts(), length=length)
        stream = await exchange.open_watch(JSON)
        await stream.write(frame(1) + frame(2))
        return await stream.finish()

    async def story() -> None:
        async with serving(handler) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert (b"\r\nConnection: keep-alive\r\n" in head) == (b"\r\nContent-Length: " in head)
            whole = frame(1) + frame(2)
            async with asyncio.timeout(60):
                body = await (reader.readexactly(len(whole)) if b"Content-Length" in head else reader.read())
            assert body == whole
            writer.close()

    asyncio.run(story())


def test_relayed_watch_ends_with_its_connection_and_is_not_framed() -> None:
    async def handler(exchange: Exchange) -> web.StreamResponse:
        exchange.relayed = True
        stream = await exchange.open_watch(JSON)
        await stream.write(frame(1))
        assert stream.push(frames.chunk(frame(2)))
        await stream.send(frames.chunk(frame(3)))
        return await stream.finish()

    async def story() -> None:
        async with serving(handler) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert b"Transfer-Encoding" not in head
            assert b"\r\nConnection: close\r\n" in head + b"\r\n"
            assert body == frame(1) + frame(2) + frame(3)
            writer.close()

    asyncio.run(story())


class Written:
    """A transport that notes each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)


def test_held_events_leave_in_order_and_in_as_few_writes_as_records() -> None:
    transport = Written()
    stream = WatchStream(web.StreamResponse(), cast(Any, SimpleNamespace(transport=transport, chunked=True)))
    events = [frames.chunk(frame(number)) for number in range(200)]
    stream.hold()
    assert all(stream.push(event) for event in events[:-1])
    stream.release()
    held = len(transport.writes)
    assert stream.push(events[-1])
    assert b"".join(transport.writes) == b"".join(events)
    assert transport.writes[held:] == events[-1:]
    size = sum(map(len, events[:-1]))
    assert held <= size // (response.RECORD - max(map(len, events))) + 1 < 10
    assert max(map(len, transport.writes)) <= response.RECORD


async def _fill(stream: WatchStream, chunk: bytes) -> int:
    """Pushes until the stream takes no more; how many it took."""
    taken = 0
    while stream.push(chunk):
        taken += 1
        if taken % 64 == 0:
            await asyncio.sleep(0)
    return taken


async def _silent_client(port: int, tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_reads_slowly_is_waited_for_and_loses_nothing(tls: bool, run: Callable[[Any], None]) -> None:
    async def story() -> None:
        full, sent = asyncio.Event(), 0

        async def handler(exchange: Exchange) -> web.StreamResponse:
            nonlocal sent
            stream = await exchange.open_watch(JSON)
            chunk = frames.chunk(frame(1) * 200)
            sent = await _fill(stream, chunk) * 200
            states = [stream.push(chunk)]
            full.set()
            await stream.send(frames.chunk(frame(2)))
            assert [*states, stream.push(frames.chunk(frame(3)))] == [False, True]
            return await stream.finish()

        async with serving(handler, tls=server_context() if tls else None) as port:
            reader, writer = await _silent_client(port, tls)
            await full.wait()
            lines = 0
            while (line := await reader.readline()) != b"0\r\n":
                lines += line.startswith(b"{")
            assert lines == sent + 2
            writer.close()

    run(story())


def test_a_client_that_goes_while_it_is_waited_for_leaves_no_trace(run: Callable[[Any], None]) -> None:
    told: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        full, ended = asyncio.Event(), asyncio.Event()

        async def handler(exchange: Exchange) -> web.StreamResponse:
            stream = await exchange.open_watch(JSON)
            await _fill(stream, frames.chunk(b"x" * 60_000))
            full.set()
            try:
                await stream.send(frames.chunk(frame(1)))
            finally:
                ended.set()
            return await stream.finish()

        async with serving(handler) as port:
            _, writer = await _silent_client(port, tls=False)
            await full.wait()
            writer.transport.abort()
            await ended.wait()

    run(story())
    gc.collect()
    assert told == []


def test_a_client_that_takes_nothing_is_cut_off(run: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "STALL_SECONDS", 0.05)

    async def story() -> None:
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def handler(exchange: Exchange) -> web.StreamResponse:
            stream = await exchange.open_watch(JSON)
            await _fill(stream, frames.chunk(b"x" * 60_000))
            try:
                await stream.send(frames.chunk(frame(2)))
            except ConnectionResetError as e:
                outcome.set_result(str(e))
            assert not stream.push(frames.chunk(frame(3)))
            return await stream.finish()

        async with serving(handler) as port:
            _, writer = await _silent_client(port, tls=False)
            async with asyncio.timeout(60):
                assert await outcome == "the client stalled"
            writer.close()

    run(story())


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2),
    reason="writelines of this asyncio pauses no writer; the transports of a server are serving/tls.py's",
)
def test_a_list_is_not_written_to_a_client_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "STALL_SECONDS", 0.05)

    async def story() -> None:
        made = 0
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def endless() -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield b"x" * 65536

        async def handler(exchange: Exchange) -> web.StreamResponse:
            try:
                return await exchange.stream(200, JSON, endless())
            except ConnectionResetError as e:
                outcome.set_result(str(e))
                raise

        async with serving(handler) as port:
            _, writer = await _silent_client(port, tls=False)
            async with asyncio.timeout(60):
                assert await outcome == "the client stalled"
            assert made * 65536 < 64 << 20
            writer.close()

    asyncio.run(story())


def test_nothing_is_sent_after_the_client_disconnects(run: Callable[[Any], None]) -> None:
    async def story() -> None:
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def handler(exchange: Exchange) -> web.StreamResponse:
            stream = await exchange.open_watch(JSON)
            await stream.write(frame(1))
            try:
                await asyncio.Event().wait()
            finally:
                gone = not stream.push(frames.chunk(frame(2)))
                with pytest.raises(ConnectionResetError):
                    await stream.send(frames.chunk(frame(3)))
                await stream.finish()
                outcome.set_result(gone)
            raise AssertionError

        async with serving(handler) as port:
            reader, writer = await _silent_client(port, tls=False)
            await reader.readuntil(frame(1))
            writer.close()
            async with asyncio.timeout(60):
                assert await outcome

    run(story())
