"""Keep a session with one primary for some resources: connect, fill their memory, follow their logs, and begin anew after every end.

    Connector: one session after the other, and the tasks of the present one
    ├─ Link ── Session    three connections to one server process (`lineage`)
    ├─ Writer             writes under way
    ├─ Tail               a connection that follows the logs
    └─ Replica            per resource: the memory that is fed

A connector knows its own primary only. Where that is, its locator says. `store.Stores` has one connector for each part of the store.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from apiserver import metrics
from apiserver.config.store_address import Node
from apiserver.runtime import tasks
from apiserver.storage import bootstrap, functions, lineage, upkeep
from apiserver.storage.bootstrap import Broken
from apiserver.storage.functions import Commands, Foreign, Head, Lost
from apiserver.storage.lineage import Link, Session
from apiserver.storage.log import Tail
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected, Failed, Rejected
from apiserver.storage.replica import Replica
from apiserver.storage.writes import Writer
from apiserver.watchcache import keys
from apiserver.watchcache.entry import AdoptFunc, IndexFunc
from apiserver.watchcache.errors import StorageError
from apiserver.watchcache.mvcc import Diverged
from apiserver.watchcache.ring import Budget

logger = logging.getLogger(__name__)

FIRST_BACKOFF = 0.05
STEADY_SECONDS = 2.0
"""A session that ended sooner was as useless as none: its cause probably persists."""
FREEZE_OBJECTS = 10_000
"""Objects that came into memory since the last freeze, and make a collection longer than some milliseconds."""
STOPPING = "the server is stopping"

Opening = Callable[[StoreOptions, bool], Awaitable[Session]]
"""Opens a session with one server. The flag: a majority of the sentinels named that server."""


class Locator(Protocol):
    """Knows where the primary is, among several servers."""

    longest_pause: float
    """Seconds between two attempts to connect, at most."""

    async def open(
        self, commands: Mapping[str, Commands], *, epochs: dict[str, int], opening: Opening
    ) -> tuple[Node, Session]:
        """Open a session with the primary. Raise `epochs` to what other servers' logs have. Raises StorageError."""

    async def follow(self, run_id: str, node: Node, heads: Callable[[], Mapping[str, tuple[Commands, Head]]]) -> None:
        """Wait until the session's server is not the primary any more; then raise Disconnected. `heads`: the session's logs now."""

    def options_of(self, node: Node) -> StoreOptions:
        """Return the options that lead to this server."""

    @property
    def where(self) -> str:
        """The primary's name for people; empty if nothing is known."""


@dataclass(slots=True)
class _Live:
    """The tasks of the present session: `fillings` fill the replicas, by resource."""

    session: Session
    group: asyncio.TaskGroup
    tail: Tail
    fillings: dict[str, asyncio.Task[None]] = field(default_factory=dict)


class Connector:
    """Some resources of the store, which one primary holds. `close` ends it."""

    def __init__(
        self,
        options: StoreOptions,
        locator: Locator | None,
        *,
        boot_id: str,
        rng: random.Random,
        budget: Budget,
        creatable: Set[str] = frozenset(),
        beside: Callable[[], Mapping[str, Head]] = dict,
    ) -> None:
        """`locator` is None if the options name the one server that there is. `creatable`, `beside`: see `lineage.open_session`."""
        self._loop = loop = asyncio.get_running_loop()
        self._options = options
        self._locator = locator
        self._boot_id = boot_id
        self._rng = rng
        self._budget = budget
        self._creatable = creatable
        self._beside = beside
        self.link = Link(options.fault)
        self.writer = Writer(options, boot_id=boot_id, loop=loop)
        self.filled_once = asyncio.Event()
        """All memory of the first resources was filled once."""
        self._unfrozen = 0
        """Objects that were filled since the last freeze."""
        self._node: Node | None = None
        """The server of the present session, if the locator named it."""
        self._epochs: dict[str, int] = {}
        """The highest epoch ever met of each resource's log, whichever server showed it."""
        self._replicas: dict[str, Replica] = {}
        self._upkeep = upkeep.Upkeep(options, self.link, self._replicas, rng=rng, clock=loop.time)
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._live: _Live | None = None

    def start(self) -> None:
        loop = self._loop
        self._tasks = [
            loop.create_task(self._keep_connected(), name="store"),
            loop.create_task(tasks.supervised(self.writer.keep_sweeping, name="writes in doubt"), name="writes"),
        ]
        if not self._replicas:
            self.filled_once.set()

    async def close(self) -> None:
        """End everything; writes without a known outcome become OutcomeUnknown."""
        self._closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.writer.close()

    def heads(self) -> Mapping[str, Head]:
        """Return the logs of the present session."""
        return self.link.session.heads if self.link.session is not None else {}

    @property
    def where(self) -> str:
        """The primary's name for people."""
        return self._locator.where if self._locator is not None else ""

    # Resources

    def include(self, name: str, index_func: IndexFunc, *, adopt: AdoptFunc | None) -> Replica:
        """Follow a resource from the next session on. Return its memory."""
        replica = self._replicas[name] = Replica(
            name,
            index_func,
            options=self._options,
            budget=self._budget,
            clock=self._loop.time,
            seen=self.writer.seen,
            adopt=adopt,
        )
        self._upkeep.add(name)
        return replica

    async def join(self, name: str, index_func: IndexFunc, *, adopt: AdoptFunc | None, creates: bool) -> Replica:
        """Follow one more resource in the present session, or the next one. Raises what `lineage.join` raises."""
        while (live := self._live) is None:  # noqa: ASYNC110 - a session may begin at any time, and end before this task runs
            await asyncio.sleep(FIRST_BACKOFF)
        await lineage.join(
            live.session, name, Commands(name), epochs=self._epochs, creates=creates, beside=self._beside()
        )
        replica = self.include(name, index_func, adopt=adopt)
        if self._live is live:
            self._attach(live, replica)
        return replica

    def _attach(self, live: _Live, replica: Replica) -> None:
        """Let a session fill a replica and follow its log."""
        filling = partial(self._fill, live.session, replica)
        supervised = tasks.supervised(filling, name="filling", passing=(StorageError,))
        live.fillings[replica.resource] = live.group.create_task(supervised)
        live.tail.add(replica.commands.keys.log, replica)

    async def leave(self, name: str) -> None:
        """Follow a resource no more. Its writes under way are answered, and its watches end."""
        replica = self._replicas.pop(name)
        self.writer.forget(name)
        replica.end("the resource is not served any more")
        if (live := self._live) is None:
            return
        live.tail.remove(replica.commands.keys.log)
        live.session.heads.pop(name, None)
        if (filling := live.fillings.pop(name, None)) is not None:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)

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
            longest = self._options.backoff_seconds if self._locator is None else self._locator.longest_pause
            pause = next_pause(pause, lasted=lasted, longest=longest)
            await asyncio.sleep(pause * self._rng.uniform(0.5, 1.0))

    async def _use_and_close(self, session: Session) -> None:
        reason = STOPPING
        try:
            reason = await tasks.apart(self._use(session))
        except Exception:
            reason = "internal error"
            raise
        finally:
            self._down(reason)
            self.writer.detach(reason)
            await session.close(reason)

    async def _open(self) -> Session:
        for name, replica in self._replicas.items():
            self._epochs[name] = max(self._epochs.get(name, 0), replica.highest_epoch)
        commands = {name: replica.commands for name, replica in self._replicas.items()}
        # A resource that is added later must not keep the others from being followed.
        first = not self.filled_once.is_set()

        def opening(options: StoreOptions, confirmed: bool = False) -> Awaitable[Session]:  # noqa: FBT001, FBT002
            return lineage.open_session(
                options,
                commands,
                epochs=self._epochs,
                first=first,
                creatable=self._creatable,
                beside=self._beside(),
                confirmed=confirmed,
            )

        if self._locator is None:
            return await opening(self._options)
        self._node, session = await self._locator.open(commands, epochs=self._epochs, opening=opening)
        return session

    def _server_options(self) -> StoreOptions:
        """Return the options of the present session's server."""
        if self._locator is None or self._node is None:
            return self._options
        return self._locator.options_of(self._node)

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
        if reason != STOPPING and (self.link.session is not None or self.link.reason != reason):
            about = {"reason": reason}
            if self._locator is not None:
                about |= {"server": self.where, "resources": ", ".join(self._replicas)}
            logger.warning("store not available", extra=about)
        if (left := self.link.session) is not None:
            self.link.primary = left.address
        self.link.session, self.link.reason = None, reason

    async def _use(self, session: Session) -> str:
        """Use the session until it breaks. Return the reason."""
        for name, replica in self._replicas.items():
            if name in session.heads:
                replica.meet(session.heads[name], known=replica.applied)
            else:
                replica.lost(session.missing[name])
        self.link.refusal = "; ".join(session.refusals)
        self.link.session = session
        self.writer.attach(session)
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
                    ("outcomes", self.writer.run), ("guard", self._upkeep.guard), ("upkeep", self._upkeep.care),
                ):  # fmt: skip
                    group.create_task(tasks.supervised(partial(run, session), name=name, passing=(StorageError,)))
                if self._locator is not None and self._node is not None:
                    heads = partial(self._own_heads, session)
                    follow = partial(self._locator.follow, session.run_id, self._node, heads)
                    group.create_task(tasks.supervised(follow, name="primary", passing=(StorageError,)))
        except* StorageError as errors:
            reason = str(errors.exceptions[0])
        finally:
            self._live = None
        return reason

    # Filling

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
            self._freeze(len(filled.objects))
        logger.info(
            "memory filled",
            extra={"resource": replica.resource, "objects": len(filled.objects), "events": len(filled.events)},
        )
        if not self.filled_once.is_set() and all(replica.ever_filled for replica in self._replicas.values()):
            self.filled_once.set()

    def _freeze(self, objects: int) -> None:
        """Take what lives long out of the sight of collections, which take time for each object.

        Everything in the process is frozen, and cycles that are frozen are never freed. So a changed definition, after which its kind is
        read anew, freezes nothing unless there are many objects.
        """
        self._unfrozen += objects
        if not self.filled_once.is_set() or self._unfrozen >= FREEZE_OBJECTS:
            self._unfrozen = 0
            gc.freeze()

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
