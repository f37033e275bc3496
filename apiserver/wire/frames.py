"""Frame the events of a watch: as HTTP chunks, plain or compressed, or as messages of a WebSocket. A frame is encoded once and shared by
all watchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from apiserver.listcache import gzip


class Framing(NamedTuple):
    """`frame` encodes one or more whole events for the wire. `key` distinguishes the cached frames of different framings."""

    key: str
    frame: Callable[[bytes], bytes]


def chunk(frame: bytes) -> bytes:
    """Return the frame in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)


def chunk_of(parts: list[bytes]) -> list[bytes]:
    """Return several pieces as one chunk."""
    return [b"%x\r\n" % sum(map(len, parts)), *parts, b"\r\n"]


CHUNKS = Framing("", chunk)
"""The framing of every watch that is not a WebSocket. Clients that get no chunks receive their contents."""


def _compressed_chunk(frame: bytes) -> bytes:
    return chunk(gzip.member(frame))


COMPRESSED_CHUNKS = Framing("gzip", _compressed_chunk)
"""Each frame is a gzip member of its own, as upstream's are, so that all watchers can share it and none keeps a compressor.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/watch.go` perFlushGzipWriter."""
