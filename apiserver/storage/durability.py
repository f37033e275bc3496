"""Let replicas confirm writes before they are acknowledged (`--store-durability`).

A primary answers before its replicas have a write, so a failover can lose what it answered. WAIT, sent behind writes on the same
connection, returns how many replicas have them. It knows only what its own connection wrote.

A client may also act on what it reads: a consistent read, or a refusal such as 404 or 409. So those wait until replicas have what they
rest on (`Replicated`). Watches do not wait, and a failover ends those that saw a lost version.

    primary   acknowledge what the primary has on disk
    replica   one replica too: nothing acknowledged is lost with the primary
    all       every replica that the sentinels or the cluster know: nothing acknowledged is lost in any failover, and writes stop while one
              is missing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from apiserver.config import store_address
from apiserver.storage import functions
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.watchcache.entry import Revision
from apiserver.watchcache.errors import StorageError

PRIMARY, REPLICA, ALL = "primary", "replica", "all"

CONFIRM_SECONDS = 1.0
"""Replicas get this long to confirm a write. They need a round trip, and a write of their own disk with `appendfsync always`."""
IN_STEP_SECONDS = 2
"""A replica tells its offset every second. One that has been silent for longer than this is not in step (as in `functions.lua`)."""

REPLICATION = pack("INFO", "replication")


def of(options: StoreOptions) -> str:
    """Return the durability that applies: sentinels and clusters know replicas, so a store that has them waits for one unless told
    otherwise.
    """
    address = store_address.parse(options.url)
    return options.durability or (REPLICA if address.sentinels or address.cluster else PRIMARY)


def needed(options: StoreOptions) -> Callable[[], int]:
    """Return a function that tells how many replicas must confirm a write now."""
    durability = of(options)
    if durability == ALL:
        return lambda: max(1, options.replicas())
    number = int(durability == REPLICA)
    return lambda: number


def wait(replicas: int) -> bytes:
    """Pack the question how many replicas have what this connection wrote. Its answer takes at most CONFIRM_SECONDS."""
    return pack("WAIT", replicas, int(CONFIRM_SECONDS * 1000))


def in_step(info: Mapping[str, str]) -> int:
    """Return how many replicas are in step, from the lines of INFO replication."""
    found = 0
    for name, line in info.items():
        if name.startswith("slave") and name[5:].isdecimal():
            told = dict(part.partition("=")[::2] for part in line.split(","))
            silent = told.get("lag", "")
            found += told.get("state") == "online" and silent.isdecimal() and int(silent) <= IN_STEP_SECONDS
    return found


def parse(info: bytes) -> dict[str, str]:
    """Return the lines of INFO."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


async def refusals(connection: Connection, options: StoreOptions) -> list[str]:
    """Return why writes cannot be confirmed over this connection: the store's user may lack the right to WAIT."""
    if of(options) == PRIMARY:
        return []
    try:
        await connection.call(pack("WAIT", 0, 0))
    except (Rejected, Failed) as error:
        return [f"--store-durability={of(options)} needs WAIT, which the store refuses: {error}"]
    return []


Told = Callable[[StorageError | None], None]
"""Is called with None, or with the reason why replicas may lack a version."""


class Replicated:
    """The versions that enough replicas have, as far as one session knows, and one question at a time for later ones.

    A replica has all that the primary sent before its offset. So a version that it has confirms all earlier ones of that log.
    """

    def __init__(self, connection: Connection, need: Callable[[], int]) -> None:
        """`connection` answers the questions. It blocks for CONFIRM_SECONDS at most."""
        self._connection = connection
        self._need = need
        self._upto: dict[bytes, Revision] = {}
        self._next: dict[Commands, list[Told]] = {}
        self.asking = False
        """A question is under way, which takes CONFIRM_SECONDS at most."""

    def has(self, log: bytes, revision: Revision) -> None:
        """Note that enough replicas have this version of a log."""
        if revision > self._upto.get(log, 0):
            self._upto[log] = revision

    def ask(self, commands: Commands, revision: Revision | None, told: Told) -> None:
        """Call `told` once enough replicas have this version of the log, or all of the log now; or with an error, within seconds."""
        if revision is not None and revision <= self._upto.get(commands.log, 0):
            told(None)
            return
        self._next.setdefault(commands, []).append(told)
        if not self.asking:
            self._ask()

    def _ask(self) -> None:
        asked, self._next = self._next, {}
        self.asking, need = True, self._need()
        ends: dict[Commands, Any] = {}
        for commands in asked:
            self._connection.submit(commands.touch, partial(ends.__setitem__, commands))
        self._connection.submit(wait(need), partial(self._answered, asked, ends, need))

    def _answered(
        self, asked: Mapping[Commands, list[Told]], ends: Mapping[Commands, Any], need: int, reply: Any
    ) -> None:
        for commands, waiting in asked.items():
            try:
                for answer in (ends[commands], reply):
                    if isinstance(answer, StorageError):
                        raise answer
                end = functions.touched(ends[commands])
                if reply < need:
                    raise Unavailable(f"{reply} replicas of {need} have what this rests on")
                self.has(commands.log, end)
                error = None
            except StorageError as refused:
                error = refused
            for told in waiting:
                told(error)
        self.asking = False
        if self._next:
            self._ask()
