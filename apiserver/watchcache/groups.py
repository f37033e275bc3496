"""Neighbours in the order of keys, which lists show together: what was made of them in a form is kept once for all of them. Pure.

    keys      a  b  c│ d  e  f  g│ h  i …      a group ends where the hash of the next key says so, or where it is full
    entries   ─┬──────  ─┬─────────                each points to its group
    Group      {form: Elements, Draft, Rows, Deflated, …}

Where groups end depends on keys alone, mostly, so a write changes one group, and lists of a namespace, of everything and in chunks
have the same ones. A list takes a group for its own when it has exactly the group's members: then nothing has to be
made. Otherwise the members are put together anew, and what was kept of each of them goes with it: only what a write changed is made.
What a list of an older state, of selected objects, or the ends of a chunk share with groups is taken out of them, and no group is
changed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from apiserver.watchcache.encodings import Draft, EncodingCache, Group
from apiserver.watchcache.entry import Entry

MOST = 64
"""Members of a group: 3 % more bytes than in one piece when they are compressed, and 0.2 ms to do it again when one is written."""
MOST_BYTES = 128 << 10
"""Bytes of members above which a group is full; a larger object is alone."""
FEW = 16
"""Members of a group that does not go on into another namespace."""
_ENDS = 64
"""One key of so many begins a group."""


PAST = Group(EncodingCache(0), [], 1 << 63)
"""The group of all objects that were superseded. No list is so new that it could put it together with others."""


def supersede(entry: Entry) -> None:
    """The object was written or deleted: its group is that of the others now."""
    if entry.group is not None and entry.group is not PAST:
        entry.group.leave(entry)
    entry.group = PAST


def member(entry: Entry, key: object) -> Any:
    """What is kept of one object under `key`; None when there is nothing."""
    group = entry.group
    if group is None or group is PAST:
        return None
    group.used = True
    return group.kept(key, entry)


class Extent(NamedTuple):
    """What a list shows: objects of `state`. `sparse`: there may be others between two of them. Whether it `begins` and `ends` where the
    resource does."""

    state: int
    sparse: bool = False
    begins: bool = True
    ends: bool = True


class Run(NamedTuple):
    """Some neighbours of a list. `group` is theirs and nobody else's; without one nothing is kept of what is made of them together."""

    entries: Sequence[Entry]
    group: Group | None


def runs(entries: Sequence[Entry], extent: Extent, cache: EncodingCache) -> Iterator[Run]:
    """The objects of a list, in order, group by group."""
    at, end = 0, len(entries)
    while at < end:
        group = entries[at].group
        if group is not None:
            members = entries[at : at + group.count]
            if members and group.is_of(members):
                group.used = True
                yield Run(members, group)
                at += len(members)
                continue
        to = _end(entries, at)
        members = entries[at:to]
        partly = extent.sparse or (not at and not extent.begins) or (to == end and not extent.ends)
        yield Run(members, _together(members, extent.state, cache, partly=partly) if cache.budget else None)
        at = to


def _end(entries: Sequence[Entry], at: int) -> int:
    """Where the group ends that begins there. It may hold objects of several namespaces, if these are few."""
    size, last = entries[at].size, min(at + MOST, len(entries))
    namespace = entries[at].namespace + "/"
    for to in range(at + 1, last):
        entry = entries[to]
        size += entry.size
        if size > MOST_BYTES or not hash(entry.key) % _ENDS:
            return to
        if to - at >= FEW and "/" in entry.key and not entry.key.startswith(namespace):
            return to
    return last


def _together(members: Sequence[Entry], state: int, cache: EncodingCache, *, partly: bool) -> Group | None:
    """A group of these, with what is kept of them; None when they are not for this list to put together.

    Members of other groups stay there when the list is older than these, or when it shows `partly` what lies there.
    """
    groups = {id(entry.group): entry.group for entry in members if entry.group is not None}
    if any(group.state > state or (partly and group) for group in groups.values()):
        return None
    made = Group(cache, members, state)
    kept: dict[object, list[Any]] = {}
    for at, entry in enumerate(members):
        group = entry.group
        if group is not None:
            for key, part in group.all_kept(entry):
                kept.setdefault(key, [None] * len(members))[at] = part
            group.leave(entry)
        entry.group = made
    for key, parts in kept.items():
        draft = Draft(parts)
        cache.keep(made, key, draft, size=draft.size)
    return made
