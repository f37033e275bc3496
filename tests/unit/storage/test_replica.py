"""A replica's memory fed by hand: what it follows, what it does not, and what it does then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from apiserver import metrics
from apiserver.runtime.offload import READ_STORED
from apiserver.storage import log
from apiserver.storage.bootstrap import Filled
from apiserver.storage.errors import Initializing
from apiserver.storage.functions import Head
from apiserver.storage.log import RawEntry
from apiserver.storage.options import StoreOptions
from apiserver.storage.replica import Progress, Replica
from apiserver.watchcache import keys
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import AdoptFunc, Entry, Event, EventType, Key, Revision, splice
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Bookmark, Wake
from apiserver.watchcache.ring import Budget
from apiserver.watchcache.scope import Scope
from tests.fixtures.valkey import index_func, value
from tests.fixtures.watching import Clock

RESOURCE = "replica.example.com/things"


def rev(epoch: int, n: int) -> Revision:
    return keys.revision(f"{epoch}-{n}")


def head(last: Revision, *, marker: str = "marker", floor: Revision | None = None) -> Head:
    return Head(keys.parts(last)[0], last, floor or rev(7, 0), True, 0, 0, 1000, None, marker, "1")


class Fed:
    """A replica of an empty log 7-0, and the log that goes on."""

    def __init__(self, adopt: AdoptFunc | None = None) -> None:
        self.clock = Clock()
        self.seen: list[tuple[bytes, Entry]] = []
        self.replica = Replica(
            RESOURCE,
            index_func,
            options=StoreOptions(url="unix:///none"),
            budget=Budget(1 << 30),
            clock=self.clock,
            seen=lambda token, entry: self.seen.append((token, entry)),
            adopt=adopt,
        )
        self.fill()

    def fill(self, applied: Revision | None = None) -> None:
        at = applied or rev(7, 0)
        list(self.replica.install(Filled(head(at, floor=at), Blocks.of(()), at, at, since=at)))

    def feed(self, *entries: RawEntry) -> None:
        self.replica.feed(entries)


def raw(
    id_: str, before: str, kind: bytes, key: str, *values: bytes, previous: str = "-", token: bytes = b"t"
) -> RawEntry:
    head_ = (b"k", key.encode(), b"t", kind, b"m", previous.encode(), b"p", before.encode(), b"w", token)
    return id_.encode(), [*head_, *values]


@pytest.mark.parametrize("changes", [False, True])
async def test_a_large_value_is_read_once_and_in_a_thread(changes: bool) -> None:
    threads: list[threading.Thread] = []

    def adopt(value: bytes) -> bytes:
        threads.append(threading.current_thread())
        return value.replace(b"xx", b"yy") if changes else value

    fed, large = Fed(adopt), value("a", "x" * READ_STORED.limit)
    assert fed.replica.unread([large, value("a", "x")]) == [large]
    await fed.replica.prepare([large, value("a", "x")])
    fed.feed(raw("7-1", "7-0", log.CREATE, "a", b"v", b"%b" % large))

    entry = fed.replica.current(Key("a"))
    assert entry is not None
    assert (entry.adopted, b"yy" in entry.value) == (changes, changes)
    assert len(threads) == 1
    assert threading.main_thread() not in threads
    assert not fed.replica._prepared


def test_values_of_kinds_that_are_read_as_they_are_need_no_thread() -> None:
    assert Fed().replica.unread([value("a", "x" * READ_STORED.limit)]) == []


CREATED = raw("7-1", "7-0", log.CREATE, "a", b"v", value("a", "one"))
UPDATED = raw("7-2", "7-1", log.UPDATE, "a", b"v", value("a", "two"), b"o", value("a", "one"), previous="7-1")
DELETED = raw("7-3", "7-2", log.DELETE, "a", b"o", value("a", "two"), previous="7-2")
FENCE = raw("8-0", "7-3", log.FENCE, "")


class Ear:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> bool:
        self.events.append(event)
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True


def counted(reason: str) -> float:
    return metrics.REBUILDS.labels("things.replica.example.com", reason).value


def test_entries_become_events_with_the_states_before_and_after() -> None:
    fed = Fed()
    watcher = fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=Ear())
    fed.feed(CREATED, UPDATED, DELETED)
    fed.replica.hub.pump()
    events = watcher.pull()
    assert [(event.revision, event.type) for event in events] == [
        (rev(7, 1), EventType.CREATED),
        (rev(7, 2), EventType.UPDATED),
        (rev(7, 3), EventType.DELETED),
    ]
    assert events[2].entry.body == splice(value("a", "two"), rev(7, 3))
    assert events[2].previous is events[1].entry
    assert fed.replica.applied == rev(7, 3)
    assert fed.replica.position() == b"7-3"


def test_watcher_has_an_event_as_soon_as_the_log_was_fed() -> None:
    fed, ear = Fed(), Ear()
    fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=ear).join()
    fed.feed(CREATED, UPDATED)
    assert [event.revision for event in ear.events] == [rev(7, 1), rev(7, 2)]


def test_tokens_come_with_the_entries_that_they_made() -> None:
    fed = Fed()
    fed.feed(CREATED, UPDATED, DELETED)
    assert [(token, entry.revision) for token, entry in fed.seen] == [(b"t", rev(7, n)) for n in (1, 2, 3)]


def test_a_fence_moves_the_revision_and_the_epoch_and_is_no_event() -> None:
    fed = Fed()
    ear = Ear()
    fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=ear).join()
    fed.feed(CREATED, UPDATED, DELETED, FENCE)
    while fed.replica.hub.pump():
        pass
    assert len(ear.events) == 3
    assert (fed.replica.applied, fed.replica.epoch, fed.replica.filled) == (rev(8, 0), b"8", True)
    assert not fed.replica.index.names_state(rev(7, 4))


@pytest.mark.parametrize(
    "entry",
    [
        raw("7-3", "7-2", log.CREATE, "b", b"v", value("b")),  # one is missing between
        raw("7-2", "7-1", log.UPDATE, "a", b"v", value("a"), previous="7-0"),  # another state of the object
        raw("7-2", "7-1", log.UPDATE, "b", b"v", value("b"), previous="7-1"),  # a missing object
        raw("7-2", "7-1", log.CREATE, "a", b"v", value("a")),  # an existing object
        raw("7-2", "7-1", log.DELETE, "b", previous="7-1"),
        raw("7-2", "7-1", b"5", "a"),
        (b"7-2", [b"something", b"else"]),
    ],
)
def test_gap_discards_memory_and_ends_watches_cleanly(entry: RawEntry) -> None:
    fed = Fed()
    watcher = fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=Ear())
    watcher.join()
    before = counted("gap")
    fed.feed(CREATED, entry)
    assert counted("gap") == before + 1
    assert watcher.wake is Wake.ENDED
    assert fed.replica.position() is None
    assert fed.replica.wants_filling.is_set()
    fed.clock.now += 5
    with pytest.raises(Initializing) as caught:
        fed.replica.require()
    assert caught.value.seconds == 5
    assert caught.value.reason
    fed.feed(UPDATED)  # later entries are not for this memory
    assert fed.replica.applied == rev(7, 1)
    fed.fill(rev(7, 5))
    fed.replica.require()
    assert (fed.replica.applied, fed.replica.position()) == (rev(7, 5), b"7-5")


async def test_acknowledged_writes_missing_in_the_surviving_log_are_counted() -> None:
    fed = Fed()
    lost = metrics.LOST_WRITES.labels("things.replica.example.com")
    before, rebuilt = lost.value, counted("lineage")
    fed.feed(CREATED, UPDATED)
    fed.replica.acknowledged(rev(7, 4), Key("b"))
    fed.replica.acknowledged(rev(8, 1), Key("c"))
    fed.feed(raw("8-0", "7-1", log.FENCE, ""))
    assert counted("lineage") == rebuilt + 1
    assert not fed.replica.filled

    async def head_of(epoch: int) -> Head:
        return head(last=rev(8, 1))._replace(epoch=8, fenced=1 if epoch == 7 else None)

    await fed.replica.count_lost(head_of)
    assert lost.value - before == 3


def test_an_old_value_that_was_left_out_raises_the_floor() -> None:
    fed = Fed()
    fed.feed(CREATED, raw("7-2", "7-1", log.UPDATE, "a", b"v", value("a", "two"), previous="7-1"))
    assert fed.replica.index.floor == rev(7, 2)
    with pytest.raises(Compacted):
        fed.replica.hub.watch(after=rev(7, 1), scope=Scope(), sink=Ear())


def test_a_watch_in_step_survives_a_floor_that_rises_over_it() -> None:
    fed = Fed()
    ear = Ear()
    watcher = fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=ear)
    watcher.join()
    fed.feed(CREATED, raw("7-2", "7-1", log.UPDATE, "a", b"v", value("a", "two"), previous="7-1"))
    while fed.replica.hub.pump():
        pass
    assert [event.revision for event in ear.events] == [rev(7, 1), rev(7, 2)]
    assert watcher.wake is None


# ---------------------------------------------------------------------------------------------------------------------- heads


def test_a_lost_resource_keeps_its_memory_and_its_watches_and_is_not_read() -> None:
    fed = Fed()
    watcher = fed.replica.hub.watch(after=rev(7, 0), scope=Scope(), sink=Ear())
    watcher.join()
    fed.feed(CREATED)
    fed.replica.lost("no meta")
    assert fed.replica.position() is None
    assert fed.replica.fault is not None
    assert (fed.replica.filled, watcher.wake) == (True, None)
    fed.replica.require()
    fed.replica.meet(head(rev(7, 1)), known=rev(7, 1))
    assert fed.replica.position() == b"7-1"


def test_another_installation_is_not_followed() -> None:
    fed = Fed()
    fed.replica.meet(head(rev(7, 5), marker="another"), known=rev(7, 0))
    assert not fed.replica.filled


def test_a_log_that_ends_before_what_was_known_lost_something() -> None:
    fed = Fed()
    fed.feed(CREATED, UPDATED)
    fed.replica.meet(head(rev(7, 1)), known=rev(7, 2))
    assert not fed.replica.filled


def test_a_head_that_is_older_than_what_came_meanwhile_proves_nothing() -> None:
    fed = Fed()
    known = fed.replica.applied
    fed.feed(CREATED, UPDATED)
    fed.replica.meet(head(rev(7, 1)), known=known)
    assert fed.replica.filled


def test_server_waits_without_limit_to_read_a_log_that_is_ahead() -> None:
    fed = Fed()
    for _ in range(3):
        fed.replica.meet(head(rev(7, 3)), known=rev(7, 0))
        fed.clock.now += 1000
    assert fed.replica.filled
    assert fed.replica.lag() == 3000
    fed.feed(CREATED, UPDATED, DELETED)
    assert fed.replica.lag() == 0


def test_entry_that_cannot_be_applied_causes_a_rebuild_and_no_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = Fed()
    fed.feed(CREATED)
    with monkeypatch.context() as broken:
        broken.setattr(fed.replica.index, "_objects", None)
        fed.feed(UPDATED)
    assert not fed.replica.filled
    assert fed.replica.wants_filling.is_set()


def test_read_without_the_announced_entries_is_a_gap() -> None:
    fed = Fed()
    before = fed.replica.announced
    fed.replica.meet(head(rev(7, 3)), known=rev(7, 0))
    fed.replica.nothing(before)  # the read had begun before
    assert fed.replica.position() == b"7-0"
    fed.replica.nothing(fed.replica.announced)
    assert fed.replica.position() is None
    fed.fill(rev(7, 3))
    fed.replica.nothing(fed.replica.announced)
    assert fed.replica.position() == b"7-3"


def test_a_store_that_ends_earlier_than_it_did_has_announced_no_more() -> None:
    fed = Fed()
    fed.feed(CREATED)
    fed.replica.meet(head(rev(7, 3)), known=rev(7, 1))
    fed.replica.meet(head(rev(7, 1)), known=rev(7, 1))
    fed.replica.nothing(fed.replica.announced)
    assert fed.replica.filled
    assert fed.replica.lag() == 0


def test_the_floor_is_heard_of_from_heads() -> None:
    fed = Fed()
    fed.feed(CREATED, UPDATED)
    fed.replica.meet(head(rev(7, 2), floor=rev(7, 1)), known=rev(7, 2))
    assert fed.replica.index.floor == rev(7, 1)


# ------------------------------------------------------------------------------------------------------------------ progress


def test_waiting_is_over_when_that_much_is_applied() -> None:
    progress = Progress()
    done: list[int] = []
    for revision in (5, 3, 9, 3):
        progress.wait(Revision(revision), lambda revision=revision: done.append(revision))  # type: ignore[misc]
    progress.reached(Revision(2))
    assert done == []
    progress.reached(Revision(5))
    assert done == [3, 3, 5]
    assert len(progress) == 1


def test_cancelled_waiter_is_forgotten() -> None:
    progress = Progress()
    done: list[int] = []
    numbers = [progress.wait(Revision(10**9 + at), lambda: done.append(1)) for at in range(1000)]
    for number in numbers[:-1]:
        progress.forget(number)
    assert len(progress) == 1
    assert len(progress._heap) < 100
    progress.reached(Revision(10**10))
    assert done == [1]


# --------------------------------------------------------------------------------------------------------------------- marks


def at_each_step(fed: Fed, entries: Sequence[RawEntry], seconds: float) -> None:
    for entry in entries:
        fed.feed(entry)
        fed.replica.mark()
        fed.clock.now += seconds


def test_time_is_counted_in_serving_time_from_the_start() -> None:
    fed = Fed()
    assert fed.replica.applied_before(300) is None
    at_each_step(fed, [CREATED, UPDATED, DELETED], 150)
    assert fed.replica.applied_before(300) == rev(7, 2)
    assert fed.replica.applied_before(300) == rev(7, 2)
    assert fed.replica.applied_before(30) == rev(7, 3)
    assert fed.replica.applied_before(451) is None


def test_entries_applied_before_a_rebuild_are_not_reported() -> None:
    """It may be a write that was lost."""
    fed = Fed()
    at_each_step(fed, [CREATED, UPDATED], 150)
    fed.feed(raw("8-0", "7-1", log.FENCE, ""))
    fed.fill(rev(8, 0))
    assert fed.replica.applied_before(0) is None


def test_marks_are_few() -> None:
    fed = Fed()
    for _ in range(10_000):
        fed.replica.mark()
        fed.clock.now += 0.1
        fed.replica.applied_before(300)
    assert len(fed.replica._marks) < 50


# --------------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "value", [b"{not json", b"[]", b"", b'{"metadata":{"name":"a","uid":"never closed', b"[" * 100_000]
)
def test_a_value_that_cannot_be_read_has_no_attributes(caplog: pytest.LogCaptureFixture, value: bytes) -> None:
    fed = Fed()
    with caplog.at_level(logging.ERROR):
        fed.feed(raw("7-1", "7-0", log.CREATE, "a", b"v", value))
    held = fed.replica.current(Key("a"))
    assert held is not None
    assert (held.labels, held.fields) == ({}, ("",))
    assert "unreadable" in caplog.text


def test_bytes_in_memory_are_counted() -> None:
    fed = Fed()
    sizes = []
    for entry in (CREATED, UPDATED, DELETED):
        fed.feed(entry)
        held = fed.replica.current(Key("a"))
        sizes.append((fed.replica.meter.bytes_held, 0 if held is None else len(held.body)))
    assert all(counted_ == real for counted_, real in sizes)
