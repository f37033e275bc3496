"""Cache results computed from texts, within a limit of memory: for results that take many times as long to compute as to look up."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

# Bytes of an entry besides its text and its result: its slots in two tables, and the objects themselves.
_ENTRY_BYTES = 200


class Remembered(Generic[T]):
    """A cache of the texts used last, of at most `limit` bytes for texts and results. Any thread may use it.

    A result above a sixteenth of the limit is not kept: it would evict many that are used again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._entries: dict[str, tuple[T, int]] = {}
        self.size = 0

    def __contains__(self, text: str) -> bool:
        return text in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str) -> T | None:
        """Return the result of the text, and mark it as used now."""
        if text not in self._entries:
            return None
        with self._lock:
            entry = self._entries.pop(text, None)
            if entry is None:
                return None
            self._entries[text] = entry
        return entry[0]

    def add(self, text: str, made: T, *, size: int) -> None:
        """Keep the result of the text. `size` are the result's bytes. The entries that were unused the longest are evicted."""
        size += _ENTRY_BYTES + len(text) * _width(text)
        if size > self._limit // 16:
            return
        with self._lock:
            former = self._entries.pop(text, None)
            self.size += size - (0 if former is None else former[1])
            self._entries[text] = made, size
            while self.size > self._limit:
                oldest = next(iter(self._entries))
                self.size -= self._entries.pop(oldest)[1]


def _width(text: str) -> int:
    """Return the most bytes that Python takes for a character of the text."""
    return 1 if text.isascii() else 4
