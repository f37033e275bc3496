"""HTTP chunks: a frame of a watch, which all watchers share, and pieces of an answer."""

from __future__ import annotations


def chunk(frame: bytes) -> bytes:
    """The frame in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)


def chunk_of(parts: list[bytes]) -> list[bytes]:
    """Several pieces as one chunk."""
    return [b"%x\r\n" % sum(map(len, parts)), *parts, b"\r\n"]
