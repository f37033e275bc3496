"""Speak WebSockets (RFC 6455) as kube-apiserver does: the handshake, messages to the client, and frames from the client.

A watch over a WebSocket is an ordinary request up to its answer. Then each event is one message. Frames from the client are discarded,
except pings and the close.

Both directions are implemented here. aiohttp's reader keeps whole messages and refuses frames that upstream ignores. Its writer makes a
frame for each client, while here a thousand watchers of one form share one.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/watch.go` HandleWS; kubernetes/streaming `pkg/httpstream/wsstream/conn.go`;
golang.org/x/net `websocket/{server,hybi,websocket}.go`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping

from multidict import MultiMapping

from apiserver.apimachinery.errors import TextError
from apiserver.wire.forms import media
from apiserver.wire.frames import Framing
from kubecel.libraries.urls import request_uri

VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""
SUBPROTOCOLS = 64
"""Subprotocols that are read: clients offer one to five. A header can hold a million, and splitting them takes 30 ms."""
READ = 4096
"""Characters of Origin that are read. Upstream limits only all headers together; browsers and fabric8 send some tens."""

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_LAST, _OPCODE = 0x80, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
_SHORT, _TWO_BYTES, _EIGHT_BYTES = 125, 126, 127
"""The longest payload whose length fits into the second byte, and the values of that byte for longer ones."""
NORMAL, PROTOCOL_ERROR = 1000, 1002
LARGEST = 32 << 20
"""Bytes of a client's frame above which upstream ends the watch (golang.org/x/net `websocket` DefaultMaxPayloadBytes). Frames are not kept,
so this bounds no memory here."""
PING_BYTES = 125
"""Bytes of a ping that are sent back."""


# ---------------------------------------------------------------------------------------------------------------- handshake


def is_upgrade(headers: MultiMapping[str]) -> bool:
    """Return whether a request asks for a WebSocket, even with an invalid handshake."""
    if headers.get("Upgrade", "").lower() != "websocket":
        return False
    return any("upgrade" in value.lower() for value in headers.getall("Connection", ()))


def subprotocols(headers: MultiMapping[str]) -> list[str]:
    """Return the subprotocols that the client offers. Upstream reads the first of several headers."""
    offered = headers.get("Sec-WebSocket-Protocol", "").strip()
    return split(offered) if offered else []


def split(offered: str) -> list[str]:
    """Return the subprotocols in a header. Everything behind the first SUBPROTOCOLS counts as one."""
    return [protocol.strip() for protocol in offered.split(",", SUBPROTOCOLS)]


def accept(headers: MultiMapping[str], protocols: list[str]) -> bytes:
    """Return the head of the answer that accepts a handshake. Raises TextError with upstream's code and text for a malformed one."""
    key = headers.get("Sec-WebSocket-Key", "")
    if not key:
        raise _refusal(400, "mismatch challenge/response")
    if headers.get("Sec-WebSocket-Version") != VERSION:
        raise _refusal(400, "missing or bad WebSocket Version", {"Sec-WebSocket-Version": VERSION})
    origin = headers.get("Origin", "")
    if not origin or len(origin) > READ or request_uri(origin) is not None:
        raise _refusal(403, "")
    if len(protocols) > 1:  # upstream chooses none for a watch
        raise _refusal(400, "")
    digest = hashlib.sha1(key.encode("utf-8", "surrogateescape") + _GUID, usedforsecurity=False).digest()
    head = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
        *(f"Sec-WebSocket-Protocol: {protocol}" for protocol in protocols),
    ]
    return "\r\n".join([*head, "", ""]).encode("utf-8", "surrogateescape")


def _refusal(code: int, text: str, headers: Mapping[str, str] | None = None) -> TextError:
    return TextError(code, text, headers={**(headers or {}), "Connection": "close"}, nosniff=False)


# ---------------------------------------------------------------------------------------------------------------- to the client


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one whole message. A server does not mask, so all clients can get the same bytes."""
    size = len(payload)
    if size <= _SHORT:
        return b"%c%c%b" % (_LAST | opcode, size, payload)
    if size < 1 << 16:
        return b"%c%c%b%b" % (_LAST | opcode, _TWO_BYTES, size.to_bytes(2, "big"), payload)
    return b"%c%c%b%b" % (_LAST | opcode, _EIGHT_BYTES, size.to_bytes(8, "big"), payload)


def close(code: int) -> bytes:
    return frame(_CLOSE, code.to_bytes(2, "big"))


def _lines(events: bytes) -> Iterator[bytes]:
    """Yield events in JSON, each with its line end, which upstream sends too."""
    for line in events.split(b"\n")[:-1]:
        yield line + b"\n"


def _prefixed(events: bytes) -> Iterator[bytes]:
    """Yield events in protobuf, without the length in front of each: a message has its own."""
    at = 0
    while at < len(events):
        start = at + 4
        at = start + int.from_bytes(events[at:start], "big")
        yield events[start:at]


def _messages(opcode: int, parts: Callable[[bytes], Iterator[bytes]]) -> Callable[[bytes], bytes]:
    def framed(events: bytes) -> bytes:
        return b"".join([frame(opcode, event) for event in parts(events)])

    return framed


FRAMINGS: Mapping[str, Framing] = {
    media.JSON: Framing("websocket", _messages(_TEXT, _lines)),
    media.PROTOBUF: Framing("websocket", _messages(_BINARY, _prefixed)),
}
"""How the events of a watch are sent, by their media type."""


# ---------------------------------------------------------------------------------------------------------------- from the client


class Receiver:
    """Reads the frames of a client and keeps only an incomplete head of a frame, and a ping.

    `answer` gets the bytes to send back at once: all pongs of one piece of data together. `ended` is called once, when the client closes or
    sends a frame for which upstream ends a watch. Later data is dropped.

    The interface is that of an aiohttp payload parser. The length of the data bounds the time of one call: two bytes make a frame, which
    takes a microsecond.
    """

    __slots__ = ("_answer", "_ended", "_head", "_left", "_mask", "_over", "_ping")

    def __init__(self, *, answer: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._answer = answer
        self._ended = ended
        self._head = b""
        self._left = 0
        """Bytes of the frame's payload that have not arrived yet."""
        self._ping: bytearray | None = None
        """The part of a ping's payload that has arrived, masked; None in another frame."""
        self._mask = b""
        self._over = False

    @property
    def stopped(self) -> bool:
        """Whether further data is dropped."""
        return self._over

    def stop(self) -> None:
        """Drop further data."""
        self._over = True

    def feed_eof(self) -> None:
        """Drop further data: the connection is closed. The handler of the request learns that elsewhere."""
        self._over = True

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if self.stopped:
            return False, b""
        data, self._head = self._head + data, b""
        back: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                payload = self._read_head(data, at, back)
                if payload is None:
                    self._head = data[at:]
                    break
                at = payload
                if self._over:
                    break
            if self._left:
                taken = min(self._left, end - at)
                if self._ping is not None:
                    self._ping += data[at : at + min(taken, PING_BYTES - len(self._ping))]
                at += taken
                self._left -= taken
            if not self._left and self._ping is not None:
                back.append(frame(_PONG, _unmasked(self._ping, self._mask)))
                self._ping = None
        if back:
            self._answer(b"".join(back))
        if self._over:
            self._ended()
        return False, b""

    def _read_head(self, data: bytes, at: int, back: list[bytes]) -> int | None:
        """Read a frame's head. Return where its payload begins, or None if the head is incomplete.

        As upstream, it ignores reserved bits, reserved opcodes, the order of fragments, and text that is not UTF-8.
        """
        if len(data) - at < 2:
            return None
        opcode, second = data[at] & _OPCODE, data[at + 1]
        size, start = second & _LENGTH, at + 2
        more = 2 if size == _TWO_BYTES else 8 if size == _EIGHT_BYTES else 0
        masked = second & _MASKED
        payload = start + more + (4 if masked else 0)
        if payload > len(data):
            return None
        if more:
            size = int.from_bytes(data[start : start + more], "big") & ((1 << 63) - 1)
        if not masked:
            back.append(close(PROTOCOL_ERROR))
            self._over = True
        elif opcode == _CLOSE:
            self._over = True
        elif opcode == _PING:
            self._ping, self._mask = bytearray(), data[payload - 4 : payload]
        elif opcode != _PONG and size > LARGEST:
            self._over = True
        self._left = size
        return payload


def _unmasked(payload: bytearray, mask: bytes) -> bytes:
    size = len(payload)
    if not size:
        return b""
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")
