"""What an answer is sent in: bytes, and segments of a list that are remembered, which are there compressed as well."""

from __future__ import annotations

from typing import Protocol

from apiserver.wire.gzip import Deflated


class Segment(Protocol):
    """A part of an answer that others get too."""

    def text(self) -> bytes:
        """As it is."""

    def deflated(self) -> Deflated:
        """The same compressed."""


def text(part: bytes | Segment) -> bytes:
    """A part of an answer as it is."""
    return part if isinstance(part, bytes) else part.text()
