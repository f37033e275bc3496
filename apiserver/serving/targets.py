"""Rewrite what aiohttp's parser refuses in a request line and Go accepts: non-ASCII bytes of a target, unknown methods.

The target keeps its meaning, and the caller restores the method after parsing. Upstream: golang/go `src/net/url/url.go` (parse refuses
control characters only), `src/net/http/request.go` (validMethod takes every token).
"""

from __future__ import annotations

import re

PARSED = frozenset({b"GET", b"PUT", b"POST", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS"})
"""Methods that the parser may see."""
CONNECT = b"CONNECT"
"""The parser takes it for a change of the protocol; a server that is not a proxy serves it like any other. Go reads its target as a
host and a path, unless it begins with a slash.
"""
STAND_IN = b"PURGE"
"""A method that the parser knows and treats like any other."""
_TOKEN = re.compile(rb"[\w!#$%&'*+.^`|~-]{1,256}", re.ASCII)
"""A method. Go accepts any length."""
_ESCAPES = {byte: f"%{byte:02X}" for byte in range(0x80, 0x100)}


HEAD_END = b"\r\n\r\n"


class RequestLine:
    """The progress of a head's first line, whatever pieces it arrives in. No piece holds the beginning of a second head."""

    __slots__ = ("_held", "_in_target", "_over", "method", "named")

    def __init__(self) -> None:
        self.again()

    def again(self) -> None:
        """Expect the beginning of a head next."""
        self._in_target = self._over = self.named = False
        self._held = b""
        self.method = ""
        """The method that is hidden from the parser; "" for none."""

    def parsable(self, data: bytes) -> bytes:
        """Return the bytes to show the parser, for the first piece of a head or the next one while it is not `named`.

        Nothing is shown before the method is complete, and then a method that the parser knows. Empty lines before it are left out.
        """
        end = data.find(b" ")
        if end > 0 and not self._held and data[:end] in PARSED:
            self.named = True
            return data
        data = self._held + data if self._held else data.lstrip(b"\r\n")
        method, space, target = data.partition(b" ")
        unfinished = not target if method == CONNECT else not space
        if unfinished and (not method or _TOKEN.fullmatch(method)):
            self._held = data
            return b""
        self._held, self.named = b"", True
        if method in PARSED or not space or not _TOKEN.fullmatch(method):
            return data
        if method != CONNECT:
            self.method = method.decode("ascii")
            return b"%b %b" % (STAND_IN, target)
        # In upper case, aiohttp would leave out the body of a 2xx, with which a proxy opens a tunnel. Both cases have the same rights.
        self.method = "connect"
        return b"%b %b%b" % (STAND_IN, b"" if target[:1] == b"/" else b"http://", target)

    def escaped(self, data: bytes) -> bytes:
        """Return the next piece of the head with its target escaped. A method has no escapes."""
        if self._over:
            return data
        start = 0
        end = data.find(b"\n")
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
