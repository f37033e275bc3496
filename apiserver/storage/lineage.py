"""Own the log: take it over on a new connection when needed, and rule out late writes of old connections.

A server process continues only a log that nobody else has changed (`functions.lua`, docs/storage.md). It takes over any other log
under a new, higher epoch, before it writes or reads through it. So no revision ever names two changes, and the store refuses
writers that still hold the old epoch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from apiserver import metrics
from apiserver.config import store_address
from apiserver.storage import durability, functions
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.storage.preflight import INFO, Server, clock_refusals, head_refusals, survey
from apiserver.watchcache import keys

logger = logging.getLogger(__name__)

BACKWARDS_MS = 1000
DRAIN_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 0.05
_NOTHING: Mapping[str, Head] = MappingProxyType({})
_OF_A_PRIMARY = (
    metrics.STORE_REPLICAS_IN_STEP,
    metrics.STORE_REPLICAS_NEEDED,
    metrics.STORE_MEMORY_BYTES,
    metrics.STORE_MEMORY_LIMIT_BYTES,
)
"""Gauges of the present primary, by its address."""


class ServerClock:
    """The server's time, carried on by the loop's clock, so that a step of this machine's clock changes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = 0

    def heard(self, now_ms: int) -> None:
        offset = now_ms - int(self._loop.time() * 1000)
        if self._offset - offset > BACKWARDS_MS and self._offset:
            # Epochs are seconds of this clock, raised above every known one: one step back is harmless, but not together with a
            # failover.
            logger.warning("the store's clock went back", extra={"by_ms": self._offset - offset})
        self._offset = offset

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._offset


@dataclass(slots=True)
class Session:
    """Connections to one server process that owns the logs. When one of them breaks, all are closed and opened again."""

    run_id: str
    clock: ServerClock
    reads: Connection
    """Barriers: short questions, short answers."""
    writes: Connection
    bulk: Connection
    """Long answers: scans, ranges, digests."""
    heads: dict[str, Head]
    refusals: list[str]
    missing: dict[str, str]
    confirmed: bool = False
    """A majority of the sentinels named this server when the session was opened."""
    fenced: bool = False
    """A new epoch was started when this session began."""
    address: str = ""
    """The server, without user and password."""
    need: Callable[[], int] = lambda: 0
    """How many replicas must confirm a write (`durability.py`)."""
    in_step: int = 0
    """How many replicas were in step when the server was last asked."""
    unconfirmed: bool = False
    """Too few replicas confirmed the last writes. Nothing is written until enough do."""
    waits: int = 0
    """Questions to replicas under way."""
    replicated: durability.Replicated = field(init=False)
    """The versions that replicas are known to have."""
    connections: tuple[Connection, ...] = field(init=False)
    _given_up: asyncio.Future[str] = field(init=False)

    def __post_init__(self) -> None:
        self.connections = (self.reads, self.writes, self.bulk)
        self.replicated = durability.Replicated(self.bulk, lambda: self.need())  # noqa: PLW0108  (it is set later)
        self._given_up = asyncio.get_running_loop().create_future()

    def give_up(self, reason: str) -> None:
        """Mark this session as unusable, although its connections are open."""
        if not self._given_up.done():
            self._given_up.set_result(reason)

    async def broken(self) -> str:
        """Wait until a connection breaks, its server redirects, or the session is given up. Return the reason."""
        ends = [self._given_up]
        for connection in self.connections:
            ends += connection.broken, connection.redirected
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()

    def shortage(self) -> str:
        """Return why the replicas let nothing be written, or an empty string."""
        need = self.need()
        if self.in_step >= need and not self.unconfirmed:
            return ""
        why = f"replicas in step {self.in_step} of {need} at the primary {self.address}"
        return f"{why}, which did not confirm the last writes" if self.in_step >= need else why

    def heard(self, in_step: int) -> None:
        """Note how many replicas are in step, and let scrapes show that and the primary."""
        self.in_step = in_step
        metrics.STORE_PRIMARY.labels(self.address, self.run_id).set(1)
        metrics.STORE_REPLICAS_IN_STEP.labels(self.address).set(in_step)
        metrics.STORE_REPLICAS_NEEDED.labels(self.address).set(self.need())

    def surveyed(self, server: Server) -> None:
        """Note what INFO says of the server, and let scrapes show it."""
        self.heard(server.in_step)
        metrics.STORE_MEMORY_BYTES.labels(self.address).set(server.used_memory)
        metrics.STORE_MEMORY_LIMIT_BYTES.labels(self.address).set(server.max_memory)

    def heard_info(self, reply: Any) -> None:
        """Take an answer to INFO replication. An error ends the session elsewhere."""
        if isinstance(reply, bytes):
            self.heard(durability.in_step(durability.parse(reply)))

    async def close(self, reason: str) -> None:
        await self.writes.drain(seconds=DRAIN_SECONDS)
        await asyncio.gather(*(connection.close(reason) for connection in self.connections))
        metrics.STORE_PRIMARY.remove(self.address, self.run_id)
        for shown in _OF_A_PRIMARY:
            shown.remove(self.address)


@dataclass(slots=True)
class Link:
    """The present session, or the reason why none exists. `refusal` says why nothing may be written although a session exists."""

    fault: Callable[[], Unavailable | None]
    session: Session | None = None
    reason: str = ""
    """Why the last session ended, or the last attempt to open one failed."""
    refusal: str = ""
    primary: str = ""
    """The server of the last session."""

    @property
    def beginning(self) -> bool:
        """Whether the first session of this process is being opened: no attempt has failed."""
        return self.session is None and not self.reason

    def trouble(self) -> str | None:
        """Return why nothing can be written now, with the primary that this is about; or None."""
        if self.session is None:
            return f"{self.missing()}" + (f" (the last primary was {self.primary})" if self.primary else "")
        if self.refusal:
            return f"{self.refusal} (primary {self.session.address})"
        return self.session.shortage() or None

    def missing(self) -> Unavailable:
        """Return why no session exists."""
        return self.fault() or Unavailable(self.reason or "the store has not been reached yet")


async def open_session(
    options: StoreOptions,
    commands: Mapping[str, Commands],
    *,
    epochs: dict[str, int],
    first: bool,
    creatable: Set[str] = frozenset(),
    beside: Mapping[str, Head] = _NOTHING,
    confirmed: bool = False,
) -> Session:
    """Connect, check everything, and take over every log that another process changed or that is older than an epoch met before.

    `epochs` holds the highest epoch ever met of each resource's log; this function keeps it up to date. With `first` (nothing was
    served from memory yet) any finding is an error. Later only a server that is not a primary is one. The session's user heeds
    the other findings and goes on reading. Missing resources that are `creatable` are created, if the store holds any other one: a store
    that was lost as a whole must not be created again without a word. `beside` are logs of the store on other primaries. Raises Rejected,
    Disconnected, Failed.
    """
    async with asyncio.timeout(options.connect_seconds * 3) as limit:
        opened: list[Connection] = []
        try:
            opened.append(await Connection.open(options, "sluice-reads"))
            opened.append(await Connection.open(options, "sluice-writes"))
            opened.append(await Connection.open(options, "sluice-bulk"))
            session, server = await _verified(
                options, commands, opened, first=first, creatable=creatable, beside=beside
            )
            session.confirmed = confirmed
            await _take_over(session, commands, epochs)
            session.surveyed(server)
            return session
        except BaseException:
            for connection in opened:
                await connection.close("not used")
            if limit.expired():
                raise Rejected("the store does not answer") from None
            raise


async def _verified(
    options: StoreOptions,
    commands: Mapping[str, Commands],
    opened: Sequence[Connection],
    *,
    first: bool,
    creatable: Set[str],
    beside: Mapping[str, Head],
) -> tuple[Session, Server]:
    """Return a session that has not taken over anything yet, and its server."""
    reads, writes, bulk = opened
    found = await survey(reads, options, commands)
    run_id = found.server.run_id
    for connection in (writes, bulk):
        check_same_server(await connection.call(INFO), run_id)
    if found.server.loading or found.server.role != "master":
        raise Rejected(found.refusals[0])
    if (known := {**beside, **found.heads}) and not found.refusals:
        schema = functions.schema_beside(known.values())
        for resource in creatable & found.missing.keys():
            found.heads[resource] = await create(reads, resource, commands[resource], run_id, schema=schema)
            del found.missing[resource]
    refusals = found.refusals + (clock_refusals(found.offset) if first else [])
    if first and (refusals or found.missing):
        raise Rejected("; ".join(refusals + list(found.missing.values())))
    if len(found.heads) + len(found.missing) < len(commands):
        raise Rejected("; ".join(refusals))
    refusals += await durability.refusals(writes, options)
    session = Session(
        run_id, ServerClock(asyncio.get_running_loop()), reads, writes, bulk, found.heads, refusals, found.missing,
        address=store_address.shown(options.url), in_step=found.server.in_step,
    )  # fmt: skip
    session.need = durability.needed(options)
    return session, found.server


def check_same_server(info_text: bytes, run_id: str) -> None:
    """Raise Rejected if connections ended at different servers: one address can have several (a Service during a failover)."""
    if Server.parse(info_text).run_id != run_id:
        raise Rejected("the store's address leads to different servers")


async def create(connection: Connection, resource: str, commands: Commands, run_id: str, *, schema: str) -> Head:
    """Create the keys of a resource that has none, and return its head. Raises Lost if it has some, and what a connection raises."""
    reply = await connection.call(commands.init(run_id, secrets.token_hex(8), schema))
    logger.info("a resource is created in the store", extra={"resource": resource, "answer": reply[0].decode()})
    return functions.head(await connection.call(commands.head))


async def join(
    session: Session,
    resource: str,
    commands: Commands,
    *,
    epochs: dict[str, int],
    creates: bool = False,
    beside: Mapping[str, Head] = _NOTHING,
) -> None:
    """Take one more resource into a session. `creates`: it is created if it is missing and the session has others, or others are known
    `beside` it, which prove that the store was not lost. Raises Lost, Rejected, and what a connection raises.
    """
    reply = await session.reads.call(commands.head)
    try:
        head = functions.head(reply)
    except Lost:
        known = {**beside, **session.heads}
        if not creates or not known:
            raise
        schema = functions.schema_beside(known.values())
        head = await create(session.reads, resource, commands, session.run_id, schema=schema)
    if wrong := head_refusals(resource, head):
        raise Rejected("; ".join(wrong))
    session.heads[resource] = head
    await _take_over(session, {resource: commands}, epochs)


async def _take_over(session: Session, commands: Mapping[str, Commands], epochs: dict[str, int]) -> None:
    for resource, command in commands.items():
        head = session.heads.get(resource)
        if head is None:
            continue
        session.clock.heard(head.now_ms)
        highest = epochs.get(resource, 0)
        if not keys.alike(head.epoch, highest):
            highest = 0  # it belongs to another store, whose versions get 410 here
        if not head.own or head.epoch < highest:
            fence = functions.fence(
                await session.reads.call(command.fence(session.run_id, highest, confirmed=session.confirmed))
            )
            session.fenced = session.fenced or fence.started
            head = session.heads[resource] = head._replace(epoch=fence.epoch, last=fence.last, own=True)
        epochs[resource] = max(highest, head.epoch)


async def rule_out(session: Session, suspects: set[tuple[str, int]], deadline: int) -> None:
    """Wait until nothing that these connections (run_id, client id) sent can execute any more. Remove each one that is ruled out.

    `deadline` is the last moment, by the server's clock, at which any of it may begin.
    """
    for run_id, client_id in list(suspects):
        # A new process starts with a fence, which refuses everything that was sent under the epoch before. Calls that were sent to
        # another primary may still run there, on a branch that is lost.
        if run_id == session.run_id and not await _killed(session, client_id):
            await _passed(session, deadline)
        suspects.discard((run_id, client_id))


async def _killed(session: Session, client_id: int) -> bool:
    try:
        # Either answer is proof: 1 was killed, 0 means that no client has this number, and numbers are never reused.
        return await session.reads.call(pack("CLIENT", "KILL", "ID", client_id)) in (0, 1)
    except (Rejected, Failed) as error:
        logger.warning("an old connection cannot be killed", extra={"reason": str(error)})
        return False


async def _passed(session: Session, deadline: int) -> None:
    """Wait until the server's clock is past the deadline: it then refuses what comes as late."""
    while True:
        seconds, micros = await session.reads.call(pack("TIME"))
        left = deadline - (int(seconds) * 1000 + int(micros) // 1000)
        if left < 0:
            return
        await asyncio.sleep(min(left / 1000 + 0.001, LOOK_AGAIN_SECONDS))
