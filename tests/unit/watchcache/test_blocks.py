from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.watchcache import blocks
from apiserver.watchcache.blocks import Blocks, Frozen
from apiserver.watchcache.entry import NO_LABELS, Entry, Key, Revision

NAMES = st.text(alphabet="ab-./0é\U0001f600\U0010ffff", min_size=1, max_size=4)


def entry(key: str, revision: int = 1) -> Entry:
    return Entry(Key(key), Revision(revision), b"{}", NO_LABELS, ())


def filled(*keys: str) -> Blocks:
    return Blocks.of(entry(key) for key in keys)


def scanned(state: Frozen, prefix: str = "", *, after: str | None = None, start: str = "") -> list[str]:
    return [found.key for found in state.scan(prefix, after=after, start=start)]


def test_keys_are_in_the_order_of_their_utf8_bytes() -> None:
    keys = ["a/x", "a-b/x", "a.b/x", "b", "é", "a\U0001f600", "a\uffff"]
    assert scanned(filled(*keys).freeze()) == sorted(keys, key=str.encode)


def test_a_scan_of_a_namespace_gives_that_namespace_alone() -> None:
    state = filled("a/x", "a/y", "a-b/x", "ab/x", "a0/x", "a", "b/x").freeze()
    assert scanned(state, "a/") == ["a/x", "a/y"]


def test_a_scan_goes_on_strictly_behind_a_key_and_not_before_a_start() -> None:
    state = filled("a/x", "a/xx", "a/y", "b/x").freeze()
    assert scanned(state, "a/", after="a/x") == ["a/xx", "a/y"]
    assert scanned(state, "a/", start="a/x") == ["a/x", "a/xx", "a/y"]
    assert scanned(state, "a/", start="a/x\0") == ["a/xx", "a/y"]
    assert scanned(state, after="a/y") == ["b/x"]


def test_a_start_outside_the_prefix_neither_widens_nor_breaks_the_scan() -> None:
    state = filled("a/x", "b/x", "c/x").freeze()
    assert scanned(state, "b/", start="a/") == ["b/x"]
    assert scanned(state, "b/", start="c/") == []
    assert state.count("b/", start="c/") == 0
    assert scanned(state, "b/", after="\U0010ffff") == []


def test_a_prefix_of_the_highest_characters_has_no_end() -> None:
    assert scanned(filled("a", "\U0010ffff", "\U0010ffffx").freeze(), "\U0010ffff") == ["\U0010ffff", "\U0010ffffx"]


def test_an_empty_map_is_a_map() -> None:
    state = Blocks.of(()).freeze()
    assert scanned(state) == []
    assert state.count() == 0
    assert state.get("a") is None


def test_a_frozen_state_never_changes_not_even_under_a_running_scan() -> None:
    objects = filled("a", "b", "c")
    state = objects.freeze()
    running = state.scan()
    first = next(running).key
    objects.put(entry("b", 2))
    objects.remove("c")
    objects.put(entry("aa"))
    assert [first, *(found.key for found in running)] == ["a", "b", "c"]
    found = state.get("b")
    assert found is not None
    assert found.revision == 1


def test_a_block_is_copied_only_when_it_was_frozen_since_its_last_copy() -> None:
    objects = filled("a", "b")
    objects.put(entry("a", 2))
    before = objects.freeze().blocks
    objects.put(entry("a", 3))
    own = objects.freeze().blocks
    assert own is not before
    assert own[0] is not before[0]
    objects = objects.freeze().thaw()
    objects.put(entry("a", 4))
    block = objects.freeze().blocks[0]
    assert block is not own[0]


def test_changes_between_two_freezes_share_one_copy() -> None:
    objects = filled("a", "b")
    objects.freeze()
    objects.put(entry("a", 2))
    once = objects._blocks[0]
    objects.put(entry("b", 2))
    objects.put(entry("c"))
    objects.remove("a")
    assert objects._blocks[0] is once


def test_replacing_an_entry_shares_the_keys_with_the_past() -> None:
    objects = filled("a", "b")
    before = objects.freeze()
    objects.put(entry("a", 2))
    assert objects.freeze().blocks[0].keys is before.blocks[0].keys


def test_two_maps_from_one_state_do_not_see_each_other() -> None:
    state = filled("a", "b").freeze()
    one, other = state.thaw(), state.thaw()
    one.remove("a")
    other.put(entry("c"))
    assert scanned(one.freeze()) == ["b"]
    assert scanned(other.freeze()) == ["a", "b", "c"]
    assert scanned(state) == ["a", "b"]
    assert (len(one), len(other)) == (1, 3)


def test_blocks_split_and_join_as_the_map_grows_and_shrinks() -> None:
    keys = [f"{number:05}" for number in range(5 * blocks.MOST)]
    random.Random(1).shuffle(keys)
    objects = Blocks.of(())
    for key in keys:
        objects.put(entry(key))
    sizes = [len(block.keys) for block in objects.freeze().blocks]
    assert max(sizes) <= blocks.MOST
    assert min(sizes) >= blocks.TYPICAL
    for key in keys[:-10]:
        objects.remove(key)
    assert len(objects.freeze().blocks) == 1
    assert scanned(objects.freeze()) == sorted(keys[-10:])


def test_counting_does_not_walk_the_entries() -> None:
    state = Blocks.of(entry(f"{number:06}") for number in range(20_000)).freeze()
    with mock.patch.object(Frozen, "scan", side_effect=AssertionError):
        assert state.count() == 20_000
        assert state.count(after="004999") == 15_000
        assert state.count("01", start="015000") == 5_000


class Model:
    """A sorted dictionary with the same face."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def scan(self, prefix: str, after: str | None, start: str) -> list[Entry]:
        low = max(start.encode(), b"" if after is None else after.encode() + b"\0")
        keys = sorted(self.entries, key=str.encode)
        return [self.entries[key] for key in keys if key.startswith(prefix) and key.encode() >= low]


@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "put", "remove", "freeze", "thaw"]), NAMES), max_size=120),
    prefix=st.one_of(st.just(""), NAMES),
    after=st.one_of(st.none(), NAMES),
    start=st.one_of(st.just(""), NAMES),
)
def test_every_frozen_state_equals_the_dictionary_of_its_time(
    steps: list[tuple[str, str]], prefix: str, after: str | None, start: str
) -> None:
    with mock.patch.multiple(blocks, TYPICAL=4, MOST=8, FEWEST=2):
        model, objects = Model(), Blocks.of(())
        kept: list[tuple[Frozen, list[Entry], list[Entry]]] = []
        for number, (step, key) in enumerate(steps):
            match step:
                case "put":
                    model.entries[key] = entry(key, number)
                    objects.put(model.entries[key])
                case "remove":
                    model.entries.pop(key, None)
                    objects.remove(key)
                case "freeze":
                    kept.append((objects.freeze(), model.scan("", None, ""), model.scan(prefix, after, start)))
                case _:
                    objects = objects.freeze().thaw()
            assert len(objects) == len(model.entries)
            assert objects.get(key) is model.entries.get(key)
        for state, everything, part in kept:
            assert list(state.scan()) == everything
            assert list(state.scan(prefix, after=after, start=start)) == part
            assert state.count(prefix, after=after, start=start) == len(part)
            assert all(state.get(found.key) is found for found in everything)


@given(
    keys=st.lists(NAMES, unique=True, max_size=60),
    prefix=st.one_of(st.just(""), NAMES),
    start=st.one_of(st.just(""), NAMES),
    looks=st.lists(
        st.one_of(
            st.integers(-70, 70),
            st.builds(
                slice,
                *(st.one_of(st.none(), st.integers(-70, 70)) for _ in range(2)),
                st.sampled_from([None, 1, 2, -1]),
            ),
        ),
        max_size=20,
    ),
    some=st.tuples(st.integers(0, 70), st.integers(0, 70)),
)
def test_a_slice_equals_the_list_of_a_scan(
    keys: list[str], prefix: str, start: str, looks: list[int | slice], some: tuple[int, int]
) -> None:
    with mock.patch.multiple(blocks, TYPICAL=4, MOST=8, FEWEST=2):
        state = filled(*keys).freeze()
        expected, found = list(state.scan(prefix, start=start)), state.slice(prefix, start=start)
        for what, there in (
            (expected, found),
            (expected[: some[0]], found.first(some[0])),
            (expected[some[1] :], found.behind(some[1])),
        ):
            assert len(there) == len(what)
            assert list(there) == what
            for at in looks:
                if isinstance(at, slice) or -len(what) <= at < len(what):
                    assert there[at] == what[at]
                else:
                    with pytest.raises(IndexError):
                        there[at]


@pytest.mark.parametrize("size", [1, 511, 512, 513, 2000])
def test_bulk_filling_equals_filling_one_by_one(size: int) -> None:
    keys = [f"{number * 7919 % size:05}" for number in range(size)]
    objects = Blocks.of(())
    for key in keys:
        objects.put(entry(key))
    assert scanned(filled(*keys).freeze()) == scanned(objects.freeze()) == sorted(keys)


def test_a_part_has_no_object_before_its_first() -> None:
    part = filled("a", "b").freeze().slice("", start="b")
    assert part[-1] is part[0]
    with pytest.raises(IndexError):
        part[-2]
