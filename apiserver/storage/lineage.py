"""Whose log is this: preflight, the takeover on every new connection, what old connections may still do, and the administrator's
three commands.

A server process goes on only with a log that it has left as it is (`functions.lua`, docs/storage.md). Any other it takes over under
a new, higher epoch, before anything is written or read through it. So no revision ever names two changes, and writers that still hold
the old epoch are refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver.storage import functions
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Connection, Failed, Head, Lost, Rejected, pack
from apiserver.storage.options import StoreOptions
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

CLOCK_OFFSET_SECONDS = 1.0
BACKWARDS_MS = 1000
MEMORY_HEADROOM = 0.1
DRAIN_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 0.05
OLDEST_REDIS = (7, 0)
OLDEST_VALKEY = (7, 2)


# --------------------------------------------------------------------------------------------------------------- preflight


@dataclass(frozen=True, slots=True)
class Server:
    """What INFO says about the process at the other end."""

    run_id: str
    role: str
    name: str
    version: tuple[int, ...]
    policy: str
    aof: bool
    aof_broken: bool
    cluster: bool
    used_memory: int
    max_memory: int

    @classmethod
    def parse(cls, text: bytes) -> Server:
        values = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
        valkey = values.get("valkey_version")
        version = valkey or values.get("redis_version", "0")
        return cls(
            run_id=values.get("run_id", ""),
            role=values.get("role", ""),
            name="Valkey" if valkey else "Redis",
            version=tuple(int(part) for part in version.split(".") if part.isdigit()),
            policy=values.get("maxmemory_policy", ""),
            aof=values.get("aof_enabled") == "1",
            aof_broken=values.get("aof_last_write_status", "ok") != "ok",
            cluster=values.get("cluster_enabled") == "1",
            used_memory=int(values.get("used_memory", 0)),
            max_memory=int(values.get("maxmemory", 0)),
        )

    @property
    def headroom(self) -> float:
        """The free share of the memory that the server may use; 1 when there is no limit."""
        return 1 - self.used_memory / self.max_memory if self.max_memory else 1.0

    def refusals(self, options: StoreOptions) -> list[str]:
        """Why nothing must be written to this server, one reason each. An operator can cure all of them."""
        found = []
        if self.role != "master":
            found.append(f"the store is a {self.role or 'server without role'}, not a primary")
        if self.policy != "noeviction":
            found.append(f"maxmemory-policy is {self.policy}, which drops objects silently: it must be noeviction")
        if not self.aof and not options.allow_volatile:
            found.append("the append-only file is off, so that a restart loses everything: set appendonly yes")
        if self.cluster:
            found.append("cluster mode is on: the store must be a single primary")
        oldest = OLDEST_VALKEY if self.name == "Valkey" else OLDEST_REDIS
        if self.version < oldest:
            have, need = (".".join(map(str, version)) for version in (self.version, oldest))
            found.append(f"{self.name} {have} is too old: {need} or later is needed")
        return found

    def warnings(self) -> list[str]:
        """What an operator should see to, although everything works: memory that is almost full must not stop a restart."""
        if self.headroom < MEMORY_HEADROOM:
            return [f"only {max(0.0, self.headroom):.0%} of maxmemory is free: creates and updates will be refused"]
        return []


def library_refusals(listing: list[Any]) -> list[str]:
    """The answer of FUNCTION LIST LIBRARYNAME … WITHCODE against the library of this version."""
    for library in listing:
        members = dict(zip(library[::2], library[1::2], strict=True))
        code = members.get(b"library_code")
        if code is None:
            continue
        have, need = functions.code_hash(code), functions.code_hash(functions.CODE)
        if have == need:
            return []
        return [f"the function library is {have}, not {need}: run `sluice store init`"]
    return ["the function library is not loaded: run `sluice store init`"]


def head_refusals(resource: str, head: Head | StorageError) -> list[str]:
    if isinstance(head, Lost):
        return [f"{resource} is not there ({head}): run `sluice store init` if it never was, else restore the store"]
    if isinstance(head, StorageError):
        # Without the library nothing can be asked, and that is said already.
        return [] if "Function not found" in str(head) else [f"{resource}: {head}"]
    if head.schema != functions.SCHEMA:
        return [f"{resource} has schema {head.schema}, this version reads schema {functions.SCHEMA}"]
    return []


def clock_refusals(offset: float) -> list[str]:
    if abs(offset) < CLOCK_OFFSET_SECONDS:
        return []
    return [f"the store's clock is {offset:+.1f} s off this machine's"]


LIBRARY_LIST = pack("FUNCTION", "LIST", "LIBRARYNAME", functions.LIBRARY, "WITHCODE")
INFO = pack("INFO")


@dataclass(slots=True)
class Survey:
    """What one connection found. `refusals` are reasons to write nothing, `missing` the resources whose keys are not there."""

    server: Server
    heads: dict[str, Head]
    refusals: list[str]
    missing: dict[str, str]
    offset: float
    """The server's clock less this machine's, in seconds."""


async def survey(connection: Connection, options: StoreOptions, commands: Mapping[str, Commands]) -> Survey:
    """All that is looked at before a server is used, by one flush of commands."""
    answers = await asyncio.gather(
        connection.call(INFO),
        connection.call(LIBRARY_LIST),
        *(connection.call(command.head) for command in commands.values()),
        return_exceptions=True,
    )
    info, listing, *replies = (_or_raise(answer) for answer in answers)
    if isinstance(info, StorageError):
        raise info
    server = Server.parse(info)
    refusals = server.refusals(options)
    refusals += [str(listing)] if isinstance(listing, StorageError) else library_refusals(listing)
    heads, missing, offset = {}, {}, 0.0
    for resource, reply in zip(commands, replies, strict=True):
        head = _head(reply)
        found = head_refusals(resource, head)
        if isinstance(head, Lost):
            missing[resource] = found[0]
            continue
        refusals += found
        if isinstance(head, Head):
            heads[resource] = head
            offset = head.now_ms / 1000 - time.time()
    return Survey(server, heads, refusals, missing, offset)


def _or_raise(answer: Any) -> Any:
    if isinstance(answer, BaseException) and not isinstance(answer, (Rejected, Failed)):
        raise answer
    return answer


def _head(reply: Any) -> Head | StorageError:
    if isinstance(reply, StorageError):
        return reply
    try:
        return functions.head(reply)
    except Lost as lost:
        return lost


# ---------------------------------------------------------------------------------------------------------------- sessions


class ServerClock:
    """The server's time, carried on by the loop's clock, so that a step of this machine's clock changes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = 0

    def heard(self, now_ms: int) -> None:
        offset = now_ms - int(self._loop.time() * 1000)
        if self._offset - offset > BACKWARDS_MS and self._offset:
            # Epochs are seconds of this clock, raised above all that is known: going back is harmless once, not with a failover.
            logger.warning("the store's clock went back", extra={"by_ms": self._offset - offset})
        self._offset = offset

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._offset


@dataclass(slots=True)
class Session:
    """Connections to one server process whose own the logs are. When one of them breaks, all are given up and made anew."""

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
    fenced: bool = False
    """A new epoch was started when this session began."""
    connections: tuple[Connection, ...] = field(init=False)
    _given_up: asyncio.Future[str] = field(init=False)

    def __post_init__(self) -> None:
        self.connections = (self.reads, self.writes, self.bulk)
        self._given_up = asyncio.get_running_loop().create_future()

    def give_up(self, reason: str) -> None:
        """This session is of no more use, although its connections are there."""
        if not self._given_up.done():
            self._given_up.set_result(reason)

    async def broken(self) -> str:
        """Returns when a connection broke, or the session was given up: why."""
        ends = [self._given_up, *(connection.broken for connection in self.connections)]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()

    async def close(self, reason: str) -> None:
        await self.writes.drain(seconds=DRAIN_SECONDS)
        await asyncio.gather(*(connection.close(reason) for connection in self.connections))


@dataclass(slots=True)
class Link:
    """The present session, or why there is none; and why nothing must be written although there is one."""

    session: Session | None = None
    reason: str = "the store has not been reached yet"
    refusal: str = ""

    def trouble(self) -> str | None:
        """Why nothing can be written now."""
        return self.reason if self.session is None else self.refusal or None


async def open_session(
    options: StoreOptions, commands: Mapping[str, Commands], *, epochs: dict[str, int], first: bool
) -> Session:
    """Connect, look at everything, take over the logs that the server process has not left as they are, or that are older than
    what was met before: `epochs` holds the highest epoch that was ever met of each resource's log, and is kept so.

    `first` (nothing was served from memory yet): any finding refuses. Later only a server that is no primary does; the rest is
    for the session's user to heed, who goes on reading. Raises Rejected, Disconnected, Failed.
    """
    async with asyncio.timeout(options.connect_seconds * 3) as limit:
        opened: list[Connection] = []
        try:
            opened.append(await Connection.open(options, "sluice-reads"))
            opened.append(await Connection.open(options, "sluice-writes"))
            opened.append(await Connection.open(options, "sluice-bulk"))
            return await _verified(options, commands, opened, epochs=epochs, first=first)
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
    epochs: dict[str, int],
    first: bool,
) -> Session:
    reads, writes, bulk = opened
    found = await survey(reads, options, commands)
    run_id = found.server.run_id
    for connection in (writes, bulk):
        check_same_server(await connection.call(INFO), run_id)
    if found.server.role != "master":
        raise Rejected(found.refusals[0])
    refusals = found.refusals + (clock_refusals(found.offset) if first else [])
    if first and (refusals or found.missing):
        raise Rejected("; ".join(refusals + list(found.missing.values())))
    if len(found.heads) + len(found.missing) < len(commands):
        raise Rejected("; ".join(refusals))
    clock = ServerClock(asyncio.get_running_loop())
    session = Session(run_id, clock, reads, writes, bulk, found.heads, refusals, found.missing)
    await _take_over(session, commands, epochs)
    return session


def check_same_server(info_text: bytes, run_id: str) -> None:
    """Behind one address there may be several servers (a Service during a failover): all connections must end at one of them."""
    if Server.parse(info_text).run_id != run_id:
        raise Rejected("the store's address leads to different servers")


async def _take_over(session: Session, commands: Mapping[str, Commands], epochs: dict[str, int]) -> None:
    for resource, head in list(session.heads.items()):
        session.clock.heard(head.now_ms)
        highest = epochs.get(resource, 0)
        if not head.own or head.epoch < highest:
            fence = functions.fence(await session.reads.call(commands[resource].fence(session.run_id, highest)))
            session.fenced = session.fenced or fence.started
            head = session.heads[resource] = head._replace(epoch=fence.epoch, last=fence.last, own=True)
        epochs[resource] = max(highest, head.epoch)


async def rule_out(session: Session, suspects: set[tuple[str, int]], deadline: int) -> None:
    """Return when nothing that these connections (run_id, client id) sent can execute any more; each is removed when that is sure.

    `deadline` is the last moment, by the server's clock, at which any of it may begin.
    """
    for run_id, client_id in list(suspects):
        # Another process starts with a fence, which refuses whatever was sent under the epoch before.
        if run_id == session.run_id and not await _killed(session, client_id):
            await _passed(session, deadline)
        suspects.discard((run_id, client_id))


async def _killed(session: Session, client_id: int) -> bool:
    try:
        # One was killed, or there is none of this number any more, and numbers are not given twice: either is proof.
        return await session.reads.call(pack("CLIENT", "KILL", "ID", client_id)) in (0, 1)
    except (Rejected, Failed) as error:
        logger.warning("an old connection cannot be killed", extra={"reason": str(error)})
        return False


async def _passed(session: Session, deadline: int) -> None:
    """Return when the server's clock is past the deadline: what comes now is refused as late."""
    while True:
        seconds, micros = await session.reads.call(pack("TIME"))
        left = deadline - (int(seconds) * 1000 + int(micros) // 1000)
        if left < 0:
            return
        await asyncio.sleep(min(left / 1000 + 0.001, LOOK_AGAIN_SECONDS))


# ------------------------------------------------------------------------------------------------- the administrator's side


class InitRefused(Unavailable):
    """Some of a resource's keys are there and others are not: this needs a decision (restore, or delete by hand)."""


async def init(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Load the library, create what is missing; what is there stays. Says what was done. Raises InitRefused, Rejected.

    Needs a user who may FUNCTION LOAD.
    """
    done, halves = [], []
    connection = await Connection.open(options, "sluice-init")
    try:
        server = Server.parse(await connection.call(INFO))
        if server.role != "master":
            raise Rejected(f"the store is a {server.role}, not a primary")
        if library_refusals(await connection.call(LIBRARY_LIST)):
            await connection.call(pack("FUNCTION", "LOAD", "REPLACE", functions.CODE))
            done.append(f"function library {functions.LIBRARY} {functions.code_hash(functions.CODE)}: loaded")
        for resource in resources:
            reply = await connection.call(Commands(resource).init(server.run_id, secrets.token_hex(8)))
            if reply[0] == b"HALF":
                halves.append(f"{resource} is half there: of its keys only {', '.join(k.decode() for k in reply[1:])}")
            else:
                done.append(f"{resource}: {'created' if reply[0] == b'OK' else 'already there'}")
        done += [f"warning: {text}" for text in server.refusals(options) + server.warnings()]
    finally:
        await connection.close()
    if halves:
        raise InitRefused("; ".join(halves))
    return done


async def check(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Every reason why `sluice serve` would not start with this store, and every warning. Raises Rejected."""
    commands = {resource: Commands(resource) for resource in resources}
    connection = await Connection.open(options, "sluice-check")
    try:
        found = await survey(connection, options, commands)
    finally:
        await connection.close()
    return [
        *found.refusals,
        *clock_refusals(found.offset),
        *found.missing.values(),
        *(f"warning: {text}" for text in found.server.warnings()),
    ]


async def info(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """One line per resource. Raises Rejected."""
    commands = {resource: Commands(resource) for resource in resources}
    connection = await Connection.open(options, "sluice-info")
    try:
        found = await survey(connection, options, commands)
    finally:
        await connection.close()
    lines = [f"{found.server.name} {'.'.join(map(str, found.server.version))}, {found.server.role}"]
    for resource in commands:
        head = found.heads.get(resource)
        lines.append(_described(resource, head) if head else f"{resource}: not there")
    return lines


def _described(resource: str, head: Head) -> str:
    return (
        f"{resource}: epoch {head.epoch}, last {_id(head.last)}, floor {_id(head.floor)}, "
        f"{head.objects} objects, {head.size} bytes"
    )


def _id(revision: Revision) -> str:
    return f"{keys.stream_id(revision)} (resourceVersion {revision})"
