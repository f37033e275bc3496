"""What goes through a watch's connection: an event as one line of JSON, and a line as an HTTP chunk that all watchers share."""

from __future__ import annotations


def event(event_type: str, obj: bytes) -> bytes:
    """One event; `obj` is the object's JSON."""
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), obj)


def chunk(frame: bytes) -> bytes:
    """The frame in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)
