from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from apiserver.listcache.encoding import EncodingCache
from apiserver.watchcache import keys, ring
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.ring import Budget, Ring
from apiserver.watchcache.scope import Scope
from tests.fixtures.log import Log

NOTHING = Blocks.of(()).freeze()
WIDE = 1 << 30


@pytest.fixture(autouse=True)
def _short_segments() -> Iterator[None]:
    with mock.patch.object(ring, "SEGMENT_EVENTS", 4):
        yield


def filled(log: Log, *, budget: int = WIDE) -> Ring:
    """Every record of the log."""
    made = Ring(log.first, budget=Budget(budget))
    for record in log.records:
        if made.append(record.event()):
            made.close(NOTHING)
    return made


def busy(count: int, *, keys: int = 3) -> Log:
    log = Log()
    for number in range(count):
        log.put(f"a/{number % keys}", str(number), f"n{number % keys}")
    return log


def numbers(events: object) -> list[int]:
    assert isinstance(events, list | tuple)
    return [keys.parts(event.revision)[1] for event in events]


def test_events_after_a_revision_come_in_order_across_segments() -> None:
    log = busy(10)
    made = filled(log)
    for low in range(11):
        got = made.after(Revision(log.first + low), None, limit=100, end=log.head)
        assert numbers(got.events) == list(range(low + 1, 11))
        assert got.position == log.head


def test_events_stop_at_the_end_that_was_asked_for() -> None:
    log = busy(10)
    made = filled(log)
    for end in range(11):
        got = made.after(log.first, None, limit=100, end=Revision(log.first + end))
        assert numbers(got.events) == list(range(1, end + 1))
        assert got.position == log.first + end


def test_an_end_before_the_start_gives_nothing_and_does_not_go_back() -> None:
    log = busy(10)
    assert filled(log).after(log.head, None, limit=100, end=log.first) == ((), log.head)


def test_a_limit_stops_behind_the_last_event_given() -> None:
    log = busy(10)
    made = filled(log)
    position, seen = log.first, []
    while position < log.head:
        events, position = made.after(position, None, limit=3, end=log.head)
        assert len(events) <= 3
        seen += numbers(events)
    assert seen == list(range(1, 11))


def test_a_scope_is_found_across_segments_that_do_not_hold_it() -> None:
    log = busy(10, keys=1)
    log.put("b/x", "", "n9")
    for _ in range(10):
        log.put("a/0", "", "n0")
    made = filled(log)
    for chosen in (Scope(prefix="b/"), Scope(key=Key("b/x")), Scope(field=(0, "n9"))):
        assert numbers(made.after(log.first, chosen, limit=100, end=log.head).events) == [11]


def test_large_events_are_given_a_few_at_a_time() -> None:
    log = Log()
    for number in range(20):
        log.put(f"a/{number}", "x" * 1000)
    with mock.patch.object(ring, "PULL_BYTES", 3000):
        assert numbers(filled(log).after(log.first, None, limit=100, end=log.head).events) == [1, 2, 3]


def test_a_long_search_pauses_and_says_how_far_it_came() -> None:
    log = busy(20)
    log.put("b/x")
    made = filled(log)
    with mock.patch.object(ring, "PULL_EXAMINED", 8):
        first = made.after(log.first, Scope(prefix="b/"), limit=100, end=log.head)
        assert (first.events, first.position) == ([], log.first + 8)
        position, found = first.position, []
        while position < log.head:
            events, position = made.after(position, Scope(prefix="b/"), limit=100, end=log.head)
            found += numbers(events)
    assert found == [21]


def test_history_is_put_before_what_is_known() -> None:
    log = busy(10)
    made = Ring(Revision(log.first + 6), budget=Budget(WIDE))
    for record in log.records[6:]:
        made.append(record.event())
    list(made.extend_back([record.event() for record in log.records[2:6]], since=Revision(log.first + 2)))
    assert (made.reach, made.count, made.bare) == (log.first + 2, 8, 1)
    got = made.after(made.reach, None, limit=100, end=log.head)
    assert numbers(got.events) == list(range(3, 11))


def test_events_below_the_floor_are_dropped_by_segments() -> None:
    log = busy(20)
    made = filled(log)
    with mock.patch.object(ring, "LEAST_EVENTS", 0):
        floor = Revision(log.first + 10)
        while made.trim(floor):
            pass
        assert made.reach == log.first + 8
        assert made.count == 12
        assert numbers(made.after(floor, None, limit=100, end=log.head).events) == list(range(11, 21))


def test_newest_thousand_events_stay_below_the_floor_within_the_budget() -> None:
    log = busy(20)
    with mock.patch.object(ring, "LEAST_EVENTS", 10):
        made = filled(log)
        while made.trim(log.head):
            pass
        assert made.count == 12
        poor = filled(log, budget=6 * ring.EVENT_BYTES)
        while poor.trim(log.head):
            pass
        assert poor.size <= poor.budget.bytes


def test_events_above_the_floor_stay_until_the_ring_has_twice_its_budget() -> None:
    log = busy(20)
    size = filled(log).size
    assert not filled(log, budget=size // 2 + 1).trim(log.first)
    made = filled(log, budget=size // 4)
    while made.trim(log.first):
        pass
    assert size // 4 < made.size <= size // 2
    assert made.reach > log.first


def test_all_rings_share_a_budget_and_a_busy_one_evicts_no_quiet_one() -> None:
    log = busy(200)
    size = filled(log).size
    shared = Budget(size)
    quiet, busy_one, busier = (Ring(log.first, budget=shared) for _ in range(3))

    def load(made: Ring, count: int) -> None:
        for record in log.records[:count]:
            if made.append(record.event()):
                made.close(NOTHING)

    load(quiet, 40)
    load(busy_one, 100)
    with mock.patch.object(ring, "LEAST_EVENTS", 0):
        assert [made.overflow(log.first) for made in (quiet, busy_one)] == [None, None], (
            "what nobody else uses may be used"
        )
        load(busier, 200)
        assert shared.used == quiet.size + busy_one.size + busier.size > size
        assert quiet.overflow(log.first) is None
        for made in (busy_one, busier):
            wanted = made.overflow(log.first)
            assert wanted is not None
            while made.trim(wanted):
                pass
            assert made.overflow(wanted) is None
        assert size // 3 - size // 20 < busy_one.size
        assert shared.used == quiet.size + busy_one.size + busier.size <= size
        assert quiet.count == 40
    busier.leave()
    assert shared.used == quiet.size + busy_one.size


def test_overflow_names_the_floor_that_restores_the_budget_of_the_ring() -> None:
    log = busy(40)
    size = filled(log).size
    with mock.patch.object(ring, "LEAST_EVENTS", 0):
        assert filled(log, budget=size).overflow(log.first) is None
        made = filled(log, budget=size * 3 // 4)
        wanted = made.overflow(log.first)
        assert wanted is not None
        assert made.overflow(wanted) is None
        while made.trim(wanted):
            pass
        assert made.size <= made.budget.bytes
        assert made.overflow(wanted) is None


def test_overflow_never_asks_for_the_newest_thousand() -> None:
    log = busy(40)
    with mock.patch.object(ring, "LEAST_EVENTS", 30):
        wanted = filled(log, budget=1 << 10).overflow(log.first)
        assert wanted == log.first + 10


def test_large_events_close_a_segment_early() -> None:
    log = Log()
    for _ in range(64):
        log.put("a/x", "x" * 4096)
    with mock.patch.object(ring, "SEGMENT_EVENTS", 1000):
        made = filled(log, budget=sum(ring._cost(record.event()) for record in log.records))
    assert 12 <= len(made.segments) <= 17


def test_a_superseded_body_is_counted_once_and_a_deletion_counts_its_copy() -> None:
    log = Log()
    created, updated, deleted = log.put("a/x", "x" * 100), log.put("a/x", "x" * 200), log.delete("a/x")
    sizes = [ring._cost(record.event()) - ring.EVENT_BYTES for record in (created, updated, deleted)]
    bodies = [len(record.new.entry().body) for record in (created, updated) if record.new]
    assert sizes == [0, bodies[0], 2 * bodies[1]]


def test_encodings_are_forgotten_a_segment_later() -> None:
    log = busy(12, keys=1)
    made = filled(log)
    events = made.after(log.first, None, limit=100, end=log.head).events
    cache = EncodingCache()
    for event in events:
        cache.remember(event, "frame", b"x", size=1)
    full = cache.size
    for _ in range(4):
        made.append(log.put("a/0").event())
    made.close(NOTHING)
    assert [event.encodings is None for event in events] == [False] * 8 + [True] * 4
    assert 0 < cache.size < full


def test_the_checkpoints_around_a_segment_come_with_the_events_between() -> None:
    made = filled(busy(20))
    states = [Blocks.of(()).freeze() for _ in range(2)]
    for place, state in zip(range(5), (None, states[0], None, states[1], None), strict=True):
        made.segments[place].state = state
    behind = [made.to_checkpoint(place) for place in range(6)]
    assert [state for state, _ in behind] == [states[0], states[0], states[1], states[1], None, None]
    assert [numbers(events) for _, events in behind] == [[5, 6, 7, 8], [], [13, 14, 15, 16], [], [], []]
    before = [made.from_checkpoint(place) for place in range(6)]
    assert [state for state, _ in before] == [None, None, states[0], states[0], states[1], states[1]]
    assert [numbers(events) for _, events in before] == [[], [], [], [9, 10, 11, 12], [], [17, 18, 19, 20]]


@pytest.mark.parametrize("low", range(13))
def test_the_place_of_a_revision_is_that_of_the_first_event_above_it(low: int) -> None:
    made = filled(busy(12))
    place, at = made.place(Revision(made.reach + low))
    assert (place, at) == (low // 4, low % 4)
