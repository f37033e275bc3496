"""Copy objects into the store and out of it, for an administrator's program. Works page by page, beside servers or without any.

A page is written like any batch: appended and set in one step, and refused when the log belongs to another process. Each loaded
value carries a token that no server creates. So a loaded value is recognised until somebody else writes the object.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.storage import functions
from apiserver.storage.bootstrap import CHUNK_BYTES, SCAN_OBJECTS
from apiserver.storage.functions import BATCH_CHANGES, Commands, Mutation
from apiserver.storage.lineage import ServerClock
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from apiserver.storage.preflight import clock_refusals, survey
from apiserver.storage.primaries.parts import parts
from apiserver.storage.writes import BATCH_BYTES
from apiserver.watchcache.entry import Key

LOADED = b"load."
"""The prefix of tokens of loaded values. Tokens of servers begin with the process's random name, which is hexadecimal."""
ATTEMPTS = 4
ABSENT = b"-"


class Carried(NamedTuple):
    """A value to store under its key. `expected` is the ID of the value that it replaces, or ABSENT."""

    key: Key
    uid: str
    value: bytes
    expected: bytes = ABSENT


class Held(NamedTuple):
    """The value that the store holds under a key."""

    id: bytes
    uid: str
    loaded: bool
    """The value was loaded, and nobody has written it since."""
    value: bytes


class Loading:
    """The logs of some resources. Takes a log over when needed."""

    def __init__(
        self, options: StoreOptions, connections: Mapping[str, Connection], commands: Mapping[str, Commands]
    ) -> None:
        """`connections` lead to the primary of each resource."""
        self._options = options
        self._connections = connections
        self._commands = commands
        self._clock = ServerClock(asyncio.get_running_loop())
        self._epochs: dict[str, bytes] = {}

    async def held(self, resource: str, wanted: Sequence[Key]) -> list[Held | None]:
        """Return what is stored under these keys now."""
        if not wanted:
            return []
        keys = self._commands[resource].keys
        rows, values = await asyncio.gather(
            self._connections[resource].call(pack("HMGET", keys.revisions, *wanted)),
            self._connections[resource].call(pack("HMGET", keys.objects, *wanted)),
        )
        return [
            None if row is None or value is None else _held(row, value) for row, value in zip(rows, values, strict=True)
        ]

    async def count(self, resource: str) -> int:
        return functions.head(await self._connections[resource].call(self._commands[resource].head)).objects

    async def values(self, resource: str) -> AsyncIterator[list[tuple[Key, bytes]]]:
        """Yield every stored value, some in each step. A value that is written meanwhile may appear in either state, or twice."""
        head = functions.head(await self._connections[resource].call(self._commands[resource].head))
        mean = head.size // head.objects if head.objects else 1
        count, cursor = max(1, min(SCAN_OBJECTS, CHUNK_BYTES // (mean + 1))), b"0"
        while True:
            chunk = functions.scan(
                await self._connections[resource].call(self._commands[resource].scan(cursor, count=count))
            )
            parts = iter(chunk.rows)
            yield [(Key(name.decode()), value) for name, _, value in zip(parts, parts, parts, strict=True)]
            cursor = chunk.cursor
            if cursor == b"0":
                return

    async def put(self, resource: str, page: Iterable[Carried]) -> list[Key]:
        """Store a page. Return the keys that hold something other than expected; those stay as they are.

        Raises what a connection raises; everything stored by then stays stored.
        """
        clashes: list[Key] = []
        for batch in _batches(page, limit=self._options.object_limit):
            clashes += await self._put(resource, batch)
        return clashes

    async def _put(self, resource: str, batch: Sequence[Carried]) -> list[Key]:
        changes = [
            Mutation(item.key.encode(), item.expected, _token(item.value), item.uid.encode() or b"-", item.value)
            for item in batch
        ]
        for _ in range(ATTEMPTS):
            epoch = self._epochs.get(resource) or await self._own(resource)
            deadline = b"%d" % (self._clock.now_ms() + int(self._options.deadline_seconds * 1000))
            reply = await self._connections[resource].call(self._commands[resource].batch(epoch, deadline, changes))
            if reply[0] == b"OK":
                return [item.key for item, answer in zip(batch, reply[1:], strict=True) if not _stored(answer)]
            functions.found(reply)
            self._epochs.pop(resource, None)  # another epoch, another clock: ask for both anew
        raise Rejected("the log of the store changes hands too often")

    async def _own(self, resource: str) -> bytes:
        """Return the epoch to write in. Starts a new one when another process has changed the log."""
        command = self._commands[resource]
        head = functions.head(await self._connections[resource].call(command.head))
        self._clock.heard(head.now_ms)
        if not head.own:
            fence = functions.fence(await self._connections[resource].call(command.fence("load", head.epoch)))
            head = head._replace(epoch=fence.epoch)
        self._epochs[resource] = b"%d" % head.epoch
        return self._epochs[resource]


@contextlib.asynccontextmanager
async def opened(options: StoreOptions, resources: Iterable[str]) -> AsyncIterator[Loading]:
    """Open the store for loading. Raises Rejected for every reason for which a server would not start."""
    connections, commands = dict[str, Connection](), dict[str, Commands]()
    async with contextlib.AsyncExitStack() as stack:
        for part in await parts(options, resources):
            with part.named():
                connection = await Connection.open(part.options, "sluice-load")
                stack.push_async_callback(connection.close)
                found = await survey(connection, part.options, part.commands)
            if wrong := [*found.refusals, *clock_refusals(found.offset), *found.missing.values()]:
                raise Rejected("; ".join(part.told(wrong)))
            connections |= dict.fromkeys(part.resources, connection)
            commands |= part.commands
        yield Loading(options, connections, commands)


def _batches(page: Iterable[Carried], *, limit: int) -> Iterable[list[Carried]]:
    batch: list[Carried] = []
    left = BATCH_BYTES
    for item in page:
        if len(item.value) > limit:
            raise Rejected(f"{item.key}: {len(item.value)} bytes are more than {limit}")
        if batch and (len(batch) == BATCH_CHANGES or left < len(item.value)):
            yield batch
            batch, left = [], BATCH_BYTES
        batch.append(item)
        left -= len(item.value)
    if batch:
        yield batch


def _token(value: bytes) -> bytes:
    """Derive the token from the content: the same value loaded twice is one write."""
    return LOADED + hashlib.sha256(value).hexdigest()[:32].encode()


def _held(row: bytes, value: bytes) -> Held:
    id_, token, uid = row.split(b" ", 2)
    return Held(id_, uid.decode(), token.startswith(LOADED), value)


def _stored(answer: Sequence[Any]) -> bool:
    """Return whether the change was stored. Raises Rejected for a store that accepts no writes."""
    if answer[0] == b"ERR":
        raise Rejected(answer[1].decode())
    return answer[0] in (b"OK", b"DUP")
