"""Limit the memory of incomplete request heads over all connections together.

One connection may hold a head of a mebibyte for half a minute, and connections cost an attacker little. When the heads take too much
memory, the connection with the oldest head is closed. Heads of well-behaved clients are complete within milliseconds.
"""

from __future__ import annotations

from typing import Protocol

BUDGET_BYTES = 64 << 20
"""The byte budget of such heads: once for connections without a certificate, and once for those with one."""
TEXT_BYTES = 3
"""Bytes that a byte of text takes: it is held twice, and what grows leaves gaps in the heap (measured: 2.8 in 256 connections)."""
LINE_BYTES = 384
"""Bytes that a header line takes beside its text (measured: 380 for lines of ten bytes)."""


class Connection(Protocol):
    def give_up(self) -> None:
        """End at once, and free the held memory."""


class Unfinished:
    """Estimated memory by connection, in the order in which the heads began."""

    def __init__(self, most: int = BUDGET_BYTES) -> None:
        self._most = most
        self._held: dict[Connection, int] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Estimated bytes of memory."""
        return self._size

    def grow(self, connection: Connection, data: bytes) -> None:
        """Count another piece of a head. Closes the oldest connections until the rest fits."""
        size = TEXT_BYTES * len(data) + LINE_BYTES * data.count(b"\n")
        self._held[connection] = self._held.get(connection, 0) + size
        self._size += size
        while self._size > self._most:
            oldest = next(iter(self._held))
            self.drop(oldest)
            oldest.give_up()

    def drop(self, connection: Connection) -> None:
        """Forget a connection whose head is complete, or that has ended."""
        self._size -= self._held.pop(connection, 0)
