"""Periodic upkeep of the store, on a real server and with short times."""

from __future__ import annotations

import signal

import pytest

from apiserver import metrics
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Bookmark
from apiserver.watchcache.scope import Scope
from tests.fixtures.valkey import Open, Server, eventually, forget, install, value

OFTEN = {"compaction_seconds": 0.1, "retention_seconds": 0.3, "compaction_least_seconds": 0.0}


async def create(store: Store, name: str, text: str = "") -> Revision:
    write = Write(Key(name), value(name, text), Revision(0), "u")
    return (await store.commit(write, dry_run=False)).revision


async def update(store: Store, name: str, text: str) -> Revision:
    held = store.view().get(name)
    assert held is not None
    return (await store.commit(Write(Key(name), value(name, text), held.revision), dry_run=False)).revision


def entries(server: Server, resource: str) -> int:
    found: int = server("XLEN", Commands(resource).keys.log)
    return found


def floor(server: Server, resource: str) -> Revision:
    return keys.revision(server("HGET", Commands(resource).keys.meta, "floor"))


class Ear:
    def event(self, event: object) -> bool:
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True


async def test_history_older_than_the_retention_is_forgotten_everywhere(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, keep_entries=3, **OFTEN))[resource]
    idle = (await opening(shared_server, resource))[resource]
    revisions = [await create(store, f"k{at}") for at in range(10)]
    await eventually(lambda: store.floor == revisions[6])
    assert floor(shared_server, resource) == revisions[6]
    assert entries(shared_server, resource) == 4
    for revision in revisions[:6]:
        with pytest.raises(Compacted):
            store.view_at(revision)
        with pytest.raises(Compacted):
            store.watch(after=revision, scope=Scope(), sink=Ear())
    assert store.view_at(revisions[6]).count() == 7
    await eventually(lambda: idle.floor == revisions[6])


async def test_the_newest_entries_stay_however_old_they_are(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, keep_entries=100, **OFTEN))[resource]
    start = store.floor
    for at in range(50):
        await create(store, f"k{at}")
    marks = store._replica._marks
    await eventually(lambda: len(marks) > 8)
    assert store.floor == start


async def test_a_stopped_server_forgets_nothing_by_starting_again(
    shared_server: Server, resource: str, opening: Open
) -> None:
    """Five minutes ago means five minutes of serving ago: what was applied before this process served counts from its start."""
    await install(shared_server, resource)
    stores = await opening(shared_server, resource)
    first = await create(stores[resource], "a")
    await stores.close()
    store = (await opening(shared_server, resource, keep_entries=0, retention_seconds=60.0, compaction_seconds=0.05))[
        resource
    ]
    for at in range(20):
        await create(store, f"k{at}")
    await eventually(lambda: len(store._replica._marks) >= 1)
    assert store.view_at(first).count() == 1


async def test_too_much_history_is_forgotten_before_its_time(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, window_bytes=2_000_000))[resource]
    await create(store, "a")
    start = store.floor
    while store.floor == start:
        for _ in range(100):
            await update(store, "a", f"{store.applied} " + "x" * 2000)
    await eventually(lambda: floor(shared_server, resource) > start)
    assert store._replica.index.ring_bytes < 4_000_000


async def test_an_almost_full_server_forgets_all_but_the_last_half_minute(
    own_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiserver.storage.upkeep.EMERGENCY_SECONDS", 0.3)
    await install(own_server, resource)
    store = (await opening(own_server, resource, monitor_seconds=0.1, retention_seconds=3.0))[resource]
    for at in range(50):
        await create(store, f"k{at}", "x" * 1000)
    start = store.floor
    own_server("CONFIG", "SET", "maxmemory", int(own_server.info("used_memory")) + 100_000)
    await eventually(lambda: store.floor > start)
    assert entries(own_server, resource) < 51


async def test_memory_and_store_are_compared_and_agree(shared_server: Server, resource: str, opening: Open) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, check_seconds=0.05))[resource]
    name = ".".join(reversed(resource.split("/")))
    good = metrics.CONSISTENCY_CHECKS.labels(name, "success")
    bad = metrics.CONSISTENCY_CHECKS.labels(name, "failure")
    at = 0
    while good.value < 5:
        await create(store, f"k{at}")
        if at % 3 == 0:
            await update(store, f"k{at}", "again")
        at += 1
    assert bad.value == 0


@pytest.mark.parametrize("what", ["another revision", "one more in memory", "one more in the store"])
async def test_memory_that_differs_from_the_store_is_given_up(
    shared_server: Server, resource: str, opening: Open, what: str
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource, check_seconds=0.05))[resource]
    for at in range(10):
        await create(store, f"k{at}")
    objects = store._replica.index._objects
    held = objects.get("k5")
    assert held is not None
    if what == "another revision":
        objects.put(held.at(Revision(held.revision - 1)))
    elif what == "one more in memory":
        objects.put(type(held)(Key("extra"), held.revision, held.body, held.labels, held.fields))
    else:
        objects.remove("k5")
    store._replica.index._current = None
    rebuilds = metrics.REBUILDS.labels(".".join(reversed(resource.split("/"))), "digest")
    await eventually(lambda: rebuilds.value == 1)
    await eventually(lambda: store.store_state() is None)
    assert [(entry.key, entry.revision) for entry in store.view().scan()] == [
        (f"k{at}", held.revision - 5 + at) for at in range(10)
    ]


async def test_a_log_that_is_to_be_taken_over_is_noticed_by_an_idle_replica(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    store = (await opening(shared_server, resource))[resource]
    before = keys.parts(store.applied)[0]
    forget(shared_server)
    await eventually(lambda: keys.parts(store.applied)[0] > before)
    await eventually(lambda: store.store_state() is None)
    await create(store, "a")


async def test_a_server_that_does_not_answer_is_given_up(own_server: Server, resource: str, opening: Open) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource, reply_seconds=0.3, monitor_seconds=0.2))[resource]
    own_server.signal(signal.SIGSTOP)
    await eventually(lambda: store.store_state() is not None)
    with pytest.raises(Unavailable):
        await create(store, "a")
    own_server.signal(signal.SIGCONT)
    await eventually(lambda: store.store_state() is None)
    await create(store, "a")


async def test_metrics_show_the_stores_memory_and_the_replicas_that_writes_need(
    own_server: Server, resource: str, opening: Open
) -> None:
    await install(own_server, resource)
    own_server("CONFIG", "SET", "maxmemory", str(1 << 30))
    store = (await opening(own_server, resource, durability="replica", monitor_seconds=0.1))[resource]
    session = store._link.session
    assert session is not None
    shown = metrics.STORE_MEMORY_LIMIT_BYTES.labels(session.address)
    assert shown.value == 1 << 30
    assert metrics.STORE_REPLICAS_NEEDED.labels(session.address).value == 1
    before = metrics.STORE_MEMORY_BYTES.labels(session.address).value
    assert 0 < before < 1 << 30
    own_server("CONFIG", "SET", "maxmemory", str(1 << 29))
    await eventually(lambda: shown.value == 1 << 29)
