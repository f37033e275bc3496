"""The interface of storage on a real server: commit, barrier, reach, views, watches, and errors about missing things."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from apiserver.storage.errors import Initializing, KeyExists, Moved, TooBig, Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Event, EventType, Key, Revision, splice
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.hub import Bookmark, Wake
from apiserver.watchcache.scope import Scope
from tests.fixtures.proxy import Passage, Proxy
from tests.fixtures.valkey import Open, Server, eventually, index_func, install, value

NEVER = Revision(1 << 62)


async def create(store: Store, name: str, text: str = "", **more: str) -> Revision:
    made = await store.commit(Write(Key(name), value(name, text, **more), Revision(0), "uid"), dry_run=False)
    return made.revision


async def update(store: Store, name: str, text: str, expected: Revision) -> Revision:
    return (await store.commit(Write(Key(name), value(name, text), expected), dry_run=False)).revision


async def delete(store: Store, name: str, expected: Revision) -> Revision:
    return (await store.commit(Write(Key(name), None, expected), dry_run=False)).revision


def log_length(server: Server, store: Store) -> int:
    found: int = server("XLEN", Commands(store.resource).keys.log)
    return found


class Ear:
    """A sink that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.bookmarks: list[Revision] = []

    def event(self, event: Event) -> bool:
        self.events.append(event)
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        self.bookmarks.append(bookmark.revision)
        return True


# --------------------------------------------------------------------------------------------------------------------- commit


async def test_waiter_for_memory_goes_on_when_it_is_filled(shared_server: Server, resource: str, opening: Open) -> None:
    await install(shared_server, resource)
    stores = await opening(shared_server, resource, wait=False)
    store = stores[resource]
    await asyncio.gather(*(store.wait_until_filled(seconds=30) for _ in range(100)))
    assert not store.filling
    store.view()


async def test_memory_of_a_start_is_being_filled_from_the_first_moment_on(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    stores = await opening(shared_server, resource, wait=False)
    seen = [(stores[resource].filling, stores[resource].why_not_ready())]
    while stores[resource].why_not_ready() is not None:
        seen.append((stores[resource].filling, stores[resource].why_not_ready()))
        await asyncio.sleep(0)
    assert "the store has not been reached yet" in {why for _, why in seen}
    assert all(filling for filling, _ in seen)
    assert not stores.filling()


async def test_waiter_for_unfilled_memory_goes_on_after_a_while(opening: Open, tmp_path: object) -> None:
    stores = await opening(f"unix://{tmp_path}/nobody", "g/things", wait=False)
    await stores["g/things"].wait_until_filled(seconds=0.01)
    await eventually(lambda: not stores["g/things"].filling)


async def test_a_create_gives_the_entry_that_memory_holds(store: Store) -> None:
    before = store.applied
    entry = await store.commit(Write(Key("ns/a"), value("a", node="n1"), Revision(0), "u"), dry_run=False)
    assert entry.revision == before + 1 == store.applied
    assert entry.body == splice(value("a", node="n1"), entry.revision)
    assert json.loads(entry.body)["metadata"]["resourceVersion"] == str(entry.revision)
    assert store.view().get("ns/a") is entry
    assert (entry.namespace, entry.name, entry.fields) == ("ns", "a", ("n1",))


async def test_a_create_of_what_exists_gives_what_is_there(store: Store) -> None:
    first = await create(store, "a", "one")
    with pytest.raises(KeyExists) as caught:
        await create(store, "a", "two")
    assert caught.value.entry.revision == first
    assert caught.value.entry.body == splice(value("a", "one"), first)


async def test_an_update_of_another_revision_gives_the_present_one(store: Store) -> None:
    first = await create(store, "a", "one")
    second = await update(store, "a", "two", first)
    with pytest.raises(Moved) as caught:
        await update(store, "a", "three", first)
    assert caught.value.entry is not None
    assert (caught.value.entry.revision, caught.value.entry.body) == (second, splice(value("a", "two"), second))


async def test_write_to_a_deleted_object_raises_moved_without_an_object(store: Store) -> None:
    first = await create(store, "a")
    await delete(store, "a", first)
    for write in (Write(Key("a"), value("a", "x"), first), Write(Key("a"), None, first)):
        for dry_run in (False, True):
            with pytest.raises(Moved) as caught:
                await store.commit(write, dry_run=dry_run)
            assert caught.value.entry is None


async def test_a_deletion_gives_the_last_state_at_its_own_revision(store: Store) -> None:
    first = await create(store, "a", "one")
    gone = await store.commit(Write(Key("a"), None, first), dry_run=False)
    assert gone.revision == first + 1
    assert gone.body == splice(value("a", "one"), gone.revision)
    assert store.view().get("a") is None


async def test_revisions_rise_by_one_and_creates_after_deletions_are_new(store: Store) -> None:
    revisions = [await create(store, "a")]
    revisions += [await update(store, "a", "x", revisions[-1])]
    revisions += [await delete(store, "a", revisions[-1])]
    revisions += [await create(store, "a")]
    assert revisions == list(range(revisions[0], revisions[0] + 4))


async def test_a_value_that_is_the_present_one_is_not_written(store: Store, shared_server: Server) -> None:
    first = await create(store, "a", "one")
    length = log_length(shared_server, store)
    assert await update(store, "a", "one", first) == first
    assert (store.applied, log_length(shared_server, store)) == (first, length)


async def test_a_value_is_another_one_when_what_stands_behind_its_object_is(
    store: Store, shared_server: Server, resource: str, opening: Open
) -> None:
    spelled = [value("a") + tail for tail in (b"", b'\n["{ }"]', b'\n["{  }"]')]
    tried = await store.commit(Write(Key("a"), spelled[1], Revision(0)), dry_run=True)
    assert (tried.body, tried.value) == (value("a"), spelled[1])
    entry = await store.commit(Write(Key("a"), spelled[0], Revision(0)), dry_run=False)
    for last, text in itertools.pairwise(spelled):
        for dry_run in (True, False):
            assert (await store.commit(Write(Key("a"), last, entry.revision), dry_run=dry_run)) is entry
            made = await store.commit(Write(Key("a"), text, entry.revision), dry_run=dry_run)
            assert made.value == splice(text, made.revision)
            assert made.body == splice(value("a"), made.revision)
        entry = made
    gone = await store.commit(Write(Key("a"), None, entry.revision), dry_run=False)
    assert gone.value == splice(spelled[2], gone.revision)
    await store.commit(Write(Key("a"), spelled[1], Revision(0)), dry_run=False)
    later = (await opening(shared_server, resource))[resource]
    held = later.view().get("a")
    assert held is not None
    assert held.value == splice(spelled[1], store.applied)
    assert later._replica.meter.bytes_held == store._replica.meter.bytes_held == held.size


async def test_a_value_that_was_the_present_one_is_not_taken_for_it(
    store: Store, opening: Open, shared_server: Server
) -> None:
    """Another replica changed it: this one must not say that nothing is to be done."""
    first = await create(store, "a", "one")
    other = (await opening(shared_server, store.resource))[store.resource]
    second = await update(other, "a", "two", first)
    with pytest.raises(Moved) as caught:
        await update(store, "a", "one", first)
    assert caught.value.entry is not None
    assert caught.value.entry.revision == second


async def test_a_dry_run_writes_nothing_and_says_the_same(store: Store, shared_server: Server) -> None:
    length = log_length(shared_server, store)
    made = await store.commit(Write(Key("a"), value("a", "one"), Revision(0)), dry_run=True)
    assert (made.revision, made.body) == (0, value("a", "one"))
    assert store.view().get("a") is None
    assert log_length(shared_server, store) == length

    first = await create(store, "a", "one")
    changed = await store.commit(Write(Key("a"), value("a", "two", node="n"), first), dry_run=True)
    assert (changed.revision, changed.body, changed.fields) == (
        first,
        splice(value("a", "two", node="n"), first),
        ("n",),
    )
    gone = await store.commit(Write(Key("a"), None, first), dry_run=True)
    assert gone is store.view().get("a")
    assert store.applied == first

    with pytest.raises(KeyExists):
        await store.commit(Write(Key("a"), value("a"), Revision(0)), dry_run=True)
    second = await update(store, "a", "two", first)
    with pytest.raises(Moved) as caught:
        await store.commit(Write(Key("a"), None, first), dry_run=True)
    assert caught.value.entry is not None
    assert caught.value.entry.revision == second


async def test_a_dry_run_judges_by_the_newest_state_and_not_by_memory(
    store: Store, opening: Open, shared_server: Server
) -> None:
    other = (await opening(shared_server, store.resource))[store.resource]
    for at in range(50):
        await create(other, f"k{at}")
        with pytest.raises(KeyExists):
            await store.commit(Write(Key(f"k{at}"), value("x"), Revision(0)), dry_run=True)


async def test_an_object_that_is_too_big_is_refused_before_it_is_sent(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, object_limit=1000))[resource]
    fits = b'{"metadata":{"name":"a"},"text":"%b"}' % (b"x" * (1000 - 35))
    for dry_run in (True, False):
        with pytest.raises(TooBig):
            await store.commit(Write(Key("a"), fits + b" ", Revision(0)), dry_run=dry_run)
        await store.commit(Write(Key("a"), fits, Revision(0)), dry_run=dry_run)


async def test_large_object_is_written_updated_and_deleted_without_lost_history(store: Store) -> None:
    large = "x" * (3 * 512 * 1024 - 100)
    floor = store.floor
    first = await create(store, "a", large)
    second = await update(store, "a", large[1:], first)
    gone = await store.commit(Write(Key("a"), None, second), dry_run=False)
    assert gone.body == splice(value("a", large[1:]), gone.revision)
    assert store.floor == floor


async def test_writes_at_the_same_time_are_each_written_once(store: Store, shared_server: Server) -> None:
    length = log_length(shared_server, store)
    revisions = await asyncio.gather(*(create(store, f"k{at}") for at in range(500)))
    assert len(set(revisions)) == 500
    assert log_length(shared_server, store) == length + 500
    assert store.view().count("") == 500


async def test_one_of_many_updates_of_one_revision_wins(store: Store) -> None:
    first = await create(store, "a")
    results = await asyncio.gather(*(update(store, "a", f"{at}", first) for at in range(50)), return_exceptions=True)
    won = [result for result in results if not isinstance(result, Moved)]
    assert won == [first + 1]
    assert len(results) == 50


async def test_cancelled_caller_leaves_the_write_to_its_fate(store: Store) -> None:
    task = asyncio.create_task(create(store, "a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # sent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await eventually(lambda: store.view().get("a") is not None)
    with pytest.raises(KeyExists):
        await create(store, "a")


# --------------------------------------------------------------------------------------------------------------- consistent reads


async def test_a_barrier_has_seen_every_write_acknowledged_before_it(
    store: Store, opening: Open, shared_server: Server
) -> None:
    other = (await opening(shared_server, store.resource))[store.resource]
    for at in range(100):
        revision = await create(other, f"k{at}")
        assert await store.barrier() >= revision
        assert store.view().get(f"k{at}") is not None


async def test_barriers_at_the_same_time_share_one_question(store: Store, shared_server: Server) -> None:
    def heads() -> int:
        lines = shared_server("INFO", "commandstats").decode().splitlines()
        return next((int(line.split("calls=")[1].split(",")[0]) for line in lines if "cmdstat_fcall_ro:" in line), 0)

    before = heads()
    await asyncio.gather(*(store.barrier() for _ in range(200)))
    assert heads() - before <= 2


async def test_a_barrier_never_joins_a_question_that_has_left(
    store: Store, opening: Open, shared_server: Server
) -> None:
    """Writes of another replica and barriers in every possible order."""
    other = (await opening(shared_server, store.resource))[store.resource]
    acknowledged = store.applied

    async def write() -> None:
        nonlocal acknowledged
        for at in range(200):
            acknowledged = max(acknowledged, await create(other, f"k{at}"))

    async def read() -> None:
        for _ in range(200):
            known = acknowledged
            assert await store.barrier() >= known

    await asyncio.gather(write(), *(read() for _ in range(8)))


async def test_a_barrier_asked_while_another_is_on_its_way_asks_for_itself(
    shared_server: Server, resource: str, opening: Open, proxy: Proxy
) -> None:
    """The answer to the first is held up; what was acknowledged meanwhile is not in it."""
    await install(shared_server, resource)
    store = (await opening(proxy.url, resource))[resource]
    other = (await opening(shared_server, resource))[resource]
    held, gate = asyncio.Event(), asyncio.Event()

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-reads":
            held.set()
            await gate.wait()
        return True

    proxy.replies = hold
    first = asyncio.create_task(store.barrier())
    await held.wait()
    revision = await create(other, "a")
    second = asyncio.create_task(store.barrier())
    await asyncio.sleep(0)
    gate.set()
    assert await first >= revision - 1
    assert await second >= revision


async def test_an_acknowledged_write_is_answered_when_memory_has_it(
    shared_server: Server, resource: str, opening: Open, proxy: Proxy
) -> None:
    await install(shared_server, resource)
    store = (await opening(proxy.url, resource))[resource]
    gate = asyncio.Event()

    async def hold(passage: Passage, piece: bytes) -> bool:
        if passage.name == "sluice-tail":
            await gate.wait()
        return True

    proxy.replies = hold
    write = asyncio.create_task(create(store, "a"))
    await eventually(lambda: store._replica._unseen)
    assert not write.done()
    assert store.view().get("a") is None
    gate.set()
    assert await write == store.applied


async def test_a_cancelled_barrier_leaves_the_others_alone(store: Store) -> None:
    tasks = [asyncio.create_task(store.barrier()) for _ in range(10)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [store.applied] * 9


async def test_reaching_waits_for_what_comes(store: Store, opening: Open, shared_server: Server) -> None:
    other = (await opening(shared_server, store.resource))[store.resource]
    waiting = asyncio.create_task(store.reach(Revision(store.applied + 2)))
    await create(other, "a")
    await create(other, "b")
    await waiting
    assert store.applied == other.applied


async def test_revision_that_does_not_come_raises_future(store: Store) -> None:
    with pytest.raises(Future) as caught:
        await store.reach(NEVER, seconds=0.01)
    assert (caught.value.revision, caught.value.current) == (NEVER, store.applied)
    with pytest.raises(Future):
        store.view_at(NEVER)


async def test_waiting_in_vain_leaves_nothing_behind(store: Store) -> None:
    for _ in range(10):
        await asyncio.gather(*(store.reach(NEVER, seconds=0.001) for _ in range(50)), return_exceptions=True)
    assert len(store._replica.progress) == 0
    assert len(store._replica.progress._heap) <= 64


# ------------------------------------------------------------------------------------------------------------ the past, watches


async def test_every_revision_above_the_floor_is_an_exact_state(store: Store) -> None:
    start = store.floor
    first = await create(store, "a", "one")
    second = await update(store, "a", "two", first)
    gone = await delete(store, "a", second)
    assert store.view_at(start).get("a") is None
    assert [store.view_at(at).get("a") is not None for at in (first, second, gone)] == [True, True, False]
    entry = store.view_at(first).get("a")
    assert entry is not None
    assert entry.body == splice(value("a", "one"), first)


async def test_below_the_floor_is_compacted_from_the_first_second(store: Store) -> None:
    """A fresh store starts with a fence entry, which is its floor: version 1 is a state that nobody has."""
    for revision in (Revision(1), Revision(store.floor - 1)):
        with pytest.raises(Compacted):
            store.view_at(revision)
        with pytest.raises(Compacted):
            store.watch(after=revision, scope=Scope(), sink=Ear())
    assert store.view_at(store.floor).count("") == 0


async def test_a_watch_gets_every_event_after_its_start_once(store: Store) -> None:
    start = store.applied
    first = await create(store, "a", "one")
    ear = Ear()
    watcher = store.watch(after=start, scope=Scope(), sink=ear)
    told = [*watcher.pull()]
    assert watcher.join()
    second = await update(store, "a", "two", first)
    gone = await delete(store, "a", second)
    await eventually(lambda: len(ear.events) == 2)
    told += ear.events
    assert [(event.revision, event.type) for event in told] == [
        (first, EventType.CREATED),
        (second, EventType.UPDATED),
        (gone, EventType.DELETED),
    ]
    assert told[1].previous is not None
    assert told[1].previous.revision == first
    watcher.close()


async def test_a_replica_that_starts_later_serves_every_revision_of_the_window(
    store: Store, opening: Open, shared_server: Server
) -> None:
    start = store.applied
    revisions = [await create(store, f"k{at}", "one") for at in range(5)]
    revisions += [await update(store, f"k{at}", "two", revisions[at]) for at in range(3)]
    revisions += [await delete(store, "k0", revisions[5]), await create(store, "k0", "three")]
    late = (await opening(shared_server, store.resource))[store.resource]
    assert (late.applied, late.floor) == (store.applied, store.floor)
    for revision in [start, *revisions]:
        assert [(e.key, e.body) for e in late.view_at(revision).scan()] == [
            (e.key, e.body) for e in store.view_at(revision).scan()
        ]
        mine = store.watch(after=revision, scope=Scope(), sink=Ear())
        theirs = late.watch(after=revision, scope=Scope(), sink=Ear())
        assert [(e.revision, e.type, e.entry.body, e.previous and e.previous.body) for e in theirs.pull()] == [
            (e.revision, e.type, e.entry.body, e.previous and e.previous.body) for e in mine.pull()
        ]


async def test_closing_ends_every_watch(shared_server: Server, resource: str, opening: Open) -> None:
    await install(shared_server, resource)
    stores = await opening(shared_server, resource)
    watchers = [stores[resource].watch(after=stores[resource].applied, scope=Scope(), sink=Ear()) for _ in range(5)]
    for watcher in watchers:
        watcher.join()
    assert stores.end_watches(at_most=2) == 3
    assert [watcher.wake for watcher in watchers] == [Wake.ENDED, Wake.ENDED, None, None, None]
    await stores.close()
    assert all([await watcher.wait() is Wake.ENDED for watcher in watchers])


# -------------------------------------------------------------------------------------------------------------------- states


async def test_before_memory_is_filled_nothing_is_served_and_the_reason_is_said(
    opening: Open, tmp_path: object
) -> None:
    stores = await opening(f"unix://{tmp_path}/nobody", "g/things", wait=False)
    store = stores["g/things"]
    await eventually(lambda: "no connection" in (stores.why_not_ready() or ""))
    assert store.store_state() == store.why_not_ready() == stores.store_state()
    with pytest.raises(Initializing):
        store.view()
    with pytest.raises(Initializing):
        store.view_at(Revision(5))
    with pytest.raises(Initializing):
        await store.barrier()
    with pytest.raises(Initializing):
        await store.reach(Revision(5))
    with pytest.raises(Initializing):
        store.watch(after=Revision(5), scope=Scope(), sink=Ear())
    for dry_run in (False, True):
        with pytest.raises(Unavailable, match="no connection"):
            await store.commit(Write(Key("a"), value("a"), Revision(0)), dry_run=dry_run)


async def test_an_empty_store_is_refused_until_it_is_installed(own_server: Server, opening: Open) -> None:
    stores = await opening(own_server, "g/things", "g/others", wait=False)
    await eventually(lambda: "sluice store init" in (stores.why_not_ready() or ""))
    await install(own_server, "g/things")
    await eventually(lambda: "g/others is not there" in (stores.why_not_ready() or ""))
    await install(own_server, "g/others")
    await stores.ready()
    assert stores.why_not_ready() is None
    assert stores.store_state() is None


async def test_unreadable_value_does_not_stop_the_log(store: Store, opening: Open, shared_server: Server) -> None:
    await store.commit(Write(Key("bad"), b"{broken", Revision(0)), dry_run=False)
    await create(store, "good")
    for each in (store, (await opening(shared_server, store.resource))[store.resource]):
        bad, good = each.view().get("bad"), each.view().get("good")
        assert bad is not None
        assert good is not None
        assert (bad.labels, bad.fields) == ({}, ("",))
        assert good.fields == index_func.read(value("good"))[1]


async def test_resources_do_not_see_each_other(shared_server: Server, resource: str, opening: Open) -> None:
    other = f"other.{resource}"
    await install(shared_server, resource, other)
    stores = await opening(shared_server, resource, other)
    revision = await create(stores[resource], "a")
    assert stores[other].view().get("a") is None
    assert stores[other].applied != revision
    assert keys.parts(stores[other].applied)[1] == 0
    assert dict(stores) == {resource: stores[resource], other: stores[other]}
