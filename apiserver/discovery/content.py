"""Serve constant content over HTTP: entity tags, conditions and compression like Go's file server. Knows no document.

`Range` is ignored, as HTTP allows: clients of these documents fetch all of one, or ask whether it has changed.

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

READ = 4096
"""The most characters of a header that are read."""
TIME_READ = 64
"""The most characters of a time that are read."""
_TAG = re.compile(r'\s*(\*|(?:W/)?"[^"]*")\s*(?:,|$)')


class Reply(NamedTuple):
    """A response. Headers may repeat."""

    status: int
    headers: Headers
    body: bytes

    @classmethod
    def empty(cls, status: int, headers: Headers | None = None) -> Self:
        return cls(status, list(headers or ()), b"")


class Content:
    """Bytes that never change, last changed at `modified` (seconds since the epoch).

    `digest` is that of the first form of a document with several forms, which share it.
    """

    def __init__(self, body: bytes, *, modified: float, digest: str = "") -> None:
        self.body = body
        self.digest = digest or hashlib.sha512(body).hexdigest().upper()
        self._modified = int(modified)

    @property
    def etag(self) -> str:
        return f'"{self.digest}"'

    @cached_property
    def _compressed(self) -> bytes:
        """The gzip form, made once. It holds no time, so that all replicas make the same bytes."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)

    def immutable(self, expires: float) -> Headers:
        """Return the headers that make caches keep the answer without asking again."""
        return [("Cache-Control", "public, immutable"), ("Expires", formatdate(expires, usegmt=True))]

    def reply(self, headers: Mapping[str, str], *, extra: Headers, compressible: bool = False) -> Reply:
        """Answer a request with these headers. `extra` are the headers of a full answer."""
        own = [("Etag", self.etag), ("Last-Modified", formatdate(self._modified, usegmt=True)), *extra]
        if not self._matches(headers):
            return Reply(412, own, b"")
        if self._unchanged(headers):
            return Reply(304, [(name, value) for name, value in own if name != "Content-Type"], b"")
        if compressible and _accepts_gzip(headers.get("Accept-Encoding", "")[:READ]):
            return Reply(200, [*own, ("Content-Encoding", "gzip")], self._compressed)
        return Reply(200, own, self.body)

    def _matches(self, headers: Mapping[str, str]) -> bool:
        """Check If-Match, or else If-Unmodified-Since."""
        tags = _tags(headers.get("If-Match"))
        if tags is not None:
            return "*" in tags or self.etag in tags
        since = _seconds(headers.get("If-Unmodified-Since"))
        return since is None or self._modified <= since

    def _unchanged(self, headers: Mapping[str, str]) -> bool:
        """Check If-None-Match, or else If-Modified-Since."""
        tags = _tags(headers.get("If-None-Match"))
        if tags is not None:
            return "*" in tags or any(tag.removeprefix("W/") == self.etag for tag in tags)
        since = _seconds(headers.get("If-Modified-Since"))
        return since is not None and self._modified <= since


def _tags(header: str | None) -> Sequence[str] | None:
    """Return the entity tags of a condition, up to the first invalid one; None without the header."""
    if not header:
        return None
    found, at, header = [], 0, header[:READ]
    while match := _TAG.match(header, at):
        found.append(match.group(1))
        at = match.end()
    return found


def _seconds(header: str | None) -> float | None:
    if not header or len(header) > TIME_READ:
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
