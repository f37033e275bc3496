"""Bytes of a request target that are not ASCII are escaped before aiohttp's parser sees them, which takes none. Go takes them as they are.

The target means the same afterwards. Upstream: golang/go `src/net/url/url.go` (parse refuses control characters only).
"""

from __future__ import annotations

_ESCAPES = {byte: f"%{byte:02X}" for byte in range(0x80, 0x100)}


class RequestLine:
    """How far the first line of a head has come, whatever the pieces in which it arrives. One that begins in the piece in which another
    head ends is not followed: whoever sends requests ahead sends such bytes escaped."""

    __slots__ = ("_begun", "_in_target", "_over")

    def __init__(self) -> None:
        self.again()

    def again(self) -> None:
        """What comes next is the beginning of a head."""
        self._begun = self._in_target = self._over = False

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
