"""Real sentinels fail over while two servers write and watch: no version names two states, and both end at what the store holds.

A server writes to the primary alone, so what the old primary acknowledged last may be lost (docs/storage.md). That is not an error here.
Watches that saw lost versions must end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from apiserver.storage.functions import Commands
from apiserver.storage.operations import administration
from apiserver.storage.store import Store, StoreOptions, Stores, Write, open_stores
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Event, EventType, Key, Revision
from apiserver.watchcache.errors import Compacted, StorageError
from apiserver.watchcache.hub import Dropped, Wake, Watcher
from apiserver.watchcache.scope import Scope
from tests.fixtures.sentinels import NAME, Topology
from tests.fixtures.valkey import Server, eventually, index_func, value

RESOURCE = "faults.example.com/things"
FAULTS = (
    "killed",
    "killed and back",
    "stopped and woken",
    "failed over",
    "failed over twice",
    "cut off with a replica",
)


class Ear:
    """A watcher of everything that notes its events."""

    def __init__(self, store: Store, told: dict[Revision, tuple[str, bytes | None]]) -> None:
        self._store = store
        self._told = told
        self._after = store.applied
        self._last = store.applied
        self._watcher: Watcher | None = None
        self.expired = 0

    def event(self, event: Event) -> bool:
        self._note(event)
        return True

    def bookmark(self, _bookmark: object) -> bool:
        return True

    def _note(self, event: Event) -> None:
        assert event.revision > self._last, "events went back"
        state = None if event.type is EventType.DELETED else event.entry.body
        assert self._told.setdefault(event.revision, (event.entry.key, state)) == (event.entry.key, state)
        self._last = event.revision

    async def run(self) -> None:
        """Watch, and resume after each end as clients do."""
        while True:
            await asyncio.sleep(0.01)
            with contextlib.suppress(StorageError):
                if self._watcher is None:
                    self._watcher = self._store.watch(after=self._last, scope=Scope(""), sink=self)
                try:
                    for event in self._watcher.pull(1000):
                        self._note(event)
                    self._watcher.join()
                except (Compacted, Dropped):
                    self.expired += 1
                    self._watcher = None
                    self._last = self._store.view().revision
                    continue
            if self._watcher is not None and self._watcher.wake is Wake.ENDED:
                self._watcher = None


class Fleet:
    """Two servers of ours that write and watch, and all answers and events that they got."""

    def __init__(self, topology: Topology, stores: list[Stores]) -> None:
        self.topology = topology
        self.stores = stores
        self.told: dict[Revision, tuple[str, bytes | None]] = {}
        self.acknowledged: dict[Revision, tuple[str, bytes | None]] = {}
        self.ears = [Ear(each[RESOURCE], self.told) for each in stores]
        self._numbers = itertools.count()

    async def write(self, store: Store) -> None:
        """Create, change and delete objects of its own for ever."""
        while True:
            number = next(self._numbers)
            key = Key(f"k{number % 7}-{store.resource}-{id(store)}")
            data = value(key, str(number))
            held_at = store.view().get(key) if store._replica.filled else None
            expected = held_at.revision if held_at is not None else Revision(0)
            write = Write(key, None if expected and number % 5 == 0 else data, expected, "uid")
            try:
                entry = await store.commit(write, dry_run=False)
            except StorageError:
                await asyncio.sleep(0.02)
                continue
            state = None if write.value is None else entry.body
            assert self.acknowledged.setdefault(entry.revision, (key, state)) == (key, state), (
                "a version names two writes"
            )
            await asyncio.sleep(0.002)

    def agree(self) -> None:
        """No version that a writer and a watcher got names two states."""
        for revision in self.acknowledged.keys() & self.told.keys():
            assert self.acknowledged[revision] == self.told[revision]

    async def converged(self) -> Server:
        """Wait until both servers write to the primary that the sentinels name, and hold what it holds. Return that."""
        await eventually(lambda: all(each.store_state() is None for each in self.stores), seconds=120)
        found: Server | None = None

        def same() -> bool:
            nonlocal found
            found = self.topology.named()
            if found is None:
                return False
            with contextlib.suppress(OSError, RuntimeError):
                rows = found("HGETALL", Commands(RESOURCE).keys.revisions)
                ids = {name.decode(): row.split()[0].decode() for name, row in zip(rows[::2], rows[1::2], strict=True)}
                return all(self._held(each) == ids for each in self.stores)
            return False

        await eventually(same, seconds=120)
        assert found is not None
        return found

    def _held(self, stores: Stores) -> dict[str, str]:
        if not stores[RESOURCE]._replica.filled:
            return {}
        return {entry.key: keys.stream_id(entry.revision) for entry in stores[RESOURCE].view().scan()}


@pytest.fixture
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    made = Topology(tmp_path_factory.mktemp("t"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest_asyncio.fixture
async def fleet(topology: Topology) -> AsyncIterator[Fleet]:
    options = StoreOptions(url=topology.url, durability="primary")
    await administration.init(options, [RESOURCE])
    stores = [await open_stores(options, {RESOURCE: index_func}) for _ in range(2)]
    for each in stores:
        await each.ready()
    yield Fleet(topology, stores)
    for each in stores:
        await each.close()


async def inject(fault: str, topology: Topology, written: Callable[[], int]) -> None:
    """Let a fault happen, and return when another server is the primary."""
    old = topology.servers[0]
    match fault:
        case "killed" | "killed and back":
            old.kill()
        case "stopped and woken" | "cut off with a replica":
            if fault == "cut off with a replica":
                topology.servers[1].signal(signal.SIGSTOP)
            old.signal(signal.SIGSTOP)
        case _:
            await asyncio.to_thread(topology.sentinels[0], "SENTINEL", "FAILOVER", NAME)
    await eventually(lambda: topology.named() not in (None, old), seconds=120)
    before = written()
    await eventually(lambda: written() > before + 20, seconds=120)
    match fault:
        case "killed and back":
            await asyncio.to_thread(old.start)
        case "stopped and woken":
            old.signal(signal.SIGCONT)
        case "cut off with a replica":
            topology.servers[1].signal(signal.SIGCONT)
            old.signal(signal.SIGCONT)
        case "failed over twice":
            second = topology.named()
            await eventually(partial(_fails_over, topology), seconds=120)
            await eventually(lambda: topology.named() not in (None, second), seconds=120)


def _fails_over(topology: Topology) -> bool:
    try:
        return bool(topology.sentinels[0]("SENTINEL", "FAILOVER", NAME) == b"OK")
    except RuntimeError:  # the one before is not over, or no replica is good enough yet
        return False


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_version_names_two_states_over_a_failover(fleet: Fleet, fault: str) -> None:
    running: list[asyncio.Task[Any]] = []
    running += [asyncio.create_task(ear.run()) for ear in fleet.ears]
    writers = [asyncio.create_task(fleet.write(each[RESOURCE])) for each in fleet.stores]
    try:
        await eventually(lambda: len(fleet.acknowledged) > 100)
        await inject(fault, fleet.topology, lambda: len(fleet.acknowledged))
        before = len(fleet.acknowledged)
        await eventually(lambda: len(fleet.acknowledged) > before + 50, seconds=120)
    finally:
        failed = [task for task in (*running, *writers) if task.done()]
        for task in writers:
            task.cancel()
    primary = await fleet.converged()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, *writers, return_exceptions=True)
    assert [task.exception() for task in failed] == []
    fleet.agree()
    assert primary in (fleet.topology.servers if fault == "failed over twice" else fleet.topology.servers[1:])
