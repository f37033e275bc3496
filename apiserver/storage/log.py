"""The log as it comes: entries in order, from one blocking read over all resources' streams.

Redis gives no error for what was trimmed or flushed, so order alone proves nothing: each entry names its predecessor, and whoever
is fed compares that with what it was fed last (`Follower.feed`). Nor does it give one for what is missing at the end: a read that
began when the log was known to hold more, and that brings nothing, proves it (`Follower.nothing`). Time proves nothing: a process
may have stood still, and a session may have begun late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection

from apiserver.storage import pipeline
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import StorageError

BLOCK_MS = 1000
SHORT_BLOCK_MS = 100
"""While a resource is being filled: that long it may take until its log is followed."""
ENTRIES = 64
"""Per stream and read: 64 entries are applied in about a millisecond, and are 200 MB at the very most."""
SLICE_SECONDS = 0.004

RawEntry = tuple[bytes, Sequence[bytes]]
"""(ID, [name, value, …]), in a list, as Redis gives it."""

CREATE, UPDATE, DELETE, FENCE = b"0", b"1", b"2", b"9"


class Malformed(StorageError):
    """The entry is none of ours."""


class Record(NamedTuple):
    """One entry of the log. IDs stay bytes where they are only compared."""

    id: bytes
    kind: bytes
    key: Key
    previous: bytes
    """ID of the object's state before; `-` on a create."""
    predecessor: bytes
    """ID of the entry before."""
    token: bytes
    value: bytes | None
    old: bytes | None

    @property
    def revision(self) -> Revision:
        return keys.revision(self.id)

    @property
    def cut(self) -> bool:
        """The old value was too long for the log: what was before this entry cannot be told any more."""
        return self.old is None and self.kind in (UPDATE, DELETE)


def decode(entry: RawEntry) -> Record:
    """Fields stand in the order in which `functions.lua` writes them. Raises Malformed."""
    id_, fields = entry
    if len(fields) < 10 or fields[0] != b"k" or fields[8] != b"w":
        raise Malformed(f"{id_!r} is no entry of this schema")
    kind, value, old = fields[3], None, None
    if len(fields) >= 12:
        if fields[10] == b"v":
            value = fields[11]
            old = fields[13] if len(fields) >= 14 else None
        else:
            old = fields[11]
    if (value is None) is (kind in (CREATE, UPDATE)):
        raise Malformed(f"{id_!r} of kind {kind!r} with a wrong set of values")
    try:
        name = Key(fields[1].decode())
    except UnicodeDecodeError:
        raise Malformed(f"{id_!r} has the key {fields[1]!r}, which is no text") from None
    return Record(id_, kind, name, fields[5], fields[7], fields[9], value, old)


class Follower(Protocol):
    """One resource, as its log's reader sees it."""

    def position(self) -> bytes | None:
        """The ID to read on from; None while this log is not to be read."""

    @property
    def announced(self) -> Revision:
        """Where the log ended when it was last looked at."""

    def feed(self, entries: Sequence[RawEntry]) -> None:
        """The next entries, in order. Must not raise: a gap is the follower's to notice and to act upon."""

    def nothing(self, announced: Revision) -> None:
        """Nothing came of a read from `position` that began when this was announced."""


class Tail:
    """Follows all logs over one connection of its own."""

    def __init__(self, options: StoreOptions, followers: Mapping[str, Follower]) -> None:
        """`followers` by the names of their streams."""
        self._options = options
        self._followers = {name.encode(): follower for name, follower in followers.items()}

    async def run(self, verify: Callable[[bytes], None], idle: Callable[[], Awaitable[None]]) -> None:
        """Connect, let `verify` see what the server says of itself (INFO), follow until the connection breaks (Disconnected).
        `idle` is awaited after each silent second."""
        wire = pipeline.open_wire(self._options, "sluice-tail")
        await pipeline.connect(wire, seconds=self._options.connect_seconds)
        try:
            verify(await self._ask(wire, pipeline.pack("INFO"), seconds=self._options.reply_seconds))
            while True:
                if not await self._read(wire):
                    await idle()
        except (redis_errors.RedisError, OSError) as error:
            raise Disconnected(f"the log's connection broke: {pipeline.text(error)}") from None
        finally:
            await pipeline.disconnect(wire)

    async def _read(self, wire: AbstractConnection) -> bool:
        """One read. False when nothing came."""
        positions = {name: at for name, follower in self._followers.items() if (at := follower.position()) is not None}
        announced = {name: self._followers[name].announced for name in positions}
        block = BLOCK_MS if len(positions) == len(self._followers) else SHORT_BLOCK_MS
        if not positions:
            await asyncio.sleep(block / 1000)
            return True
        command = pipeline.pack(
            "XREAD", "COUNT", ENTRIES, "BLOCK", block, "STREAMS", *positions.keys(), *positions.values()
        )
        reply = await self._ask(wire, command, seconds=block / 1000 + self._options.reply_seconds)
        loop = asyncio.get_running_loop()
        since = loop.time()
        for name, entries in reply or ():
            del announced[name]
            self._followers[name].feed(entries)
            if loop.time() - since > SLICE_SECONDS:
                await asyncio.sleep(0)
                since = loop.time()
        for name, last in announced.items():
            self._followers[name].nothing(last)
        return bool(reply)

    async def _ask(self, wire: AbstractConnection, command: bytes, *, seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        await wire.send_packed_command([command], check_health=False)
        while True:
            until = loop.time() + seconds
            try:
                async with asyncio.timeout_at(until):
                    return await wire.read_response(disable_decoding=True, disconnect_on_error=False)
            except TimeoutError:
                if loop.time() - until <= pipeline.STALLED_SECONDS:
                    raise Disconnected(f"the log's connection has not answered for {seconds:g} s") from None
