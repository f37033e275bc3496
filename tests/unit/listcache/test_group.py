from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from apiserver.listcache import group as groups
from apiserver.listcache.chunk import Chunk, ListRange, chunks
from apiserver.listcache.encoding import Encoding, EncodingCache, JoinedEncoding
from apiserver.watchcache.entry import NO_LABELS, Entry, Key, Revision

FORM = "form"


class Objects:
    """A resource of many objects, and lists of it."""

    def __init__(self, count: int, *, namespaces: int = 1, size: int = 10) -> None:
        self.revision = 0
        self.made: list[Key] = []
        keys = [Key(f"ns{at % namespaces:03}/o{at:05}") for at in range(count)]
        self.entries = {key: self._written(key, size) for key in sorted(keys)}

    def _written(self, key: Key, size: int = 10) -> Entry:
        self.revision += 1
        return Entry(key, Revision(self.revision), b"%d " % self.revision + b"x" * size, NO_LABELS, ())

    def write(self, key: Key, size: int = 10) -> None:
        if key in self.entries:
            self.entries[key].supersede()
        self.entries[key] = self._written(key, size)
        self.entries = dict(sorted(self.entries.items()))

    def delete(self, key: Key) -> None:
        self.entries.pop(key).supersede()

    @property
    def all(self) -> list[Entry]:
        return list(self.entries.values())

    def listed(
        self, cache: EncodingCache, entries: list[Entry] | None = None, range_: ListRange | None = None
    ) -> bytes:
        """Do as a form does: take cached encodings, encode the others, cache all of them joined."""
        self.made = []
        taken = self.all if entries is None else entries
        found = chunks(taken, range_ or ListRange(self.revision), cache)
        return b",".join([self._text(chunk, cache) for chunk in found])

    def _text(self, chunk: Chunk, cache: EncodingCache) -> bytes:
        kept = chunk.group.use(FORM) if chunk.group is not None else None
        if isinstance(kept, JoinedEncoding):
            return kept.text
        parts = [groups.encoding_of(entry, FORM) for entry in chunk.entries]
        for at, part in enumerate(parts):
            if part is None:
                self.made.append(chunk.entries[at].key)
                parts[at] = chunk.entries[at].body
        elements = JoinedEncoding(parts, b",")
        if chunk.group is not None:
            cache.keep(chunk.group, FORM, elements, size=elements.size)
        return elements.text


def plain(entries: list[Entry]) -> bytes:
    return b",".join(entry.body for entry in entries)


def test_a_second_list_encodes_nothing() -> None:
    objects, cache = Objects(1000), EncodingCache()
    assert objects.listed(cache) == plain(objects.all)
    assert len(objects.made) == 1000
    assert objects.listed(cache) == plain(objects.all)
    assert objects.made == []


def test_groups_have_limits_of_members_and_of_bytes() -> None:
    cache = EncodingCache()
    for size in (10, 5000, groups.MOST_BYTES // 2, 2 * groups.MOST_BYTES):
        objects = Objects(300, size=size)
        for chunk in chunks(objects.all, ListRange(objects.revision), cache):
            assert len(chunk.entries) <= groups.MOST
            assert len(chunk.entries) == 1 or sum(entry.size for entry in chunk.entries) <= groups.MOST_BYTES
    objects = Objects(1000)
    assert len(list(chunks(objects.all, ListRange(objects.revision), cache))) < 1000 // 16


def test_a_list_after_a_write_encodes_only_the_written_object() -> None:
    objects, cache = Objects(1000), EncodingCache()
    objects.listed(cache)
    for key in (Key("ns000/o00000"), Key("ns000/o00500"), Key("ns000/o00999")):
        objects.write(key)
        assert objects.listed(cache) == plain(objects.all)
        assert objects.made == [key]


def test_creations_and_deletions_leave_the_encodings_of_neighbours() -> None:
    objects, cache = Objects(1000), EncodingCache()
    objects.listed(cache)
    for name in ("o00500a", "o00500b", "a", "z"):
        objects.write(Key(f"ns000/{name}"))
        assert objects.listed(cache) == plain(objects.all)
        assert objects.made == [f"ns000/{name}"]
    for key in random.Random(1).sample(sorted(objects.entries), 100):
        objects.delete(key)
        assert objects.listed(cache) == plain(objects.all)
        assert objects.made == []


def test_a_group_drops_its_encodings_when_its_last_member_leaves() -> None:
    objects, cache = Objects(500), EncodingCache()
    objects.listed(cache)
    full = cache.size
    for _ in range(20):
        for key in list(objects.entries):
            objects.write(key)
        objects.listed(cache)
    assert cache.size < 1.2 * full
    for key in list(objects.entries):
        objects.delete(key)
    assert cache.size == 0


@pytest.mark.parametrize("limit", [50, 500])
def test_pages_and_whole_lists_share_encodings_and_groups(limit: int) -> None:
    objects, cache = Objects(2000), EncodingCache()
    objects.listed(cache)
    held = cache.size
    for start in range(0, 2000, limit):
        some = objects.all[start : start + limit]
        range_ = ListRange(objects.revision, begins=not start, ends=start + limit >= 2000)
        assert objects.listed(cache, some, range_) == plain(some)
        assert objects.made == []
    assert objects.listed(cache) == plain(objects.all)
    assert (objects.made, cache.size) == ([], held)


def test_a_list_of_one_namespace_uses_the_encodings_of_a_list_of_all() -> None:
    objects, cache = Objects(1000, namespaces=20), EncodingCache()
    objects.listed(cache)
    for namespace in range(20):
        some = [entry for entry in objects.all if entry.namespace == f"ns{namespace:03}"]
        range_ = ListRange(objects.revision, begins=False, ends=False)
        assert objects.listed(cache, some, range_) == plain(some)
        assert objects.made == []


def test_selected_objects_use_the_encodings_of_a_list_of_all() -> None:
    objects, cache = Objects(1000), EncodingCache()
    objects.listed(cache)
    held = cache.size
    some = random.Random(2).sample(objects.all, 300)
    some.sort(key=lambda entry: entry.key)
    assert objects.listed(cache, some, ListRange(objects.revision, sparse=True)) == plain(some)
    assert (objects.made, cache.size) == ([], held)


def test_encodings_of_selected_lists_alone_are_cached_too() -> None:
    objects, cache = Objects(1000), EncodingCache()
    some = objects.all[::3]
    for made in (len(some), 0):
        objects.listed(cache, some, ListRange(objects.revision, sparse=True))
        assert len(objects.made) == made
    assert objects.listed(cache) == plain(objects.all)
    assert len(objects.made) == 1000 - len(some)


def test_a_list_of_an_older_state_uses_encodings_and_changes_no_group() -> None:
    objects, cache = Objects(1000), EncodingCache()
    older, state = objects.all, ListRange(objects.revision)
    keys = list(objects.entries)
    for key in keys[100:110]:
        objects.write(key)
    objects.delete(keys[500])
    objects.listed(cache)
    held = cache.size
    for _ in range(2):
        assert objects.listed(cache, older, state) == plain(older)
        assert objects.made == [*keys[100:110], keys[500]]
        assert cache.size == held
    assert objects.listed(cache) == plain(objects.all)
    assert objects.made == []


def test_a_cache_without_a_budget_caches_nothing_and_lists_are_equal() -> None:
    objects, cache = Objects(1000), EncodingCache(0)
    for _ in range(2):
        assert objects.listed(cache) == plain(objects.all)
        assert len(objects.made) == 1000
    assert cache.size == 0
    assert all(entry.group is None for entry in objects.all)


@pytest.mark.parametrize("budget", [20_000, 64 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_each_list_equals_its_objects_after_random_writes_and_lists(seed: int, budget: int) -> None:
    draw = random.Random(seed)
    objects, cache = Objects(draw.randrange(400), namespaces=draw.choice([1, 3, 50])), EncodingCache(budget)
    past: list[tuple[list[Entry], int]] = []
    for _ in range(200):
        for _ in range(draw.choice([0, 1, 3, 40])):
            known = list(objects.entries)
            if known and draw.random() < 0.4:
                objects.delete(draw.choice(known))
            elif known and draw.random() < 0.6:
                objects.write(draw.choice(known), draw.choice([1, 50, 60_000]))
            else:
                objects.write(Key(f"ns{draw.randrange(50):03}/o{draw.randrange(10**5):05}"))
        entries, state = objects.all, objects.revision
        past.append((entries, state))
        if draw.random() < 0.2:
            entries, state = draw.choice(past)
        begin = draw.choice([0, 0, draw.randrange(len(entries) + 1)])
        end = draw.choice([len(entries), draw.randrange(begin, len(entries) + 1)])
        sparse = draw.random() < 0.2
        some = entries[begin:end]
        if sparse:
            some = [entry for entry in some if draw.random() < 0.5]
        range_ = ListRange(state, sparse, begins=not begin, ends=end == len(entries))
        assert objects.listed(cache, some, range_) == plain(some)
        assert cache.size <= budget


class Disturbed(Encoding):
    """Calls a function while a member is taken."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self.size, self._happens = 1, happens

    def member(self, at: int) -> bytes:
        self._happens()
        return b"cut"


def _raise() -> None:
    raise MemoryError


@pytest.mark.parametrize("fails", [False, True])
def test_members_are_grouped_while_threads_drop_or_memory_ends(fails: bool) -> None:
    objects, cache = Objects(30), EncodingCache()
    objects.listed(cache)
    one, other = next((one, other) for one, other in pairwise(objects.all) if one.group is other.group)
    group = groups.group_of(one)
    assert group is not None
    cache.keep(group, "another", Disturbed(_raise if fails else group.forget), size=1)
    objects.write(other.key)
    with pytest.raises(MemoryError) if fails else contextlib.nullcontext():
        objects.listed(cache)
    if fails:
        group.forget()
    for entry in objects.all:  # each belongs where it says, so each can be written
        objects.write(entry.key)
    assert objects.listed(cache) == plain(objects.all)
