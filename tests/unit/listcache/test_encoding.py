from __future__ import annotations

import sys
import threading

from apiserver.listcache.encoding import LARGEST_SHARE, VALUE_BYTES, EncodingCache, Encodings
from apiserver.listcache.group import Group
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision


def event(body: bytes = b"{}") -> Event:
    return Event(Revision(1), EventType.CREATED, Entry(Key("a"), Revision(1), body, NO_LABELS, ()), None)


def encodings(event: Event) -> Encodings:
    assert isinstance(event.encodings, Encodings)
    return event.encodings


def test_cached_encodings_are_found_on_their_event() -> None:
    cache, one = EncodingCache(), event()
    cache.remember(one, "yaml", b"a: 1", size=4)
    cache.remember(one, "row", b"[1]", size=3)
    assert encodings(one) == {"yaml": b"a: 1", "row": b"[1]"}
    assert cache.size == 2 * VALUE_BYTES + 7


def test_cache_stays_within_its_budget_and_drops_the_oldest_first() -> None:
    cache = EncodingCache(100 * (VALUE_BYTES + 100))
    events = [event() for _ in range(250)]
    for one in events:
        cache.remember(one, "form", b"x" * 100, size=100)
        assert cache.size <= 100 * (VALUE_BYTES + 100)
    assert [bool(encodings(one)) for one in events] == [False] * 150 + [True] * 100


def test_each_form_of_one_event_counts() -> None:
    cache, one = EncodingCache(1 << 20), event()
    for form in range(1000):
        cache.remember(one, form, b"x" * 50_000, size=50_000)
        assert cache.size <= 1 << 20


def test_used_encodings_stay_longer() -> None:
    cache = EncodingCache(20 * VALUE_BYTES)
    used, unused = event(), event()
    for one in (used, unused):
        cache.remember(one, "form", b"", size=0)
    assert encodings(used).use("form") == b""
    for _ in range(19):
        cache.remember(event(), "form", b"", size=0)
    assert (bool(encodings(used)), bool(encodings(unused))) == (True, False)
    for _ in range(20):
        cache.remember(event(), "form", b"", size=0)
    assert not encodings(used)


def test_cache_drops_the_oldest_when_all_were_used() -> None:
    cache = EncodingCache(500 * VALUE_BYTES)
    for _ in range(1500):
        one = event()
        cache.remember(one, "form", b"", size=0)
        encodings(one).use("form")
        assert cache.size <= 500 * VALUE_BYTES


def test_a_very_large_encoding_is_not_cached() -> None:
    cache, one = EncodingCache(1 << 20), event()
    cache.remember(one, "form", b"", size=(1 << 20) // LARGEST_SHARE + 1)
    assert (one.encodings, cache.size) == (None, 0)


def test_forget_gives_the_bytes_back_once() -> None:
    cache, one, other = EncodingCache(), event(), event()
    for each in (one, other):
        cache.remember(each, "form", b"xx", size=2)
    assert one.encodings is not None
    one.encodings.forget()
    one.encodings.forget()
    assert (encodings(one), cache.size) == ({}, VALUE_BYTES + 2)
    cache.remember(one, "form", b"xx", size=2)
    assert cache.size == 2 * (VALUE_BYTES + 2)


def test_cached_encodings_hold_no_event() -> None:
    cache, one = EncodingCache(), event()
    before = sys.getrefcount(one)
    cache.remember(one, "form", b"x", size=1)
    assert sys.getrefcount(one) == before


def test_threads_that_add_encodings_do_not_miscount() -> None:
    cache = EncodingCache(200 * VALUE_BYTES)

    def work() -> None:
        for _ in range(2000):
            one = event()
            cache.remember(one, "form", b"", size=0)
            if one.encodings:
                one.encodings.forget()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.size == 0


def groups_of(cache: EncodingCache, count: int) -> list[Group]:
    return [Group(cache, [object()], at) for at in range(count)]


def read_in_turn(cache: EncodingCache, groups: list[Group], form: str = "form") -> int:
    """Count the hits."""
    found = 0
    for group in groups:
        if group.use(form) is not None:
            found += 1
        else:
            cache.keep(group, form, b"", size=0)
    return found


def test_most_encodings_read_in_turn_are_hits_when_not_all_fit() -> None:
    cache = EncodingCache(80 * VALUE_BYTES)
    groups = groups_of(cache, 100)
    assert read_in_turn(cache, groups) == 0
    for _ in range(5):
        assert read_in_turn(cache, groups) >= 75
        assert cache.size <= 80 * VALUE_BYTES


def test_unread_encodings_are_replaced_by_those_read_in_turn() -> None:
    cache = EncodingCache(80 * VALUE_BYTES)
    for _ in range(3):
        read_in_turn(cache, groups_of(cache, 100))
    groups = groups_of(cache, 80)
    for _ in range(4):
        read_in_turn(cache, groups)
    assert read_in_turn(cache, groups) == 80


def test_an_unread_form_is_replaced_by_another_of_the_same_objects() -> None:
    cache = EncodingCache(100 * VALUE_BYTES)
    groups = groups_of(cache, 50)
    for form in ("json", "yaml"):
        read_in_turn(cache, groups, form)
    for _ in range(6):
        read_in_turn(cache, groups, "json")
        read_in_turn(cache, groups, "table")
    assert read_in_turn(cache, groups, "json") == read_in_turn(cache, groups, "table") == 50
    assert not any("yaml" in group for group in groups)


def test_a_replaced_encoding_counts_once() -> None:
    cache = EncodingCache()
    member = object()
    group = Group(cache, [member], 1)
    cache.keep(group, "form", b"xx", size=2)
    cache.keep(group, "form", b"xxxxx", size=5)
    assert cache.size == VALUE_BYTES + 5
    group.leave(member)
    assert (cache.size, dict(group)) == (0, {})
