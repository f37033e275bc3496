"""Sorted blocks: an ordered map from storage key to entry whose past states cost next to nothing. Pure; knows no revisions.

    lows     ""          "ns2/m"         "ns7/c"      a key lives in the last block whose low is not above it
              │             │               │
    blocks  [a … k]      [m … t]         [c … z]      about 512 entries each: keys and entries in two lists of one order

`Blocks.freeze()` hands out what is there as a `Frozen` in O(1): nothing is copied, and nothing that a Frozen can see is changed
ever after. A writer copies a block first, but only when it was frozen since its last copy: each block carries the stamp
under which it was made, freezing draws a new stamp, and only a block with the present stamp may be written to. So a map that is
frozen rarely pays nothing, one that is frozen at each change pays for one block (4 KB) and one list of blocks per change.

Order is that of Python's `str`, by code points, which is the order of the UTF-8 bytes of the same text: upstream's order of
storage keys (kubernetes/apiserver `pkg/storage/etcd3/store.go` ranges over bytes). All keys of namespace `a` are those with the
prefix `a/`; `-` and `.` sort below `/`, so `a-b/x` stands before `a/x`, as in etcd.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import overload

from apiserver.watchcache.entry import Entry

TYPICAL = 512
"""Entries of a freshly filled block: a copy takes about a microsecond, and 100,000 objects need 200 blocks."""
MOST = 2 * TYPICAL
FEWEST = TYPICAL // 4
"""A block that shrinks below this joins a neighbour when both fit into a typical one."""

_HIGHEST = "\U0010ffff"


class _Block:
    """`own_keys` says whether `keys` may be written to as well: replacing an entry leaves the keys shared with the frozen past."""

    __slots__ = ("entries", "keys", "own_keys", "stamp")

    def __init__(self, keys: list[str], entries: list[Entry], stamp: object, *, own_keys: bool) -> None:
        self.keys = keys
        self.entries = entries
        self.stamp = stamp
        self.own_keys = own_keys


def _find(blocks: list[_Block], lows: list[str], key: str) -> Entry | None:
    block = blocks[bisect_right(lows, key) - 1]
    at = bisect_left(block.keys, key)
    return block.entries[at] if at < len(block.keys) and block.keys[at] == key else None


def beyond(prefix: str) -> str | None:
    """The lowest text above everything that starts with `prefix`; None if every text does."""
    stem = prefix.rstrip(_HIGHEST)
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


def _lowest(prefix: str, after: str | None, start: str) -> str:
    return max(prefix, start, "" if after is None else after + "\0")


class Frozen:
    """The map as it was when it was frozen. Valid for ever, iterators included. `blocks` and `lows` are never changed."""

    __slots__ = ("_starts", "blocks", "lows")

    def __init__(self, blocks: list[_Block], lows: list[str]) -> None:
        self.blocks = blocks
        self.lows = lows
        self._starts: list[int] | None = None

    def get(self, key: str) -> Entry | None:
        return _find(self.blocks, self.lows, key)

    def scan(self, prefix: str = "", *, after: str | None = None, start: str = "") -> Iterator[Entry]:
        """The entries whose key begins with `prefix`, in key order; strictly behind the key `after`, not before the key `start`.

        `after` and `start` are whole keys (or any text), not relative to the prefix.
        """
        first, at = self._locate(_lowest(prefix, after, start))
        high = beyond(prefix)
        last, end = (len(self.blocks) - 1, None) if high is None else self._locate(high)
        if first >= last:
            return iter(self.blocks[first].entries[at:end] if first == last else ())
        whole = (block.entries for block in self.blocks[first + 1 : last])
        return chain(self.blocks[first].entries[at:], chain.from_iterable(whole), self.blocks[last].entries[:end])

    def slice(self, prefix: str = "", *, start: str = "") -> EntrySlice:
        """Return the entries that `scan` yields, without a look at them."""
        high = beyond(prefix)
        first = self._rank(_lowest(prefix, None, start))
        last = self._ranks()[-1] if high is None else self._rank(high)
        return EntrySlice(self.blocks, self._ranks(), first, max(first, last))

    def count(self, prefix: str = "", *, after: str | None = None, start: str = "") -> int:
        """How many entries `scan` would give, by arithmetic on block sizes."""
        high = beyond(prefix)
        end = self._ranks()[-1] if high is None else self._rank(high)
        return max(0, end - self._rank(_lowest(prefix, after, start)))

    def _locate(self, key: str) -> tuple[int, int]:
        """(block, place in it) of the first entry not below `key`; the place may be the block's end."""
        block = bisect_right(self.lows, key) - 1
        return block, bisect_left(self.blocks[block].keys, key)

    def _rank(self, key: str) -> int:
        if not key:
            return 0
        block, at = self._locate(key)
        return self._ranks()[block] + at

    def _ranks(self) -> list[int]:
        """How many entries stand before each block, and in all; counted once per Frozen, when first asked."""
        if self._starts is None:
            self._starts = list(accumulate((len(block.keys) for block in self.blocks), initial=0))
        return self._starts

    def thaw(self) -> Blocks:
        """A map of its own that starts from this state: it copies what it changes."""
        return Blocks(self.blocks, self.lows, size=self._ranks()[-1])


class EntrySlice(Sequence[Entry]):
    """Entries side by side in a frozen map. Valid for ever.

    Each entry that is looked at costs a miss of the processor's caches. A list with cached encodings looks at few.
    """

    __slots__ = ("_blocks", "_first", "_from", "_here", "_last", "_starts", "_to")

    def __init__(self, blocks: list[_Block], starts: list[int], first: int, last: int) -> None:
        self._blocks = blocks
        self._starts = starts
        self._first, self._last = first, last
        self._from = self._to = 0
        """The places of the block that was looked into last, among all entries of the map."""
        self._here: list[Entry] = []

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...

    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            start, stop, step = at.indices(self._last - self._first)
            place, end = self._first + start, self._first + stop
            if step != 1 or start >= stop:
                return list(self)[at]
            if not self._from <= place < self._to:
                self._look(place)
            if end <= self._to:
                return self._here[place - self._from : end - self._from]
            return list(self.first(stop).behind(start))
        place = at + (self._first if at >= 0 else self._last)
        if not max(self._from, self._first) <= place < self._to:
            if not self._first <= place < self._last:
                raise IndexError(at)
            self._look(place)
        return self._here[place - self._from]

    def _look(self, place: int) -> None:
        block = bisect_right(self._starts, place) - 1
        self._from, self._here = self._starts[block], self._blocks[block].entries
        self._to = min(self._from + len(self._here), self._last)

    def first(self, count: int) -> EntrySlice:
        """Return the first `count` entries, or all if there are fewer."""
        return EntrySlice(self._blocks, self._starts, self._first, min(self._first + count, self._last))

    def behind(self, count: int) -> EntrySlice:
        """Return the entries after the first `count`."""
        return EntrySlice(self._blocks, self._starts, min(self._first + count, self._last), self._last)

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[list[Entry]]:
        block = bisect_right(self._starts, self._first) - 1
        while self._starts[block] < self._last:
            start, entries = self._starts[block], self._blocks[block].entries
            inside = self._first <= start and start + len(entries) <= self._last
            yield entries if inside else entries[max(self._first - start, 0) : self._last - start]
            block += 1


class Blocks:
    """The changing map. Single-threaded; every call leaves it consistent.

    Invariants: there is a block; lows[0] == "" and lows[i] <= keys of block i < lows[i + 1]; no block but an only one is empty;
    a block with the present stamp was made since the last freeze, hence so was the list that holds it.
    `_lows` is replaced, never changed, so that every Frozen may share it.
    """

    __slots__ = ("_blocks", "_list_stamp", "_lows", "_size", "_stamp")

    def __init__(self, blocks: list[_Block], lows: list[str], *, size: int) -> None:
        self._blocks = blocks
        self._lows = lows
        self._size = size
        self._stamp = object()
        self._list_stamp: object = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Blocks:
        """Built from entries of different keys in any order."""
        ordered = sorted(entries, key=attrgetter("key"))
        pieces = [ordered[at : at + TYPICAL] for at in range(0, len(ordered), TYPICAL)] or [[]]
        blocks = [_Block([entry.key for entry in piece], piece, None, own_keys=False) for piece in pieces]
        return cls(blocks, [""] + [block.keys[0] for block in blocks[1:]], size=len(ordered))

    def __len__(self) -> int:
        return self._size

    def parts(self) -> list[object]:
        """Return its blocks, so that they can be freed one by one."""
        return list(self._blocks)

    def get(self, key: str) -> Entry | None:
        return _find(self._blocks, self._lows, key)

    def freeze(self) -> Frozen:
        self._stamp = object()
        return Frozen(self._blocks, self._lows)

    def put(self, entry: Entry) -> None:
        key = entry.key
        place = bisect_right(self._lows, key) - 1
        keys = self._blocks[place].keys
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            self._writable(place).entries[at] = entry
            return
        block = self._writable(place, keys=True)
        block.keys.insert(at, key)
        block.entries.insert(at, entry)
        self._size += 1
        if len(block.keys) > MOST:
            self._split(place)

    def remove(self, key: str) -> None:
        """Nothing happens when the key is absent."""
        place = bisect_right(self._lows, key) - 1
        keys = self._blocks[place].keys
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return
        block = self._writable(place, keys=True)
        del block.keys[at], block.entries[at]
        self._size -= 1
        if len(block.keys) < FEWEST:
            self._join(place)

    def _writable(self, place: int, *, keys: bool = False) -> _Block:
        block = self._blocks[place]
        if block.stamp is not self._stamp:
            if self._list_stamp is not self._stamp:
                self._blocks = self._blocks.copy()
                self._list_stamp = self._stamp
            block = _Block(block.keys, block.entries.copy(), self._stamp, own_keys=False)
            self._blocks[place] = block
        if keys and not block.own_keys:
            block.keys = block.keys.copy()
            block.own_keys = True
        return block

    def _split(self, place: int) -> None:
        block = self._blocks[place]
        half = len(block.keys) // 2
        right = _Block(block.keys[half:], block.entries[half:], self._stamp, own_keys=True)
        del block.keys[half:], block.entries[half:]
        self._blocks.insert(place + 1, right)
        self._lows = [*self._lows[: place + 1], right.keys[0], *self._lows[place + 1 :]]

    def _join(self, place: int) -> None:
        """Put a small block together with the neighbour behind or before it, when both fit into one block; an empty one always."""
        size = len(self._blocks[place].keys)
        for left in (place, place - 1):
            if left < 0 or left + 1 >= len(self._blocks):
                continue
            one, other = self._blocks[left], self._blocks[left + 1]
            if size and len(one.keys) + len(other.keys) > TYPICAL:
                continue
            joined = _Block(one.keys + other.keys, one.entries + other.entries, self._stamp, own_keys=True)
            self._blocks[left : left + 2] = [joined]
            self._lows = self._lows[: left + 1] + self._lows[left + 2 :]
            return
