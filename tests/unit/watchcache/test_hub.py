from __future__ import annotations

import asyncio
import itertools
from unittest import mock

import pytest

from apiserver.watchcache import hub, keys, ring
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import Event, Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Bookmark, Dropped, Hub, Scope, Wake
from tests.fixtures.log import revision
from tests.fixtures.watching import Client, Stage, turns


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def slow() -> Stage:
    """Each slice of the pump serves one watcher."""
    return Stage(one_at_a_time=True)


def wakes(*clients: Client) -> list[Wake | None]:
    return [client.watcher.wake for client in clients]


# Events


def test_a_watcher_in_step_gets_each_event_in_order(stage: Stage) -> None:
    client = stage.client()
    for number in range(200):
        stage.put(f"a/{number % 3}", str(number))
    stage.pump()
    assert client.got == client.owed(stage.log, stage.log.head)
    assert client.watcher.position == stage.log.head


def test_a_watcher_gets_what_happened_between_its_start_and_its_joining(stage: Stage) -> None:
    start = stage.log.head
    stage.put("a/x", "1")
    client = Client(stage.hub, start)
    stage.put("a/x", "2")
    stage.pump()
    assert client.catch_up()
    stage.put("a/x", "3")
    stage.pump()
    assert client.got == client.owed(stage.log, stage.log.head)
    assert len(client.got) == 3


class Outlet:
    """Notes what it is asked for, beside what its client got by then."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.client: Client | None = None

    def hold(self) -> None:
        self._note("hold")

    def release(self) -> None:
        self._note("release")

    def _note(self, word: str) -> None:
        assert self.client is not None
        self.asked.append((word, len(self.client.got)))


def gathering(stage: Stage) -> Outlet:
    """The outlet of a client in step."""
    outlet = Outlet()
    outlet.client = Client(stage.hub, stage.log.head, outlet=outlet)
    assert outlet.client.catch_up()
    return outlet


def test_the_events_of_a_slice_are_gathered_for_few_watchers(stage: Stage) -> None:
    outlets = [gathering(stage) for _ in range(hub.GATHERED_WATCHERS)]
    for number in range(5):
        stage.put("a/x", str(number))
    stage.pump()
    assert [outlet.asked for outlet in outlets] == [[("hold", 0), ("release", 5)]] * len(outlets)


def test_a_single_event_and_events_for_many_are_written_at_once(stage: Stage) -> None:
    outlets = [gathering(stage) for _ in range(hub.GATHERED_WATCHERS)]
    stage.put()
    stage.pump()
    outlets.append(gathering(stage))
    for number in range(5):
        stage.put("a/x", str(number))
    stage.pump()
    assert all(outlet.asked == [] for outlet in outlets)


def test_nothing_is_held_between_two_slices(slow: Stage) -> None:
    outlet = gathering(slow)
    for number in range(3):
        slow.put("a/x", str(number))
    while slow.hub.pump():
        assert outlet.asked[-1][0] == "release"
    assert outlet.client is not None
    assert outlet.client.got == outlet.client.owed(slow.log, slow.log.head)


def test_gathered_events_are_released_when_a_sink_raises(stage: Stage) -> None:
    outlet = gathering(stage)
    broken = stage.client()
    for number in range(3):
        stage.put("a/x", str(number))
    with (
        mock.patch.object(broken, "event", side_effect=ValueError("broken")),
        pytest.raises(ValueError, match="broken"),
    ):
        stage.pump()
    assert outlet.asked == [("hold", 0), ("release", 1)]
    assert broken.watcher.wake is Wake.DROPPED


def test_nothing_is_handed_to_a_watcher_that_has_not_joined(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head)
    stage.put()
    stage.pump()
    assert client.got == []
    assert client.watcher.wake is Wake.BEHIND


def test_a_watcher_whose_buffer_is_full_falls_behind_and_loses_nothing(stage: Stage) -> None:
    client, other = stage.client(), stage.client()
    stage.put("a/x", "1")
    stage.pump()
    client.full = True
    for number in range(20):
        stage.put("a/x", str(number))
    stage.pump()
    assert client.watcher.wake is Wake.BEHIND
    assert other.got == other.owed(stage.log, stage.log.head)
    assert (stage.hub.behind, len(stage.hub)) == (1, 2)
    assert client.catch_up()
    stage.put("a/y")
    stage.pump()
    assert client.got == client.owed(stage.log, stage.log.head)


def test_a_pull_is_bounded_by_its_limit(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head)
    for number in range(10):
        stage.put(f"a/{number}")
    stage.pump()
    assert [client.pull(4), client.pull(4), client.pull(4), client.pull(4)] == [4, 4, 2, 0]


def test_joining_is_refused_while_something_is_left(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head)
    stage.put()
    stage.pump()
    assert not client.watcher.join()
    assert client.catch_up()


def test_an_empty_pull_after_a_long_search_does_not_end_the_search(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head, Scope(prefix="b/"))
    for _ in range(600):
        stage.put("a/x")
    stage.put("b/x")
    stage.pump()
    with mock.patch.object(ring, "PULL_EXAMINED", 256):
        assert client.pull() == 0
        assert not client.watcher.join()
        while not client.catch_up():
            pass
    assert client.got == client.owed(stage.log, stage.log.head)


# Joining while the pump is at work


def test_watcher_that_joins_within_a_round_gets_that_event_once(slow: Stage) -> None:
    others = [slow.client() for _ in range(4)]
    start = slow.log.head
    slow.put("a/x", "1")
    slow.put("a/x", "2")
    assert slow.hub.pump()
    assert slow.hub.pump()
    assert [len(other.got) for other in others] == [1, 1, 0, 0]
    late = slow.client(start)
    assert len(late.got) == 1  # the event of this round by pulling; the next one is the pump's
    slow.pump()
    for client in (*others, late):
        assert client.got == client.owed(slow.log, slow.log.head)


def test_watcher_that_falls_behind_and_returns_gets_that_event_once(slow: Stage) -> None:
    clients = [slow.client() for _ in range(3)]
    clients[0].full = True
    slow.put()
    assert slow.hub.pump()
    assert clients[0].watcher.wake is Wake.BEHIND
    assert clients[0].catch_up()
    slow.put()
    slow.pump()
    for client in clients:
        assert client.got == client.owed(slow.log, slow.log.head)


def test_pulling_never_runs_ahead_of_the_pump(slow: Stage) -> None:
    slow.client()
    slow.client()
    start = slow.log.head
    first = slow.put()
    slow.put()
    late = Client(slow.hub, start)
    assert late.pull() == 0
    assert slow.hub.pump()
    assert slow.hub.horizon == first.revision
    assert late.pull() == 1
    assert late.pull() == 0


def test_watch_from_a_state_ahead_of_the_pump_starts_after_that_state(slow: Stage) -> None:
    slow.client()
    for _ in range(3):
        slow.put()
    late = slow.client()
    slow.put()
    slow.pump()
    assert late.got == late.owed(slow.log, slow.log.head)
    assert len(late.got) == 1


def test_a_watch_from_the_future_is_silent_until_the_log_passes_it(stage: Stage) -> None:
    ahead = Revision(stage.log.head + 3)
    client = stage.client(ahead)
    for _ in range(5):
        stage.put()
        stage.pump()
    assert len(client.got) == 2
    assert client.got == client.owed(stage.log, stage.log.head)


@pytest.mark.parametrize("joined", [True, False])
def test_a_watch_from_a_version_that_an_epoch_ended_without_is_compacted(stage: Stage, joined: bool) -> None:
    start = Revision(stage.log.head + 500)
    client = stage.client(start) if joined else Client(stage.hub, start)
    kept = stage.client(stage.log.head)
    stage.put()
    stage.fence()
    stage.put()
    stage.pump()
    assert client.watcher.wake is Wake.EXPIRED
    with pytest.raises(Compacted) as gone:
        client.watcher.pull()
    assert gone.value.revision == start
    assert client.watcher.join(), "what is over has nothing left to pull"
    assert (client.got, len(kept.got), len(stage.hub)) == ([], 2, 1)


async def test_a_watch_that_sleeps_is_woken_with_what_it_waited_for_in_vain(stage: Stage) -> None:
    client = stage.client(Revision(stage.log.head + 500))
    waiting = asyncio.create_task(client.watcher.wait())
    await turns(lambda: client.watcher.waiter is not None)
    stage.fence()
    with pytest.raises(Compacted):
        await waiting


def test_versions_that_the_log_reached_outlive_the_epoch_and_the_floor(stage: Stage) -> None:
    reached, last = (stage.client(Revision(stage.log.head + ahead)) for ahead in (1, 2))
    stage.put()
    stage.put()
    stage.index.compact(stage.log.head)
    begun = revision(keys.parts(stage.log.head)[0] + 1, 0)
    first, later = stage.client(begun), stage.client(Revision(begun + 3))
    stage.fence()
    stage.put()
    stage.pump()
    assert wakes(reached, last, first, later) == [None] * 4
    assert [len(client.got) for client in (reached, last, first, later)] == [2, 1, 1, 0]
    assert stage.hub.ahead() == [later.watcher]


def test_each_early_watcher_starts_behind_its_own_revision(stage: Stage) -> None:
    start = stage.log.head
    clients = [stage.client(Revision(start + ahead)) for ahead in (2, 3, 4, 5)]
    for _ in range(6):
        stage.put()
    stage.pump()
    assert [len(client.got) for client in clients] == [4, 3, 2, 1]


def test_early_watchers_that_leave_are_forgotten(stage: Stage) -> None:
    client = stage.client(Revision(stage.log.head + 500))
    client.watcher.close()
    assert len(stage.hub) == 0
    assert not stage.hub._early


# Scopes


def test_an_event_touches_only_its_candidates(stage: Stage) -> None:
    clients = {number: stage.client(scope=Scope(field=(0, f"n{number}"))) for number in range(50)}
    with mock.patch.object(Client, "event", autospec=True, side_effect=Client.event) as given:
        stage.put("a/x", "1", "n7")
        stage.pump()
        assert given.call_count == 1
        stage.put("a/x", "2", "n8")
        stage.pump()
        assert given.call_count == 3
    assert [len(clients[number].got) for number in (6, 7, 8)] == [0, 2, 1]


def test_update_that_moves_a_field_reaches_watchers_of_both_values_once(stage: Stage) -> None:
    old, new = (stage.client(scope=Scope(field=(1, value))) for value in ("a", "b"))
    both = stage.client()
    stage.put("x", "1", "b", "a")
    stage.put("x", "2", "a", "b")
    stage.put("x", "3", "a", "b")
    stage.pump()
    assert [len(client.got) for client in (old, new, both)] == [2, 2, 3]


def test_each_scope_hears_of_its_own_by_pump_and_by_pull_alike(stage: Stage) -> None:
    scopes = [
        Scope(),
        Scope(prefix="a/"),
        Scope(prefix="ab/"),
        Scope(key=Key("a/x")),
        Scope(key=Key("b/x")),
        Scope(field=(0, "n1")),
        Scope(field=(0, "")),
        Scope(prefix="a/", field=(0, "n1")),
    ]
    start = stage.log.head
    pumped = [stage.client(scope=scope) for scope in scopes]
    for key, node in itertools.product(("a/x", "a/y", "ab/x", "b/x"), ("n1", "", "n2", "n1")):
        stage.put(key, "", node)
    for key in ("a/x", "b/x"):
        stage.delete(key)
    stage.pump()
    pulled = [stage.client(start, scope) for scope in scopes]
    for one, other in zip(pumped, pulled, strict=True):
        assert one.got == other.got == one.owed(stage.log, stage.log.head)
        assert one.got


def test_nothing_is_left_behind_in_the_index_of_scopes(stage: Stage) -> None:
    clients = [stage.client(scope=Scope(key=Key(f"a/{number}")), bookmarks=True) for number in range(10)]
    for client in clients:
        client.watcher.close()
        client.watcher.close()
    assert not stage.hub._in_step
    assert not any(stage.hub._buckets.values())
    assert len(stage.hub) == 0


# Where a watch may start


def test_a_watch_below_the_floor_is_refused(stage: Stage) -> None:
    floor = [stage.put() for _ in range(5)][3].revision
    stage.index.compact(floor)
    with pytest.raises(Compacted) as refused:
        stage.client(Revision(floor - 1))
    assert (refused.value.revision, refused.value.floor) == (floor - 1, floor)
    assert len(stage.client(floor).got) == 1


def test_a_watch_from_a_lost_write_or_an_unknown_epoch_is_refused(stage: Stage) -> None:
    stage.put()
    stage.fence()
    stage.put()
    for lost in (revision(7, 2), revision(3, 1), Revision(1)):
        with pytest.raises(Compacted):
            stage.client(lost)


def test_compaction_does_not_end_a_running_watch(stage: Stage) -> None:
    client = stage.client()
    client.full = True
    for _ in range(10):
        stage.put()
    stage.pump()
    stage.index.compact(stage.log.head)
    stage.pass_time(1)
    assert client.catch_up()
    assert client.got == client.owed(stage.log, stage.log.head)


# Being dropped


def test_a_watcher_that_does_not_pull_for_half_a_minute_is_dropped(stage: Stage) -> None:
    client, prompt = stage.client(), stage.client()
    client.full = prompt.full = True
    stage.put()
    stage.pump()
    stage.pass_time(29)
    prompt.pull()
    assert wakes(client, prompt) == [Wake.BEHIND, Wake.BEHIND]
    stage.pass_time(2)
    assert wakes(client, prompt) == [Wake.DROPPED, Wake.BEHIND]
    assert (stage.hub.drops, len(stage.hub)) == (1, 1)
    with pytest.raises(Dropped):
        client.pull()
    assert client.watcher.join()


def test_a_watcher_that_is_still_sending_its_initial_state_is_not_dropped(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head)
    stage.put()
    stage.pass_time(300)
    assert client.catch_up()
    assert len(client.got) == 1


def test_a_watcher_whose_position_left_the_ring_is_dropped(stage: Stage) -> None:
    client, sleeper = Client(stage.hub, stage.log.head), Client(stage.hub, stage.log.head)
    for _ in range(2000):
        stage.put()
    stage.index.compact(stage.log.head)
    while stage.index.trim():
        pass
    with pytest.raises(Dropped):
        client.pull()
    assert client.watcher.wake is Wake.DROPPED
    stage.pass_time(1)
    assert sleeper.watcher.wake is Wake.DROPPED
    assert stage.hub.drops == 2


def test_watchers_skip_no_events_when_the_ring_overtakes_the_pump(slow: Stage) -> None:
    clients = [slow.client() for _ in range(3)]
    with mock.patch.object(hub, "BATCH", 1):
        for _ in range(2000):
            slow.put()
        start = Revision(slow.log.head - 2)
        early = slow.client(start)
        slow.index.compact(start)
        while slow.index.trim():
            pass
        slow.pump()
    for client in clients:
        assert client.watcher.wake is Wake.DROPPED
        assert client.got == client.owed(slow.log, Revision(slow.log.first + len(client.got)))
    assert early.watcher.wake is Wake.BEHIND
    assert early.catch_up()
    slow.put()
    slow.pump()
    assert early.got == early.owed(slow.log, slow.log.head)


class Broken:
    def event(self, event: Event) -> bool:
        raise RuntimeError("a bug in a sink")

    def bookmark(self, bookmark: Bookmark) -> bool:
        raise RuntimeError("a bug in a sink")


def test_a_sink_that_raises_costs_its_own_watcher_and_nothing_else(stage: Stage) -> None:
    before = stage.client()
    broken = stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Broken(), bookmarks=True)
    assert broken.join()
    after = stage.client()
    stage.put()
    with pytest.raises(RuntimeError):
        stage.pump()
    assert broken.wake is Wake.DROPPED
    stage.pump()
    for client in (before, after):
        assert client.got == client.owed(stage.log, stage.log.head)


def test_sink_that_raises_at_the_end_of_a_round_does_not_spoil_the_next(stage: Stage) -> None:
    clients = [stage.client() for _ in range(3)]
    broken = stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Broken())
    assert broken.join()
    stage.put()
    stage.put()
    with pytest.raises(RuntimeError):
        stage.pump()
    stage.pump()
    for client in clients:
        assert client.got == client.owed(stage.log, stage.log.head)


def test_a_sink_may_close_its_watcher(stage: Stage) -> None:
    client = stage.client()

    class Leaving:
        def event(self, event: Event) -> bool:
            watcher.close()
            return False

        def bookmark(self, bookmark: Bookmark) -> bool:
            return True

    watcher = stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Leaving())
    assert watcher.join()
    stage.put()
    stage.put()
    stage.pump()
    assert watcher.wake is Wake.ENDED
    assert len(client.got) == 2
    assert len(stage.hub) == 1


# Bookmarks


def test_a_bookmark_comes_each_minute_with_everything_pumped(stage: Stage) -> None:
    client = stage.client(bookmarks=True)
    plain = stage.client()
    stage.put("b/x")
    stage.pump()
    seen: list[int] = []
    for second in range(1, 190):
        stage.pass_time(1)
        if len(client.bookmarks) > len(seen):
            seen.append(second)
    assert seen == [60, 120, 180]
    assert client.bookmarks == [stage.log.head] * 3
    assert plain.bookmarks == []


def test_a_bookmark_counts_fences_and_events_of_others(stage: Stage) -> None:
    client = stage.client(scope=Scope(prefix="b/"), bookmarks=True)
    stage.put("a/x")
    stage.fence()
    stage.pass_time(60)
    assert client.bookmarks == [stage.log.head]


def test_a_quiet_watch_gets_a_bookmark_of_its_start_each_minute(stage: Stage) -> None:
    client = stage.client(bookmarks=True)
    start = stage.log.head
    for _ in range(3):
        stage.pass_time(60)
    assert client.bookmarks == [start] * 3
    stage.put()
    stage.pump()
    stage.pass_time(60)
    assert client.bookmarks[3:] == [stage.log.head]


def test_a_quiet_watch_gets_a_bookmark_two_seconds_before_its_deadline(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head, bookmarks=True, deadline=stage.clock() + 10)
    assert client.catch_up()
    stage.pass_time(7)
    assert client.bookmarks == []
    stage.pass_time(1)
    assert client.bookmarks == [stage.log.head]


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_last_bookmark_comes_once_at_any_fraction_of_a_second(stage: Stage, fraction: float) -> None:
    client = Client(stage.hub, stage.log.head, bookmarks=True, deadline=stage.clock() + 10 + fraction)
    assert client.catch_up()
    for _ in range(100):
        stage.pass_time(0.1)
    assert client.bookmarks == [stage.log.head]


def test_a_watch_from_the_future_gets_no_bookmark_before_the_log_is_there(stage: Stage) -> None:
    ahead = stage.client(Revision(stage.log.head + 2), bookmarks=True)
    stage.pass_time(60)
    stage.put()
    stage.pump()
    stage.pass_time(60)
    assert ahead.bookmarks == []
    stage.put()
    stage.pump()
    stage.pass_time(60)
    assert ahead.bookmarks == [stage.log.head]


def test_first_bookmarks_are_spread_over_a_quarter_of_a_minute(stage: Stage) -> None:
    clients = []
    for number in range(60):
        stage.early = number / 60
        clients.append(stage.client(bookmarks=True))
    counts = []
    for _ in range(120):
        stage.pass_time(1)
        counts.append(sum(len(client.bookmarks) for client in clients))
    came = [now - before for before, now in zip([0, *counts], counts, strict=False)]
    assert max(came) <= 5
    assert (sum(came[:44]), sum(came[:60]), sum(came)) == (0, 60, 120)
    assert came[60:] == came[:60], "and stay a minute apart"


def test_the_watchers_of_one_round_share_what_was_made_of_their_bookmark(stage: Stage) -> None:
    rounds = []

    class Keeping:
        def event(self, event: Event) -> bool:
            return True

        def bookmark(self, bookmark: Bookmark) -> bool:
            rounds.append(bookmark)
            return True

    for _ in range(3):
        assert stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Keeping(), bookmarks=True).join()
    stage.pass_time(60)
    stage.pass_time(60)
    assert [len({id(one) for one in rounds[:3]}), len({id(one) for one in rounds[3:]})] == [1, 1]
    assert rounds[0] is not rounds[3]


def test_tick_with_many_due_bookmarks_is_short_and_the_pump_slices_them(slow: Stage) -> None:
    clients = [slow.client(bookmarks=True) for _ in range(200)]
    slow.clock.now += 60
    slow.hub.tick()
    assert not any(client.bookmarks for client in clients)
    slices = 0
    while slow.hub.pump():
        slices += 1
    assert slices >= 199
    assert all(client.bookmarks == [slow.log.head] for client in clients)


def test_a_watch_that_ends_while_its_bookmark_is_due_gets_none(slow: Stage) -> None:
    first, second = slow.client(bookmarks=True), slow.client(bookmarks=True)
    slow.clock.now += 60
    slow.hub.tick()
    assert slow.hub.pump()
    second.watcher.close()
    slow.pump()
    assert (first.bookmarks, second.bookmarks) == ([slow.log.head], [])
    first.watcher.close()
    assert not any(slow.hub._buckets.values())


def test_one_more_bookmark_comes_two_seconds_before_the_deadline(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head, bookmarks=True, deadline=stage.clock() + 100)
    assert client.catch_up()
    stage.put()
    stage.pump()
    seen: list[int] = []
    for second in range(1, 160):
        stage.pass_time(1)
        if len(client.bookmarks) > len(seen):
            seen.append(second)
    assert seen == [60, 98, 158]


def test_a_watch_of_a_second_has_no_last_bookmark(stage: Stage) -> None:
    client = Client(stage.hub, stage.log.head, bookmarks=True, deadline=stage.clock() + 1)
    assert client.catch_up()
    stage.put()
    stage.pump()
    for _ in range(30):
        stage.pass_time(1)
    assert client.bookmarks == []


def test_slow_watcher_gets_its_bookmark_once_it_has_caught_up(stage: Stage) -> None:
    client = stage.client(bookmarks=True)
    client.full = True
    for _ in range(100):
        stage.put()
    stage.pump()
    for _ in range(40):
        stage.pass_time(1.5)
        assert client.pull(1) == 1
    assert client.bookmarks == []
    assert client.catch_up()
    stage.pass_time(2)
    assert client.bookmarks == [stage.log.head]


def test_a_bookmark_that_finds_the_buffer_full_is_let_go_of(stage: Stage) -> None:
    client = stage.client(bookmarks=True)
    stage.put()
    stage.pump()
    client.full = True
    stage.pass_time(60)
    assert client.bookmarks == []
    assert client.watcher.wake is None
    client.full = False
    stage.pass_time(59)
    assert client.bookmarks == []
    stage.pass_time(1)
    assert client.bookmarks == [stage.log.head]


def test_bookmarks_are_not_sent_in_the_middle_of_an_event(slow: Stage) -> None:
    clients = [slow.client(bookmarks=True) for _ in range(3)]
    slow.put()
    slow.pump()
    first = slow.put()
    slow.put()
    assert slow.hub.pump()
    slow.clock.now += 60
    slow.hub.tick()
    slow.hub.tick()  # overdue: not even the next event comes before them
    slow.pump()
    for client in clients:
        assert client.bookmarks == [first.revision]
        assert client.got == client.owed(slow.log, slow.log.head)


def test_bookmarks_come_even_when_events_never_end(slow: Stage) -> None:
    client = slow.client(bookmarks=True)
    slow.put()
    slow.pump()
    slow.clock.now += 60
    for _ in range(4):
        slow.hub.tick()
        for _ in range(3):
            slow.put()
        assert slow.hub.pump()
        slow.clock.now += 1
    assert len(client.bookmarks) == 1
    assert client.bookmarks[0] < slow.log.head


# The end


async def test_ending_all_wakes_every_waiter_at_once(stage: Stage) -> None:
    clients = [stage.client(), stage.client(Revision(stage.log.head + 9)), Client(stage.hub, stage.log.head)]
    waits = [asyncio.ensure_future(client.watcher.wait()) for client in clients]
    await asyncio.sleep(0)
    assert [wait.done() for wait in waits] == [False, False, True]
    assert stage.hub.end_all() == 0
    assert await asyncio.gather(*waits) == [Wake.ENDED, Wake.ENDED, Wake.BEHIND]
    assert [await client.watcher.wait() for client in clients] == [Wake.ENDED] * 3
    for client in clients:
        assert client.pull() == 0
        assert client.watcher.join()
    stage.put()
    stage.pump()
    assert [client.got for client in clients] == [[], [], []]


async def test_watches_can_be_ended_a_few_at_a_time_oldest_first(stage: Stage) -> None:
    clients = [stage.client() for _ in range(5)]
    assert stage.hub.end_all(at_most=2) == 3
    assert [client.watcher.wake for client in clients] == [Wake.ENDED] * 2 + [None] * 3
    stage.put()
    stage.pump()
    assert [len(client.got) for client in clients] == [0, 0, 1, 1, 1]


async def test_a_waiter_hears_that_it_fell_behind_was_dropped_or_closed(stage: Stage) -> None:
    clients = [stage.client() for _ in range(3)]
    waits = [asyncio.ensure_future(client.watcher.wait()) for client in clients]
    await asyncio.sleep(0)
    clients[0].full = True
    stage.put()
    stage.pump()
    assert await waits[0] is Wake.BEHIND
    clients[1].watcher.close()
    assert await waits[1] is Wake.ENDED
    stage.hub._drop(clients[2].watcher)
    assert await waits[2] is Wake.DROPPED


async def test_a_cancelled_wait_leaves_the_watcher_in_step(stage: Stage) -> None:
    client = stage.client()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.watcher.wait()
    stage.put()
    stage.pump()
    assert len(client.got) == 1
    client.full = True
    stage.put()
    stage.pump()
    assert await client.watcher.wait() is Wake.BEHIND


def test_after_an_end_nothing_of_the_old_lineage_is_handed_out(slow: Stage) -> None:
    clients = [slow.client() for _ in range(3)]
    for _ in range(5):
        slow.put("lost")
    assert slow.hub.pump()
    slow.hub.end_all()
    log, floor = type(slow.log)(), slow.log.first
    log.put("kept")
    log.fence()
    slow.log = log
    slow.index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=floor, ended=log.ended)
    list(slow.index.preload([record.event() for record in log.records], since=floor))
    fresh = [slow.client(floor), slow.client()]
    slow.put("new")
    slow.pump()
    for client in fresh:
        assert client.got == client.owed(log, log.head)
    assert [len(client.got) for client in clients] == [1, 0, 0]


# Running


def test_published_events_are_delivered_in_the_step_that_fed_the_index(stage: Stage) -> None:
    clients = [stage.client() for _ in range(3)]
    stage.put()
    stage.put()
    stage.hub.deliver()
    for client in clients:
        assert client.got == client.owed(stage.log, stage.log.head)


async def test_deliveries_beyond_the_step_budget_are_left_to_the_pump(slow: Stage) -> None:
    clients = [slow.client() for _ in range(3)]
    running = asyncio.ensure_future(slow.hub.run())
    await asyncio.sleep(0)
    slow.put()
    slow.hub.deliver()
    assert [len(client.got) for client in clients] == [1, 0, 0]
    await turns(lambda: bool(clients[-1].got))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for client in clients:
        assert client.got == client.owed(slow.log, slow.log.head)


async def test_sink_that_raises_in_that_step_stops_the_pump_and_not_the_feeder(stage: Stage) -> None:
    before = stage.client()
    broken = stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Broken())
    assert broken.join()
    after = stage.client()
    running = asyncio.ensure_future(stage.hub.run())
    await asyncio.sleep(0)
    stage.put()
    stage.hub.deliver()
    with pytest.raises(RuntimeError):
        await running
    assert broken.wake is Wake.DROPPED
    running = asyncio.ensure_future(stage.hub.run())
    await turns(lambda: bool(after.got))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for client in (before, after):
        assert client.got == client.owed(stage.log, stage.log.head)


async def test_the_pump_runs_by_itself_and_ticks_by_the_clock(slow: Stage) -> None:
    client = slow.client(bookmarks=True)
    running = asyncio.ensure_future(slow.hub.run())
    for _ in range(3):
        await asyncio.sleep(0)
        slow.put()
        slow.hub.deliver()
        await turns(lambda: client.watcher.position == slow.log.head)
    slow.clock.now += 60
    slow.put()
    slow.hub.deliver()
    await turns(lambda: bool(client.bookmarks))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert client.got == client.owed(slow.log, slow.log.head)
    assert client.bookmarks == [slow.log.head]


async def test_an_idle_pump_wakes_itself_for_its_tick(stage: Stage) -> None:
    with mock.patch.object(hub, "TICK_SECONDS", 0.001):
        idle = Hub(stage.index, clock=asyncio.get_running_loop().time)
        ticks = 0
        done = asyncio.Event()

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            Hub.tick(idle)
            if ticks == 3:
                done.set()

        with mock.patch.object(idle, "tick", tick):
            running = asyncio.ensure_future(idle.run())
            await done.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def test_the_pump_lets_others_run_between_slices(slow: Stage) -> None:
    clients = [slow.client() for _ in range(50)]
    running = asyncio.ensure_future(slow.hub.run())
    slow.put()
    served = set()

    def all_served() -> bool:
        served.add(sum(len(client.got) for client in clients))
        return len(clients[-1].got) > 0

    await turns(all_served)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(served) > 40


async def test_a_pump_that_a_sink_stopped_can_be_started_again(stage: Stage) -> None:
    broken = stage.hub.watch(after=stage.log.head, scope=Scope(), sink=Broken())
    assert broken.join()
    client = stage.client()
    stage.put()
    with pytest.raises(RuntimeError):
        await stage.hub.run()
    running = asyncio.ensure_future(stage.hub.run())
    await turns(lambda: bool(client.got))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert client.got == client.owed(stage.log, stage.log.head)


def test_without_watchers_an_event_costs_nothing(stage: Stage) -> None:
    stage.put()
    assert stage.hub.pumped == stage.log.head
    with mock.patch.object(Hub, "_open_round", side_effect=AssertionError):
        stage.put()
    assert stage.client().got == []
