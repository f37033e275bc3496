"""A frame of a watch as an HTTP chunk that all watchers share."""

from __future__ import annotations


def chunk(frame: bytes) -> bytes:
    """The frame in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)
