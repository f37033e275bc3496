"""Groups: neighbours in key order that share cached encodings. Pure.

    keys      a  b  c│ d  e  f  g│ h  i …      a group ends where the hash of the next key says so, or where it is full
    entries   ─┬──────  ─┬─────────            each points to its group
    Group      {form: encoding, …}

The ends of groups depend mostly on keys alone. So a write changes one group, and lists of a namespace, of everything and in chunks have
the same groups.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, cast

from apiserver.listcache.encoding import Encoding, EncodingCache, Encodings, IncompleteEncoding
from apiserver.watchcache.entry import SUPERSEDED, Entry

MOST = 64
"""Members of a group. Compressing so many apart costs 3 % more bytes than in one text, and 0.2 ms again after a write."""
MOST_BYTES = 128 << 10
"""Bytes of members above which a group is full; a larger object is alone."""
FEW = 16
"""Members of a group that does not continue into another namespace."""
_ENDS = 64
"""One key of so many begins a group."""


class Group(Encodings):
    """Encodings of some neighbours. `revision` is that of the list that made the group.

    It knows its members by their ids, so comparing reads no attribute. It holds none of them: a member leaves before it is freed.
    """

    __slots__ = ("_left", "_members", "revision")

    def __init__(self, cache: EncodingCache, members: Sequence[object], revision: int) -> None:
        super().__init__(cache)
        self.revision = revision
        self._members = array("Q", map(id, members))
        self._left = len(self._members)

    @property
    def count(self) -> int:
        """How many members the group began with; 0 when all have left."""
        return len(self._members) if self._left else 0

    def is_of(self, members: Sequence[object]) -> bool:
        """Report whether these are its members, all of them and no others."""
        return array("Q", map(id, members)) == self._members

    def spans(self, objects: Sequence[object], at: int, first: object) -> bool:
        """Report whether all its members stand in `objects` from `at` on, given that `objects` hold every object between two members.

        It compares the first and the last member only. `first` is the object at that place.
        """
        members = self._members
        last = at + len(members) - 1
        return (
            self._left == len(members)
            and id(first) == members[0]
            and last < len(objects)
            and id(objects[last]) == members[-1]
        )

    def place(self, some: Sequence[object]) -> tuple[int, int] | None:
        """Return where these stand side by side among its members, or None."""
        wanted, members = array("Q", map(id, some)), self._members
        try:
            start = members.index(wanted[0])
        except ValueError:
            return None
        stop = start + len(wanted)
        return (start, stop) if members[start:stop] == wanted else None

    def encoding_of(self, member: object, key: object) -> Any:
        """Return the encoding of one member under `key`, or None, and let it stay longer."""
        whole = self.use(key)
        return whole.member(self._members.index(id(member))) if isinstance(whole, Encoding) else None

    def encodings_of(self, member: object) -> Iterator[tuple[object, Any]]:
        """Return all encodings of one member, with their keys."""
        at = self._members.index(id(member))
        for key, whole in self.copy().items():  # threads drop encodings meanwhile
            if isinstance(whole, Encoding) and (one := whole.member(at)) is not None:
                yield key, one

    def leave(self, member: object, /) -> None:
        """Remove a member. The last one takes all encodings with it."""
        self._members[self._members.index(id(member))] = 0
        self._left -= 1
        if not self._left:
            self.forget()


def group_of(entry: Entry) -> Group | None:
    """Return the group of an entry; None before its first list, and after its object was written again."""
    group = entry.group
    return group if isinstance(group, Group) else None


def encoding_of(entry: Entry, key: object) -> Any:
    """Return the cached encoding of one object under `key`, or None."""
    group = group_of(entry)
    return group.encoding_of(entry, key) if group is not None else None


def end_of(entries: Sequence[Entry], at: int) -> int:
    """Return where a group that begins at `at` ends. It holds objects of several namespaces if these are few."""
    to, size = at, 0
    for entry in entries[at : at + MOST]:
        size += len(entry.body)
        if entry.verbatim:
            size += len(entry.verbatim)
        if (size > MOST_BYTES or not hash(entry.key) % _ENDS) and to > at:
            break
        to += 1
    # Keys are in order, so the last one speaks for all.
    namespace, few = entries[at].namespace + "/", at + FEW
    if to > few and not entries[to - 1].key.startswith(namespace):
        keys = [entry.key for entry in entries[few:to]]
        return next((few + n for n, key in enumerate(keys) if "/" in key and not key.startswith(namespace)), to)
    return to


def grouped(members: Sequence[Entry], revision: int, cache: EncodingCache, *, partly: bool) -> Group | None:
    """Make a group of these members, and take their cached encodings over.

    Returns None if a member was written since, or belongs to a group that is newer than the list. So it does if the list shows groups only
    `partly` and one of them has encodings.
    """
    groups = cast("list[Group | None]", [entry.group for entry in members])  # no call for each: cold lists come here
    others = {id(group): group for group in groups if group is not None}
    if id(SUPERSEDED) in others:
        return None
    if any(group.revision > revision or (partly and group) for group in others.values()):
        return None
    made = Group(cache, members, revision)
    cached: dict[object, list[Any]] = {}
    for at, (entry, group) in enumerate(zip(members, groups, strict=True)) if others else ():
        if group is not None:
            for key, one in group.encodings_of(entry):
                cached.setdefault(key, [None] * len(members))[at] = one
    for entry, group in zip(members, groups, strict=True):  # nothing of it can fail half-way
        entry.group = made
        if group is not None:
            group.leave(entry)
    for key, ones in cached.items():
        incomplete = IncompleteEncoding(ones)
        cache.keep(made, key, incomplete, size=incomplete.size)
    return made
