"""WebSockets (RFC 6455) as kube-apiserver speaks them: the handshake, messages to the client, and what the client sends.

A watch over a WebSocket is a request like any other up to its answer. Then each event is one message, and everything that the client sends
is discarded but for pings and the end. Both directions are written here: aiohttp's reader keeps whole messages and refuses frames that
upstream ignores, and its writer makes a frame for each client, where a thousand watchers of one form share one.
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
"""Clients offer one to five. A header has room for a million, and to split that takes 30 ms."""
READ = 4096
"""Characters of Origin that are read. Upstream has no limit but that of all headers; browsers and fabric8 send some tens."""

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_LAST, _OPCODE = 0x80, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
_SHORT, _TWO_BYTES, _EIGHT_BYTES = 125, 126, 127
"""The longest payload whose length stands in the second byte; and what stands there instead of longer ones."""
NORMAL, PROTOCOL_ERROR = 1000, 1002
LARGEST = 32 << 20
"""Bytes of a client's frame above which upstream ends the watch (golang.org/x/net `websocket` DefaultMaxPayloadBytes). Nothing is kept of a
frame, so this bounds no memory here."""
PING_BYTES = 125
"""What is sent back of a ping."""


# ---------------------------------------------------------------------------------------------------------------- handshake


def is_upgrade(headers: MultiMapping[str]) -> bool:
    """Whether a request wants to go on as a WebSocket, whatever is wrong with its handshake."""
    if headers.get("Upgrade", "").lower() != "websocket":
        return False
    return any("upgrade" in value.lower() for value in headers.getall("Connection", ()))


def subprotocols(headers: MultiMapping[str]) -> list[str]:
    """What the client offers to speak. Upstream reads the first of several headers."""
    offered = headers.get("Sec-WebSocket-Protocol", "").strip()
    return split(offered) if offered else []


def split(offered: str) -> list[str]:
    """The subprotocols in a header. What stands behind the first SUBPROTOCOLS is taken for one."""
    return [protocol.strip() for protocol in offered.split(",", SUBPROTOCOLS)]


def accept(headers: MultiMapping[str], protocols: list[str]) -> bytes:
    """The head of the answer that accepts a handshake. Raises TextError with upstream's code and text for one that is malformed."""
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
    """One whole message. A server does not mask, so everybody can be sent the same bytes."""
    size = len(payload)
    if size <= _SHORT:
        return b"%c%c%b" % (_LAST | opcode, size, payload)
    if size < 1 << 16:
        return b"%c%c%b%b" % (_LAST | opcode, _TWO_BYTES, size.to_bytes(2, "big"), payload)
    return b"%c%c%b%b" % (_LAST | opcode, _EIGHT_BYTES, size.to_bytes(8, "big"), payload)


def close(code: int) -> bytes:
    return frame(_CLOSE, code.to_bytes(2, "big"))


def _lines(events: bytes) -> Iterator[bytes]:
    """Events in JSON, each with its line's end, which upstream sends too."""
    for line in events.split(b"\n")[:-1]:
        yield line + b"\n"


def _prefixed(events: bytes) -> Iterator[bytes]:
    """Events in protobuf, without the length in front of each: a message has one already."""
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
"""How the events of a watch are sent, by the media type that they are written in."""


# ---------------------------------------------------------------------------------------------------------------- from the client


class Receiver:
    """Reads what a client sends and keeps nothing of it: at most the beginning of a frame's head, and of a ping.

    `answer` is given what has to be sent back at once, all pongs of one piece of data together. `ended` is called once, when the client
    has said that it wants no more, or has sent what upstream breaks a watch off for; what comes then is dropped.
    The interface is that of a payload parser of aiohttp. The time of one call is bounded by the length of the data: two bytes make
    a frame, which costs a microsecond.
    """

    __slots__ = ("_answer", "_ended", "_head", "_left", "_mask", "_over", "_ping")

    def __init__(self, *, answer: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._answer = answer
        self._ended = ended
        self._head = b""
        self._left = 0
        """Bytes of the frame's payload that have not come yet."""
        self._ping: bytearray | None = None
        """What has come of a ping's payload, masked; None in another frame."""
        self._mask = b""
        self._over = False

    @property
    def stopped(self) -> bool:
        """Whether what comes is dropped."""
        return self._over

    def stop(self) -> None:
        """Nobody listens any more."""
        self._over = True

    def feed_eof(self) -> None:
        """The connection is gone, which whoever serves the request is told by others."""
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
        """Reads a frame's head and returns where its payload begins; None when it is not complete. As upstream, it ignores reserved bits,
        reserved opcodes, the order of fragments, and text that is not UTF-8."""
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
