"""What an answer is sent in: bytes, and segments of a list that are remembered, which are there compressed as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from apiserver.listcache import gzip
from apiserver.listcache.gzip import CompressedEncoding

PORTION = 512 << 10
"""Bytes of a long answer that are worth a write. What a write copies and encrypts drives everything else out of the processor's caches, so
a third of a list's time goes by between writes of a quarter of that; larger copies have pages of their own (`allocator.LARGE_BYTES`),
which take longer to come and go. Half a millisecond."""

LONG = 128 << 10
"""Answers above this many bytes are compressed for clients that take it (upstream's `defaultGzipThresholdBytes`)."""


class Piece(Protocol):
    """A part of an answer that others get too, in one piece or several."""

    def texts(self) -> Sequence[bytes]:
        """As it is."""

    def compressed(self) -> Iterator[CompressedEncoding]:
        """The same compressed."""


class FirstPiece(NamedTuple):
    """What an answer begins with that is certain to be LONG: a segment that need not wait for the others."""

    data: bytes

    def texts(self) -> Sequence[bytes]:
        return (self.data,)

    def compressed(self) -> Iterator[CompressedEncoding]:
        yield gzip.compress(self.data)


def texts(part: bytes | Piece) -> Sequence[bytes]:
    """A part of an answer as it is."""
    return (part,) if isinstance(part, bytes) else part.texts()


def text(part: bytes | Piece) -> bytes:
    """The same in one piece."""
    return part if isinstance(part, bytes) else b"".join(part.texts())
