from __future__ import annotations

import random
from unittest import mock

import pytest

from apiserver.watchcache import mvcc, ring
from apiserver.watchcache.blocks import Blocks, Frozen
from apiserver.watchcache.entry import Entry, EventType, Key, Revision
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.mvcc import Diverged, Index
from apiserver.watchcache.ring import Budget
from apiserver.watchcache.scope import Scope
from tests.fixtures.cpu import Spent
from tests.fixtures.log import Log, Record, bodies, revision, told

WIDE = 1 << 30


def followed(log: Log, *, budget: int = WIDE) -> Index:
    """An index that has applied the whole log from its first entry on."""
    index = Index(budget=Budget(budget))
    index.load(Blocks.of(()), applied=log.first, floor=log.first)
    follow(index, log.records)
    if log.head > index.applied:
        index.advance(log.head)
    return index


def follow(index: Index, records: list[Record]) -> None:
    for record in records:
        index.apply(record.event(old=record.revision % 2 == 0))


def loaded(log: Log, since: Revision, *, budget: int = WIDE) -> Index:
    """An index that was started at the head of the log, and has read history back to `since`."""
    index = Index(budget=Budget(budget))
    entries = log.at(log.head)
    random.Random(1).shuffle(entries)
    index.load(Blocks.of(entries), applied=log.head, floor=since, ended=log.ended)
    list(index.preload([record.event() for record in log.after(since)], since=since))
    return index


def state(index: Index, at: Revision) -> list[tuple[str, bytes]]:
    view = index.view_at(at)
    assert view.revision == at
    return bodies(list(view.scan()))


def life() -> Log:
    """The example of the module's docstring."""
    log = Log(epoch=7)
    log.put("ns/a", "v1")
    log.put("ns/b", "w1")
    log.put("ns/a", "v2")
    log.delete("ns/a")
    log.fence(8)
    log.put("ns/a", "v3")
    return log


def busy(count: int, *, objects: int, seed: int = 1) -> Log:
    """Creates, updates and deletes in three namespaces, with a fence now and then."""
    rng, log = random.Random(seed), Log()
    for number in range(count):
        key = f"ns{rng.randrange(3)}/{rng.randrange(objects)}"
        if key in log.state and rng.random() < 0.3:
            log.delete(key)
        else:
            log.put(key, str(number), f"n{rng.randrange(4)}")
        if rng.random() < 0.02:
            log.fence()
    return log


@pytest.fixture
def short_segments() -> object:
    with (
        mock.patch.multiple(mvcc, CHECKPOINT_EVENTS=10, CHECKPOINT_SHARE=1, EXACT_VIEWS=2),
        mock.patch.multiple(ring, LEAST_EVENTS=0, SEGMENT_EVENTS=4),
    ):
        yield


# The life of one key


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (revision(7, 0), None),
        (revision(7, 1), "v1"),
        (revision(7, 2), "v1"),
        (revision(7, 3), "v2"),
        (revision(7, 4), None),
        (revision(8, 0), None),
        (revision(8, 1), "v3"),
    ],
)
def test_key_has_the_logs_state_at_each_revision(at: Revision, text: str | None) -> None:
    for index in (followed(life()), loaded(life(), revision(7, 0))):
        entry = index.view_at(at).get("ns/a")
        assert (None if entry is None else entry.body.split(b'"text":"')[1].split(b'"')[0].decode()) == text


def test_a_number_that_its_epoch_never_reached_names_no_state() -> None:
    for index in (followed(life()), loaded(life(), revision(7, 0))):
        assert index.names_state(revision(7, 4))
        for lost in (revision(7, 5), revision(7, 900), revision(6, 1), revision(1, 0)):
            assert not index.names_state(lost)
            with pytest.raises(Compacted):
                index.view_at(lost)


def test_unknown_epoch_names_no_state_though_later_ones_exist() -> None:
    log = life()
    log.fence(20)
    index = followed(log)
    assert index.names_state(revision(8, 1))
    assert not index.names_state(revision(12, 0))
    assert index.names_state(revision(20, 0))


def test_a_revision_above_the_head_is_the_future() -> None:
    index = followed(life())
    for ahead in (revision(8, 2), revision(9, 0)):
        assert not index.names_state(ahead)
        with pytest.raises(Future) as refused:
            index.view_at(ahead)
        assert (refused.value.revision, refused.value.current) == (ahead, revision(8, 1))


def test_floor_alone_decides_which_revisions_are_compacted() -> None:
    index = followed(life())
    index.compact(revision(7, 3))
    assert index.ring_events == 5
    with pytest.raises(Compacted) as refused:
        index.view_at(revision(7, 2))
    assert (refused.value.revision, refused.value.floor) == (revision(7, 2), revision(7, 3))
    assert index.view_at(revision(7, 3)).get("ns/a") is not None
    assert [event.type for event in index.events_after(revision(7, 3)).events] == [EventType.DELETED, EventType.CREATED]


def test_the_floor_never_goes_back() -> None:
    index = followed(life())
    index.compact(revision(8, 0))
    index.compact(revision(7, 1))
    assert index.floor == revision(8, 0)
    assert not index.names_state(revision(7, 4))


# Views


def test_views_of_every_revision_equal_the_fold_of_the_log(short_segments: None) -> None:
    log = busy(150, objects=20)
    for index in (followed(log), loaded(log, log.first)):
        for at in random.Random(2).sample(log.marks, len(log.marks)):
            assert state(index, at) == bodies(log.at(at))


def test_a_view_is_valid_for_ever(short_segments: None) -> None:
    log = busy(120, objects=15)
    index = Index()
    index.load(Blocks.of(()), applied=log.first, floor=log.first)
    kept = []
    for record in log.records:
        if record.revision != index.applied + 1:
            index.advance(Revision(record.revision - 1))
        index.apply(record.event())
        kept.append((index.view(), bodies(log.at(record.revision))))
        if len(kept) % 7 == 0:
            index.compact(index.applied)
    for view, expected in kept:
        assert bodies(list(view.scan())) == expected


def test_a_view_is_made_once_per_revision() -> None:
    log = life()
    index = followed(log)
    assert index.view() is index.view()
    assert index.view_at(log.head) is index.view()
    before = index.view()
    index.advance(revision(9, 0))
    assert index.view().revision == revision(9, 0)
    assert before.revision == log.head


def test_the_pages_of_a_walk_share_one_view(short_segments: None) -> None:
    log = busy(60, objects=9)
    index = followed(log)
    view = index.view_at(log.marks[20])
    assert index.view_at(log.marks[20]) is view
    index.view_at(log.marks[21])
    assert index.view_at(log.marks[20]) is view
    index.view_at(log.marks[22])
    index.view_at(log.marks[23])
    assert index.view_at(log.marks[20]) is not view


def test_an_empty_state_of_the_past_is_a_state(short_segments: None) -> None:
    log = Log()
    for _ in range(4):
        log.put("a", "1")
        log.delete("a")
    log.put("a", "2")
    for index in (followed(log), loaded(log, log.first)):
        for at in log.marks:
            assert state(index, at) == bodies(log.at(at))


# Applying


def test_an_event_gets_the_entry_that_was_held_as_its_previous_one() -> None:
    log = Log()
    index = followed(log)
    follow(index, [log.put("a", "1", "n1")])
    held = index.get("a")
    event = log.put("a", "2", "n1").event(old=False)
    index.apply(event)
    assert held is not None
    assert event.previous is held
    assert event.entry.fields is held.fields
    assert event.entry.key is held.key
    assert index.get("a") is event.entry


@pytest.mark.parametrize(
    "wrong",
    [
        "an update of an absent object",
        "a deletion of an absent object",
        "a creation of an existing object",
        "another predecessor",
        "the same revision again",
        "an older revision",
    ],
)
def test_entry_that_does_not_follow_is_refused_and_changes_nothing(wrong: str) -> None:
    log = Log()
    created, updated = log.put("a", "1"), log.put("a", "2")
    index = followed(log)
    beside = Log()
    beside.head = log.head
    match wrong:
        case "an update of an absent object":
            beside.put("b", "1")
            bad = beside.put("b", "2")
        case "a deletion of an absent object":
            beside.put("b", "1")
            bad = beside.delete("b")
        case "a creation of an existing object":
            bad = beside.put("a", "1")
        case "another predecessor":
            log.put("a", "3")
            bad = log.put("a", "4")
        case "the same revision again":
            bad = updated
        case _:
            bad = created
    with pytest.raises(Diverged):
        index.apply(bad.event())
    assert index.applied == updated.revision
    assert index.ring_events == 2
    assert bodies(list(index.view().scan())) == bodies([updated.new.entry()] if updated.new else [])
    with pytest.raises(Diverged):
        index.advance(index.applied)


# Starting again


def test_a_restarted_replica_serves_every_revision_from_the_floor_on(short_segments: None) -> None:
    log = busy(150, objects=20)
    floor = log.marks[40]
    index = loaded(log, floor)
    assert (index.floor, index.reach, index.applied) == (floor, floor, log.head)
    for at in random.Random(3).sample(log.marks[40:], 60):
        assert state(index, at) == bodies(log.at(at))
        assert [told(event) for event in index.events_after(at, limit=1000).events] == [
            record.told() for record in log.after(at)
        ]
    for at in log.marks[:40]:
        assert not index.names_state(at)


def test_before_history_is_read_only_the_present_can_be_watched_from() -> None:
    log = life()
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.first, ended=log.ended)
    assert index.floor == log.head
    assert index.names_state(log.head)
    assert not index.names_state(revision(7, 3))


def test_history_may_arrive_while_the_log_goes_on(short_segments: None) -> None:
    log = busy(60, objects=8)
    started, late = log.head, log.marks[20]
    index = Index()
    index.load(Blocks.of(log.at(started)), applied=started, floor=late, ended=log.ended)
    for number in range(20):
        index.apply(log.put(f"ns0/{number % 5}", "late").event())
    list(index.preload([record.event() for record in log.after(late, started)], since=late))
    for at in log.marks[20:]:
        assert state(index, at) == bodies(log.at(at))


def test_backfilling_makes_one_checkpoint_at_a_time_and_comes_to_an_end(short_segments: None) -> None:
    log = busy(60, objects=8)
    index = loaded(log, log.first)
    steps = 0
    while index.backfill():
        steps += 1
    assert steps == sum(segment.state is not None for segment in index._ring.segments) > 1
    assert not index.backfill()
    with mock.patch.object(Index, "backfill", side_effect=AssertionError):
        for at in log.marks:
            assert state(index, at) == bodies(log.at(at))


def test_past_state_is_approached_by_as_few_checkpoints_as_possible(
    short_segments: None,
) -> None:
    log = busy(100, objects=8)
    index = loaded(log, log.first)
    middle, early = log.marks[60], log.marks[3]
    bare = [index._ring.bare]
    for at in (middle, early):
        while index.approach(at):
            bare.append(index._ring.bare)
        assert 0 <= index._ring.bare <= index._ring.place(at)[0]
        with mock.patch.object(Index, "backfill", side_effect=AssertionError):
            assert state(index, at) == bodies(log.at(at))
        assert not index.approach(at)
        if at == middle:
            assert index._ring.bare > index._ring.place(early)[0]
    assert bare == sorted(set(bare), reverse=True)


def test_a_revision_that_names_no_state_is_not_approached() -> None:
    log = busy(100, objects=8)
    index = loaded(log, log.marks[50])
    assert index._ring.bare
    assert not index.approach(log.marks[49])
    assert not index.approach(Revision(log.head + 1))
    assert not index.approach(log.head)


def test_looking_far_back_leaves_checkpoints_behind(short_segments: None) -> None:
    log = busy(100, objects=8)
    index = loaded(log, log.first)
    index.view_at(log.marks[3])
    assert sum(segment.state is not None for segment in index._ring.segments) > 3
    assert index._ring.bare <= 1


def test_history_shares_its_entries_and_those_of_the_present() -> None:
    log = Log()
    for text in "123":
        log.put("a", text, "n1")
    index = loaded(log, log.first)
    events = index.events_after(log.first).events
    assert events[1].previous is events[0].entry
    assert events[2].previous is events[1].entry
    assert events[2].entry is index.get("a")
    assert len({id(event.entry.fields) for event in events}) == 1


def test_history_ends_where_the_log_omits_the_only_old_value() -> None:
    log = Log()
    log.put("big", "1")
    since = log.put("a", "1").revision
    omitted = log.put("big", "2")
    known = log.put("big", "3")
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=since)
    list(index.preload([log.records[2].event(old=False), known.event(old=False)], since=since))
    assert index.floor == omitted.revision
    assert [told(event) for event in index.events_after(omitted.revision).events] == [known.told()]
    assert state(index, omitted.revision) == bodies(log.at(omitted.revision))


def test_history_that_contradicts_itself_or_the_present_is_refused() -> None:
    log = Log()
    log.put("a", "1")
    log.put("a", "2")
    log.put("a", "3")
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.first)
    with pytest.raises(Diverged):
        list(index.preload([log.records[0].event(), log.records[2].event()], since=log.first))
    beyond = log.put("b", "1")
    with pytest.raises(Diverged):
        list(index.preload([beyond.event()], since=log.first))
    assert index.ring_events == 0


def test_a_large_window_is_filled_and_let_go_of_in_small_steps() -> None:
    """CPU of one step, of what takes ten times as much in one go."""
    log = busy(30_000, objects=20_000)
    index = Index()
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.first, ended=log.ended)
    events = [record.event() for record in log.records]
    ended = object()
    for steps in (index.preload(events, since=log.first), index.clear()):
        costs: list[Spent] = []
        going = True
        while going:
            with Spent() as spent:
                going = next(steps, ended) is not ended
            costs.append(spent)
        assert len(costs) > 20
        assert max(costs, key=lambda spent: spent.seconds).below(0.02)
        events.clear()
    assert (len(index), index.ring_events, index.applied) == (0, 0, 0)


def test_history_beyond_twice_the_budget_is_not_kept(short_segments: None) -> None:
    log = busy(200, objects=10)
    index = loaded(log, log.first, budget=50 * ring.EVENT_BYTES)
    assert index.ring_bytes <= 2 * 50 * ring.EVENT_BYTES
    assert index.floor == index.reach > log.first
    for at in log.marks:
        if at >= index.floor:
            assert state(index, at) == bodies(log.at(at))


def test_loading_forgets_everything() -> None:
    before = busy(60, objects=8)
    index = followed(before)
    index.view_at(before.marks[50])
    log = Log(epoch=50)
    log.put("other")
    index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=log.first)
    assert (index.applied, index.floor, index.ring_events, index.ring_bytes) == (log.head, log.head, 0, 0)
    assert [entry.key for entry in index.view().scan()] == ["other"]
    assert not index._exact


# Forgetting


def test_compaction_frees_events_and_checkpoints_above_no_floor(short_segments: None) -> None:
    log = busy(150, objects=20)
    for index in (followed(log), loaded(log, log.first)):
        for floor in log.marks[::11]:
            index.compact(floor)
            while index.trim():
                pass
            assert index.reach <= index.floor == floor
            for at in log.marks:
                if at >= floor and at % 3 == 0:
                    assert state(index, at) == bodies(log.at(at))
        assert index.ring_events < 16


def test_compacted_events_do_not_pile_up_without_a_trim(short_segments: None) -> None:
    log = busy(40, objects=8)
    index = followed(log)
    index.compact(log.head)
    for number in range(100):
        index.apply(log.put("ns0/0", str(number)).event())
        index._floor = index.applied
    assert index.ring_events <= 8


def test_a_ring_over_its_budget_names_the_floor_that_would_help(short_segments: None) -> None:
    log = busy(100, objects=8)
    index = followed(log, budget=80 * ring.EVENT_BYTES)
    wanted = index.overflow()
    assert wanted is not None
    assert index.floor < wanted < log.head
    index.compact(wanted)
    while index.trim():
        pass
    assert index.overflow() is None
    assert index.ring_bytes <= 80 * ring.EVENT_BYTES


def test_ring_that_evicts_beyond_the_floor_reports_its_own_floor(short_segments: None) -> None:
    log = busy(200, objects=8)
    index = followed(log, budget=40 * ring.EVENT_BYTES)
    assert index.ring_bytes <= 2 * 40 * ring.EVENT_BYTES + 8 * ring.EVENT_BYTES
    assert index.floor == index.reach > log.first
    with pytest.raises(Compacted):
        index.events_after(Revision(index.reach - 1))
    with pytest.raises(Compacted):
        index.view_at(Revision(index.reach - 1))
    assert state(index, index.floor) == bodies(log.at(index.floor))


def test_events_below_the_floor_are_served_as_long_as_they_are_here() -> None:
    log = life()
    index = followed(log)
    index.compact(log.head)
    got = index.events_after(revision(7, 2), Scope(key=Key("ns/a")))
    assert [told(event) for event in got.events] == [record.told() for record in log.after(revision(7, 2))]


def test_a_checkpoint_is_made_for_as_many_events_as_a_part_of_the_objects() -> None:
    log = Log()
    index = Index(budget=Budget(WIDE))
    entries = [log.put(f"{number:05}").event().entry for number in range(12_800)]
    index.load(Blocks.of(entries), applied=log.head, floor=log.head)
    for number in range(2600):
        index.apply(log.put(f"{number:05}").event(old=False))
    made = [at for at, segment in enumerate(index._ring.segments) if segment.state is not None]
    assert made == [3, 7]  # 1,024 events: the first segment's end that is not below 800


def test_a_view_of_the_past_is_made_from_the_nearer_checkpoint() -> None:
    log = busy(1200, objects=40)
    index = followed(log)
    asked: list[int] = []
    real = mvcc._changed

    def changed(state: Frozen, words: dict[Key, Entry | None]) -> Frozen:
        asked.append(len(words))
        return real(state, words)

    with mock.patch.multiple(mvcc, _changed=changed, EXACT_VIEWS=0):
        for at in (256, 512, 513, 511):
            assert state(index, log.records[at - 1].revision) == bodies(log.at(log.records[at - 1].revision))
    assert asked == [0, 0, 1, 1]
