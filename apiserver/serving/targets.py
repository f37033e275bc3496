"""Rewrites what aiohttp's parser refuses in a request line and Go takes: bytes of a target that are not ASCII, methods that it does not
know.

The target means the same afterwards, and who parsed the head puts the method back. Upstream: golang/go `src/net/url/url.go` (parse
refuses control characters only), `src/net/http/request.go` (validMethod takes every token).
"""

from __future__ import annotations

import re

PARSED = frozenset({b"GET", b"PUT", b"POST", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT"})
"""Methods that are left to the parser. CONNECT has to be refused, which the parser sees as a change of the protocol."""
STAND_IN = b"PURGE"
"""A method that the parser knows and treats like any other."""
_TOKEN = re.compile(rb"[\w!#$%&'*+.^`|~-]{1,256}", re.ASCII)
_ESCAPES = {byte: f"%{byte:02X}" for byte in range(0x80, 0x100)}


HEAD_END = b"\r\n\r\n"


class RequestLine:
    """How far the first line of a head has come, whatever the pieces in which it arrives. No piece holds the beginning of a second one."""

    __slots__ = ("_begun", "_in_target", "_over", "method")

    def __init__(self) -> None:
        self.again()

    def again(self) -> None:
        """What comes next is the beginning of a head."""
        self._begun = self._in_target = self._over = False
        self.method = ""
        """What the parser is not shown; "" for nothing."""

    def parsable(self, data: bytes) -> bytes:
        """The next piece, with which a head begins, with a method that the parser knows if all of the method stands in this piece."""
        end = data.find(b" ")
        if data[:end] in PARSED:
            return data
        start = len(data) - len(data.lstrip(b"\r\n"))
        method = data[start:end] if end >= 0 else b""
        if method in PARSED or not _TOKEN.fullmatch(method):
            return data
        self.method = method.decode("ascii")
        return data[:start] + STAND_IN + data[end:]

    def escaped(self, data: bytes) -> bytes:
        """The next piece of the head. Empty lines may stand before it, and a method has no escapes."""
        if self._over:
            return data
        start = 0 if self._begun else len(data) - len(data.lstrip(b"\r\n"))
        self._begun = start < len(data)
        end = data.find(b"\n", start)
        self._over = end >= 0
        if not self._over:
            end = len(data)
        if not self._in_target:
            start = data.find(b" ", start, end)
            self._in_target = start >= 0
        line = data[start:end] if self._in_target else b""
        if line.isascii():
            return data
        return data[:start] + line.decode("latin-1").translate(_ESCAPES).encode("ascii") + data[end:]
