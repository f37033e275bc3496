"""Constant content over HTTP: entity tags, conditions, ranges and compression as Go's file server has them. Knows no document.

Upstream: golang/go `src/net/http/fs.go` (ServeContent).
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import cached_property
from typing import NamedTuple, Self

Headers = list[tuple[str, str]]

_RANGE = re.compile(r"bytes=\s*([0-9]*)\s*-\s*([0-9]*)\s*")
_TAG = re.compile(r'\s*(\*|(?:W/)?"[^"]*")\s*(?:,|$)')


class Reply(NamedTuple):
    """What is sent. Headers may repeat."""

    status: int
    headers: Headers
    body: bytes

    @classmethod
    def empty(cls, status: int, headers: Headers | None = None) -> Self:
        return cls(status, list(headers or ()), b"")


class Content:
    """Bytes that never change, last changed at `modified` (seconds since the epoch)."""

    def __init__(self, body: bytes, *, modified: float) -> None:
        self.body = body
        self.digest = hashlib.sha512(body).hexdigest().upper()
        self._modified = int(modified)

    @property
    def etag(self) -> str:
        return f'"{self.digest}"'

    @cached_property
    def _compressed(self) -> bytes:
        """Made once; without a time in it, so that it is the same everywhere."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)

    def immutable(self, expires: float) -> Headers:
        """What tells caches that they need never ask again."""
        return [("Cache-Control", "public, immutable"), ("Expires", formatdate(expires, usegmt=True))]

    def reply(self, headers: Mapping[str, str], *, extra: Headers, compressible: bool = False) -> Reply:
        """The answer to a request with these headers; `extra` are the headers of a full answer."""
        own = [("Etag", self.etag), ("Last-Modified", formatdate(self._modified, usegmt=True)), *extra]
        if not self._matches(headers):
            return Reply(412, own, b"")
        if self._unchanged(headers):
            return Reply(304, [(name, value) for name, value in own if name != "Content-Type"], b"")
        if "Range" in headers and self._range_applies(headers):
            return self._part(headers["Range"], own)
        if compressible and _accepts_gzip(headers.get("Accept-Encoding", "")):
            return Reply(200, [*own, ("Content-Encoding", "gzip")], self._compressed)
        return Reply(200, [*own, ("Accept-Ranges", "bytes")], self.body)

    def _matches(self, headers: Mapping[str, str]) -> bool:
        """If-Match, or else If-Unmodified-Since."""
        tags = _tags(headers.get("If-Match"))
        if tags is not None:
            return "*" in tags or self.etag in tags
        since = _seconds(headers.get("If-Unmodified-Since"))
        return since is None or self._modified <= since

    def _unchanged(self, headers: Mapping[str, str]) -> bool:
        """If-None-Match, or else If-Modified-Since."""
        tags = _tags(headers.get("If-None-Match"))
        if tags is not None:
            return "*" in tags or any(tag.removeprefix("W/") == self.etag for tag in tags)
        since = _seconds(headers.get("If-Modified-Since"))
        return since is not None and self._modified <= since

    def _range_applies(self, headers: Mapping[str, str]) -> bool:
        condition = headers.get("If-Range", "")
        return not condition or condition == self.etag or _seconds(condition) == self._modified

    def _part(self, text: str, own: Headers) -> Reply:
        """One range of bytes. Several are answered with everything, as HTTP allows."""
        whole = Reply(200, [*own, ("Accept-Ranges", "bytes")], self.body)
        size = len(self.body)
        match = _RANGE.fullmatch(text)
        if match is None:
            return whole if "," in text else self._unsatisfiable(size)
        first, last = match.groups()
        if not first and not last:
            return self._unsatisfiable(size)
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last), size - 1) if first and last else size - 1
        if start >= size:
            return self._unsatisfiable(size)
        if end < start:
            return self._unsatisfiable(size)
        part = [*own, ("Accept-Ranges", "bytes"), ("Content-Range", f"bytes {start}-{end}/{size}")]
        return Reply(206, part, self.body[start : end + 1])

    def _unsatisfiable(self, size: int) -> Reply:
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
        return Reply(416, [*headers, ("Content-Range", f"bytes */{size}")], b"invalid range\n")


def _tags(header: str | None) -> Sequence[str] | None:
    """The entity tags of a condition, up to the first that is none; None without the header."""
    if not header:
        return None
    found, at = [], 0
    while match := _TAG.match(header, at):
        found.append(match.group(1))
        at = match.end()
    return found


def _seconds(header: str | None) -> float | None:
    if not header:
        return None
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None


def _accepts_gzip(header: str) -> bool:
    for clause in header.split(","):
        coding, *parameters = (part.strip() for part in clause.split(";"))
        if coding in ("gzip", "*"):
            return not any(re.fullmatch(r"q=0(\.0*)?", p) for p in parameters)
    return False
