"""Write every resource of a store as it was at one version, while servers write on: `sluice store backup`.

A scan takes many steps, and objects change between them. So the version is the end of the log at the beginning. The scan takes the
objects that have not changed since. The log names each object that has, with the value that it had before. Each object is written
once, and their number must be what the store counted at that version.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from apiserver.runtime.progress import Progress
from apiserver.storage import functions, log
from apiserver.storage.backup.file_format import Content, Kept, Writer, is_resource
from apiserver.storage.bootstrap import CHUNK_BYTES, RANGE_ENTRIES, SCAN_OBJECTS, Broken, Restart, chained
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Head
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.storage.preflight import INFO, LOADING, Server
from apiserver.storage.primaries.parts import parts
from apiserver.watchcache import entry, keys

PREFIX, SUFFIX = "{sl:", "}:m"
"""Each resource has a key between these (`redis_keys`)."""
SCAN_KEYS = 1000


class Interrupted(Unavailable):
    """The backup is not complete. The text says why, and whether another attempt helps."""


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


_object = msgspec.json.Decoder(_Object).decode


def uid_of(value: bytes) -> str:
    """Return the uid in a stored value, "" for a value without one."""
    line, _ = entry.split(value)
    try:
        return _object(line).metadata.uid
    except (ValueError, RecursionError):
        return _uid_beside_surrogates(line)


def _uid_beside_surrogates(line: bytes) -> str:
    """Return the uid of an object that has single surrogates in its strings, which msgspec refuses."""
    try:
        uid = json.loads(line)["metadata"]["uid"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return uid if isinstance(uid, str) else ""


class Place(NamedTuple):
    """A primary, with a connection to it. `where` names the node of a cluster; it is empty otherwise."""

    where: str
    options: StoreOptions
    connection: Connection
    server: Server


class Primaries:
    """Connections to all primaries of a store: one, unless it is a cluster."""

    def __init__(self, options: StoreOptions, places: Iterable[Place]) -> None:
        self._options = options
        self._places = {place.where: place for place in places}
        self._owners: dict[str, Place] = {}

    @property
    def all(self) -> Iterable[Place]:
        return self._places.values()

    async def locate(self, resources: Iterable[str]) -> None:
        """Find the primaries of resources. Raises Rejected."""
        for part in await parts(self._options, resources):
            if part.where not in self._places:
                raise Rejected(f"{part.where} became a primary meanwhile: try again")
            self._owners |= dict.fromkeys(part.resources, self._places[part.where])

    def of(self, resource: str) -> Place:
        """Return the primary of a resource that was located."""
        return self._owners[resource]

    async def resources(self) -> list[str]:
        """Return the resources that the store holds, also those that no server serves. Raises Rejected for a user who may not SCAN."""
        found: set[str] = set()
        for place in self.all:
            found |= await _resources_of(place.connection)
        return sorted(found)


@contextlib.asynccontextmanager
async def connected(options: StoreOptions, name: str) -> AsyncIterator[Primaries]:
    """Open a connection to each present primary. Raises Rejected."""
    async with contextlib.AsyncExitStack() as stack:
        places = []
        for part in await parts(options, ()):
            with part.named():
                connection = await Connection.open(part.options, name)
                stack.push_async_callback(connection.close)
                server = Server.parse(await connection.call(INFO))
                if wrong := server.misnamed(part.options) or (server.loading and LOADING):
                    raise Rejected(wrong)
                places.append(Place(part.where, part.options, connection, server))
        yield Primaries(options, places)


async def _resources_of(connection: Connection) -> set[str]:
    found: set[str] = set()
    cursor = b"0"
    while True:
        cursor, names = await connection.call(
            pack("SCAN", cursor, "MATCH", f"{PREFIX}*{SUFFIX}", "COUNT", SCAN_KEYS, "TYPE", "hash")
        )
        found.update(filter(is_resource, (name.decode(errors="replace")[len(PREFIX) : -len(SUFFIX)] for name in names)))
        if cursor == b"0":
            return found


async def _all_resources(primaries: Primaries) -> list[str]:
    try:
        return await primaries.resources()
    except (Rejected, Failed) as error:
        raise Rejected(
            f"this user of the store may not list the resources ({error}): name them with --only, or another user"
        ) from None


async def backup(
    options: StoreOptions, out: BinaryIO, *, sluice: str, only: Sequence[str], progress: Progress
) -> list[str]:
    """Write the store to a stream. Return one line per resource. Raises Interrupted and what a connection raises."""
    async with connected(options, "sluice-backup") as primaries:
        present = sorted(set(only)) or await _all_resources(primaries)
        if not present:
            raise Rejected("the store holds no resource: nothing to back up")
        await primaries.locate(present)
        created = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        writer = Writer(out, sluice=sluice, created=created, resources=present)
        lines = []
        for resource in present:
            content = await _Snapshot(primaries.of(resource).connection, resource, writer, progress).run()
            lines.append(f"{resource}: {content.objects} objects at resourceVersion {content.version}")
        writer.finish()
        return lines


class _Snapshot:
    """One resource."""

    def __init__(self, connection: Connection, resource: str, writer: Writer, progress: Progress) -> None:
        self._connection = connection
        self._commands = Commands(resource)
        self._resource = resource
        self._writer = writer
        self._progress = progress
        self._written: set[str] = set()

    async def run(self) -> Content:
        head = functions.head(await self._connection.call(self._commands.head))
        content = Content(self._resource, head.last, head.epoch, head.schema, head.objects, head.size)
        self._progress.begin(f"backing up {self._resource}", head.objects)
        self._writer.begin(content)
        try:
            await self._scan(head)
        except Restart:
            raise Interrupted(
                f"{self._resource}: the log was trimmed faster than it can be read: try again when fewer objects change"
            ) from None
        except Broken as broken:
            raise Interrupted(
                f"somebody else changed the log of {self._resource}: {broken}; run `sluice store check`"
            ) from None
        if len(self._written) != head.objects:
            raise Interrupted(
                f"{self._resource}: the store counts {head.objects} objects and has {len(self._written)}: run `sluice store check`"
            )
        self._writer.end()
        return content

    async def _scan(self, head: Head) -> None:
        mean = head.size // head.objects if head.objects else 1
        count, cursor = max(1, min(SCAN_OBJECTS, CHUNK_BYTES // (mean + 1))), b"0"
        position = keys.stream_id(head.last).encode()
        while True:
            chunk = functions.scan(
                await self._connection.call(self._commands.scan(cursor, count=count, newest=head.last))
            )
            parts = iter(chunk.rows)
            for name, id_, value in zip(parts, parts, parts, strict=True):
                self._write(name.decode(), keys.revision(id_), value)
            await asyncio.sleep(0)
            # Followed step by step, the log cannot be trimmed past this position unless minutes pass.
            position = await self._follow(position, keys.stream_id(chunk.last).encode(), at=head.last)
            cursor = chunk.cursor
            if cursor == b"0":
                return

    async def _follow(self, position: bytes, end: bytes, *, at: int) -> bytes:
        """Write the former values of objects that have changed after `at`. Return the ID that was read last."""
        while position != end:
            asked = self._commands.range(position, count=RANGE_ENTRIES, size=CHUNK_BYTES)
            for record in chained(functions.range_(await self._connection.call(asked)), position):
                position = record.id
                if record.kind in (log.UPDATE, log.DELETE) and keys.revision(record.previous) <= at:
                    self._former(record)
                if position == end:
                    break
        return position

    def _former(self, record: log.Record) -> None:
        if record.old is not None:
            self._write(record.key, keys.revision(record.previous), record.old)
        elif record.key not in self._written:
            raise Interrupted(
                f"{self._resource}: {record.key} is too large for the log to keep its former value, and was changed meanwhile: try again"
            )

    def _write(self, key: str, version: int, value: bytes) -> None:
        if key in self._written:  # a scan may bring an object twice, and the log one that the scan has brought
            return
        self._written.add(key)
        self._writer.add(Kept(key, version, uid_of(value), value))
        self._progress.advance(1)
