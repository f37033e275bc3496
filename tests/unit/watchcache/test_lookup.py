"""Objects that are found by the value of a field are those that a scan finds, in every state that tells them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.serving.steps import BUDGET_SECONDS
from apiserver.watchcache import lookup, mvcc, ring
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import Entry
from apiserver.watchcache.mvcc import Index, View
from tests.fixtures.cpu import Spent
from tests.fixtures.log import Log

KEYS = ("a/x", "a/y", "a/z", "a-b/x", "ab/x", "b/x", "b/y", "b/z", "c", "d")
VALUES = ("", "n1", "n2", "n3")
PLACES = (0, 2)
END = object()
STARTS = ("", "a/", "a/y", "a/y\0", "b/", "zz")
WRITES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.tuples(*[st.sampled_from(VALUES)] * 3)), min_size=1, max_size=40
)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with (
        mock.patch.multiple(lookup, MANY=2, CHANGES=3, FILLED_AT_ONCE=2),
        mock.patch.multiple(mvcc, CHECKPOINT_EVENTS=5, CHECKPOINT_SHARE=1, EXACT_VIEWS=2),
        mock.patch.multiple(ring, LEAST_EVENTS=0, SEGMENT_EVENTS=3),
    ):
        yield


def scanned(view: View, place: int, value: str, prefix: str, start: str) -> list[Entry]:
    return [entry for entry in view.scan(prefix, start=start) if entry.fields[place] == value]


def compare(view: View) -> int:
    """Compare every lookup with the scan; how many of them were not known."""
    unknown = 0
    for place in PLACES:
        for value in (*VALUES, "never"):
            for prefix in ("", "a/", "b/", "none/"):
                for start in STARTS:
                    found = view.having((place, value), prefix, start=start)
                    if found is None:
                        unknown += 1
                    else:
                        assert list(found) == scanned(view, place, value, prefix, start)
    return unknown


def write(log: Log, index: Index, key: str, fields: tuple[str, ...] | None) -> None:
    if fields is not None:
        index.apply(log.put(key, str(len(log.records)), *fields).event())
    elif key in log.state:
        index.apply(log.delete(key).event())


@settings(deadline=None)
@given(before=WRITES, after=WRITES)
def test_every_state_finds_by_a_field_what_its_scan_finds(
    before: list[tuple[str, tuple[str, ...] | None]], after: list[tuple[str, tuple[str, ...] | None]]
) -> None:
    log = Log()
    first = Index()
    first.load(Blocks.of(()), applied=log.first, floor=log.first, listed_by=PLACES)
    for key, fields in before:
        write(log, first, key, fields)
        assert compare(first.view()) == 0, "the newest state knows every value"
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.first, ended=log.ended, listed_by=PLACES)
    list(index.preload([record.event() for record in log.records], since=log.first))
    views = [index.view()]
    for key, fields in after:
        write(log, index, key, fields)
        views.append(index.view())
        assert compare(index.view()) == 0
        assert len(index._lookup._changed) <= lookup.CHANGES
    for view in (*views, *(index.view_at(mark) for mark in log.marks)):
        compare(view)
    list(index.clear())
    for view in views:
        assert compare(view) > 0, "a memory that is filled anew is not what these views look at"


def test_older_state_knows_a_value_that_no_object_got_or_lost_since() -> None:
    log, index = Log(), Index()
    index.load(Blocks.of(()), applied=log.first, floor=log.first, listed_by=(0,))
    write(log, index, "a", ("n1",))
    then = log.head
    write(log, index, "b", ("n2",))
    write(log, index, "a", ("n1",))
    known = index.view_at(then).having((0, "n1"))
    assert known is not None
    assert [(entry.key, entry.revision) for entry in known] == [("a", then)]
    assert index.view_at(then).having((0, "n2")) is None


def test_field_that_no_list_is_found_by_is_left_to_the_scan() -> None:
    log, index = Log(), Index()
    index.load(Blocks.of(()), applied=log.first, floor=log.first, listed_by=(0,))
    write(log, index, "a", ("n1", "driver"))
    assert index.view().having((1, "driver")) is None


@pytest.fixture
def real() -> Iterator[None]:
    with mock.patch.multiple(lookup, MANY=256, CHANGES=1024, FILLED_AT_ONCE=2000):
        yield


def loaded(log: Log, count: int, value: str = "") -> Index:
    for number in range(count):
        log.put(f"o{number:06}", "", value or f"n{number}")
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.head, listed_by=(0,))
    return index


def test_value_that_most_objects_have_is_left_to_the_scan(real: None) -> None:
    log = Log()
    index = loaded(log, 1000, "same")
    list(index.preload([], since=log.head))
    assert index.view().having((0, "same")) is None
    assert index.view().having((0, "other")) is not None


def test_fill_and_its_end_take_short_steps(real: None) -> None:
    log = Log()
    index = loaded(log, 100_000)
    for steps, growths in ((index.preload([], since=log.head), 2), (index.clear(), 0)):
        more, longer = True, []
        while more:
            with Spent() as step:
                more = next(steps, END) is not END
            if not step.below(0.005):
                longer.append(step)
        # A dictionary grows in one go: to 2 ** 17 places, and to 2 ** 18.
        assert len(longer) <= growths
        assert all(step.below(BUDGET_SECONDS) for step in longer)


def test_object_costs_a_dictionary_place_and_a_tuple_at_most(real: None) -> None:
    log = Log()
    count = 20_000
    index = loaded(log, count)
    list(index.preload([], since=log.head))
    values = index._lookup._keys[0]
    size = sys.getsizeof(values) + sum(sys.getsizeof(keys) for keys in values.values())
    assert size < 160 * count
