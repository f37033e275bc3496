"""Chunks: the objects of one list, cut where groups end. Pure.

A chunk with exactly the members of a group uses the group's encodings: nothing has to be made. Other neighbours become a new group, and
their cached encodings go with them: only objects that were written are encoded. A list of an older state or of selected objects, and the
ends of a paged list, take what they share with groups out of them and change no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from apiserver.listcache.encoding import EncodingCache
from apiserver.listcache.group import Group, end_of, group_of, grouped
from apiserver.watchcache.entry import Entry


class ListRange(NamedTuple):
    """The part of a resource that a list shows.

    `revision`: of the state. `sparse`: other objects may stand between two of the list. `begins`, `ends`: with the resource's first and
    last object.
    """

    revision: int
    sparse: bool = False
    begins: bool = True
    ends: bool = True


class Chunk(msgspec.Struct, gc=False):
    """`objects[start:stop]` of a list. Encodings of exactly this chunk are cached in `group`, if it is set.

    Without a group, compressed encodings are cached in `home`, a group of which this chunk is the members `place`.
    """

    objects: Sequence[Entry]
    start: int
    stop: int
    group: Group | None = None
    home: Group | None = None
    place: tuple[int, int] = (0, 0)

    @property
    def entries(self) -> Sequence[Entry]:
        return self.objects[self.start : self.stop]

    @property
    def length(self) -> int:
        return self.stop - self.start

    def cached(self, key: object) -> Any:
        """Return the encoding of this chunk under `key`, or None."""
        return self.group.use(key) if self.group is not None else None

    def keep(self, cache: EncodingCache, key: object, encoding: Any, size: int) -> None:
        """Cache an encoding of this chunk under `key`, unless its members have left meanwhile."""
        if self.group is not None and self.group.count:
            cache.keep(self.group, key, encoding, size=size)

    def cached_compressed(self, key: object) -> Any:
        """Return the compressed encoding of this chunk under `key`, or None."""
        if self.home is not None:
            return self.home.use((key, *self.place))
        return self.group.use(key) if self.group is not None else None

    def keep_compressed(self, cache: EncodingCache, key: object, encoding: Any, size: int) -> None:
        """Cache a compressed encoding of this chunk under `key`, unless its members have left meanwhile."""
        if self.home is None:
            self.keep(cache, key, encoding, size)
        elif self.home.count:
            cache.keep(self.home, (key, *self.place), encoding, size=size)


def chunks(entries: Sequence[Entry], range_: ListRange, cache: EncodingCache) -> Iterator[Chunk]:
    """Cut a list into chunks, group by group, in its order."""
    at, end, revision, sparse = 0, len(entries), range_.revision, range_.sparse
    while at < end:
        first = entries[at]
        group = first.group
        if not isinstance(group, Group):
            found = False
        elif group.revision <= revision and not sparse:
            # A list that is no older than its members and leaves none out has all of them that were not written since.
            found = group.spans(entries, at, first)
        else:
            found = group.is_of(entries[at : at + (group.count or 1)])
        if found and isinstance(group, Group):
            to = at + group.count
            yield Chunk(entries, at, to, group)
        else:
            to = end_of(entries, at)
            if not at and not range_.begins:  # perhaps in the middle of a group, behind which others are whole
                to = next((other for other in range(1, to) if entries[other].group is not group), to)
            yield _ungrouped(Chunk(entries, at, to), range_, cache)
        at = to


def _ungrouped(chunk: Chunk, range_: ListRange, cache: EncodingCache) -> Chunk:
    """Give a chunk a new group, or its place in an old one."""
    if not cache.budget:
        return chunk
    members = chunk.entries
    from_middle = not chunk.start and not range_.begins
    to_middle = chunk.stop == len(chunk.objects) and not range_.ends
    partly = range_.sparse or from_middle or to_middle
    chunk.group = grouped(members, range_.revision, cache, partly=partly)
    if chunk.group is None:
        home = group_of(members[0])
        place = home.place(members) if home is not None else None
        if place is not None:
            chunk.home, chunk.place = home, place
    return chunk
