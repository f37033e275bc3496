"""An HTTP/1.1 answer as Go's client reads it: bytes in, an answer or Go's words out. Knows no sockets.

What one answer may hold is bounded, where Go reads without end. Upstream: golang/go `src/net/http/{response,transfer,transport}.go`,
`src/net/http/internal/chunked.go`, `src/net/textproto/reader.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kubetext.quoting import go_quote

MOST_HEAD = 1 << 20
"""Bytes of an answer's head, interim answers included."""
MOST_BODY = 8 << 20
"""Bytes of an answer's body. The patch that replaces the largest object, in base64, is half of it."""
MOST_LINE, MOST_EXCESS = 4096, 16 << 10
_BROKEN = "net/http: HTTP/1.x transport connection broken: "
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z ]+")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_DIGITS = re.compile(rb"[0-9a-fA-F]+")


class Malformed(Exception):
    """The bytes are no answer; the text is Go's, complete."""


class BodyBroken(Exception):
    """The head was an answer's, and what follows is not its body; the text is Go's."""


@dataclass(slots=True)
class Answer:
    """Feed it what comes, and tell it about the end of the connection, until it is `complete`.

    `headers` have names in lower case; the values of repeated ones are a list. `kept`: the connection may be used again.
    """

    status: int = 0
    headers: dict[str, list[str]] = field(default_factory=dict)
    complete: bool = False
    kept: bool = False
    begun: bool = False
    headed: bool = False
    _buffer: bytearray = field(default_factory=bytearray)
    _heads: int = 0
    _body: list[bytes] = field(default_factory=list)
    _size: int = 0
    _left: int | None = None
    _between: bool = False
    _excess: int = 0
    _reads: Callable[[Answer], None] | None = None

    def header(self, name: str) -> str:
        """The first value, "" for none."""
        return self.headers.get(name, [""])[0]

    @property
    def body(self) -> bytes:
        return b"".join(self._body)

    def feed(self, data: bytes) -> None:
        """Raises Malformed, BodyBroken. Bytes behind the answer spoil the connection."""
        self.begun = True
        if self.complete:
            self.kept = False
            return
        self._buffer += data
        if not self.headed and not self._read_heads():
            return
        if self._reads is not None:
            self._reads(self)

    def end(self, *, cut: bool = False) -> None:
        """The connection is over; `cut`: in the middle of a TLS record. Raises Malformed, BodyBroken where the answer is not."""
        if not self.headed:
            if self._heads == 0 and b"\n" not in self._buffer:
                self._status_line(bytes(self._buffer))
            raise Malformed(_BROKEN + "unexpected EOF")
        if self.complete:
            return
        if cut or self._reads is not Answer._until_the_end:
            raise BodyBroken("unexpected EOF")
        self._complete()

    # -------------------------------------------------------------------------------------------------------------- the head

    def _read_heads(self) -> bool:
        """Whether the head is there. Interim answers are passed over."""
        while (length := _head_length(self._buffer)) is not None:
            head = bytes(self._buffer[:length])
            del self._buffer[:length]
            self._heads += length
            self._read_head(head)
            if self.headed:
                return True
        if self._heads + len(self._buffer) > MOST_HEAD:
            raise Malformed(f"{_BROKEN}net/http: server response headers exceeded {MOST_HEAD} bytes; aborted")
        if self._buffer[:5] != b"HTTP/"[: len(self._buffer)] and b"\n" in self._buffer:
            self._status_line(bytes(self._buffer).partition(b"\n")[0])
        return False

    def _read_head(self, head: bytes) -> None:
        first, _, rest = head.partition(b"\n")
        version, status = self._status_line(first)
        self.headers = _headers(rest)
        if 100 <= status < 200 and status != 101:
            return
        self.status, self.headed = status, True
        self._begin_body(version)

    def _status_line(self, line: bytes) -> tuple[str, int]:
        text = line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        version, blank, status = text.partition(" ")
        if not blank:
            raise Malformed(f"{_BROKEN}malformed HTTP response {go_quote(text)}")
        code = status.lstrip(" ").partition(" ")[0]
        if len(code) != 3 or not code.isascii() or not code.isdigit():
            raise Malformed(f"{_BROKEN}malformed HTTP status code {go_quote(code)}")
        if not _VERSION.fullmatch(version):
            raise Malformed(f"{_BROKEN}malformed HTTP version {go_quote(version)}")
        return version, int(code)

    # -------------------------------------------------------------------------------------------------------------- the body

    def _begin_body(self, version: str) -> None:
        tokens = {token.strip().lower() for value in self.headers.get("connection", ()) for token in value.split(",")}
        self.kept = "close" not in tokens and (version >= "HTTP/1.1" or "keep-alive" in tokens)
        chunked = self._chunked_encoding() if version >= "HTTP/1.1" else False
        length = None if chunked else self._content_length()
        if self.status in (204, 304):
            self._complete()
        elif chunked:
            self._reads = Answer._chunks
        elif length is None:
            self.kept, self._reads = False, Answer._until_the_end
        elif length == 0:
            self._complete()
        else:
            self._left, self._reads = length, Answer._so_many

    def _chunked_encoding(self) -> bool:
        values = self.headers.get("transfer-encoding")
        if values is None:
            return False
        if len(values) != 1:
            raise Malformed(f"{_BROKEN}too many transfer encodings: {_list(values)}")
        if values[0].lower() != "chunked":
            raise Malformed(f"{_BROKEN}unsupported transfer encoding: {go_quote(values[0])}")
        return True

    def _content_length(self) -> int | None:
        values = [value.strip(" \t") for value in self.headers.get("content-length", ())]
        if len(set(values)) > 1:
            said = _list(values)
            raise Malformed(f"{_BROKEN}http: message cannot contain multiple Content-Length headers; got {said}")
        if not values or not values[0]:
            return None
        if not values[0].isascii() or not values[0].isdigit() or len(values[0]) > 18:
            raise Malformed(f"{_BROKEN}bad Content-Length {go_quote(values[0])}")
        return int(values[0])

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MOST_BODY:
            raise BodyBroken("http: response body too large")
        self._body.append(data)

    def _complete(self) -> None:
        self.complete = True
        self.kept = self.kept and not self._buffer
        self._reads = None

    def _until_the_end(self) -> None:
        self._take(bytes(self._buffer))
        self._buffer.clear()

    def _so_many(self) -> None:
        left = self._left or 0
        taken = bytes(self._buffer[:left])
        del self._buffer[:left]
        self._take(taken)
        self._left = left - len(taken)
        if not self._left:
            self._complete()

    def _chunks(self) -> None:
        buffer, at = self._buffer, 0
        while not self.complete:
            if self._between:
                if len(buffer) - at < 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    raise BodyBroken("malformed chunked encoding")
                at, self._between = at + 2, False
            if not self._left:
                end = buffer.find(b"\n", at, at + MOST_LINE)
                if end < 0:
                    if len(buffer) - at >= MOST_LINE:
                        raise BodyBroken("header line too long")
                    break
                self._left = self._chunk_size(bytes(buffer[at : end + 1]))
                at = end + 1
                if not self._left:
                    self._reads = Answer._trailer
                    break
            taken = bytes(buffer[at : at + self._left])
            if not taken:
                break
            at += len(taken)
            self._take(taken)
            self._left -= len(taken)
            self._between = not self._left
        del buffer[:at]
        if self._reads is not None and self._reads is not Answer._chunks:
            self._reads(self)

    def _chunk_size(self, line: bytes) -> int:
        if line[-2:-1] != b"\r":
            raise BodyBroken("invalid CR in chunked line" if b"\r" in line else "chunked line ends with bare LF")
        if b"\r" in line[:-2]:
            raise BodyBroken("invalid CR in chunked line")
        digits = line[:-2].rstrip(b" \t").partition(b";")[0]
        if not digits:
            raise BodyBroken("empty hex number for chunk length")
        if not _DIGITS.fullmatch(digits):
            raise BodyBroken("invalid byte in chunk length")
        if len(digits) > 16:
            raise BodyBroken("http chunk length too large")
        size = int(digits, 16)
        self._excess = max(self._excess + len(line) - 16 - 2 * size, 0)
        if self._excess > MOST_EXCESS:
            raise BodyBroken("chunked encoding contains too much non-data")
        return size

    def _trailer(self) -> None:
        if self._buffer[:2] == b"\r\n":
            del self._buffer[:2]
            self._complete()
            return
        length = _head_length(self._buffer)
        if length is not None:
            del self._buffer[:length]
            self._complete()
        elif len(self._buffer) > MOST_LINE:
            raise BodyBroken("http: suspiciously long trailer after chunked body")


def _head_length(buffer: bytearray) -> int | None:
    """Bytes up to and with the empty line that ends a head."""
    found = [at + len(mark) for mark in (b"\r\n\r\n", b"\n\n", b"\n\r\n") if (at := buffer.find(mark)) >= 0]
    return min(found, default=None)


def _headers(lines: bytes) -> dict[str, list[str]]:
    if lines[:1] in (b" ", b"\t"):
        first = lines.partition(b"\n")[0].removesuffix(b"\r")
        raise Malformed(f"{_BROKEN}malformed MIME header initial line: {_quoted(first[:80])}")
    found: dict[str, list[str]] = {}
    for line in _unfolded(lines):
        name, colon, value = line.partition(b":")
        if not colon:
            raise Malformed(f"{_BROKEN}malformed MIME header: missing colon: {_quoted(line)}")
        if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            raise Malformed(f"{_BROKEN}malformed MIME header line: {_quoted(line)}")
        found.setdefault(name.decode().lower(), []).append(value.strip(b" \t").decode("utf-8", "replace"))
    return found


def _unfolded(lines: bytes) -> list[bytes]:
    found: list[bytes] = []
    for line in lines.split(b"\n"):
        if line[:1] in (b" ", b"\t") and found:
            found[-1] += b" " + line.strip(b" \t\r")
        elif line.strip(b" \t\r"):
            found.append(line.strip(b" \t\r"))
    return found


def _quoted(raw: bytes) -> str:
    return go_quote(raw.decode("utf-8", "surrogateescape"))


def _list(values: list[str]) -> str:
    return f"[{' '.join(map(go_quote, values))}]"
