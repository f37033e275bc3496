"""What was made of stored bytes, remembered beside them: watch frames, rows of tables, other syntaxes. One bound for all. Pure.

    Entry.encodings ─► {form: element, …} ─┐
    Event.encodings ─► {form: frame, …}  ──┴─► EncodingCache: bytes held, oldest first

Each entry and each event has a place of its own, so that finding an encoding is one look into a small dict. The cache only counts
and forgets: what was put there first goes first, but for what was used since it was last looked at (a second chance). It holds the
places, never the entries and events: those are let go of as if nothing had been remembered.
Upstream: kubernetes/apiserver `pkg/storage/cacher/caching_object.go`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol

BUDGET = 64 << 20
"""Bytes of one process: the rows of 100,000 objects, or YAML of 20,000 slices."""
LARGEST_SHARE = 16
"""One encoding is remembered only up to such a part of the budget: it must not push out everything else."""
PLACE_BYTES = 512
VALUE_BYTES = 64
"""What a place and a value cost beside the bytes that the value stands for."""
CHANCES = 64
"""Places that are passed over in one step because they were used."""


class Encodings(dict[object, Any]):
    """The encodings of one entry or event by form. `used` is set by readers that want them to stay."""

    __slots__ = ("_cache", "size", "used")

    def __init__(self, cache: EncodingCache) -> None:
        super().__init__()
        self._cache = cache
        self.size = 0
        self.used = False

    def forget(self) -> None:
        """Lets go of all of them at once: nobody will ask again."""
        self._cache.forget(self)


class Holder(Protocol):
    """An entry or an event."""

    encodings: Encodings | None


class EncodingCache:
    """Every encoding that is remembered in this process. Threads may remember; places are read without a lock."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._places: OrderedDict[int, Encodings] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0
        """Bytes held, by estimate."""

    def remember(self, holder: Holder, key: object, value: Any, *, size: int, in_turn: bool = False) -> None:
        """Puts `value`, of about `size` bytes, beside the holder. A very large one is not kept.

        `in_turn`: one of many that are read one after the other, again and again. It only takes the place of what nobody has used since:
        else, where there are too many, each would push out one that is read before it is read itself, and none would ever be found.
        """
        if size > self._budget // LARGEST_SHARE:
            return
        with self._lock:
            if in_turn and not self._has_room(size + VALUE_BYTES + PLACE_BYTES):
                return
            place = holder.encodings
            if place is None:
                place = holder.encodings = Encodings(self)
            if key in place:
                return
            cost = size + VALUE_BYTES
            if not place.size:
                self._places[id(place)] = place
                place.used = in_turn
                cost += PLACE_BYTES
            place[key] = value
            place.size += cost
            self.size += cost
            self._make_room()

    def forget(self, place: Encodings) -> None:
        with self._lock:
            if self._places.pop(id(place), None) is not None:
                self._empty(place)

    def _has_room(self, cost: int) -> bool:
        """Whether so much fits in once what nobody uses is gone. What is used is looked at one by one, each time the next."""
        while self.size + cost > self._budget and self._places:
            at, place = self._places.popitem(last=False)
            if place.used:
                place.used = False
                self._places[at] = place
                return False
            self._empty(place)
        return self.size + cost <= self._budget

    def _make_room(self) -> None:
        chances = CHANCES
        while self.size > self._budget:
            at, place = self._places.popitem(last=False)
            if place.used and chances:
                chances -= 1
                place.used = False
                self._places[at] = place
            else:
                self._empty(place)

    def _empty(self, place: Encodings) -> None:
        self.size -= place.size
        place.size = 0
        place.clear()
