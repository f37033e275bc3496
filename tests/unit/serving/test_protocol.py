"""One connection: what is no HTTP, what is too much, what takes too long. No sockets."""

from __future__ import annotations

import asyncio
import itertools
from hashlib import sha256

import pytest
from aiohttp import web

from apiserver.config import config
from apiserver.filters.request_info import request_info
from apiserver.filters.state import Peer, Request
from apiserver.serving import connections, unfinished
from tests.fixtures.connection import Connection
from tests.fixtures.cpu import Spent
from tests.unit.filters.chain import V1, connect, ids, ok

HOST = "Host: server\r\n"
WATCH = f"{V1}/things?watch=1"


async def reply(raw: bytes) -> tuple[Connection, bytes]:
    """Everything that the server sends before it closes."""
    connection = connect(ok)
    connection.feed(raw)
    await connection.end()
    return connection, bytes(connection.transport.sent)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /x HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"F@O / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"FOO\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["binary", "version", "header", "method", "word", "smuggling", "length", "tls"],
)
async def test_bytes_that_are_no_http_get_gos_bare_400(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    _, said = await reply(raw)
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert said.endswith(b"\r\n\r\n400 Bad Request")
    assert b"Content-Type: text/plain; charset=utf-8\r\n" in said
    assert b"Connection: close\r\n" in said
    assert not [record for record in caplog.records if record.exc_info]


METHODS = ["FOO", "get", "GETS", "A-b.c!#$%&*+^_`|~1", "M-SEARCH", "CONNECT", "X" * 256]


@pytest.mark.parametrize("before", ["", "\r\n"])
@pytest.mark.parametrize("method", METHODS)
async def test_unknown_method_reaches_the_handler(method: str, before: str) -> None:
    connection = connect(named)
    bodies = "", "", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", ""
    for path, fields in zip(("/one", "/\xfc", "/three", "/four", "/five"), bodies, strict=True):
        body = {"C": "\r\n\r", "T": "3\r\nabc\r\n0\r\n\r\n"}.get(fields[:1], "")
        connection.feed(f"{before}{method} {path} HTTP/1.1\r\n{HOST}{fields}\r\n{body}".encode("latin-1"))
        answer = await connection.answer()
        assert answer.json == [shown(method), path.replace("\xfc", "%FC"), len(body) if fields[:1] != "T" else 3]
    connection.feed(f"PUT /six HTTP/1.1\r\n{HOST}Content-Length: 4\r\n\r\n".encode())
    connection.feed(b"GET ")
    assert (await connection.answer()).json == ["PUT", "/six", 4]
    connection.feed(f"{method} /seven HTTP/1.1\r\n{HOST}\r\n".encode())
    assert (await connection.answer()).json == [shown(method), "/seven", 0]


def shown(method: str) -> str:
    """Return the method that the handler sees. aiohttp would leave out the body of an answer to CONNECT."""
    return method.replace("CONNECT", "connect")


async def named(request: Request) -> web.StreamResponse:
    return web.json_response([request.method, request.raw_path, len(await request.read())])


@pytest.mark.parametrize("size", [30, 47, 64])
async def test_no_word_within_a_request_is_taken_for_a_method(size: int) -> None:
    """For all pieces, and for all bytes that are sent ahead."""
    seen: list[tuple[str, str | None]] = []

    async def note(request: Request) -> web.StreamResponse:
        seen.append((f"{request.method} {request.raw_path}", request.headers.get("X-Words")))
        return web.Response(text="noted")

    words = "lue of many words FOO / HTTP/1.1 and more"
    request = f"GET /x HTTP/1.1\r\n{HOST}X-Words: {words}\r\nContent-Length: 8\r\n\r\nFOO / \r\n".encode()
    connection = connect(note)
    sent = request * 20
    for start in range(0, len(sent), size):
        connection.feed(sent[start : start + size])
    for _ in range(20):
        assert (await connection.answer()).status == 200
    assert seen == [("GET /x", words)] * 20


@pytest.mark.parametrize("method", ["FOO", "get"])
async def test_unknown_method_behind_another_request_reaches_the_handler(method: str) -> None:
    connection = connect(named)
    connection.feed(f"GET /x HTTP/1.1\r\n{HOST}\r\n{method} /y HTTP/1.1\r\n{HOST}\r\n".encode())
    assert [(await connection.answer()).json for _ in range(2)] == [["GET", "/x", 0], [method, "/y", 0]]


@pytest.mark.parametrize("before", ["", "\r\n", "\r\n\r\n"])
@pytest.mark.parametrize("method", [*METHODS, "GET"])
async def test_method_in_pieces_reaches_the_handler_as_in_one(method: str, before: str) -> None:
    connection = connect(named)
    request = f"{before}{method} /\xfc HTTP/1.1\r\n{HOST}\r\n".encode("latin-1")
    end = len(before) + len(method) + 3
    pieces = [[at] for at in {*range(1, len(before) + 9), *range(end - 6, end)}]
    for cuts in [*pieces, range(1, end), range(1, len(request))]:
        for start, stop in itertools.pairwise([0, *cuts, len(request)]):
            connection.feed(request[start:stop])
        assert (await connection.answer()).json == [shown(method), "/%FC", 0], cuts


@pytest.mark.parametrize("target", ["server:443", "server", "[::1]:443/x?y=z", "*", "server:443/\xfc"])
async def test_connect_names_a_host_and_a_path(target: str) -> None:
    connection = connect(named)
    request = f"CONNECT {target} HTTP/1.1\r\n{HOST}\r\n".encode("latin-1")
    for cut in range(len(request)):
        connection.feed(request[:cut])
        connection.feed(request[cut:])
        assert (await connection.answer()).json == ["connect", f"http://{target}".replace("\xfc", "%FC"), 0]


async def test_bytes_behind_connect_are_the_next_request() -> None:
    connection = connect(named)
    connection.feed(f"CONNECT /a HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n{HOST}\r\n".encode())
    assert [(await connection.answer()).json for _ in range(2)] == [["connect", "/a", 3], ["GET", "/b", 0]]


@pytest.mark.parametrize(
    "pieces",
    [
        [f"{'X' * 257} / HTTP/1.1\r\n{HOST}\r\n"],
        ["X" * 256, f"X / HTTP/1.1\r\n{HOST}\r\n"],
        ["X"] * 257,
        ["GETX\r\n"],
        ["GET", "X\r\n"],
    ],
)
async def test_longer_methods_and_words_without_a_target_are_400(pieces: list[str]) -> None:
    connection = connect(ok)
    for piece in pieces:
        connection.feed(piece.encode())
    await connection.end()
    assert bytes(connection.transport.sent).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_method_that_is_never_complete_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "HEADER_SECONDS", 0.01)
    connection = connect(ok)
    connection.feed(b"FOO")
    await connection.end()
    assert not connection.transport.sent


async def test_unknown_http_version_is_505_for_every_method() -> None:
    _, said = await reply(f"FOO / HTTP/2.0\r\n{HOST}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 505 HTTP Version Not Supported\r\n")


async def test_two_hosts_are_too_many() -> None:
    _, said = await reply(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert said.endswith(b"\r\n\r\n400 Bad Request")


@pytest.mark.parametrize(
    "encoding", ["gzip", "identity", "chunked, chunked", "chunked, gzip", "gzip, chunked", "x,chunked"]
)
async def test_chunks_are_the_only_transfer_encoding(encoding: str) -> None:
    lines = f"{HOST}Transfer-Encoding: {encoding}\r\nConnection: close\r\n"
    _, said = await reply(f"POST /x HTTP/1.1\r\n{lines}\r\n0\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert said.endswith(b"\r\n\r\nUnsupported transfer encoding")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_transfer_encoding_without_a_name_is_unsupported(method: str) -> None:
    lines = f"{HOST}Transfer-Encoding:\r\nConnection: close\r\n"
    _, said = await reply(f"{method} /x HTTP/1.1\r\n{lines}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    _, said = await reply(f"{method} /x HTTP/1.0\r\n{lines}\r\n".encode())
    assert b" 501 " not in said.split(b"\r\n")[0]


@pytest.mark.parametrize("encoding", ["chunked", "Chunked", " chunked "])
async def test_chunks_may_be_spelled_in_any_way(encoding: str) -> None:
    lines = f"{HOST}Transfer-Encoding: {encoding}\r\nConnection: close\r\n"
    _, said = await reply(f"POST /x HTTP/1.1\r\n{lines}\r\n0\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 200 ")


async def test_a_request_without_host_is_refused_and_one_of_http_1_0_is_not() -> None:
    _, said = await reply(b"GET /x HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.endswith(b"400 Bad Request: missing required Host header")
    _, said = await reply(b"GET /x HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.0 200 ")


async def test_thousands_of_header_lines_and_a_long_target_are_fine() -> None:
    groups = [("X-Remote-Group", f"group-{i:05}") for i in range(3000)]
    assert (await connect(ok).ask("GET", "/x", groups)).status == 200
    assert (await connect(ok).ask("GET", "/x?labelSelector=" + "a" * 900_000)).status == 200


async def test_more_header_lines_than_allowed_are_431() -> None:
    lines = "".join(f"X-A: {i}\r\n" for i in range(config.MAX_HEADER_LINES + 10))
    _, said = await reply(f"GET /x HTTP/1.1\r\n{HOST}{lines}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 431 ")
    assert said.endswith(b"431 Request Header Fields Too Large")


async def test_headers_that_never_end_are_431_at_a_mebibyte_in_all() -> None:
    connection = connect(ok)
    connection.feed(f"GET /x HTTP/1.1\r\n{HOST}".encode())
    await asyncio.sleep(0)
    for i in range(40):
        connection.feed(f"X-{i}: {'a' * 32768}\r\n".encode())
        if connection.closed:
            break
        await asyncio.sleep(0)
    await connection.end()
    assert bytes(connection.transport.sent).startswith(b"HTTP/1.1 431 ")


async def test_large_headers_count_for_each_request_anew() -> None:
    connection = connect(ok)
    for _ in range(5):
        assert (await connection.ask("GET", "/x", {"X-Large": "a" * 600_000})).status == 200


@pytest.mark.parametrize("raw", ["", "GET /x HTTP/1.1\r\n", f"GET /x HTTP/1.1\r\n{HOST}X-A: b"])
async def test_headers_that_take_too_long_end_the_connection(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "HEADER_SECONDS", 0.01)
    connection = connect(ok)
    if raw:
        connection.feed(raw.encode())
    await connection.end()
    assert not connection.transport.sent


async def test_the_next_requests_headers_are_timed_too_and_idling_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connect(ok)
    await connection.ask("GET", "/x")
    monkeypatch.setattr(config, "HEADER_SECONDS", 0.01)
    assert connection.protocol._header_timer is None  # type: ignore[attr-defined]
    connection.feed(b"GET /x HT")
    await connection.end()


async def test_a_slow_body_is_not_taken_for_slow_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = asyncio.Event()

    async def read(request: Request) -> web.StreamResponse:
        reading.set()
        return web.Response(body=await request.content.read())

    connection = connect(read)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Content-Length: 4\r\n\r\n".encode())
    await reading.wait()
    connection.feed(b"ab")
    assert connection.protocol._header_timer is None  # type: ignore[attr-defined]
    connection.feed(b"cd")
    assert (await connection.answer()).body == b"abcd"


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /x HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: s\r\nUpgrade: h2c\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: s\r\nConnection: upgrade, close\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
        "CONNECT /x HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        f"GET {WATCH} HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        f"GET {WATCH} HTTP/1.1\r\nHost: s\r\nUpgrade: websocket\r\n\r\n",
        f"POST {WATCH} HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        f"GET {WATCH} HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n",
    ],
    ids=["websocket", "h2c", "spdy", "connect", "watch h2c", "watch unconnected", "watch POST", "watch with a body"],
)
async def test_an_upgrade_is_400_and_what_is_smuggled_behind_it_never_runs(request_line: str) -> None:
    served: list[str] = []

    async def serve(request: Request) -> web.StreamResponse:
        served.append(request.path)
        return web.Response()

    connection = connect(serve)
    connection.feed(request_line.encode() + b"GET /smuggled HTTP/1.1\r\nHost: s\r\n\r\n")
    await connection.end()
    said = bytes(connection.transport.sent)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.") == 1
    assert not served


UPGRADE = f"GET {WATCH} HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()


async def test_refused_websocket_upgrade_of_a_watch_ends_the_connection() -> None:
    served: list[str] = []

    async def serve(request: Request) -> web.StreamResponse:
        assert request.exchange.upgrades
        served.append(request.path)
        return web.Response(text="no WebSocket")

    connection = connect(serve)
    connection.feed(UPGRADE + b"GET /smuggled HTTP/1.1\r\nHost: s\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.text, answer.headers["Connection"]) == (200, "no WebSocket", "close")
    await connection.end()
    assert served == [WATCH.partition("?")[0]]


async def test_bytes_after_an_unanswered_upgrade_are_read_within_a_bound() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def serve(_request: Request) -> web.StreamResponse:
        began.set()
        await go_on.wait()
        return web.Response()

    connection = connect(serve)
    connection.feed(UPGRADE)
    await began.wait()
    fed = 0
    while connection.transport.reading.is_set():
        connection.feed(bytes(4096))
        fed += 4096
        assert fed <= 1 << 20
        await asyncio.sleep(0)
    assert fed <= 64 << 10
    go_on.set()
    await connection.end()


async def test_websocket_bytes_are_delivered_in_small_pieces_with_turns_between() -> None:
    pieces: list[int] = []
    began, turns = asyncio.Event(), 0

    class Reader:
        def feed_data(self, data: bytes) -> tuple[bool, bytes]:
            pieces.append(len(data))
            return False, b""

        def feed_eof(self) -> None:
            pass

    async def serve(request: Request) -> web.StreamResponse:
        request.protocol.set_parser(Reader())  # type: ignore[arg-type]
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    connection = connect(serve)
    connection.feed(UPGRADE + b"\x81\x80early")
    await began.wait()
    connection.feed(bytes([0x8A, 0x80]) * (512 << 10))
    while sum(pieces) < 7 + (1 << 20):
        turns += 1
        await asyncio.sleep(0)
    assert sum(pieces) == 7 + (1 << 20)
    assert max(pieces) <= connections.PIECE
    assert turns >= 60
    assert connection.transport.reading.is_set()
    await connection.close()


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def echo(request: Request) -> web.StreamResponse:
        return web.Response(text=request.raw_path)

    connection = connect(echo)
    connection.feed(b"".join(f"GET /{i} HTTP/1.1\r\n{HOST}\r\n".encode() for i in range(50)))
    assert [(await connection.answer()).text for _ in range(50)] == [f"/{i}" for i in range(50)]


async def echo_all(request: Request) -> web.StreamResponse:
    body = await request.content.read()
    return web.Response(text=f"{request.raw_path} {len(body)} {sha256(body).hexdigest()}")


def answered(path: str, body: bytes) -> str:
    return f"{path} {len(body)} {sha256(body).hexdigest()}"


def posted(path: str, body: bytes, *, chunked: bool) -> bytes:
    if not chunked:
        return f"POST {path} HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n".encode() + body
    pieces = [body[i : i + 1000] for i in range(0, len(body), 1000)]
    text = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return f"POST {path} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode() + text + b"0\r\n\r\n"


READ = 256 << 10
"""Bytes that a transport reads at once."""


async def test_many_heads_in_one_read_are_parsed_in_steps_with_turns_between() -> None:
    connection = connect(echo_all)
    names = "".join(f"{i:x}:\r\n" for i in range(4000))
    heads = [f"GET /{i} HTTP/1.1\r\n{HOST}{names}\r\n".encode() for i in range(10)]
    with Spent() as spent:
        connection.feed(b"".join(heads))
    assert spent.below(0.008)
    assert not connection.transport.reading.is_set()
    connection.feed(f"GET /last HTTP/1.1\r\n{HOST}\r\n".encode())
    turns = 0
    while not connection.transport.reading.is_set():  # how many heads a step takes depends on the machine
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2
    expected = [answered(f"/{i}", b"") for i in [*range(10), "last"]]
    assert [(await connection.answer()).text for _ in expected] == expected


async def test_a_body_of_known_length_goes_on_at_once_however_long_it_is() -> None:
    connection = connect(echo_all)
    body = bytes(range(256)) * 1600
    sent = posted("/x", body, chunked=False)
    connection.feed(sent[:READ])
    assert connection.transport.reading.is_set()
    connection.feed(sent[READ:])
    assert connection.transport.reading.is_set()
    assert (await connection.answer()).text == answered("/x", body)


@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_and_heads_that_follow_each_other_arrive_whole_and_in_order(chunked: bool) -> None:
    connection = connect(echo_all)
    bodies = [bytes([i]) * length for i, length in enumerate([0, 1, 20_000, 16_384, 1_500_000, 5, 300_000])] * 3
    sent = b"".join(posted(f"/{i}", body, chunked=chunked) for i, body in enumerate(bodies))

    async def send() -> None:
        for start in range(0, len(sent), READ):
            await connection.transport.reading.wait()
            connection.feed(sent[start : start + READ])

    sending = asyncio.ensure_future(send())
    for i, body in enumerate(bodies):
        assert (await connection.answer()).text == answered(f"/{i}", body)
    await sending
    assert connection.transport.reading.is_set()


async def test_reading_pauses_while_an_unread_body_is_full() -> None:
    go_on = asyncio.Event()

    async def late(request: Request) -> web.StreamResponse:
        await go_on.wait()
        return await echo_all(request)

    connection = connect(late)
    body = bytes(3 << 20)
    sent = posted("/x", body, chunked=True) + posted("/y", b"a", chunked=False)
    for start in range(0, len(sent), READ):
        connection.feed(sent[start : start + READ])
    for _ in range(300):
        await asyncio.sleep(0)
    assert not connection.transport.reading.is_set()
    assert connection.protocol._body.total_bytes < 1 << 20  # type: ignore[attr-defined]
    go_on.set()
    assert (await connection.answer()).text == answered("/x", body)
    assert (await connection.answer()).text == answered("/y", b"a")
    assert connection.transport.reading.is_set()


async def test_a_client_that_leaves_takes_what_was_not_parsed_yet_with_it(caplog: pytest.LogCaptureFixture) -> None:
    served: list[str] = []

    async def serve(request: Request) -> web.StreamResponse:
        served.append(request.path)
        return web.Response()

    connection = connect(serve)
    connection.feed(f"GET /x HTTP/1.1\r\n{HOST}\r\n".encode() * 5000)
    await connection.close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(served) < 5000
    assert not connection.protocol._rest  # type: ignore[attr-defined]
    assert not caplog.records


async def test_bytes_after_an_error_are_not_parsed() -> None:
    connection = connect(ok)
    connection.feed(b"GET / HTTP/9.9\r\n\r\n" + f"GET /x HTTP/1.1\r\n{HOST}\r\n".encode() * 1000)
    await connection.end()
    said = bytes(connection.transport.sent)
    assert said.count(b"HTTP/1.") == 1
    assert said.endswith(b"400 Bad Request")


async def test_a_compressed_body_is_taken_literally() -> None:
    async def echo(request: Request) -> web.StreamResponse:
        return web.Response(body=await request.content.read())

    answer = await connect(echo).ask("POST", "/x", {"Content-Encoding": "gzip"}, body=b"\x1f\x8b not gzip")
    assert answer.body == b"\x1f\x8b not gzip"


async def test_the_path_arrives_as_it_was_sent() -> None:
    async def echo(request: Request) -> web.StreamResponse:
        return web.Response(text=request.raw_path)

    for path in ("//a//b/", "/a/../b", "/a%2Fb%2e", "/a?x=%20+&y", "https://server/a/b"):
        assert (await Connection(request_info(echo)).ask("GET", path)).text == path


async def echo_request(request: Request) -> web.StreamResponse:
    value = request.headers.get("X-A", "").encode("utf-8", "surrogateescape")
    return web.Response(body=b" ".join([request.raw_path.encode(), value, await request.content.read()]))


RAW = "GET /é?a=é HTTP/1.1\r\nHost: s\r\nX-A: ".encode() + b"\xc3\xa9\xff\r\n"
ESCAPED = b"/%C3%A9?a=%C3%A9 \xc3\xa9\xff "


@pytest.mark.parametrize("target", ["/x\udcff/é?labelSelector=é&b=\udc80", "http://é/é", "//é//?é"])
async def test_bytes_of_a_target_beyond_ascii_are_read_as_if_escaped(target: str) -> None:
    async def echo(request: Request) -> web.StreamResponse:
        return web.Response(text=request.raw_path)

    sent = target.encode("utf-8", "surrogateescape")
    expected = "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in sent)
    assert (await Connection(echo).ask("GET", target)).text == expected


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 23, 40, 200])
async def test_only_the_target_is_escaped_however_a_head_arrives(size: int) -> None:
    requests = [RAW + b"\r\n", RAW + "Content-Length: 2\r\n\r\né".encode()] * 2
    expected = [ESCAPED, ESCAPED + "é".encode()] * 2
    connection = connect(echo_request)
    for sent, body in zip(requests, expected, strict=True):
        for start in range(0, len(sent), size):
            connection.feed(sent[start : start + size])
        assert (await connection.answer()).body == body
    connection.feed(b"".join(requests))
    assert [(await connection.answer()).body for _ in requests] == expected


@pytest.mark.parametrize("line", ["É /x HTTP/1.1", "GET /x HTTP/1.1é", "É", "GET\xa0/x HTTP/1.1"])
async def test_elsewhere_in_a_request_line_only_ascii_will_do(line: str) -> None:
    _, said = await reply(f"{line}\r\n{HOST}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 400 ")


async def test_a_body_in_chunks_goes_on_at_once_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = posted("/x", bytes(60_000), chunked=True)
    for seconds, at_once in ((60.0, True), (0.0, False)):
        monkeypatch.setattr(connections, "PIECES_SECONDS", seconds)
        connection = connect(echo_all)
        connection.feed(sent)
        assert connection.transport.reading.is_set() is at_once
        assert (await connection.answer()).text == answered("/x", bytes(60_000))


async def test_the_handler_knows_the_peer_of_its_connection() -> None:
    seen: list[Peer | None] = []

    async def look(request: Request) -> web.StreamResponse:
        seen.append(request.peer)
        return web.Response()

    peer = Peer.of(b"leaf", (b"between",))
    await Connection(look, peer=peer).ask("GET", "/")
    await Connection(look).ask("GET", "/")
    assert seen == [peer, None]


async def test_request_that_no_filter_answers_is_a_500_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_request: Request) -> web.StreamResponse:
        raise RuntimeError("secret detail")

    answer = await Connection(broken).ask("GET", "/")
    assert (answer.status, answer.text) == (
        500,
        "This request caused apiserver to panic. Look in the logs for details.\n",
    )
    assert "a response could not be sent" in caplog.text


async def test_response_that_cannot_be_written_sends_the_client_nothing() -> None:
    async def broken(_request: Request) -> web.StreamResponse:
        return web.Response(headers={"X-Odd": "two\r\nlines"})

    connection = Connection(broken)
    connection.feed(b"GET / HTTP/1.1\r\nHost: s\r\n\r\n")
    await connection.end()
    assert not connection.transport.sent


def test_ids_differ() -> None:
    make = ids()
    assert make() != make()


def test_the_parser_in_c_is_there() -> None:
    connections.check_parser()


async def test_body_malformed_in_the_middle_ends_the_connection_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reading(request: Request) -> web.StreamResponse:
        with pytest.raises(web.RequestPayloadError):
            await request.read()
        return web.Response(status=400)

    connection = Connection(reading)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode())
    while connection.transport.sent == b"" and not connection.closed:
        connection.feed(b"no size\r\n")
        await asyncio.sleep(0)
    await connection.end()
    assert connection.transport.sent.startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


# ------------------------------------------------------------------------------------------------ what follows a request

GET = f"GET /x HTTP/1.1\r\n{HOST}\r\n".encode()
REQUESTS = {
    "GET": GET,
    "two": GET * 2,
    "POST": posted("/x", b"hello", chunked=False),
    "chunks": posted("/x", b"hello", chunked=True),
    "no body": posted("/x", b"", chunked=False),
}
CLOSING = {
    "GET": f"GET /x HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode(),
    "version 1.0": f"GET /x HTTP/1.0\r\n{HOST}\r\n".encode(),
    "POST": f"POST /x HTTP/1.1\r\n{HOST}Connection: close\r\nContent-Length: 5\r\n\r\nhello".encode(),
    "chunks": f"POST /x HTTP/1.1\r\n{HOST}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n".encode(),
}
MALFORMED = {
    "binary": b"\x00\x01\x02\r\n\r\n",
    "not ASCII": b"\xff\xfe" * 50 + b"\r\n\r\n",
    "header": f"GET / HTTP/1.1\r\n{HOST}Bad Header\r\n\r\n".encode(),
    "length": f"GET / HTTP/1.1\r\n{HOST}Content-Length: x\r\n\r\n".encode(),
    "host": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "method": f"F@O / HTTP/1.1\r\n{HOST}\r\n".encode(),
}


async def statuses(raw: bytes, *, size: int = 0) -> list[int]:
    """Statuses of the answers until the server closes the connection, to bytes that arrive at once or in pieces."""
    connection = connect(echo_all)
    for start in range(0, len(raw), size or len(raw)):
        connection.feed(raw[start : start + (size or len(raw))])
    await connection.end()
    lines = bytes(connection.transport.sent).split(b"HTTP/1.")[1:]
    return [int(line.split(b" ")[1]) for line in lines]


@pytest.mark.parametrize("wrong", MALFORMED)
@pytest.mark.parametrize("right", REQUESTS)
async def test_requests_before_malformed_bytes_are_answered(right: str, wrong: str) -> None:
    count = 2 if right == "two" else 1
    raw = REQUESTS[right] + MALFORMED[wrong]
    assert await statuses(raw) == [200] * count + [400]
    for size in (1, 2, 3, 7, len(raw) - 1):
        assert await statuses(raw, size=size) == [200] * count + [400], size


@pytest.mark.parametrize("cut", range(1, 5))
async def test_head_in_another_segment_is_answered_before_malformed_bytes(cut: int) -> None:
    for right in REQUESTS.values():
        connection = connect(echo_all)
        connection.feed(right[:-cut])
        connection.feed(right[-cut:] + MALFORMED["binary"])
        await connection.end()
        said = bytes(connection.transport.sent)
        assert (said.count(b" 200 OK"), said.count(b" 400 Bad")) == (right.count(b"HTTP/1.1"), 1)


@pytest.mark.parametrize("behind", [*MALFORMED.values(), GET, b"\x16\x03\x01", b"GET /", b"\r\n" * 100_000], ids=len)
@pytest.mark.parametrize("last", CLOSING)
async def test_nothing_is_read_behind_a_request_that_ends_the_connection(last: str, behind: bytes) -> None:
    raw = CLOSING[last] + behind
    assert await statuses(raw) == [200]
    assert await statuses(GET + raw, size=max(len(raw) // 3, 1)) == [200, 200]


async def test_request_with_malformed_unread_chunks_is_answered() -> None:
    async def early(_request: Request) -> web.StreamResponse:
        return web.Response(text="early")

    connection = connect(early)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nno size\r\n".encode())
    await connection.end()
    assert bytes(connection.transport.sent).startswith(b"HTTP/1.1 200 ")


async def test_handler_that_reads_malformed_chunks_gets_an_error() -> None:
    async def reading(request: Request) -> web.StreamResponse:
        with pytest.raises(web.RequestPayloadError):
            await request.read()
        return web.Response(status=400)

    connection = Connection(reading)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nno size\r\n".encode())
    await connection.end()
    assert bytes(connection.transport.sent).startswith(b"HTTP/1.1 400 ")


async def test_chunks_that_look_like_ends_of_heads_are_parsed_in_steps() -> None:
    body = b"\r\n\r\n" * 60_000
    connection = connect(echo_all)
    with Spent() as spent:
        connection.feed(posted("/x", body, chunked=True))
    assert spent.below(0.015)
    assert (await connection.answer()).text == answered("/x", body)


async def test_reader_of_many_small_chunks_runs_the_parser_only_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0
    data_received = connections.Protocol.data_received

    def counted(self: connections.Protocol, data: bytes) -> None:
        nonlocal parsed
        parsed += not data
        data_received(self, data)

    monkeypatch.setattr(connections.Protocol, "data_received", counted)
    connection = connect(echo_all)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode())
    connection.feed(b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    assert (await connection.answer()).text == answered("/x", b"x" * 20_000)
    assert parsed < 100


# ------------------------------------------------------------------------------------------------ unfinished heads

BEGUN = f"GET /x HTTP/1.1\r\n{HOST}".encode()
FILLING = b"X-A: " + b"a" * 993 + b"\r\n"


class Crowd:
    """Connections to one server whose heads may take little memory together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, most: int) -> None:
        monkeypatch.setattr(unfinished.Unfinished.__init__, "__defaults__", (most,))
        self.peer = Peer.of(b"leaf", ())
        self._manager = connections.Connections(ok, read_peer=lambda _connection: self.peer)

    def join(self, *, with_peer: bool = False) -> Connection:
        return Connection.to(self._manager, with_peer=with_peer)

    def held(self, *, with_peer: bool = False) -> int:
        return self._manager.unfinished(self.peer if with_peer else None).size


async def test_oldest_unfinished_head_goes_when_all_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, most=150_000)
    crowded = [crowd.join() for _ in range(60)]
    for connection in crowded:
        connection.feed(BEGUN)
        connection.feed(FILLING * 2)
    closed = [connection.closed for connection in crowded]
    assert closed == sorted(closed, reverse=True)
    assert 15 < closed.count(False) < 40
    assert all(connection.transport.aborted for connection in crowded if connection.closed)
    assert crowd.held() <= 150_000
    last = crowded[-1]
    last.feed(b"\r\n")
    assert (await last.answer()).status == 200


async def test_complete_heads_and_lost_connections_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, most=100_000)
    for _ in range(100):
        connection = crowd.join()
        for _ in range(2):
            connection.feed(BEGUN + FILLING * 10)
            assert crowd.held() > 0
            connection.feed(b"\r\n")
            assert crowd.held() == 0
            assert (await connection.answer()).status == 200
        connection.feed(BEGUN)
        connection.transport.close()
        await asyncio.sleep(0)
        assert crowd.held() == 0


async def test_heads_of_peers_have_a_budget_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, most=100_000)
    known = crowd.join(with_peer=True)
    known.feed(BEGUN)
    strangers = [crowd.join() for _ in range(20)]
    for stranger in strangers:
        stranger.feed(BEGUN + FILLING * 10)
    assert not known.closed
    assert strangers[0].closed
    others = [crowd.join(with_peer=True) for _ in range(20)]
    for other in others:
        other.feed(BEGUN + FILLING * 10)
    assert known.transport.aborted
    assert crowd.held(with_peer=True) <= 100_000


async def test_short_header_lines_count_as_the_memory_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, most=1 << 20)
    crowded = [crowd.join() for _ in range(4)]
    for connection in crowded:
        connection.feed(BEGUN)
        connection.feed(b"a:\r\n" * 1000)
    assert [connection.closed for connection in crowded] == [True, True, False, False]


async def test_refused_head_takes_no_memory_while_its_client_lingers() -> None:
    connection = connect(ok)
    connection.feed(BEGUN)
    for _ in range(80):
        connection.feed(b"X-A: " + b"a" * 16_000 + b"\r\n")
    assert bytes(connection.transport.sent).startswith(b"HTTP/1.1 431 ")
    assert connection.protocol._parser is None
    assert connection.manager.unfinished(None).size == 0


# ------------------------------------------------------------------------------------------------ lengths and hosts


@pytest.mark.parametrize("length", [1 << 63, (1 << 63) + 1, 1 << 64, (1 << 64) + 5, 10**400])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_length_that_no_body_has_is_400_at_once(method: str, length: int) -> None:
    raw = f"{method} /x HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\nhello".encode()
    _, said = await reply(raw)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.endswith(b"\r\n\r\n400 Bad Request")


@pytest.mark.parametrize(
    "length", ["+5", "-5", "1_0", "0x5", "5.0", "1e1", "5 5", "5,5", "5, 6", "\u0665", '"5"', "5;q=1"]
)
async def test_length_that_is_no_number_is_400(length: str) -> None:
    _, said = await reply(f"POST /x HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\nhello".encode())
    assert said.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("length", ["5", " 5 ", "\t5", "05", "0000000000000000000000000005"])
async def test_length_may_have_blanks_and_zeros_around_it(length: str) -> None:
    connection = connect(echo_all)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Content-Length:{length}\r\n\r\nhello".encode())
    assert (await connection.answer()).text == answered("/x", b"hello")


async def test_longest_length_is_waited_for() -> None:
    connection = connect(ok)
    connection.feed(f"POST /x HTTP/1.1\r\n{HOST}Content-Length: {(1 << 63) - 1}\r\n\r\n".encode())
    assert (await connection.answer()).status == 200


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "host",
    [
        "a b",
        "a\tb",
        "a/b",
        "u@h",
        "u:p@h",
        "<a>",
        '"a"',
        "a\\b",
        "a?b",
        "a#b",
        "é",
        "{a}",
        "a|b",
        "a^b",
        "a`b",
        "http://a",
        "@",
    ],
)
async def test_malformed_host_is_400(host: str, version: str) -> None:
    _, said = await reply(f"GET /x HTTP/{version}\r\nHost: {host}\r\n\r\n".encode())
    assert said.startswith(f"HTTP/{version}"[:7].encode())
    assert said.endswith(b"\r\n\r\n400 Bad Request: malformed Host header")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "  ",
        "h:80",
        "h:abc",
        "a:b:c",
        "[::1]:80",
        "[::1",
        "[]",
        "a%20b",
        "a%zz",
        "a,b",
        "*",
        "~!$&'()*+,;=:",
        "a_b",
        ".",
        ":80",
    ],
)
async def test_host_of_characters_that_hosts_have_is_taken(host: str) -> None:
    connection = connect(ok)
    for _ in range(2):
        connection.feed(f"GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await connection.answer()).status == 200
