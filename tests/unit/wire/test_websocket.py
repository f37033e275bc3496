"""Frames in both directions, as bytes. `tests/promises/api/test_websockets.py` tests what a client notices of them."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from aiohttp.http_websocket import WSMsgType
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from apiserver.apimachinery.errors import TextError
from apiserver.wire import websocket
from apiserver.wire.forms.media import JSON, PROTOBUF
from tests.fixtures.cpu import Spent
from tests.fixtures.websocket import BINARY, CLOSE, PING, PONG, TEXT, accepted, frame, handshake

MOST = 16 << 10
"""Bytes that a connection hands on in one step."""


class Client:
    """A receiver that records what it is fed."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.ends = 0
        self.receiver = websocket.Receiver(answer=self.answers.append, ended=self._ended)

    def _ended(self) -> None:
        self.ends += 1

    def feed(self, data: bytes) -> None:
        assert self.receiver.feed_data(data) == (False, b"")

    @property
    def answered(self) -> bytes:
        return b"".join(self.answers)


# From the client

SENT = [
    frame(TEXT, b"hello"),
    frame(BINARY, bytes(300)),
    frame(BINARY, bytes(70_000)),
    frame(PING, b"p" * 125),
    frame(PING),
    frame(PONG, b"x"),
    frame(0, b"a part", last=False, reserved=5),
    frame(7, b"reserved"),
]


@given(st.lists(st.sampled_from(SENT), max_size=6), st.randoms(use_true_random=False))
def test_frames_are_read_alike_however_they_are_cut(sent: list[bytes], chance: random.Random) -> None:
    data = b"".join(sent)
    whole, cut = Client(), Client()
    whole.feed(data)
    at = 0
    while at < len(data):
        size = chance.choice([1, 2, 3, 7, 130, 40_000])
        cut.feed(data[at : at + size])
        at += size
    assert cut.answered == whole.answered
    assert cut.answered == b"".join(
        websocket.frame(WSMsgType.PONG, b"p" * 125 if one is SENT[3] else b"") for one in sent if one in SENT[3:5]
    )
    assert cut.ends == whole.ends == 0


def test_pongs_of_one_piece_go_out_together() -> None:
    client = Client()
    client.feed(frame(PING, b"a") + frame(TEXT, b"x") + frame(PING, b"b") + frame(PING, b"c")[:-1])
    assert client.answers == [websocket.frame(PONG, b"a") + websocket.frame(PONG, b"b")]


@pytest.mark.parametrize("size", [32 << 20, (1 << 31) + 5, (1 << 63) - 1])
def test_nothing_is_kept_of_a_frame_however_long_it_says_it_is(size: int) -> None:
    client = Client()
    tracemalloc.start()
    try:
        client.feed(frame(PING, length=size))
        for _ in range(64):
            client.feed(bytes(MOST))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert client.ends == 0


def test_end_is_reported_once_and_later_frames_are_dropped() -> None:
    client = Client()
    client.feed(frame(PING, b"a") + frame(CLOSE) + frame(PING, b"b"))
    client.feed(frame(PING, b"c") + frame(CLOSE))
    assert (client.answered, client.ends) == (websocket.frame(PONG, b"a"), 1)
    client.receiver.feed_eof()
    assert client.ends == 1


def test_after_a_frame_without_a_mask_pongs_come_before_the_protocol_error() -> None:
    client = Client()
    client.feed(frame(PING, b"a") + frame(TEXT, b"x", masked=False))
    assert client.answered == websocket.frame(PONG, b"a") + websocket.close(1002)
    assert client.ends == 1


@pytest.mark.parametrize(("kind", "content"), [(TEXT, b""), (PING, b""), (PING, b"x" * 125), (TEXT, b"x")])
def test_a_piece_of_short_frames_takes_a_short_step(kind: int, content: bytes) -> None:
    one = frame(kind, content)
    client, data = Client(), one * (MOST // len(one))
    with Spent() as spent:
        client.feed(data)
    assert spent.below(0.02)


# To the client


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 1 << 20])
def test_a_frame_says_how_long_it_is(size: int) -> None:
    made = websocket.frame(BINARY, b"x" * size)
    head = made[: len(made) - size]
    assert head[0] == 0x82
    assert len(head) == (2 if size < 126 else 4 if size < 65_536 else 10)
    assert (head[1] if len(head) == 2 else int.from_bytes(head[2:], "big")) == size


def test_events_in_json_are_a_text_message_each() -> None:
    framed = websocket.FRAMINGS[JSON].frame
    assert framed(b'{"a":1}\n') == websocket.frame(TEXT, b'{"a":1}\n')
    assert framed(b'{"a":1}\n{"b":2}\n') == framed(b'{"a":1}\n') + framed(b'{"b":2}\n')


def test_events_in_protobuf_are_a_binary_message_each_without_their_length() -> None:
    framed = websocket.FRAMINGS[PROTOBUF].frame
    assert framed(b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\1\n") == b"".join(
        websocket.frame(BINARY, payload) for payload in (b"abc", b"", b"\n")
    )


# The handshake


def headers(**changed: str | None) -> CIMultiDict[str]:
    return CIMultiDict(handshake(**changed))


def test_the_answer_shows_that_the_key_was_read() -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="  # the example of RFC 6455, section 1.3
    head = websocket.accept(headers(Sec_WebSocket_Key=key), [])
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
    assert accepted(key) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_subprotocol_of_any_bytes_is_repeated_as_it_is() -> None:
    offered = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert b"\r\nSec-WebSocket-Protocol: caf\xe9\r\n" in websocket.accept(headers(), [offered])


def test_an_origin_of_a_megabyte_is_refused_unread() -> None:
    given = headers(Origin="https://" + "%20" * 300_000)
    with Spent() as spent, pytest.raises(TextError) as refused:
        websocket.accept(given, [])
    assert refused.value.code == 403
    assert spent.below(0.02)


def test_a_million_subprotocols_are_read_in_no_time_and_refused() -> None:
    given = headers(Sec_WebSocket_Protocol="a," * 500_000)
    with Spent() as spent, pytest.raises(TextError) as refused:
        websocket.accept(given, websocket.subprotocols(given))
    assert (refused.value.code, refused.value.text) == (400, "")
    assert spent.below(0.02)


@pytest.mark.parametrize(
    ("changed", "upgrade"),
    [
        ({}, True),
        ({"Upgrade": "WEBSOCKET"}, True),
        ({"Connection": "keep-alive, Upgrade"}, True),
        ({"Upgrade": "h2c"}, False),
        ({"Upgrade": "websocket, h2c"}, False),
        ({"Connection": "close"}, False),
        ({"Connection": None}, False),
    ],
)
def test_headers_that_ask_for_an_upgrade(changed: dict[str, str | None], upgrade: bool) -> None:
    assert websocket.is_upgrade(headers(**changed)) is upgrade
