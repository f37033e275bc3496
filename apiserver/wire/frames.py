"""How the events of a watch stand on the wire: HTTP chunks, or messages of a WebSocket. A frame is made once and shared by all watchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Framing(NamedTuple):
    """`frame` makes of one or more whole events what is sent. `key` tells frames of one framing from those of another where both are
    remembered."""

    key: str
    frame: Callable[[bytes], bytes]


def chunk(frame: bytes) -> bytes:
    """The frame in the chunked transfer coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)


def chunk_of(parts: list[bytes]) -> list[bytes]:
    """Several pieces as one chunk."""
    return [b"%x\r\n" % sum(map(len, parts)), *parts, b"\r\n"]


CHUNKS = Framing("", chunk)
"""Of every watch that is no WebSocket. A client that gets no chunks is sent what is inside them."""
