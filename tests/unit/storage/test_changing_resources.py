"""Resources that come and go while others are followed, on a real server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping

import pytest

from apiserver import metrics
from apiserver.storage.errors import OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands, Lost
from apiserver.storage.store import Store, Stores
from apiserver.watchcache.entry import IndexFunc
from apiserver.watchcache.hub import Wake
from apiserver.watchcache.scope import Scope
from tests.fixtures.proxy import Passage, Proxy
from tests.fixtures.valkey import Open, Server, eventually, index_func, install
from tests.unit.storage.test_store import Ear, create


def by_length(line: bytes) -> tuple[Mapping[str, str], tuple[str, ...]]:
    return {}, (str(len(line)), "other")


async def two(server: Server, resource: str, opening: Open) -> tuple[Stores, Store]:
    """A resource that is followed, and the one that `resource` with "-new" names, which exists and has an object."""
    new = f"{resource}-new"
    await install(server, resource, new)
    await create((await opening(server, new))[new], "old")
    stores = await opening(server, resource)
    return stores, stores[resource]


async def test_added_resource_is_read_written_and_watched_while_others_go_on(
    shared_server: Server, resource: str, opening: Open
) -> None:
    stores, store = await two(shared_server, resource, opening)
    ear = Ear()
    store.watch(after=store.applied, scope=Scope(), sink=ear).join()
    await stores.add(f"{resource}-new", index_func)
    added = stores[f"{resource}-new"]
    assert [entry.key for entry in added.view().scan()] == ["old"]
    heard = Ear()
    added.watch(after=added.applied, scope=Scope(), sink=heard).join()
    await create(added, "new")
    await create(store, "also")
    await eventually(lambda: [event.entry.key for event in (*heard.events, *ear.events)] == ["new", "also"])
    assert await added.barrier() == added.applied


async def test_resource_that_is_being_added_is_neither_shown_nor_counted(
    shared_server: Server, resource: str, opening: Open
) -> None:
    stores, _ = await two(shared_server, resource, opening)
    adding = asyncio.create_task(stores.add(f"{resource}-new", index_func))
    while not adding.done():
        assert stores.why_not_ready() is stores.store_state() is None
        assert f"{resource}-new" not in stores or stores[f"{resource}-new"].why_not_ready() is None
        await asyncio.sleep(0)
    await adding
    assert set(stores) == {resource, f"{resource}-new"}


async def test_missing_resource_is_created_only_when_asked_for(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource)
    stores = await opening(shared_server, resource)
    with pytest.raises(Lost):
        await stores.add(f"{resource}-new", index_func)
    assert set(stores) == {resource}
    await stores.add(f"{resource}-new", index_func, creates=True)
    await create(stores[f"{resource}-new"], "a")


async def test_resource_with_half_of_its_keys_is_not_created(
    shared_server: Server, resource: str, opening: Open
) -> None:
    await install(shared_server, resource, f"{resource}-new")
    shared_server("DEL", Commands(f"{resource}-new").keys.log)
    stores = await opening(shared_server, resource)
    with pytest.raises(Lost):
        await stores.add(f"{resource}-new", index_func, creates=True)


async def test_creatable_resource_is_created_at_the_start_beside_others_only(
    own_server: Server, resource: str, opening: Open
) -> None:
    new = f"{resource}-new"
    await install(own_server, resource)
    stores = await opening(own_server, resource, new, creatable={new})
    await create(stores[new], "a")
    own_server("FLUSHALL")
    late = await opening(own_server, resource, new, creatable={new}, wait=False)
    await eventually(lambda: f"{new} is not there" in (late.why_not_ready() or ""))


async def test_removed_resource_ends_its_watches_and_frees_its_memory(
    shared_server: Server, resource: str, opening: Open
) -> None:
    stores, store = await two(shared_server, resource, opening)
    new = f"{resource}-new"
    await stores.add(new, index_func)
    removed, label = stores[new], (metrics.resource_label(new),)
    watch = removed.watch(after=removed.applied, scope=Scope(), sink=Ear())
    kept = store.watch(after=store.applied, scope=Scope(), sink=Ear())
    assert all(each.join() for each in (watch, kept))
    await stores.remove(new)
    assert (watch.wake, kept.wake) == (Wake.ENDED, None)
    assert new not in stores
    assert label not in {labels for labels, _ in metrics.STORE_WRITABLE.children()}
    await create(store, "goes on")
    await stores.add(new, index_func)
    assert [entry.key for entry in stores[new].view().scan()] == ["old"]


async def test_resource_that_is_read_otherwise_ends_its_watches_and_has_new_fields(
    shared_server: Server, resource: str, opening: Open
) -> None:
    stores, store = await two(shared_server, resource, opening)
    await create(store, "a")
    before = store.applied
    watch = store.watch(after=store.applied, scope=Scope(), sink=Ear())
    stores.read_otherwise(resource, IndexFunc(by_length))
    assert watch.wake is Wake.ENDED
    await store.wait_until_filled(seconds=60)
    [entry] = store.view().scan()
    assert entry.fields[1] == "other"
    assert store.watch(after=before, scope=Scope(), sink=Ear()).pull() == ()


async def test_added_resource_survives_a_broken_connection(
    shared_server: Server, proxy: Proxy, resource: str, opening: Open
) -> None:
    new = f"{resource}-new"
    await install(shared_server, resource, new)
    stores = await opening(proxy.url, resource)
    await stores.add(new, index_func)
    added = stores[new]
    for passage in proxy.named("sluice-tail"):
        passage.cut()
    await eventually(lambda: added.store_state() is not None)
    await eventually(lambda: added.store_state() is None)
    await create(added, "a")


async def test_writes_under_way_are_answered_when_their_resource_is_removed(
    shared_server: Server, proxy: Proxy, resource: str, opening: Open
) -> None:
    new = f"{resource}-new"
    await install(shared_server, resource, new)
    stores = await opening(proxy.url, resource)
    await stores.add(new, index_func)
    store = stores[new]

    async def swallow(_passage: Passage, _data: bytes) -> bool:
        return False

    proxy.requests = swallow
    writing = asyncio.ensure_future(create(store, "sent"))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(create(store, "not sent"))
    await asyncio.sleep(0)
    await stores.remove(new)
    for write in (writing, waiting):
        with pytest.raises((OutcomeUnknown, Unavailable)):
            await asyncio.wait_for(write, 60)
    with pytest.raises(Unavailable):
        await create(store, "late")
    proxy.requests = None


async def test_cycles_from_before_a_resource_was_added_are_still_freed(
    shared_server: Server, resource: str, opening: Open
) -> None:
    """A changed definition adds a resource, and what serves the former one becomes garbage with cycles."""

    class Former:
        def __init__(self) -> None:
            self.itself = self

    stores, _ = await two(shared_server, resource, opening)
    former = Former()
    left = weakref.ref(former)
    await stores.add(f"{resource}-new", index_func)
    del former
    gc.collect()
    assert left() is None
