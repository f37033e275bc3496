"""A resourceVersion never lies: older states in the same process, takeovers that are lost, replicas that are behind, second primaries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from apiserver import metrics
from apiserver.storage import log
from apiserver.storage.errors import Unavailable
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.scope import Scope
from tests.faults.test_storage_faults import (
    SECONDS,
    THINGS,
    Watch,
    append_only_file,
    assert_agreement,
    barrier_patiently,
    create,
    create_patiently,
    is_up,
    load,
    records,
    remembered,
    tail_held_up,
)
from tests.fixtures.processes import free_port
from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import Open, Server, eventually, follow, install, value

LOST = metrics.LOST_WRITES.labels("things.g.example.com")


@pytest.fixture
def backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A second process, that others can be made replicas of."""
    server = Server(tmp_path_factory.mktemp("v"), port=str(free_port()))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has a port, for replication."""
    server = Server(tmp_path_factory.mktemp("v"), port=str(free_port()))
    server.start()
    yield server
    server.stop()


def take_backup(backup: Server, server: Server) -> None:
    follow(backup, server)
    backup("REPLICAOF", "NO", "ONE")


def restore(server: Server, backup: Server) -> None:
    """By replication, in the running process: its connections stay."""
    follow(server, backup)
    server("REPLICAOF", "NO", "ONE")


async def told_that_it_is_gone(store: Store, revision: Revision) -> None:
    """Expect that a watch from there ends with Compacted and receives nothing before."""
    watch = Watch(store, after=revision)
    with pytest.raises(Compacted):
        await asyncio.wait_for(watch.task, SECONDS)
    assert watch.told == []


# ------------------------------------------------------------------------------------------- an older state in the same process


async def test_a_restore_into_the_running_process_starts_an_epoch_of_its_own(
    own_server: Server, backup: Server, opening: Open
) -> None:
    await install(own_server, THINGS)
    stores = [(await opening(own_server, THINGS))[THINGS] for _ in range(2)]
    kept = await load(stores[0], 10)
    await asyncio.to_thread(take_backup, backup, own_server)
    lost = list((await load(stores[0], 10, prefix="lost")).values())
    await stores[1].reach(max(lost), seconds=SECONDS)
    watches = [Watch(store) for store in stores]
    run_id = own_server.info("run_id")
    await asyncio.to_thread(restore, own_server, backup)
    assert own_server.info("run_id") == run_id
    for store, watch in zip(stores, watches, strict=True):
        with pytest.raises(Compacted):
            await asyncio.wait_for(watch.task, SECONDS)
        await eventually(partial(is_up, store))
    first, _ = await create_patiently(stores[0], "lost0")
    assert first > max(lost)
    await asyncio.gather(*map(barrier_patiently, stores))
    for store in stores:
        assert remembered(store) == kept | {"lost0": first}
        for revision in lost:
            with pytest.raises(Compacted):
                store.view_at(revision)
    assert_agreement(own_server, *stores)


async def test_write_of_a_server_that_missed_a_restore_is_not_executed(
    own_server: Server, backup: Server, opening: Open
) -> None:
    """The event loop stands still meanwhile: connections, epoch and run_id are as they were when the write leaves."""
    await install(own_server, THINGS)
    ahead = (await opening(own_server, THINGS))[THINGS]
    await load(ahead, 5)
    await asyncio.to_thread(take_backup, backup, own_server)
    lost = [await create(ahead, f"lost{at}") for at in range(5)]
    restore(own_server, backup)
    results = await asyncio.gather(
        *(create(ahead, name) for name in ("lost0", "fresh")), ahead.barrier(), return_exceptions=True
    )
    assert all(
        isinstance(result, Unavailable) or (isinstance(result, int) and result > max(lost)) for result in results
    ), results
    await eventually(partial(is_up, ahead))
    created = (await create_patiently(ahead, "later"))[0]
    assert created > max(lost)
    written = [record.revision for record in records(own_server)]
    assert not set(written) & set(lost)
    assert_agreement(own_server, ahead)


async def test_server_that_missed_lost_writes_reuses_none_of_their_versions(
    own_server: Server, backup: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    ahead = (await opening(own_server, THINGS))[THINGS]
    behind = (await opening(proxy.url, THINGS, lag_seconds=0.2))[THINGS]
    await load(ahead, 5)
    await behind.reach(ahead.applied, seconds=SECONDS)
    await asyncio.to_thread(take_backup, backup, own_server)
    async with tail_held_up(proxy):
        lost = [await create(ahead, f"lost{at}") for at in range(3)]
        assert behind.applied < min(lost)
        restore(own_server, backup)
        result = (await asyncio.gather(create(behind, "fresh"), return_exceptions=True))[0]
        assert isinstance(result, Unavailable) or (isinstance(result, int) and result > max(lost)), result
    await eventually(partial(is_up, behind))
    assert (await create_patiently(behind, "later"))[0] > max(lost)
    await asyncio.gather(barrier_patiently(ahead), barrier_patiently(behind))
    assert not {record.revision for record in records(own_server)} & set(lost)
    assert_agreement(own_server, ahead, behind)


# ---------------------------------------------------------------------------------------------------- takeovers that follow fast


async def test_lost_takeovers_within_a_second_never_share_an_epoch(own_server: Server, opening: Open) -> None:
    """Each takeover and what was written under it is cut off the append-only file, and another server takes over."""
    await install(own_server, THINGS)
    stores = await opening(own_server, THINGS)
    kept = await create(stores[THINGS], "kept")
    await stores.close()
    file = append_only_file(own_server)
    size = len(file.read_bytes())
    told: list[Revision] = []
    for at in range(6):
        own_server.kill()
        cut(file, size)
        own_server.start()
        stores = await opening(own_server, THINGS)
        told.append(await create(stores[THINGS], f"lost{at}"))
        assert stores[THINGS].view_at(kept).get("kept") is not None
        await stores.close()
    assert len({keys.parts(revision)[0] for revision in told}) == len(told)
    own_server.kill()
    cut(file, size)
    own_server.start()
    last = (await opening(own_server, THINGS))[THINGS]
    for revision in told:
        if revision < last.applied:
            with pytest.raises(Compacted):
                last.watch(after=revision, scope=Scope(), sink=Watch(last))


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


# ------------------------------------------------------------------------------------------------------- what was lost is counted


async def test_losses_are_counted_when_the_lost_branch_had_a_takeover(
    own_server: Server, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await install(own_server, THINGS)
    store = (await opening(own_server, THINGS))[THINGS]
    await create(store, "kept")
    file = append_only_file(own_server)
    size = len(file.read_bytes())
    before = LOST.value
    first = [await create(store, f"first{at}") for at in range(2)]
    own_server.kill()
    own_server.start()
    second = [(await create_patiently(store, f"second{at}"))[0] for at in range(3)]
    assert keys.parts(first[0])[0] < keys.parts(second[0])[0]
    await store.reach(second[-1], seconds=SECONDS)
    own_server.kill()
    cut(file, size)
    own_server.start()
    await eventually(lambda: LOST.value > before and store.store_state() is None)
    assert LOST.value - before == 5
    assert lost_keys(caplog) == ["second2", "second1", "second0", "first1", "first0"]
    assert_agreement(own_server, store)


async def test_losses_are_counted_when_the_new_epoch_acknowledges_first(
    own_server: Server, backup: Server, proxy: Proxy, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await install(own_server, THINGS)
    store = (await opening(proxy.url, THINGS, lag_seconds=0.2))[THINGS]
    await load(store, 5)
    await asyncio.to_thread(take_backup, backup, own_server)
    before = LOST.value
    lost = [await create(store, f"lost{at}") for at in range(3)]
    async with tail_held_up(proxy):
        await asyncio.to_thread(restore, own_server, backup)
        fresh = (await create_patiently(store, "fresh"))[0]
        assert keys.parts(fresh)[0] > keys.parts(lost[0])[0]
        assert store.applied == lost[-1]
    await eventually(lambda: LOST.value > before and is_up(store))
    assert LOST.value - before == 3
    assert lost_keys(caplog) == ["lost2", "lost1", "lost0"]
    await barrier_patiently(store)
    assert_agreement(own_server, store)


async def test_a_restart_that_loses_nothing_counts_nothing(own_server: Server, opening: Open) -> None:
    await install(own_server, THINGS)
    store = (await opening(own_server, THINGS))[THINGS]
    before = LOST.value
    for at in range(3):
        await create_patiently(store, f"kept{at}")
        own_server.kill()
        own_server.start()
        await eventually(lambda: is_up(store))
    last = (await create_patiently(store, "kept3"))[0]
    await store.reach(last, seconds=SECONDS)
    assert LOST.value == before


def lost_keys(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The keys that the log names."""
    return [
        key for line in caplog.records if line.message == "acknowledged writes were lost" for key in vars(line)["keys"]
    ]


# ----------------------------------------------------------------------------------------------------- a replica that is behind


async def test_watch_from_a_version_of_a_replica_that_the_store_lost_is_410(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    ahead = await opening(own_server, THINGS)
    behind = (await opening(proxy.url, THINGS))[THINGS]
    kept = await create(ahead[THINGS], "kept")
    await behind.reach(kept, seconds=SECONDS)
    file = append_only_file(own_server)
    size = len(file.read_bytes())
    async with tail_held_up(proxy):
        told = await create(ahead[THINGS], "lost")
        assert behind.applied == kept
        resumed = asyncio.create_task(told_that_it_is_gone(behind, told))
        await eventually(lambda: len(behind._replica.hub) == 1)
        await ahead.close()
        own_server.kill()
        cut(file, size)
        own_server.start()
        for passage in proxy.passages:
            passage.cut()
    await resumed
    await eventually(partial(is_up, behind))
    assert_agreement(own_server, behind)


async def test_watch_from_a_future_version_stays_through_an_epoch_with_it(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    ahead = (await opening(own_server, THINGS))[THINGS]
    # It does not look whether its log has fallen silent, however long this takes.
    behind = (await opening(proxy.url, THINGS, monitor_seconds=1000.0))[THINGS]
    kept = await create(ahead, "kept")
    await behind.reach(kept, seconds=SECONDS)
    async with tail_held_up(proxy):
        told = await create(ahead, "told")
        watch = Watch(behind, after=told)
        await eventually(lambda: len(behind._replica.hub) == 1)
        own_server.kill()
        own_server.start()
        for passage in proxy.passages:
            passage.cut()
    await eventually(partial(is_up, behind))
    later, _ = await create_patiently(behind, "later")
    await eventually(lambda: watch.told)
    assert [revision for revision, _, _ in watch.told] == [later]
    assert keys.parts(later)[0] > keys.parts(told)[0]
    await watch.stop()
    assert watch.resumed == 0


# ---------------------------------------------------------------------------------------------------------- a second primary


async def led_to(proxy: Proxy, server: Server) -> None:
    """From now on its connections end at this server."""
    proxy._server = server.socket
    for passage in list(proxy.passages):
        passage.cut()


async def test_versions_of_a_second_primary_are_410_once_its_follower_is_back(
    own_server: Server, backup: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    right = (await opening(own_server, THINGS))[THINGS]
    astray = (await opening(proxy.url, THINGS))[THINGS]
    await load(right, 5)
    await asyncio.to_thread(take_backup, backup, own_server)
    await led_to(proxy, backup)
    await eventually(lambda: backup.info("run_id") and keys.parts(astray.applied)[0] > keys.parts(right.applied)[0])
    await eventually(partial(is_up, astray))
    told = [(await create_patiently(astray, f"copy{at}"))[0] for at in range(3)]
    waiting = asyncio.create_task(told_that_it_is_gone(right, told[-1]))
    await create_patiently(right, "right")
    await led_to(proxy, own_server)
    await waiting
    await eventually(lambda: astray.applied > max(told) and is_up(astray))
    for store in (right, astray):
        await barrier_patiently(store)
        assert (await create_patiently(store, f"by{id(store)}"))[0] > max(told)
        for revision in told:
            await told_that_it_is_gone(store, revision)
    await asyncio.gather(barrier_patiently(right), barrier_patiently(astray))
    assert_agreement(own_server, right, astray)


async def test_version_of_a_second_primary_is_410_without_its_follower(
    own_server: Server, backup: Server, opening: Open
) -> None:
    await install(own_server, THINGS)
    right = (await opening(own_server, THINGS, monitor_seconds=0.1))[THINGS]
    await load(right, 5)
    await asyncio.to_thread(take_backup, backup, own_server)
    astray = await opening(backup, THINGS)
    told = await create(astray[THINGS], "copy")
    await astray.close()
    await told_that_it_is_gone(right, told)
    assert len([record for record in records(own_server) if record.kind == log.FENCE]) == 1


# ------------------------------------------------------------------------------------------------------------- late deletions


async def test_deletion_at_a_late_replica_is_answered_with_the_deleted_object(
    own_server: Server, proxy: Proxy, opening: Open
) -> None:
    await install(own_server, THINGS)
    ahead = (await opening(own_server, THINGS))[THINGS]
    behind = (await opening(proxy.url, THINGS, lag_seconds=0.2))[THINGS]
    await behind.reach(await create(ahead, "a", "older"), seconds=SECONDS)
    async with tail_held_up(proxy):
        held = ahead.view().get("a")
        assert held is not None
        newer = await ahead.commit(Write(Key("a"), value("a", "newer"), held.revision), dry_run=False)
        gone = await behind.commit(Write(Key("a"), None, newer.revision), dry_run=False)
        assert behind.applied < newer.revision
    assert gone.body == newer.at(gone.revision).body
    assert gone.revision > newer.revision
