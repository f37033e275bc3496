"""Heads of requests that are not complete: how much memory they may take in all connections together.

One connection may hold a head of a mebibyte for half a minute, and connections cost strangers little. So when the heads take too much, the
connection goes whose head began first. Those of clients that mean well are complete within milliseconds.
"""

from __future__ import annotations

from typing import Protocol

BUDGET_BYTES = 64 << 20
"""The most that such heads take, once in connections that presented no certificate and once in those that did."""
LINE_BYTES = 384
"""What a header line takes beside its text, and text is held twice (measured: 380 for lines of ten bytes)."""


class Connection(Protocol):
    def give_up(self) -> None:
        """Ends at once, and frees what it holds."""


class Unfinished:
    """What is held, by connection, in the order in which the heads began."""

    def __init__(self, most: int = BUDGET_BYTES) -> None:
        self._most = most
        self._held: dict[Connection, int] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of memory, as estimated."""
        return self._size

    def grow(self, connection: Connection, data: bytes) -> None:
        """Another piece of a head has come. The oldest connections are given up until the rest fits."""
        size = 2 * len(data) + LINE_BYTES * data.count(b"\n")
        self._held[connection] = self._held.get(connection, 0) + size
        self._size += size
        while self._size > self._most:
            oldest = next(iter(self._held))
            self.drop(oldest)
            oldest.give_up()

    def drop(self, connection: Connection) -> None:
        """Its head is complete, or it has ended."""
        self._size -= self._held.pop(connection, 0)
