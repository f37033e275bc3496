"""Encodings: one chunk or object in one form. The cache limits the bytes of all of them. Pure.

    Entry.group     ─► {form: encoding, …} ─┐
    Event.encodings ─► {form: frame, …}  ───┴─► EncodingCache: bytes held, oldest first

Each event has `Encodings` of its own. Entries share those of their `Group`. So one look into a small dict finds an encoding. The cache
counts bytes and drops single encodings, the oldest first. An encoding that was used since the cache last looked at it gets a second chance.
So a form that clients ask for replaces another form of the same objects. The cache holds `Encodings`, never entries or events:
nothing in it keeps an object alive.
Upstream: kubernetes/apiserver `pkg/storage/cacher/caching_object.go`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from apiserver.watchcache.entry import Event

T = TypeVar("T")

BUDGET = 64 << 20
"""Bytes of one process: the rows of 100,000 objects, or YAML of 20,000 slices."""
LARGEST_SHARE = 16
"""An encoding is cached only up to such a part of the budget: it must not push out everything else."""
VALUE_BYTES = 640
"""Cost of an encoding besides its bytes, measured for one alone in its `Encodings`."""
CHANCES = 64
"""Used encodings that are passed over in one step."""


class Encoding(ABC):
    """A chunk in one form, member by member. `size` in bytes."""

    __slots__ = ()
    size: int

    @abstractmethod
    def member(self, at: int) -> Any:
        """Return the encoding of one member, or None if it is missing."""


class IncompleteEncoding(Encoding):
    """An encoding of which some members are still missing."""

    __slots__ = ("members", "size")

    def __init__(self, members: list[Any]) -> None:
        self.members = members
        self.size = sum(len(one) for one in members if one is not None)

    def member(self, at: int) -> Any:
        return self.members[at]


class JoinedEncoding(Encoding):
    """The members as they stand in a list, in one text, with `separator` between two."""

    __slots__ = ("_gap", "_next", "size", "text")

    def __init__(self, members: Sequence[bytes], separator: bytes) -> None:
        self.text = separator.join(members)
        self._gap = gap = len(separator)
        self._next = array("I", accumulate([len(one) + gap for one in members]))
        """For each member, where the next one would begin."""
        self.size = len(self.text)

    def member(self, at: int) -> bytes:
        return self.text[self._next[at - 1] if at else 0 : self._next[at] - self._gap]

    def members(self) -> list[bytes]:
        """Return every member."""
        text, gap, start, members = self.text, self._gap, 0, []
        for following in self._next:
            members.append(text[start : following - gap])
            start = following
        return members


class TimedEncoding(NamedTuple, Generic[T]):
    """An encoding that shows ages, with its size in bytes. It holds from `since` until before `until`."""

    value: T
    size: int
    since: float
    until: float

    def at(self, now: float) -> T | None:
        """Return the encoding, or None if an age in it has changed."""
        return self.value if self.since <= now < self.until else None


class Encodings(dict[object, Any]):
    """Encodings of one event, or of the members of a group, by form. `used` are those that were used since the cache looked at them."""

    __slots__ = ("_cache", "used")

    def __init__(self, cache: EncodingCache) -> None:
        super().__init__()
        self._cache = cache
        self.used = set[object]()

    def use(self, key: object) -> Any:
        """Return the encoding under `key`, or None, and let it stay longer."""
        found = self.get(key)
        if found is not None:
            self.used.add(key)
        return found

    def forget(self) -> None:
        """Drop all of them."""
        self._cache.forget(self)


class Use(Enum):
    """Cache hits and misses of lists, for metrics: by object, and by compressed piece."""

    OBJECT_FOUND = "object", "found"
    OBJECT_MADE = "object", "made"
    PIECE_FOUND = "compressed", "found"
    PIECE_MADE = "compressed", "made"

    __hash__ = object.__hash__  # each exists once, and is counted for every group of a list


class EncodingCache:
    """All encodings of this process. Threads may add some. Reading `Encodings` needs no lock."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.uses = dict.fromkeys(Use, 0)
        self._cached = OrderedDict[tuple[int, object], tuple[Encodings, int]]()
        """The `Encodings` that hold each encoding, and its cost in bytes, by their id and its key."""
        self._lock = threading.Lock()
        self.size = 0
        """Bytes held, by estimate."""

    def remember(self, event: Event, key: object, value: Any, *, size: int) -> None:
        """Cache `value`, of about `size` bytes, for an event, instead of an older one. A very large one is not cached."""
        if size > self.budget // LARGEST_SHARE:
            return
        with self._lock:
            encodings = event.encodings
            if not isinstance(encodings, Encodings):
                encodings = event.encodings = Encodings(self)
            if key in encodings:
                self._drop(encodings, key)
            self._put(encodings, key, value, size + VALUE_BYTES)
            self._shrink()

    def keep(self, encodings: Encodings, key: object, value: Any, *, size: int) -> None:
        """Cache `value` in these `Encodings`, instead of an older one. It is one of many that lists read one after the other.

        It replaces only what was not used since. Otherwise, when there are too many, each would push out one that is read before itself,
        and none would ever be found.
        """
        cost = size + VALUE_BYTES
        with self._lock:
            if key in encodings:
                self._drop(encodings, key)
            if size > self.budget // LARGEST_SHARE or not self._fits(cost):
                return
            self._put(encodings, key, value, cost)
            encodings.used.add(key)

    def forget(self, encodings: Encodings) -> None:
        """Drop all of these."""
        with self._lock:
            for key in list(encodings):
                self._drop(encodings, key)

    def _put(self, encodings: Encodings, key: object, value: Any, cost: int) -> None:
        self._cached[id(encodings), key] = encodings, cost
        encodings[key] = value
        self.size += cost

    def _drop(self, encodings: Encodings, key: object) -> None:
        _, cost = self._cached.pop((id(encodings), key))
        self._remove(encodings, key, cost)

    def _remove(self, encodings: Encodings, key: object, cost: int) -> None:
        del encodings[key]
        encodings.used.discard(key)
        self.size -= cost

    def _fits(self, cost: int) -> bool:
        """Drop what was not used until `cost` bytes fit. It looks at one used encoding in each call."""
        while self.size + cost > self.budget and self._cached:
            if not self._drop_oldest(chance=True):
                return False
        return self.size + cost <= self.budget

    def _shrink(self) -> None:
        chances = CHANCES
        while self.size > self.budget:
            if not self._drop_oldest(chance=chances > 0):
                chances -= 1

    def _drop_oldest(self, *, chance: bool) -> bool:
        """Drop the oldest encoding. One that was used and has a `chance` becomes the newest instead."""
        at, (encodings, cost) = self._cached.popitem(last=False)
        key = at[1]
        if chance and key in encodings.used:
            encodings.used.discard(key)
            self._cached[at] = encodings, cost
            return False
        self._remove(encodings, key, cost)
        return True
