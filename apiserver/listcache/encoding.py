"""What was made of stored bytes, remembered beside them: watch frames, rows of tables, other syntaxes. One bound for all. Pure.

    Entry.group     ─► {form: elements, …} ─┐
    Event.encodings ─► {form: frame, …}  ───┴─► EncodingCache: bytes held, oldest first

Each event has a place of its own and each entry one that it shares with its neighbours (`groups`), so that finding an encoding is one
look into a small dict. The cache only counts and forgets, encoding by encoding: what was put there first goes first, but for what was
used since it was last looked at (a second chance). So a form that nobody asks for makes room for one that is asked for, of the same
objects too. It holds the places, never the entries and events: those are let go of as if nothing had been remembered.
Upstream: kubernetes/apiserver `pkg/storage/cacher/caching_object.go`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate
from typing import Any

from apiserver.watchcache.entry import Event

BUDGET = 64 << 20
"""Bytes of one process: the rows of 100,000 objects, or YAML of 20,000 slices."""
LARGEST_SHARE = 16
"""One encoding is remembered only up to such a part of the budget: it must not push out everything else."""
VALUE_BYTES = 640
"""What an encoding costs beside the bytes that it stands for, with its place: where it is alone; less where there are others."""
CHANCES = 64
"""Encodings that are passed over in one step because they were used."""


class Encodings(dict[object, Any]):
    """The encodings of one event or some entries by form. Those that are `used` since the cache looked at them stay longer."""

    __slots__ = ("_cache", "used")

    def __init__(self, cache: EncodingCache) -> None:
        super().__init__()
        self._cache = cache
        self.used = set[object]()

    def use(self, key: object) -> Any:
        """What is kept under `key`, for somebody who wants it to stay; None when there is nothing."""
        found = self.get(key)
        if found is not None:
            self.used.add(key)
        return found

    def forget(self) -> None:
        """Lets go of all of them at once: nobody will ask again."""
        self._cache.forget(self)


class Encoding(ABC):
    """What was made of a group, member by member. `size` in bytes."""

    __slots__ = ()
    size: int

    @abstractmethod
    def cut(self, at: int) -> Any:
        """What was made of one member; None when there is nothing."""


class IncompleteEncoding(Encoding):
    """What is there of some members, while others have to be made."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.size = sum(len(part) for part in parts if part is not None)

    def cut(self, at: int) -> Any:
        return self.parts[at]


class JoinedEncoding(Encoding):
    """The members of a group as they stand in a list, one text, `separator` between two."""

    __slots__ = ("_gap", "_next", "size", "text")

    def __init__(self, parts: Sequence[bytes], separator: bytes) -> None:
        self.text = separator.join(parts)
        self._gap = gap = len(separator)
        self._next = array("I", accumulate([len(part) + gap for part in parts]))
        """Where each has its next one, were there one."""
        self.size = len(self.text)

    def cut(self, at: int) -> bytes:
        return self.text[self._next[at - 1] if at else 0 : self._next[at] - self._gap]

    def parts(self) -> list[bytes]:
        """Every member."""
        text, gap, start, parts = self.text, self._gap, 0, []
        for following in self._next:
            parts.append(text[start : following - gap])
            start = following
        return parts


class Group(Encodings):
    """What is kept of some objects together. `state` is the revision of the list that put them together.

    Its members are known by where they are in memory, so that nothing of them has to be looked at. It holds none of them: whoever leaves
    says so.
    """

    __slots__ = ("_left", "_members", "state")

    def __init__(self, cache: EncodingCache, members: Sequence[object], state: int) -> None:
        super().__init__(cache)
        self.state = state
        self._members = array("Q", map(id, members))
        self._left = len(self._members)

    @property
    def count(self) -> int:
        """How many members there were; 0 when they all have left."""
        return len(self._members) if self._left else 0

    def is_of(self, members: Sequence[object]) -> bool:
        """Whether these are its members, all of them and no others."""
        return array("Q", map(id, members)) == self._members

    def spans(self, objects: Sequence[object], at: int, first: object) -> bool:
        """Whether nobody has left, its first member is `first`, which stands at that place, and its last one stands where it would then.
        For who knows that all members are among the objects, in their order: then only members stand between."""
        members = self._members
        last = at + len(members) - 1
        return (
            self._left == len(members)
            and id(first) == members[0]
            and last < len(objects)
            and id(objects[last]) == members[-1]
        )

    def place(self, some: Sequence[object]) -> tuple[int, int] | None:
        """Where these stand among its members, side by side; None when they do not."""
        wanted, members = array("Q", map(id, some)), self._members
        try:
            start = members.index(wanted[0])
        except ValueError:
            return None
        stop = start + len(wanted)
        return (start, stop) if members[start:stop] == wanted else None

    def kept(self, key: object, member: object) -> Any:
        """What is kept under `key` of one member, for somebody who wants it to stay; None when there is nothing."""
        whole = self.use(key)
        return whole.cut(self._members.index(id(member))) if isinstance(whole, Encoding) else None

    def all_kept(self, member: object) -> Iterator[tuple[object, Any]]:
        """All that is kept of one member."""
        at = self._members.index(id(member))
        for key, whole in self.copy().items():  # threads make room, here too
            if isinstance(whole, Encoding) and (part := whole.cut(at)) is not None:
                yield key, part

    def leave(self, member: object) -> None:
        """It does not belong here any more. Without members nobody will ask."""
        self._members[self._members.index(id(member))] = 0
        self._left -= 1
        if not self._left:
            self.forget()


class Use(Enum):
    """What lists do with what is kept, for metrics."""

    OBJECT_FOUND = "object", "found"
    OBJECT_MADE = "object", "made"
    PIECE_FOUND = "compressed", "found"
    PIECE_MADE = "compressed", "made"

    __hash__ = object.__hash__  # each exists once, and is counted for every group of a list


class EncodingCache:
    """Every encoding that is remembered in this process. Threads may remember; places are read without a lock."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.uses = dict.fromkeys(Use, 0)
        self._kept = OrderedDict[tuple[int, object], tuple[Encodings, int]]()
        """Where each is and what it costs, by that place and its key there."""
        self._lock = threading.Lock()
        self.size = 0
        """Bytes held, by estimate."""

    def remember(self, event: Event, key: object, value: Any, *, size: int) -> None:
        """Cache `value`, of about `size` bytes, for an event, instead of an older one. A very large one is not cached."""
        if size > self.budget // LARGEST_SHARE:
            return
        with self._lock:
            place = event.encodings
            if not isinstance(place, Encodings):
                place = event.encodings = Encodings(self)
            if key in place:
                self._drop(place, key)
            self._put(place, key, value, size + VALUE_BYTES)
            self._make_room()

    def keep(self, place: Encodings, key: object, value: Any, *, size: int) -> None:
        """The same at a place that is there, for one of many that are read one after the other, again and again, instead of what is kept
        there under `key`.

        It only takes the room of what nobody has used since: else, where there are too many, each would push out one that is read before
        it is read itself, and none would ever be found.
        """
        cost = size + VALUE_BYTES
        with self._lock:
            if key in place:
                self._drop(place, key)
            if size > self.budget // LARGEST_SHARE or not self._has_room(cost):
                return
            self._put(place, key, value, cost)
            place.used.add(key)

    def _put(self, place: Encodings, key: object, value: Any, cost: int) -> None:
        self._kept[id(place), key] = place, cost
        place[key] = value
        self.size += cost

    def _drop(self, place: Encodings, key: object) -> None:
        _, cost = self._kept.pop((id(place), key))
        self._let_go(place, key, cost)

    def _let_go(self, place: Encodings, key: object, cost: int) -> None:
        del place[key]
        place.used.discard(key)
        self.size -= cost

    def forget(self, place: Encodings) -> None:
        """All that is kept at a place."""
        with self._lock:
            for key in list(place):
                self._drop(place, key)

    def _has_room(self, cost: int) -> bool:
        """Whether so much fits in once what nobody uses is gone. What is used is looked at one by one, each time the next."""
        while self.size + cost > self.budget and self._kept:
            if not self._oldest_gone(chance=True):
                return False
        return self.size + cost <= self.budget

    def _make_room(self) -> None:
        chances = CHANCES
        while self.size > self.budget:
            if not self._oldest_gone(chance=chances > 0):
                chances -= 1

    def _oldest_gone(self, *, chance: bool) -> bool:
        """Lets the oldest one go, unless it was used and has a `chance`: then it is the newest."""
        at, (place, cost) = self._kept.popitem(last=False)
        key = at[1]
        if chance and key in place.used:
            place.used.discard(key)
            self._kept[at] = place, cost
            return False
        self._let_go(place, key, cost)
        return True
