"""The public interface of storage: read at a revision, commit if the revision is unchanged, watch from a revision.

    open_stores ──► Stores: all resources, and the connector that keeps a session with their primary (`primaries/connector.py`)
                    └─ Store per resource ── Replica (memory that follows the log)
                                          └─ ResourceWrites (writes under way)

Verbs call this module; nothing here calls them, knows a kind, or knows HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from apiserver import metrics
from apiserver.runtime import spans, tasks
from apiserver.runtime.fairqueue import FairQueue
from apiserver.runtime.offload import READ_STORED
from apiserver.runtime.spans import Attributes, Kind
from apiserver.storage import access, pipeline
from apiserver.storage.barrier import Barrier
from apiserver.storage.errors import KeyExists, Moved, TooBig, Unavailable
from apiserver.storage.functions import Head
from apiserver.storage.lineage import Link
from apiserver.storage.options import StoreOptions
from apiserver.storage.primaries import cluster, sentinel
from apiserver.storage.primaries.connector import Connector, Locator
from apiserver.storage.replica import Replica
from apiserver.storage.writes import Write
from apiserver.watchcache.entry import AdoptFunc, Entry, IndexFunc, Revision
from apiserver.watchcache.errors import Future
from apiserver.watchcache.hub import Outlet, Sink, Watcher
from apiserver.watchcache.mvcc import View
from apiserver.watchcache.ring import Budget
from apiserver.watchcache.scope import Scope

__all__ = ["Store", "StoreOptions", "Stores", "Write", "open_stores"]

JOIN_SECONDS = 10.0
"""In a cluster, the longest time that a resource may take to be added: its primary may be down while the others serve."""
NAMED = 10
"""The most resources that one line names."""
PUMP_PAUSE = 0.05
COMMIT = "FCALL"
"""The span of a write: of its own, though one call of the store's function takes the writes of several requests."""
_STORE: Attributes = {"db.system.name": "redis", "db.operation.name": COMMIT}
LOOK_SECONDS = 0.25
"""While a resource that was added is filled: time between two looks whether the store has lost it."""
_NOTHING_ADOPTED: Mapping[str, AdoptFunc] = MappingProxyType({})


class Store:
    """One resource."""

    def __init__(self, replica: Replica, *, options: StoreOptions, connector: Connector) -> None:
        self.resource = replica.resource
        self._replica = replica
        self._options = options
        self._link = connector.link
        self._writer = connector.writer
        self._writes = self._writer.writes_of(replica)
        self._fair_queue = FairQueue(urgent=lambda: False)
        self._barrier = Barrier(replica, self._link, seconds=options.barrier_seconds, loop=asyncio.get_running_loop())
        self._label = metrics.resource_label(self.resource)
        self.show_metrics()

    def show_metrics(self) -> None:
        """Let scrapes show this store and its memory, and no other ones of the same resource."""
        metrics.STORE_WRITABLE.labels(self._label).set_function(lambda: self.store_state() is None)
        self._replica.meter.show()

    def hide_metrics(self) -> None:
        """Let scrapes show no store of this resource."""
        metrics.STORE_WRITABLE.remove(self._label)
        self._replica.meter.hide()

    # State

    @property
    def applied(self) -> Revision:
        """The revision that this replica's memory holds."""
        return self._replica.applied

    @property
    def floor(self) -> Revision:
        """The lowest revision from which a watch can start."""
        return self._replica.index.floor

    def why_not_ready(self) -> str | None:
        """For /readyz: None for ever once memory was filled."""
        return None if self._replica.ever_filled else self.store_state() or "memory is being filled"

    def store_state(self) -> str | None:
        """For /readyz/store: why writes and consistent reads fail now, or None."""
        if (trouble := self._link.trouble()) is not None:
            return trouble
        if self._replica.fault is not None:
            return self._replica.fault
        return None if self._replica.filled else "memory is being filled"

    @property
    def filling(self) -> bool:
        """Whether memory is being filled now, or will be as soon as this process has its first session."""
        if self._replica.filled or self._replica.fault is not None:
            return False
        return self._link.session is not None or self._link.beginning

    async def wait_until_filled(self, *, seconds: float) -> None:
        """Wait at most `seconds` until memory is filled. Waiting calls go on one after the other."""
        try:
            async with asyncio.timeout(seconds):
                await self._replica.installed.wait()
                await self._fair_queue.pass_through()
        except TimeoutError:
            return

    # Reading

    async def barrier(self) -> Revision:
        """Return an applied revision that is not older than any acknowledged write before this call, on any replica.

        Raises Unavailable (after `barrier_seconds`) and Initializing.
        """
        self._replica.require()
        self._require_connection()
        return await self._barrier.join()

    def _require_connection(self) -> None:
        if self._link.session is None:
            raise self._link.missing()
        if self._replica.fault is not None:
            raise Unavailable(self._replica.fault)

    def _require_state(self) -> None:
        self._require_connection()
        if (trouble := self.store_state()) is not None:
            raise Unavailable(trouble)

    async def reach(self, revision: Revision, *, seconds: float = 3.0) -> None:
        """Wait until this revision is applied. Raises Future after `seconds`, and Initializing."""
        self._replica.require()
        if self.applied >= revision:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._replica.caught_up(revision)
        except TimeoutError:
            raise Future(revision, self.applied) from None

    @property
    def holds_unreadable(self) -> bool:
        """Whether a view may hold unreadable entries."""
        return self._replica.holds_unreadable

    @property
    def versions(self) -> Set[str]:
        """The versions in which objects of a view may be stored. Empty for kinds whose values name no version."""
        return self._replica.versions

    @property
    def volume(self) -> tuple[int, int]:
        """The number of objects in memory, and their bytes."""
        return len(self._replica.index), self._replica.meter.bytes_held

    def view(self) -> View:
        """Return the present state of memory as an immutable view. Raises Initializing."""
        self._replica.require()
        return self._replica.index.view()

    def view_at(self, revision: Revision) -> View:
        """Return the state at exactly this revision. Raises Compacted, Future, Initializing."""
        self._replica.require()
        return self._replica.index.view_at(revision)

    def approach(self, revision: Revision) -> bool:
        """Do one step of the work that `view_at` would do at once soon after a start. False when nothing is left. Raises Initializing."""
        self._replica.require()
        return self._replica.index.approach(revision)

    def watch(
        self,
        *,
        after: Revision,
        scope: Scope,
        sink: Sink,
        outlet: Outlet | None = None,
        bookmarks: bool = False,
        deadline: float | None = None,
    ) -> Watcher:
        """Watch the events above `after`, which may lie ahead. `deadline` is loop time. Raises Compacted, Initializing."""
        self._replica.require()
        return self._replica.hub.watch(
            after=after, scope=scope, sink=sink, outlet=outlet, bookmarks=bookmarks, deadline=deadline
        )

    # Writing

    @property
    def object_limit(self) -> int:
        """The most bytes of one stored object."""
        return self._options.object_limit

    async def commit(self, write: Write, *, dry_run: bool) -> Entry:
        """Commit a write. Return its entry once this replica's memory holds it; for a deletion, the last state at its revision.

        Raises KeyExists, Moved, TooBig, Unavailable (nothing was executed) and OutcomeUnknown. A value that equals the present
        one is not written, unless a server of another release wrote that: its entry is returned. A dry run checks the same against
        the newest state. Its entry keeps the expected revision, and has none on a create.
        """
        if write.value is not None and len(write.value) > self.object_limit:
            raise TooBig(f"{len(write.value)} bytes are more than {self.object_limit}")
        self._require_state()
        if write.value is not None and len(write.value) > READ_STORED.limit:
            await self._replica.prepare([write.value])  # its entry is made on the event loop
        if dry_run or self._is_present(write):
            return await self._rehearse(write)
        with spans.span(COMMIT, lambda: {**_STORE, "db.collection.name": self.resource}, kind=Kind.STORE):
            return await self._writer.submit(self._writes, write)

    async def confirm(self, entry: Entry) -> Entry:
        """Return the entry once it is certain to be the newest of its key: the end of an update that changes nothing.

        Raises Moved and Unavailable.
        """
        self._require_state()
        await self.barrier()
        held = self._replica.current(entry.key)
        if held is None or held.revision != entry.revision:
            raise Moved(entry.key, held)
        return held

    def _is_present(self, write: Write) -> bool:
        if write.value is None or not write.expected:
            return False
        held = self._replica.current(write.key)
        if held is None or held.adopted:
            return False
        return held.revision == write.expected and held.stores(write.value)

    async def _rehearse(self, write: Write) -> Entry:
        await self.barrier()
        held = self._replica.current(write.key)
        if write.expected:
            if held is None or held.revision != write.expected:
                raise Moved(write.key, held)
            if write.value is None or held.stores(write.value):
                return held
            return self._replica.entry(write.key, held.revision, write.value)
        if held is not None:
            raise KeyExists(held)
        if write.value is None:
            raise Moved(write.key, None)
        return self._replica.entry(write.key, Revision(0), write.value)


class Stores(Mapping[str, Store]):
    """All resources of one store, and the tasks that maintain them."""

    def __init__(
        self,
        options: StoreOptions,
        resources: Mapping[str, IndexFunc],
        *,
        boot_id: str,
        rng: random.Random,
        adopt: Mapping[str, AdoptFunc],
        creatable: Set[str] = frozenset(),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._boot_id = boot_id
        self._rng = rng
        self._creatable = creatable
        self._budget = Budget(options.window_bytes)
        self._cluster = cluster.of(options)
        self._sentinels = sentinel.of(options)
        self._options = replace(options, cluster=self._cluster is not None)
        self._common = None if self._cluster is not None else self._connector(self._sentinels)
        """The connector of all resources; None in a cluster, where each has its own."""
        self._connectors: dict[str, Connector] = {}
        self._replicas: dict[str, Replica] = {}
        for name, index_func in resources.items():
            connector = self._connectors[name] = self._connector_of(name)
            self._replicas[name] = connector.include(name, index_func, adopt=adopt.get(name))
        self._stores = {name: self._store(replica) for name, replica in self._replicas.items()}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._libraries: asyncio.Task[None] | None = None

    def _connector_of(self, resource: str) -> Connector:
        if self._cluster is None:
            assert self._common is not None
            return self._common
        return self._connector(cluster.SlotOwner(self._cluster, resource))

    def _connector(self, locator: Locator | None) -> Connector:
        return Connector(
            self._options,
            locator,
            boot_id=self._boot_id,
            rng=self._rng,
            budget=self._budget,
            creatable=self._creatable,
            beside=self._heads,
        )

    def _heads(self) -> dict[str, Head]:
        """Return the logs of all present sessions."""
        return {name: head for each in self._all_connectors() for name, head in each.heads().items()}

    def _all_connectors(self) -> list[Connector]:
        return [self._common] if self._common is not None else list(self._connectors.values())

    def _store(self, replica: Replica) -> Store:
        return Store(replica, options=self._options, connector=self._connectors[replica.resource])

    def __getitem__(self, resource: str) -> Store:
        return self._stores[resource]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def start(self) -> None:
        for connector in self._all_connectors():
            connector.start()
        if self._cluster is not None:
            watch = tasks.supervised(self._cluster.watch_libraries, name="libraries")
            self._libraries = self._loop.create_task(watch, name="libraries")
        for name, replica in self._replicas.items():
            self._start_pump(name, replica)

    def _start_pump(self, name: str, replica: Replica) -> None:
        # The hub has already dropped a watcher whose sink raised: the others must not wait for long.
        pump = tasks.supervised(replica.hub.run, name="watches", longest_pause=PUMP_PAUSE)
        self._pumps[name] = self._loop.create_task(pump, name=f"watches of {name}")

    # Resources that come and go

    async def add(
        self, name: str, index_func: IndexFunc, *, adopt: AdoptFunc | None = None, creates: bool = False
    ) -> None:
        """Follow one more resource beside the others, and return once its memory is filled. It is shown, and counts, from then on.

        `creates`: it is created if the store lacks it and holds others. Raises StorageError if it cannot be followed; then it is not.
        """
        connector = self._connector_of(name)
        try:
            if self._cluster is None:
                replica = await connector.join(name, index_func, adopt=adopt, creates=creates)
            else:
                connector.start()
                async with _at_most(JOIN_SECONDS, connector.link):
                    replica = await connector.join(name, index_func, adopt=adopt, creates=creates)
        except BaseException:
            if self._cluster is not None:
                await connector.close()
            raise
        self._connectors[name], self._replicas[name] = connector, replica
        self._start_pump(name, replica)
        try:
            while not replica.ever_filled:
                if replica.fault is not None:
                    raise Unavailable(replica.fault)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await replica.installed.wait()
        except BaseException:
            await self.remove(name)
            raise
        self._stores[name] = self._store(replica)

    def read_otherwise(self, name: str, index_func: IndexFunc, *, adopt: AdoptFunc | None = None) -> None:
        """Read a resource's objects otherwise. Its watches end, and its requests wait until its memory is filled anew."""
        self._replicas[name].read_otherwise(index_func, adopt=adopt)

    async def remove(self, name: str) -> None:
        """Follow a resource no more, and free its memory. Its watches end; the store keeps its objects."""
        replica = self._replicas.pop(name)
        if (store := self._stores.pop(name, None)) is not None:
            store.hide_metrics()
        else:
            replica.meter.hide()
        pump = self._pumps.pop(name)
        pump.cancel()
        connector = self._connectors.pop(name)
        await asyncio.gather(connector.leave(name), pump, return_exceptions=True)
        if self._cluster is not None:
            await connector.close()
        for _ in replica.index.clear():
            await asyncio.sleep(0)

    async def ready(self) -> None:
        """Wait until all memory was filled once."""
        for connector in self._all_connectors():
            await connector.filled_once.wait()

    def why_not_ready(self) -> str | None:
        return next((why for store in self._stores.values() if (why := store.why_not_ready()) is not None), None)

    def filling(self) -> bool:
        """Whether some memory is being filled."""
        return any(store.filling for store in self._stores.values())

    def store_state(self) -> str | None:
        """Return why writes and consistent reads of some resource fail, or None. In a cluster: which primaries, and which resources."""
        if self._cluster is None:
            return next((why for store in self._stores.values() if (why := store.store_state()) is not None), None)
        failing: dict[tuple[str, str], list[str]] = {}
        for name, store in self._stores.items():
            if (why := store.store_state()) is not None:
                failing.setdefault((self._connectors[name].where, why), []).append(name)
        return "; ".join(f"{where}: {why} ({_some(names)})" for (where, why), names in failing.items()) or None

    def end_watches(self, *, at_most: int | None = None, of: Container[str] | None = None) -> int:
        """End the oldest watches of each resource cleanly, or all of them. Return how many are left. `of` are the resources, or None."""
        asked = (replica for name, replica in self._replicas.items() if of is None or name in of)
        return sum(replica.hub.end_all(at_most=at_most) for replica in asked)

    def show_metrics(self) -> None:
        """Let scrapes show these stores, and no other ones of the same resources."""
        for store in self._stores.values():
            store.show_metrics()

    def hide_metrics(self) -> None:
        """Let scrapes show no stores of these resources."""
        for store in self._stores.values():
            store.hide_metrics()

    async def close(self) -> None:
        """End everything; writes without a known outcome become OutcomeUnknown."""
        self.end_watches()
        ended = [*self._pumps.values(), *([self._libraries] if self._libraries is not None else [])]
        for task in ended:
            task.cancel()
        closing = [connector.close() for connector in self._all_connectors()]
        await asyncio.gather(*closing, *ended, return_exceptions=True)
        self._pumps.clear()
        for servers in (self._sentinels, self._cluster):
            if servers is not None:
                await servers.close()

    async def forget(self) -> None:
        """Free the memory of closed stores in small steps, while the process goes on."""
        for replica in self._replicas.values():
            for _ in replica.index.clear():
                await asyncio.sleep(0)


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


@contextlib.asynccontextmanager
async def _at_most(seconds: float, link: Link) -> AsyncIterator[None]:
    """Limit the time to reach a primary. Raises Unavailable with the link's reason."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise link.missing() from None


async def open_stores(
    options: StoreOptions,
    resources: Mapping[str, IndexFunc],
    *,
    boot_id: str | None = None,
    rng: random.Random | None = None,
    adopt: Mapping[str, AdoptFunc] = _NOTHING_ADOPTED,
    creatable: Set[str] = frozenset(),
) -> Stores:
    """Start following the store; return at once. `Stores.why_not_ready` says what is still missing, `ready` waits for it.

    `resources`: `<group>/<plural>` → the reader of labels and indexed fields. `adopt`: the same → the reader of values that servers of
    other releases may have stored. `creatable` are the resources that are created if they are missing from a store that holds others.
    `boot_id` names this process in the log. Raises ValueError when the URL cannot be read.
    """
    if sentinel.of(options) is None and cluster.of(options) is None:
        with contextlib.suppress(access.Unusable):  # a file may become usable later
            pipeline.open_wire(options, "sluice")  # reports an invalid URL now
    stores = Stores(
        options,
        resources,
        boot_id=boot_id or secrets.token_hex(6),
        rng=rng or random.Random(),
        adopt=adopt,
        creatable=creatable,
    )
    stores.start()
    return stores
