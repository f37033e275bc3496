"""Invariants 3, 5, 6, 8, 9, 10 and 12 of tests/promises/README.md on the index and the hub alone, under every order of events that
Hypothesis finds: writes, fences, lost writes, restarts, compactions, and clients that come, pull, join, stall and leave while the
pump hands out one event to one watcher at a time.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from apiserver.watchcache import blocks, hub, keys, lookup, mvcc, ring
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.hub import Bookmark, Dropped, Scope, Wake
from apiserver.watchcache.mvcc import Diverged, View
from tests.fixtures.log import Log, bodies
from tests.fixtures.watching import Client, Stage

KEYS = ("a/x", "a/y", "a/z", "ab/x", "b/x", "b/y", "c")
NODES = ("", "n1", "n2")
SCOPES = (
    Scope(),
    Scope(prefix="a/"),
    Scope(prefix="b/"),
    Scope(key=Key("a/x")),
    Scope(key=Key("c")),
    Scope(field=(0, "n1")),
    Scope(field=(0, "")),
    Scope(prefix="a/", field=(0, "n1")),
)
WHICH = st.integers(0, 1 << 30)


class Watch(Client):
    """A client that also remembers how many events came before each bookmark."""

    def __init__(self, stage: Stage, after: Revision, scope: Scope) -> None:
        self.bookmarked: list[tuple[Revision, int]] = []
        super().__init__(stage.hub, after, scope, bookmarks=True)
        self.pulled_at = stage.clock()

    def bookmark(self, bookmark: Bookmark) -> bool:
        taken = super().bookmark(bookmark)
        if taken:
            self.bookmarked.append((bookmark.revision, len(self.got)))
        return taken


class IndexAndHub(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.small = contextlib.ExitStack()
        self.small.enter_context(mock.patch.multiple(blocks, TYPICAL=2, MOST=4, FEWEST=1))
        self.small.enter_context(mock.patch.multiple(lookup, MANY=2, CHANGES=2, FILLED_AT_ONCE=2))
        self.small.enter_context(mock.patch.multiple(mvcc, CHECKPOINT_EVENTS=6, CHECKPOINT_SHARE=1, EXACT_VIEWS=2))
        self.small.enter_context(mock.patch.multiple(ring, LEAST_EVENTS=3, SEGMENT_EVENTS=4, PULL_EXAMINED=6))
        self.small.enter_context(mock.patch.object(hub, "BATCH", 2))
        self.stage = Stage(one_at_a_time=True)
        self.floor = self.log.first
        self.watches: list[Watch] = []
        self.kept: list[tuple[View, list[tuple[str, bytes]]]] = []
        self.lost: set[Revision] = set()
        self.load()

    @property
    def log(self) -> Log:
        return self.stage.log

    def pick(self, which: int) -> Watch:
        return self.watches[which % len(self.watches)]

    def snapshot(self) -> tuple[object, ...]:
        index = self.stage.index
        return (
            index.applied,
            index.floor,
            index.reach,
            index.ring_events,
            index.ring_bytes,
            bodies([*index.view().scan()]),
        )

    # The log goes on

    @rule(
        writes=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(NODES), st.booleans()), min_size=1, max_size=4)
    )
    def write(self, writes: list[tuple[str, str, bool]]) -> None:
        for key, node, old in writes:
            event = self.log.put(key, str(len(self.log.records)), node).event(old=old)
            self.stage.index.apply(event)
            self.stage.hub.publish(event)

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        if self.log.state:
            self.stage.delete(sorted(self.log.state)[which % len(self.log.state)])

    @rule(which=WHICH)
    def something_rarer(self, which: int) -> None:
        """Apart from the rules for clients and writes, or they would hardly ever get far."""
        rare = (self.fence, self.fence, self.hear_something_again, self.restart, self.lose_writes, self.backfill)
        rare[which % len(rare)](which // len(rare))

    def fence(self, which: int) -> None:
        ended = self.log.head
        self.stage.fence(keys.parts(ended)[0] + 1 + which % 3)
        for watch in [watch for watch in self.watches if watch.watcher.wake is Wake.EXPIRED]:
            assert ended < watch.after < self.log.head, "it waited for what this epoch has ended without"
            assert watch.got == []
            with pytest.raises(Compacted):
                watch.pull()
            self.watches.remove(watch)

    def hear_something_again(self, which: int) -> None:
        """Invariant 3: a revision never names a second change. Invariant 12: what is refused changes nothing."""
        before = self.snapshot()
        for record in self.log.records[: which % 7]:
            with pytest.raises(Diverged):
                self.stage.index.apply(record.event())
        key = next(iter(self.log.state), None)
        unfit = EventType.UPDATED if key is None else EventType.CREATED
        above = Revision(self.log.head + 1)
        with pytest.raises(Diverged):
            self.stage.index.apply(Event(above, unfit, Entry(Key(key or "c"), above, b"{}", NO_LABELS, ("",)), None))
        assert self.snapshot() == before

    # This replica starts again

    def restart(self, _: int) -> None:
        self.end_watches()
        self.load()

    def lose_writes(self, which: int) -> None:
        """A failover to a server that has not seen the newest writes: their numbers must never mean anything again."""
        self.end_watches()
        old = self.log
        fenced = keys.revision(f"{keys.parts(old.head)[0]}-0")
        kept = Revision(max(old.head - which % 7, self.floor, fenced))
        log = Log()
        log.first, log.ended = old.first, dict(old.ended)
        for record in old.after(Revision(0), kept):
            log._append(record)
        log.marks, log.head = [mark for mark in old.marks if mark <= kept], kept
        self.lost |= {Revision(number) for number in range(kept + 1, old.head + 1)}
        log.fence()
        self.stage.log = log
        self.load()

    def load(self) -> None:
        index, log = self.stage.index, self.log
        index.load(Blocks.of(log.at(log.head)), applied=log.head, floor=self.floor, ended=log.ended, listed_by=[0])
        list(index.preload([record.event() for record in log.after(self.floor)], since=self.floor))

    def end_watches(self) -> None:
        assert self.stage.hub.end_all() == 0
        for watch in self.watches:
            self.check(watch)
            assert watch.watcher.wake in (Wake.ENDED, Wake.DROPPED)
        self.watches.clear()

    def backfill(self, _: int) -> None:
        before = self.snapshot()
        self.stage.index.backfill()
        assert self.snapshot() == before

    @rule(which=WHICH, trims=st.integers(0, 3))
    def compact(self, which: int, trims: int) -> None:
        allowed = [mark for mark in self.log.marks if mark >= self.floor]
        self.floor = allowed[which % (len(allowed) if which % 4 == 0 else 1 + len(allowed) // 2)]
        self.stage.index.compact(self.floor)
        for _ in range(trims):
            self.stage.index.trim()

    # Reading

    def revisions(self, which: int) -> Revision:
        """Every revision that was a head, and what lies around them: numbers never given, lost ones, the future."""
        near = [Revision(mark + step) for mark in self.log.marks for step in (0, 0, 1, -1)]
        return [*near, *sorted(self.lost), Revision(0), Revision(self.log.head + 5)][
            which % (len(near) + len(self.lost) + 2)
        ]

    def legal(self, revision: Revision) -> bool:
        return self.floor <= revision <= self.log.head and self.log.names_state(revision)

    @rule(which=WHICH)
    def read_at(self, which: int) -> None:
        """Invariants 6, 8, 9 and 12: the fold of the log, or 410 exactly where the rule says so, or the future."""
        before, revision = self.snapshot(), self.revisions(which)
        assert self.stage.index.names_state(revision) == self.legal(revision)
        if revision > self.log.head:
            with pytest.raises(Future):
                self.stage.index.view_at(revision)
        elif not self.legal(revision):
            with pytest.raises(Compacted):
                self.stage.index.view_at(revision)
        else:
            view, expected = self.stage.index.view_at(revision), bodies(self.log.at(revision))
            assert (view.revision, bodies([*view.scan()])) == (revision, expected)
            assert view.count("a/") == sum(key.startswith("a/") for key, _ in expected)
            self.kept.append((view, expected))
            self.look_up(view)
        assert self.snapshot() == before

    def look_up(self, view: View) -> None:
        """Invariant 6 for lists by a field: what is known of a value is what a scan finds."""
        for node in NODES:
            found = view.having((0, node))
            if found is not None:
                assert list(found) == [entry for entry in view.scan() if entry.fields[0] == node]

    @invariant()
    def the_present_is_the_fold_of_the_log(self) -> None:
        index = self.stage.index
        assert (index.applied, index.floor) == (self.log.head, self.floor)
        assert index.reach <= self.floor
        assert [(entry.key, entry.revision) for entry in index.view().scan()] == [
            (key, self.log.state[key].revision) for key in sorted(self.log.state)
        ]
        assert index.view().having((0, NODES[0])) is not None
        self.look_up(index.view())

    # Watching

    @rule(which=WHICH, scope=st.sampled_from(SCOPES))
    def watch(self, which: int, scope: Scope) -> None:
        revision = self.revisions(which)
        if revision <= self.log.head and not self.legal(revision):
            with pytest.raises(Compacted):
                Watch(self.stage, revision, scope)
        elif len(self.watches) < 8:
            self.watches.append(Watch(self.stage, revision, scope))

    @rule(scope=st.sampled_from(SCOPES))
    def watch_from_now(self, scope: Scope) -> None:
        if len(self.watches) < 8:
            self.watches.append(Watch(self.stage, self.stage.index.view().revision, scope))
            self.watches[-1].catch_up()

    @precondition(lambda self: self.watches)
    @rule(which=WHICH, limit=st.integers(1, 4))
    def pull(self, which: int, limit: int) -> None:
        watch = self.pick(which)
        watch.pulled_at = self.stage.clock()
        try:
            watch.pull(limit)
        except Dropped:
            self.gone(watch)

    @precondition(lambda self: self.watches)
    @rule(which=WHICH)
    def join(self, which: int) -> None:
        watch = self.pick(which)
        watch.full = False
        was_behind = watch.watcher.wake is Wake.BEHIND
        left = watch.owed(self.log, self.stage.hub.horizon) != watch.got
        if watch.watcher.join() and was_behind:
            assert watch.watcher.wake is None
            assert not left or watch.after > self.stage.hub.horizon

    @precondition(lambda self: self.watches)
    @rule(which=WHICH)
    def catch_up(self, which: int) -> None:
        watch = self.pick(which)
        watch.pulled_at = self.stage.clock()
        try:
            watch.catch_up()
        except Dropped:
            self.gone(watch)

    @precondition(lambda self: self.watches)
    @rule(which=WHICH)
    def fill(self, which: int) -> None:
        self.pick(which).full = True

    @precondition(lambda self: self.watches)
    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        watch = self.watches.pop(which % len(self.watches))
        watch.watcher.close()
        self.check(watch)

    @rule(steps=st.integers(1, 4))
    def pump(self, steps: int) -> None:
        for _ in range(steps):
            self.stage.hub.pump()
        self.sweep()

    @rule()
    def pump_dry(self) -> None:
        self.stage.pump()
        self.sweep()
        assert self.stage.hub.pumped == self.log.head
        for watch in self.watches:
            if watch.watcher.wake is None:
                assert watch.got == watch.owed(self.log, self.log.head)

    @rule(seconds=st.sampled_from([1, 5, 20, 61]))
    def pass_time(self, seconds: float) -> None:
        self.stage.clock.now += seconds
        self.stage.hub.tick()
        self.sweep()

    def sweep(self) -> None:
        for watch in [watch for watch in self.watches if watch.watcher.wake is Wake.DROPPED]:
            self.gone(watch)

    def gone(self, watch: Watch) -> None:
        """Nobody is dropped without a reason: nothing left to pull from, or half a minute without a pull."""
        assert watch.watcher.wake is Wake.DROPPED
        out = watch.watcher.position < self.stage.index.reach
        assert out or self.stage.clock() - watch.pulled_at > hub.STALL_SECONDS
        self.check(watch)
        self.watches.remove(watch)

    def check(self, watch: Watch) -> None:
        """Invariant 5: the log filtered by the scope from its start, a beginning of it. Invariant 10: bookmarks divide it."""
        owed = watch.owed(self.log, self.log.head)
        assert watch.got == owed[: len(watch.got)]
        for revision, given in watch.bookmarked:
            assert revision >= watch.after
            assert watch.got[:given] == watch.owed(self.log, revision)
        assert watch.bookmarks == sorted(watch.bookmarks)

    @invariant()
    def every_watch_is_the_log_from_its_start(self) -> None:
        for watch in self.watches:
            self.check(watch)
            due = watch.owed(self.log, min(watch.watcher.position, self.log.head))
            assert watch.got[: len(due)] == due
            assert len(watch.got) <= len(due) + 1

    @invariant()
    def every_watch_starts_from_a_state_or_waits_for_one(self) -> None:
        assert all(watch.after > self.log.head or self.log.names_state(watch.after) for watch in self.watches)

    @invariant()
    def every_watcher_is_in_one_place(self) -> None:
        stage = self.stage.hub
        in_step = [watcher for group in stage._in_step.values() for watcher in group]
        assert sorted(map(id, [*stage._behind, *stage._early, *in_step])) == sorted(map(id, stage._watchers))
        assert {watch.watcher for watch in self.watches} == set(stage._watchers)

    def teardown(self) -> None:
        self.stage.pump()
        self.sweep()
        for watch in list(self.watches):
            try:
                while not watch.catch_up():
                    self.stage.pump()
            except Dropped:
                self.gone(watch)
                continue
            assert watch.got == watch.owed(self.log, self.log.head)
        for view, expected in self.kept:
            self.look_up(view)
            assert bodies([*view.scan()]) == expected
        self.small.close()


def test_views_and_watches_keep_their_promises_in_any_order_of_events() -> None:
    run_state_machine_as_test(IndexAndHub, settings=settings(max_examples=100, stateful_step_count=80))
