"""The public interface of storage: read at a revision, commit if the revision is unchanged, watch from a revision.

    open_stores ──► Stores: one session with the server at a time, all tasks
                    └─ Store per resource ── Replica (memory that follows the log)
                                          └─ ResourceWrites (writes under way)

Verbs call this module; nothing here calls them, knows a kind, or knows HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import secrets
from collections.abc import Awaitable, Container, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from apiserver import metrics
from apiserver.config.store_address import Node
from apiserver.runtime import tasks
from apiserver.runtime.fairqueue import FairQueue
from apiserver.runtime.offload import READ_STORED
from apiserver.storage import access, bootstrap, functions, lineage, pipeline, sentinel, upkeep
from apiserver.storage.barrier import Barrier
from apiserver.storage.bootstrap import Broken
from apiserver.storage.errors import KeyExists, Moved, TooBig, Unavailable
from apiserver.storage.functions import Commands, Foreign, Head, Lost
from apiserver.storage.lineage import Link, Session
from apiserver.storage.log import Tail
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected, Failed, Rejected
from apiserver.storage.replica import Replica
from apiserver.storage.writes import Write, Writer
from apiserver.watchcache import keys
from apiserver.watchcache.entry import AdoptFunc, Entry, IndexFunc, Revision, splice
from apiserver.watchcache.errors import Future, StorageError
from apiserver.watchcache.hub import Sink, Watcher
from apiserver.watchcache.mvcc import Diverged, View
from apiserver.watchcache.ring import Budget
from apiserver.watchcache.scope import Scope

__all__ = ["Store", "StoreOptions", "Stores", "Write", "open_stores"]

logger = logging.getLogger(__name__)

FIRST_BACKOFF = 0.05
STEADY_SECONDS = 2.0
"""A session that ended sooner was as useless as none: its cause probably persists."""
PUMP_PAUSE = 0.05
LOOK_SECONDS = 0.25
"""While a resource that was added is filled: time between two looks whether the store has lost it."""
STOPPING = "the server is stopping"
_NOTHING_ADOPTED: Mapping[str, AdoptFunc] = MappingProxyType({})


class Store:
    """One resource."""

    def __init__(self, replica: Replica, *, options: StoreOptions, link: Link, writer: Writer) -> None:
        self.resource = replica.resource
        self._replica = replica
        self._options = options
        self._link = link
        self._writer = writer
        self._writes = writer.writes_of(replica)
        self._fair_queue = FairQueue(urgent=lambda: False)
        self._barrier = Barrier(replica, link, seconds=options.barrier_seconds, loop=asyncio.get_running_loop())
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
        """Whether memory is being filled now."""
        return not self._replica.filled and self._link.session is not None and self._replica.fault is None

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

        Raises Unavailable (after at most `barrier_seconds`) and Initializing.
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
        self, *, after: Revision, scope: Scope, sink: Sink, bookmarks: bool = False, deadline: float | None = None
    ) -> Watcher:
        """Watch the events above `after`, which may lie ahead. `deadline` is loop time. Raises Compacted, Initializing."""
        self._replica.require()
        return self._replica.hub.watch(after=after, scope=scope, sink=sink, bookmarks=bookmarks, deadline=deadline)

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
        return held.revision == write.expected and splice(write.value, held.revision) == held.value

    async def _rehearse(self, write: Write) -> Entry:
        await self.barrier()
        held = self._replica.current(write.key)
        if write.expected:
            if held is None or held.revision != write.expected:
                raise Moved(write.key, held)
            if write.value is None or splice(write.value, held.revision) == held.value:
                return held
            return self._replica.entry(write.key, held.revision, write.value)
        if held is not None:
            raise KeyExists(held)
        if write.value is None:
            raise Moved(write.key, None)
        return self._replica.entry(write.key, Revision(0), write.value)


@dataclass(slots=True)
class _Live:
    """The tasks of the present session: `fillings` fill the replicas, by resource."""

    session: Session
    group: asyncio.TaskGroup
    tail: Tail
    fillings: dict[str, asyncio.Task[None]] = field(default_factory=dict)


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
        self._creatable = creatable
        self._loop = loop = asyncio.get_running_loop()
        self._options = options
        self._boot_id = boot_id
        self._rng = rng
        self._link = Link(options.fault)
        self._sentinels = sentinel.of(options)
        self._node: Node | None = None
        """The server of the present session, if sentinels named it."""
        self._epochs: dict[str, int] = {}
        """The highest epoch ever met of each resource's log, whichever server showed it."""
        self._writer = Writer(options, boot_id=boot_id, loop=loop)
        self._budget = Budget(options.window_bytes)
        self._replicas = {name: self._replica(name, index, adopt.get(name)) for name, index in resources.items()}
        self._stores = {name: self._store(replica) for name, replica in self._replicas.items()}
        self._upkeep = upkeep.Upkeep(options, self._link, self._replicas, rng=rng, clock=loop.time)
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._live: _Live | None = None

    def _replica(self, name: str, index_func: IndexFunc, adopt: AdoptFunc | None) -> Replica:
        return Replica(
            name,
            index_func,
            options=self._options,
            budget=self._budget,
            clock=self._loop.time,
            seen=self._writer.seen,
            adopt=adopt,
        )

    def _store(self, replica: Replica) -> Store:
        return Store(replica, options=self._options, link=self._link, writer=self._writer)

    def __getitem__(self, resource: str) -> Store:
        return self._stores[resource]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def start(self) -> None:
        loop = self._loop
        self._tasks = [
            loop.create_task(self._keep_connected(), name="store"),
            loop.create_task(tasks.supervised(self._writer.keep_sweeping, name="writes in doubt"), name="writes"),
        ]
        for name, replica in self._replicas.items():
            self._start_pump(name, replica)
        if not self._replicas:
            self._ready.set()

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
        while (live := self._live) is None:  # noqa: ASYNC110 - a session may begin at any time, and end before this task runs
            await asyncio.sleep(FIRST_BACKOFF)
        await lineage.join(live.session, name, Commands(name), epochs=self._epochs, creates=creates)
        replica = self._replicas[name] = self._replica(name, index_func, adopt)
        self._upkeep.add(name)
        self._start_pump(name, replica)
        if self._live is live:
            self._attach(live, replica)
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

    def _attach(self, live: _Live, replica: Replica) -> None:
        """Let a session fill a replica and follow its log."""
        filling = partial(self._fill, live.session, replica)
        supervised = tasks.supervised(filling, name="filling", passing=(StorageError,))
        live.fillings[replica.resource] = live.group.create_task(supervised)
        live.tail.add(replica.commands.keys.log, replica)

    def read_otherwise(self, name: str, index_func: IndexFunc, *, adopt: AdoptFunc | None = None) -> None:
        """Read a resource's objects otherwise. Its watches end, and its requests wait until its memory is filled anew."""
        self._replicas[name].read_otherwise(index_func, adopt=adopt)

    async def remove(self, name: str) -> None:
        """Follow a resource no more, and free its memory. Its watches end; the store keeps its objects."""
        replica = self._replicas.pop(name)
        self._writer.forget(name)
        if (store := self._stores.pop(name, None)) is not None:
            store.hide_metrics()
        else:
            replica.meter.hide()
        replica.end("the resource is not served any more")
        ended = [self._pumps.pop(name)]
        if (live := self._live) is not None:
            live.tail.remove(replica.commands.keys.log)
            if (filling := live.fillings.pop(name, None)) is not None:
                ended.append(filling)
            live.session.heads.pop(name, None)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for _ in replica.index.clear():
            await asyncio.sleep(0)

    async def ready(self) -> None:
        """Wait until all memory was filled once."""
        await self._ready.wait()

    def why_not_ready(self) -> str | None:
        return next((why for store in self._stores.values() if (why := store.why_not_ready()) is not None), None)

    def filling(self) -> bool:
        """Whether some memory is being filled."""
        return any(store.filling for store in self._stores.values())

    def store_state(self) -> str | None:
        return next((why for store in self._stores.values() if (why := store.store_state()) is not None), None)

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
        self._closing.set()
        self.end_watches()
        ended = [*self._tasks, *self._pumps.values()]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        self._tasks.clear()
        self._pumps.clear()
        self._writer.close()
        if self._sentinels is not None:
            await self._sentinels.close()

    async def forget(self) -> None:
        """Free the memory of closed stores in small steps, while the process goes on."""
        for replica in self._replicas.values():
            for _ in replica.index.clear():
                await asyncio.sleep(0)

    # One session after the other

    async def _keep_connected(self) -> None:
        pause = 0.0
        # A task group that fails when it is cancelled swallows the cancellation, hence the flag.
        while not self._closing.is_set():
            opened: float | None = None
            try:
                session = await self._open()
                opened = self._loop.time()
                await self._use_and_close(session)
            except StorageError as error:
                self._down(str(error))
            except Exception:  # a supervisor: the store must be followed on after any error
                metrics.TASK_FAILURES.labels("store").inc()
                logger.exception("the store could not be followed")
                self._down("internal error")
            if self._closing.is_set():
                return
            lasted = 0.0 if opened is None else self._loop.time() - opened
            longest = self._options.backoff_seconds if self._sentinels is None else sentinel.SEARCH_SECONDS
            pause = next_pause(pause, lasted=lasted, longest=longest)
            await asyncio.sleep(pause * self._rng.uniform(0.5, 1.0))

    async def _use_and_close(self, session: Session) -> None:
        reason = STOPPING
        try:
            reason = await self._use(session)
        except Exception:
            reason = "internal error"
            raise
        finally:
            self._down(reason)
            self._writer.detach(reason)
            await session.close(reason)

    async def _open(self) -> Session:
        for name, replica in self._replicas.items():
            self._epochs[name] = max(self._epochs.get(name, 0), replica.highest_epoch)
        commands = {name: replica.commands for name, replica in self._replicas.items()}
        # A resource that is added later must not keep the others from being followed.
        first = not self._ready.is_set()

        def opening(options: StoreOptions, confirmed: bool = False) -> Awaitable[Session]:  # noqa: FBT001, FBT002
            return lineage.open_session(
                options, commands, epochs=self._epochs, first=first, creatable=self._creatable, confirmed=confirmed
            )

        if self._sentinels is None:
            return await opening(self._options)
        self._node, session = await self._sentinels.open(commands, epochs=self._epochs, opening=opening)
        return session

    def _server_options(self) -> StoreOptions:
        """Return the options of the present session's server."""
        if self._sentinels is None or self._node is None:
            return self._options
        return self._sentinels.options_of(self._node)

    def _own_heads(self, session: Session) -> dict[str, tuple[Commands, Head]]:
        """Return the logs of a session with the epochs that they have now."""
        found = {}
        for name, replica in self._replicas.items():
            head = session.heads.get(name)
            if head is not None:
                epoch = (
                    max(head.epoch, int(replica.epoch)) if keys.alike(head.epoch, int(replica.epoch)) else head.epoch
                )
                found[name] = (replica.commands, head._replace(epoch=epoch))
        return found

    def _down(self, reason: str) -> None:
        if reason != STOPPING and (self._link.session is not None or self._link.reason != reason):
            logger.warning("store not available", extra={"reason": reason})
        self._link.session, self._link.reason = None, reason

    async def _use(self, session: Session) -> str:
        """Use the session until it breaks. Return the reason."""
        for name, replica in self._replicas.items():
            if name in session.heads:
                replica.meet(session.heads[name], known=replica.applied)
            else:
                replica.lost(session.missing[name])
        self._link.refusal = "; ".join(session.refusals)
        self._link.session = session
        self._writer.attach(session)
        about = {"run_id": session.run_id, "fenced": session.fenced}
        logger.info("store connected", extra=about if self._node is None else about | {"server": str(self._node)})
        reason = "closed"
        for replica in self._replicas.values():
            if replica.ever_filled:
                replica.meter.reconnects.inc()
        tail = Tail(self._server_options(), {})
        try:
            async with asyncio.TaskGroup() as group:
                self._live = live = _Live(session, group, tail)
                for replica in self._replicas.values():
                    self._attach(live, replica)
                group.create_task(_until_broken(session))
                group.create_task(
                    tail.run(
                        partial(lineage.check_same_server, run_id=session.run_id), partial(self._upkeep.look, session)
                    )
                )
                for name, run in (
                    ("outcomes", self._writer.run), ("guard", self._upkeep.guard), ("upkeep", self._upkeep.care),
                ):  # fmt: skip
                    group.create_task(tasks.supervised(partial(run, session), name=name, passing=(StorageError,)))
                if self._sentinels is not None and self._node is not None:
                    heads = partial(self._own_heads, session)
                    follow = partial(self._sentinels.follow, session.run_id, self._node, heads)
                    group.create_task(tasks.supervised(follow, name="primary", passing=(StorageError,)))
        except* StorageError as errors:
            reason = str(errors.exceptions[0])
        finally:
            self._live = None
        return reason

    async def _fill(self, session: Session, replica: Replica) -> None:
        """Fill the replica's memory whenever it asks for it. A pause lies between two fillings, because their cause may persist."""
        earliest = 0.0
        while True:
            await replica.wants_filling.wait()
            await asyncio.sleep(max(0.0, earliest - self._loop.time()))
            if replica.fault is None:
                try:
                    await self._fill_once(session, replica)
                except Lost as lost:
                    replica.lost(str(lost))
                except Foreign:
                    raise
                except (Rejected, Failed, Broken, Diverged) as refused:  # the other resources go on
                    logger.warning(
                        "memory could not be filled",
                        extra={"resource": replica.resource, "reason": str(refused)},
                    )
            earliest = self._loop.time() + self._options.backoff_seconds

    async def _fill_once(self, session: Session, replica: Replica) -> None:
        fill = partial(
            bootstrap.fill,
            session.bulk,
            replica.commands,
            replica.entry,
            prepare=replica.prepare,
            boot_id=self._boot_id,
        )
        with bootstrap.collector_paused():
            try:
                filled = await fill()
            except Broken as broken:
                await self._give_history_up(session, replica, broken)
                filled = await fill()
            if filled.head.marker == replica.marker:
                await replica.count_lost(partial(_head_of, session, replica.commands))
            for _ in replica.install(filled):
                await asyncio.sleep(0)
            # These objects live long; collections need not look at them again.
            gc.freeze()
        logger.info(
            "memory filled",
            extra={"resource": replica.resource, "objects": len(filled.objects), "events": len(filled.events)},
        )
        if not self._ready.is_set() and all(replica.ever_filled for replica in self._replicas.values()):
            self._ready.set()

    async def _give_history_up(self, session: Session, replica: Replica, broken: Broken) -> None:
        """Give the history up: nobody can ever follow a broken log. Only history is lost, and clients that ask for it get 410."""
        floor = await bootstrap.give_history_up(session.bulk, replica.commands)
        about = {"resource": replica.resource, "reason": str(broken), "floor": keys.stream_id(floor)}
        logger.error("somebody else changed the log: its history is given up, the objects stay", extra=about)
        replica.meter.rebuilt("broken")


def next_pause(before: float, *, lasted: float, longest: float) -> float:
    """Return the seconds until the next attempt to connect. `lasted` is the last session's duration (0: none), `before` the last
    pause.
    """
    if not before or lasted >= STEADY_SECONDS:
        return FIRST_BACKOFF
    return min(2 * before, longest)


async def _head_of(session: Session, commands: Commands, epoch: int) -> Head:
    return functions.head(await session.bulk.call(commands.head_of(epoch)))


async def _until_broken(session: Session) -> None:
    raise Disconnected(await session.broken())


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
    if sentinel.of(options) is None:
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
