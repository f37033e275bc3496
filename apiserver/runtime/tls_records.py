"""Bound what a TLS peer can make OpenSSL do: records are counted before OpenSSL sees them.

One `SSL_read` consumes records until one of them carries application data. Records without data (KeyUpdate, tickets, warning alerts, empty
records) can therefore hold a thread for as long as the peer sends them. A connection asks here how much OpenSSL may read at a time.
Upstream: golang/go `src/crypto/tls/conn.go` (maxUselessRecords, handlePostHandshakeMessage, handleRenegotiation).
"""

from __future__ import annotations

import errno
import ssl

MOST_IDLE = 16
"""Records in a row that may carry no application data, as in Go."""
HANDSHAKE_BYTES = 64 << 10
"""Bytes that a peer may send before its handshake is complete. Real ones take 2 to 12 KiB. Parsing so many certificates takes 8 ms."""
HEADER_BYTES = 5
HANDSHAKE = 22
"""The content type of handshake records. In TLS 1.3 only the hello messages show it."""
_TYPES, _MAJOR = range(20, 25), 3
"""The content types of records, and the first byte of every version of TLS."""
_SERVER_HELLO, _KEY_SHARE = 2, 51
_FFDHE = range(0x0100, 0x0200)
"""The groups over finite fields (RFC 7919). The largest costs 160 ms of CPU."""


class Refused(ssl.SSLError):
    """The peer does what no peer may do. The text is Go's, without `tls: `."""

    def __init__(self, text: str) -> None:
        super().__init__(ssl.SSL_ERROR_SSL, text)


class Flood(Refused):
    """The peer sent too many records without application data, or more for a handshake than any needs."""


class Renegotiation(Refused):
    """The peer wants to negotiate anew on an open connection of TLS 1.2."""


class BadGroup(Refused):
    """The server chose a key exchange over finite fields."""


class CutOff(ConnectionResetError):
    """The peer closed its socket without a close_notify. `whole`: not in the middle of a record.

    A ConnectionResetError, because clients ask again after it, as after any other connection that broke.
    """

    def __init__(self, *, whole: bool) -> None:
        super().__init__(errno.ECONNRESET, "unexpected EOF")
        self.whole = whole


class NoTLS(Refused):
    """The server sent something else than a TLS record. `http`: the beginning of an HTTP answer, of which Go's text tells."""

    def __init__(self, header: bytes) -> None:
        self.http = header == b"HTTP/"
        super().__init__(
            "http: server gave HTTP response to HTTPS client"
            if self.http
            else "first record does not look like a TLS handshake"
        )


class Records:
    """The records that one peer sends. `hello`: the peer is a server, whose choice of a group is judged.

    Call `take` before each call of OpenSSL, and `judge` after it.
    """

    __slots__ = ("_ended", "_header", "_hello", "_idle", "_left", "_received", "_type", "open", "shaken")

    def __init__(self, *, hello: bool = False) -> None:
        self._header = b""
        """As much as has come of the header of the next record."""
        self._left = 0
        """Bytes to come of the body of this record."""
        self._type = 0
        self._ended = 0
        """Records that ended in the last batch."""
        self._idle = 0
        self._received = 0
        self._hello: bytearray | None = bytearray() if hello else None
        """As much as has come of the server's first message."""
        self.open = False
        """The handshake is complete."""
        self.shaken = False
        """A handshake record came on an open connection."""

    def take(self, data: bytes, at: int = 0) -> int:
        """Return the index up to which OpenSSL may be given `data` from `at` on.

        During a handshake this is one record at a time. On an open connection it is as many records as may still pass without data.
        Raises Flood, BadGroup and NoTLS.
        """
        size = len(data)
        if (
            size >= HEADER_BYTES
            and HEADER_BYTES + (data[3] << 8 | data[4]) == size
            and self.open
            and not (at or self._left or self._header)
            and data[0] != HANDSHAKE
        ):  # one whole record, as most requests are: the same, sooner
            self._type, self._ended = data[0], 1
            return size
        start = at
        most = MOST_IDLE + 1 - self._idle if self.open else 1
        self._ended = 0
        while at < size and self._ended < most:
            at = self._body(data, at) if self._left else self._next_header(data, at)
            if self.whole:
                self._ended += 1
        if not self.open:
            self._received += at - start
            if self._received > HANDSHAKE_BYTES:
                raise Flood("handshake too long")
            self._check_hello()
        return at

    def _next_header(self, data: bytes, at: int) -> int:
        end = at + HEADER_BYTES - len(self._header)
        header = self._header + data[at:end]
        if len(header) < HEADER_BYTES:
            self._header = header
            return len(data)
        self._header = b""
        if not self._type and self._hello is not None and (header[0] not in _TYPES or header[1] != _MAJOR):
            raise NoTLS(header)
        self._type = header[0]
        self._left = header[3] << 8 | header[4]
        if self.open and self._type == HANDSHAKE:
            self.shaken = True
        return end

    def _body(self, data: bytes, at: int) -> int:
        end = min(at + self._left, len(data))
        self._left -= end - at
        if self._hello is not None and self._type == HANDSHAKE:
            self._hello += data[at:end]
        return end

    @property
    def whole(self) -> bool:
        """Whether the bytes so far end with a record. A peer that ends within one was cut off."""
        return not self._left and not self._header

    @property
    def single(self) -> bool:
        """The last batch completed one record, and holds nothing of the next one."""
        return self._ended == 1 and self.whole

    def judge(self, *, data: bool) -> None:
        """Count the records of the last batch, from which OpenSSL made application data or did not. Raises Flood and Renegotiation."""
        if self.shaken:
            raise Renegotiation("no renegotiation")
        if data:
            self._idle = 0
            return
        self._idle += self._ended
        if self._idle > MOST_IDLE:
            raise Flood("too many non-advancing records")

    def _check_hello(self) -> None:
        hello = self._hello
        if hello is None or len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
            return
        self._hello = None
        if hello[0] == _SERVER_HELLO and _group(bytes(hello)) in _FFDHE:
            raise BadGroup("server selected unsupported group")


def _group(hello: bytes) -> int:
    """The group that a ServerHello or a HelloRetryRequest names; 0 without one. Formats: RFC 8446 sections 4.1.3 and 4.2.8."""
    at = 4 + 2 + 32
    at += 1 + (hello[at] if at < len(hello) else 0) + 2 + 1 + 2
    while at + 4 <= len(hello):
        kind, size = int.from_bytes(hello[at : at + 2], "big"), int.from_bytes(hello[at + 2 : at + 4], "big")
        if kind == _KEY_SHARE:
            return int.from_bytes(hello[at + 4 : at + 6], "big")
        at += 4 + size
    return 0
