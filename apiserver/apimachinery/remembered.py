"""What was made of a text once, as long as memory allows: for what takes many times as long to make as to look up."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

# What an entry takes beside its text and what was made of it: its places in two tables, the objects themselves.
_ENTRY_BYTES = 200


class Remembered(Generic[T]):
    """The texts that were asked for last, at most `limit` bytes of them and of what they became. Any thread may ask.

    A result that would take more than a sixteenth of the room is not kept: it would push out many that are asked for again.
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
        """What the text became; it counts as asked for now."""
        if text not in self._entries:
            return None
        with self._lock:
            entry = self._entries.pop(text, None)
            if entry is None:
                return None
            self._entries[text] = entry
        return entry[0]

    def add(self, text: str, made: T, *, size: int) -> None:
        """Keeps what the text became; `size` are the bytes of that. Those that were not asked for the longest make room."""
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
    """Bytes of a character at most, as Python keeps text."""
    return 1 if text.isascii() else 4
