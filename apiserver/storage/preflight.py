"""Decide whether a server is fit for writes, from INFO, the function library and each resource's head. The texts are for operators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.storage import durability, functions
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.watchcache import keys
from apiserver.watchcache.errors import StorageError

CLOCK_OFFSET_SECONDS = 1.0
MEMORY_HEADROOM = 0.1
OLDEST_REDIS = (7, 0)
OLDEST_VALKEY = (7, 2)
LOADING = "the store is loading its data"
NO_CLUSTER = (
    "this server is no node of a cluster (cluster-enabled no): name it with redis:// (rediss:// with TLS), or its sentinels with "
    "redis+sentinel://"
)


@dataclass(frozen=True, slots=True)
class Server:
    """The process at the other end, as INFO describes it."""

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
    loading: bool
    """The server is reading its data from disk: its other values may change afterwards."""
    sentinel: bool = False
    in_step: int = 0
    """The replicas in step (`durability.py`)."""

    @classmethod
    def parse(cls, text: bytes) -> Server:
        values = durability.parse(text)
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
            loading=values.get("loading") == "1",
            sentinel="sentinel" in (values.get("redis_mode"), values.get("server_mode")),
            in_step=durability.in_step(values),
        )

    @property
    def headroom(self) -> float:
        """The free share of the memory that the server may use; 1 without a limit."""
        return 1 - self.used_memory / self.max_memory if self.max_memory else 1.0

    def refusals(self, options: StoreOptions) -> list[str]:
        """Return the reasons why nothing may be written to this server. An operator can cure all of them."""
        if self.loading:  # while it loads, it reports the append-only file as off
            return [LOADING]
        found = []
        if self.role != "master":
            found.append(f"the store is a {self.role or 'server without role'}, not a primary")
        if self.policy != "noeviction":
            found.append(f"maxmemory-policy is {self.policy}, which drops objects silently: it must be noeviction")
        if not self.aof and not options.allow_volatile:
            found.append(
                "the append-only file is off, so that a restart loses everything: set appendonly yes. A service that keeps a durable log "
                "of its own (MemoryDB) reports the same: then give --allow-volatile"
            )
        oldest = OLDEST_VALKEY if self.name == "Valkey" else OLDEST_REDIS
        if self.version < oldest:
            have, need = (".".join(map(str, version)) for version in (self.version, oldest))
            found.append(f"{self.name} {have} is too old: {need} or later is needed")
        return found

    def misnamed(self, options: StoreOptions) -> str:
        """Return why the store's URL does not fit this server, and what to do; empty if it fits."""
        if self.sentinel:
            return "this is a sentinel, not a store: name the sentinels with redis+sentinel://HOST:PORT,…/NAME"
        if self.cluster and not options.cluster:
            return (
                "this is a node of a cluster, which holds a part of the store: name some nodes with redis+cluster://HOST:PORT,… "
                "(rediss+cluster:// with TLS)"
            )
        if options.cluster and not self.cluster:
            return NO_CLUSTER
        return ""

    def warnings(self) -> list[str]:
        """Return what an operator should look after although everything works. Almost full memory must not prevent a restart."""
        if self.headroom < MEMORY_HEADROOM:
            return [f"only {max(0.0, self.headroom):.0%} of maxmemory is free: creates and updates will be refused"]
        return []


def library_refusals(listing: list[Any]) -> list[str]:
    """Compare the answer of FUNCTION LIST LIBRARYNAME … WITHCODE with the library of this version."""
    for library in listing:
        members = dict(zip(library[::2], library[1::2], strict=True))
        code = members.get(b"library_code")
        if code is None:
            continue
        have, need = functions.code_hash(code), functions.code_hash(functions.CODE)
        if have == need:
            return []
        return [f"the function library is {have}, not {need}: run `sluice store init`"]
    return ["the function library is not loaded: run `sluice store init` if it never was, else restore the store"]


def head_refusals(resource: str, head: Head | StorageError) -> list[str]:
    if isinstance(head, Lost):
        return [f"{resource} is not there ({head}): run `sluice store init` if it never was, else restore the store"]
    if isinstance(head, StorageError):
        # Without the library no head can be read, and another refusal reports that already.
        return [] if "Function not found" in str(head) else [f"{resource}: {head}"]
    if head.schema not in functions.SCHEMAS:
        return [f"{resource} has schema {head.schema}, this version reads schemas {' and '.join(functions.SCHEMAS)}"]
    if head.schema == "1" and keys.parts(head.floor)[0] < keys.SMALL_EPOCHS:
        # Its revisions could not be distinguished from those of schema 2.
        return [
            f"{resource} has schema 1 and a log from before 24 January 2026 (a wrong clock?): import its objects into a new store"
        ]
    return []


def unknown(settings: Sequence[str]) -> str:
    """Return the warning about settings that this user or this service may not ask for."""
    return f"may not ask: {' and '.join(settings)} unknown"


def durability_warnings(configuration: list[Any]) -> list[str]:
    """Return how much a crash of the store's machine may lose, from an answer to DURABILITY; an empty one if it may not be asked for."""
    settings = dict(zip(configuration[::2], configuration[1::2], strict=True))
    found = []
    if missing := [name for name in DURABILITY_SETTINGS if name.encode() not in settings]:
        found.append(unknown(missing))
    if (policy := settings.get(b"appendfsync", b"always")) != b"always":
        found.append(
            f"appendfsync is {policy.decode()}: acknowledged writes can be lost when the store's machine fails; set appendfsync always"
        )
    if settings.get(b"no-appendfsync-on-rewrite", b"no") != b"no":
        found.append(
            "no-appendfsync-on-rewrite is on: while the append-only file is rewritten, acknowledged writes can be lost when the "
            "store's machine fails; set no-appendfsync-on-rewrite no"
        )
    return found


def coverage_warnings(configuration: list[Any]) -> list[str]:
    """Return whether the loss of one primary stops a whole cluster, from an answer to COVERAGE."""
    settings = dict(zip(configuration[::2], configuration[1::2], strict=True))
    if settings.get(b"cluster-require-full-coverage", b"no") == b"no":
        return []
    said = (
        "cluster-require-full-coverage is on: while one primary and its replicas are down, the cluster serves nothing; set it to no, and "
        "only the resources of that primary are not served"
    )
    return [said]


def clock_refusals(offset: float) -> list[str]:
    if abs(offset) < CLOCK_OFFSET_SECONDS:
        return []
    return [f"the store's clock is {offset:+.1f} s off this machine's"]


LIBRARY_LIST = pack("FUNCTION", "LIST", "LIBRARYNAME", functions.LIBRARY, "WITHCODE")
INFO = pack("INFO")
DURABILITY_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")
DURABILITY = pack("CONFIG", "GET", *DURABILITY_SETTINGS)
COVERAGE = pack("CONFIG", "GET", "cluster-require-full-coverage")
"""For administrators: the serving user may not send these two. Managed services refuse CONFIG to everybody."""


@dataclass(slots=True)
class Survey:
    """The findings of one connection. `refusals` are reasons to write nothing, `missing` the resources without keys.

    For a server that is loading its data, the other fields are empty.
    """

    server: Server
    heads: dict[str, Head]
    refusals: list[str]
    missing: dict[str, str]
    offset: float
    """The server's clock less this machine's, in seconds."""


async def survey(connection: Connection, options: StoreOptions, commands: Mapping[str, Commands]) -> Survey:
    """Check everything that a session needs, with one flush of commands."""
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
    if misnamed := server.misnamed(options):
        raise Rejected(misnamed)
    if server.loading:  # it may have answered the rest after loading
        return Survey(server, {}, [LOADING], {}, 0.0)
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
