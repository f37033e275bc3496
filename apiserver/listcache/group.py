"""Neighbours in the order of keys, which lists show together: what was made of them in a form is kept once for all of them. Pure.

    keys      a  b  c│ d  e  f  g│ h  i …      a group ends where the hash of the next key says so, or where it is full
    entries   ─┬──────  ─┬─────────                each points to its group
    Group      {form: JoinedEncoding, IncompleteEncoding, Rows, CompressedEncoding, …}

Where groups end depends on keys alone, mostly, so a write changes one group, and lists of a namespace, of everything and in chunks
have the same ones. A list takes a group for its own when it has exactly the group's members: then nothing has to be
made. Otherwise the members are put together anew, and what was kept of each of them goes with it: only what a write changed is made.
What a list of an older state, of selected objects, or the ends of a chunk share with groups is taken out of them, and no group is
changed for it; what chunks take of a group is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from apiserver.listcache.encoding import EncodingCache, Group, IncompleteEncoding
from apiserver.watchcache.entry import SUPERSEDED, Entry

MOST = 64
"""Members of a group: 3 % more bytes than in one piece when they are compressed, and 0.2 ms to do it again when one is written."""
MOST_BYTES = 128 << 10
"""Bytes of members above which a group is full; a larger object is alone."""
FEW = 16
"""Members of a group that does not go on into another namespace."""
_ENDS = 64
"""One key of so many begins a group."""


def group_of(entry: Entry) -> Group | None:
    """Return the group of an entry; None before its first list, and after its object was written again."""
    group = entry.group
    return group if isinstance(group, Group) else None


def member(entry: Entry, key: object) -> Any:
    """What is kept of one object under `key`; None when there is nothing."""
    group = group_of(entry)
    return group.kept(key, entry) if group is not None else None


class ListRange(NamedTuple):
    """What a list shows: objects of `state`. `sparse`: there may be others between two of them. Whether it `begins` and `ends` where the
    resource does."""

    state: int
    sparse: bool = False
    begins: bool = True
    ends: bool = True


class Part(NamedTuple):
    """Members of a group that stand side by side in a list without the others: from which place on, up to which."""

    group: Group
    start: int
    stop: int


class Chunk(msgspec.Struct, gc=False):
    """Some neighbours of a list: those of `objects` from `start` to `stop`. `group` is theirs and nobody else's; without one little is kept
    of what is made of them together, and that beside the group of which they are a `part`."""

    objects: Sequence[Entry]
    start: int
    stop: int
    group: Group | None
    part: Part | None = None

    @property
    def entries(self) -> Sequence[Entry]:
        return self.objects[self.start : self.stop]

    @property
    def length(self) -> int:
        return self.stop - self.start


def chunks(entries: Sequence[Entry], range_: ListRange, cache: EncodingCache) -> Iterator[Chunk]:
    """The objects of a list, in order, group by group."""
    at, end, state, sparse = 0, len(entries), range_.state, range_.sparse
    while at < end:
        first = entries[at]
        group = group_of(first)
        # Members that nobody has written since are in every list that is no older than they are and leaves none out.
        if group is None:
            found = False
        elif group.state <= state and not sparse:
            found = group.spans(entries, at, first)
        else:
            found = group.is_of(entries[at : at + (group.count or 1)])
        if group is not None and found:
            to = at + group.count
            yield Chunk(entries, at, to, group)
        else:
            to = _end(entries, at)
            if not at and not range_.begins:  # perhaps in the middle of a group, behind which others are whole
                to = next((other for other in range(1, to) if entries[other].group is not first.group), to)
            yield _run(Chunk(entries, at, to, None), range_, cache)
        at = to


def _run(run: Chunk, range_: ListRange, cache: EncodingCache) -> Chunk:
    if not cache.budget:
        return run
    members = run.entries
    partly = (
        range_.sparse or (not run.start and not range_.begins) or (run.stop == len(run.objects) and not range_.ends)
    )
    group = _together(members, range_.state, cache, partly=partly)
    if group is not None:
        run.group = group
        return run
    home = group_of(members[0])
    place = home.place(members) if home is not None else None
    if home is not None and place is not None:
        run.part = Part(home, *place)
    return run


def _end(entries: Sequence[Entry], at: int) -> int:
    """Where the group ends that begins there. It may hold objects of several namespaces, if these are few."""
    to, size = at, 0
    for entry in entries[at : at + MOST]:
        size += len(entry.body)
        if entry.verbatim:
            size += len(entry.verbatim)
        if (size > MOST_BYTES or not hash(entry.key) % _ENDS) and to > at:
            break
        to += 1
    # Keys are in order, so the last one tells of all.
    namespace, few = entries[at].namespace + "/", at + FEW
    if to > few and not entries[to - 1].key.startswith(namespace):
        keys = [entry.key for entry in entries[few:to]]
        return next((few + n for n, key in enumerate(keys) if "/" in key and not key.startswith(namespace)), to)
    return to


def _together(members: Sequence[Entry], state: int, cache: EncodingCache, *, partly: bool) -> Group | None:
    """A group of these, with what is kept of them; None when they are not for this list to put together.

    Members of other groups stay there when the list is older than these, or when it shows `partly` what lies there.
    """
    if any(entry.group is SUPERSEDED for entry in members):
        return None
    groups = list(map(group_of, members))
    others = {id(group): group for group in groups if group is not None}
    if any(group.state > state or (partly and group) for group in others.values()):
        return None
    made = Group(cache, members, state)
    kept: dict[object, list[Any]] = {}
    for at, (entry, group) in enumerate(zip(members, groups, strict=True)) if others else ():
        if group is not None:
            for key, part in group.all_kept(entry):
                kept.setdefault(key, [None] * len(members))[at] = part
    for entry, group in zip(members, groups, strict=True):  # nothing of it can fail half-way
        entry.group = made
        if group is not None:
            group.leave(entry)
    for key, parts in kept.items():
        draft = IncompleteEncoding(parts)
        cache.keep(made, key, draft, size=draft.size)
    return made
