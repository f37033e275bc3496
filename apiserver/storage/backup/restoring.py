"""Fill an empty store from a backup: `sluice store restore`.

Nobody can read or write a resource while it is being filled: servers answer 503. All resources are shown at the end, each in one step.
An interrupted restore shows nothing, and continues when the same backup is restored again.

Objects get new versions, in epochs above all that the backup names and above all that the former store can have given out since: an
epoch lies at most 2 seconds ahead of the clock. So no version names two states. A watch that resumes from a version of before gets 410.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from apiserver.runtime.progress import Progress
from apiserver.storage import durability, functions
from apiserver.storage.backup.file_format import BadBackup, Content, Kept, Reader, Summary, verify
from apiserver.storage.backup.snapshot import Primaries, connected
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Lost
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from apiserver.storage.preflight import INFO, LIBRARY_LIST, library_refusals
from apiserver.watchcache import keys

PAGE_OBJECTS, PAGE_BYTES = 256, 1 << 20
"""Objects of one call: some milliseconds of the store's time."""
PAGES = 4
"""Calls that wait for an answer at the same time."""
EPOCH_OBJECTS = 3968
"""Versions given out in an epoch, as by the functions."""
REPLICATION_MS = 60_000
"""A replica that does not have everything by then is reported, not waited for."""
AHEAD_MS = 2000
"""An epoch of the former store may lie this far ahead of the clock (docs/storage.md)."""


class RestoreRefused(Unavailable):
    """The store is not empty, or not usable. Nothing was changed."""


class Begun(NamedTuple):
    """A resource that may be filled now."""

    highest: int
    """The highest epoch that its log has had."""
    schema: str
    now_ms: int


@dataclass(slots=True)
class _Filled:
    content: Content
    epoch: int
    """The epoch of the objects that are stored last."""


@dataclass(slots=True)
class Restore:
    options: StoreOptions
    file: BinaryIO
    """Read twice: everything is verified before anything is written."""
    only: Sequence[str]
    progress: Progress
    _name: str = ""
    _primaries: Primaries = field(init=False)

    async def run(self, *, dry_run: bool) -> list[str]:
        """Return the lines to print. Raises BadBackup, RestoreRefused, Rejected, and what a connection raises."""
        self.file.seek(0)
        summary = await asyncio.to_thread(verify, self.file, self.progress)
        self._name = summary.name
        chosen = [each for each in summary.contents if not self.only or each.resource in self.only]
        if unknown := sorted(set(self.only) - {each.resource for each in chosen}):
            raise RestoreRefused(
                f"the backup has no {', '.join(unknown)}: it has {', '.join(c.resource for c in summary.contents)}"
            )
        async with connected(self.options, "sluice-restore") as self._primaries:
            done = await self._look(chosen)
            left = [each for each in chosen if each.resource not in done]
            lines = [*summary.lines(), *(f"{name}: restored already" for name in sorted(done))]
            if dry_run:
                return [*lines, *(f"{each.resource}: {each.objects} objects to restore" for each in left)]
            return [*lines, *await self._write(summary, left)]

    # Before anything is written

    async def _look(self, chosen: Sequence[Content]) -> set[str]:
        """Return the resources that an interrupted restore of this backup has finished. Raises RestoreRefused."""
        for place in self._primaries.all:
            wrong = place.server.refusals(place.options) + library_refusals(await place.connection.call(LIBRARY_LIST))
            if wrong:
                raise RestoreRefused(f"{place.where}: {'; '.join(wrong)}" if place.where else "; ".join(wrong))
        names = {each.resource for each in chosen}
        if not self.only:
            names |= set(await self._present())
        await self._primaries.locate(names)
        done, begun, full = set(), False, []
        for name in sorted(names):
            state = await self._state(name)
            if state.restoring and state.restoring != self._name:
                raise RestoreRefused(
                    f"{name}: the restore of another backup, {state.restoring}, was interrupted: restore that one, or empty the store "
                    "(FLUSHDB)"
                )
            begun = begun or bool(state.restoring)
            if state.restored == self._name and not state.restoring:
                done.add(name)
            elif state.objects and not state.restoring:
                full.append(f"{name} has {state.objects} objects")
        if done and not begun:
            full += [f"{name} was restored from this backup already" for name in sorted(done)]
        if full:
            raise RestoreRefused(
                f"the store is not empty: {'; '.join(full)}. Restore into a new store, after `sluice store init`, or name resources that "
                "have no objects with --only"
            )
        return done & {each.resource for each in chosen}

    async def _present(self) -> Iterable[str]:
        try:
            return await self._primaries.resources()
        except Rejected:
            return ()

    async def _state(self, resource: str) -> _State:
        key, connection = Commands(resource).keys, self._primaries.of(resource).connection
        fields, revisions, objects = await asyncio.gather(
            connection.call(pack("HMGET", key.meta, "restoring", "restored")),
            connection.call(pack("HLEN", key.revisions)),
            connection.call(pack("HLEN", key.objects)),
        )
        restoring, restored = ((value or b"").decode() for value in fields)
        return _State(restoring, restored, max(revisions, objects))

    # Writing

    async def _write(self, summary: Summary, contents: Sequence[Content]) -> list[str]:
        schema = await self._schema()
        wanted = {each.resource for each in contents}
        highest = {each.resource: each.epoch for each in summary.contents}
        filled: list[_Filled] = []
        filling: _Filling | None = None
        self.file.seek(0)
        reader = Reader(self.file)
        for part in reader.parts():
            if isinstance(part, Content):
                if filling is not None:
                    filled.append(await filling.finished())
                filling = None
                if part.resource in wanted:
                    self.progress.begin(f"restoring {part.resource}", part.objects)
                    begun = _begun(part.resource, await self._call(part.resource, "sl1_restore", self._name, schema))
                    epoch = _first_epoch(begun, highest[part.resource])
                    filling = _Filling(
                        self._primaries.of(part.resource).connection,
                        self._name,
                        part,
                        schema=begun.schema,
                        epoch=epoch,
                        progress=self.progress,
                    )
            elif filling is not None:
                await filling.add(part)
        if filling is not None:
            filled.append(await filling.finished())
        if reader.summary.name != self._name:
            raise BadBackup(
                "the file was changed while it was read: nothing is restored; restore the file that was verified"
            )
        self.progress.begin("showing the objects")
        return [*[await self._show(each) for each in filled], *await self._replicated()]

    async def _schema(self) -> str:
        """Return the schema of new logs beside those of the store."""
        heads = []
        present = await self._present()
        await self._primaries.locate(present)
        for name in present:
            connection = self._primaries.of(name).connection
            try:
                heads.append(functions.head(await connection.call(Commands(name).head)))
            except Lost:
                continue
        return functions.schema_beside(heads)

    async def _show(self, filled: _Filled) -> str:
        content = filled.content
        run_id = self._primaries.of(content.resource).server.run_id
        step = 1 + secrets.randbelow(functions.EPOCH_STEPS)
        reply = await self._call(
            content.resource, "sl1_restored", self._name, run_id, secrets.token_hex(8), step, filled.epoch, content.objects,
            content.bytes,
        )  # fmt: skip
        answer = functions.found(reply)
        return f"{content.resource}: {content.objects} objects restored, at resourceVersion {keys.revision(answer[1])}"

    async def _replicated(self) -> list[str]:
        """Wait until the connected replicas have what was restored. Return a warning if some do not have it in time."""
        warnings = []
        for place in self._primaries.all:
            replicas = int(durability.parse(await place.connection.call(INFO)).get("connected_slaves", 0))
            confirmed = await place.connection.call(pack("WAIT", replicas, REPLICATION_MS)) if replicas else 0
            if confirmed < replicas:
                where = f"{place.where}: " if place.where else ""
                said = f"{confirmed} of {replicas} replicas have the restored objects: look again before a failover"
                warnings.append(f"warning: {where}{said}")
        return warnings

    async def _call(self, resource: str, function: str, *arguments: str | int) -> Any:
        names = Commands(resource).keys.all
        connection = self._primaries.of(resource).connection
        return await connection.call(pack("FCALL", function, len(names), *names, *arguments))


class _State(NamedTuple):
    restoring: str
    restored: str
    objects: int


class _Filling:
    """Stores the objects of one resource, some pages at a time."""

    def __init__(
        self, connection: Connection, name: str, content: Content, *, schema: str, epoch: int, progress: Progress
    ) -> None:
        self._connection = connection
        self._name, self._schema = name, schema
        self._content = content
        self._keys = Commands(content.resource).keys.all
        self._epoch = epoch
        self._stored = 0
        self._page: list[str | bytes] = []
        self._size = 0
        self._sent: deque[asyncio.Future[Any]] = deque()
        self._progress = progress

    async def add(self, kept: Kept) -> None:
        epoch, n = divmod(self._stored, EPOCH_OBJECTS)
        self._page += (kept.key, f"{self._epoch + epoch}-{n}", kept.uid or "-", kept.value)
        self._size += len(kept.value)
        self._stored += 1
        self._progress.advance(1)
        if len(self._page) >= 4 * PAGE_OBJECTS or self._size >= PAGE_BYTES:
            await self._send()

    async def _send(self) -> None:
        call = pack("FCALL", "sl1_restore", len(self._keys), *self._keys, self._name, self._schema, *self._page)
        self._sent.append(self._connection.call(call))
        self._page, self._size = [], 0
        while len(self._sent) > PAGES:
            _begun(self._content.resource, await self._sent.popleft())

    async def finished(self) -> _Filled:
        if self._page:
            await self._send()
        while self._sent:
            _begun(self._content.resource, await self._sent.popleft())
        return _Filled(self._content, self._epoch + self._stored // EPOCH_OBJECTS)


def _first_epoch(begun: Begun, backed_up: int) -> int:
    """Return an epoch above those of the backup, of this log, and of all that the former store can have given out by now."""
    like = 0 if begun.schema == functions.SCHEMA else keys.SMALL_EPOCHS
    known = (epoch for epoch in (begun.highest, backed_up) if keys.alike(epoch, like))
    return max(keys.epoch_at(begun.now_ms + AHEAD_MS, like=like), *known, 0) + 1


def _begun(resource: str, reply: list[Any]) -> Begun:
    """Parse an answer of `restore`. Raises RestoreRefused."""
    match reply[0]:
        case b"OK":
            return Begun(int(reply[1]), reply[2].decode(), int(reply[3]))
        case b"FULL":
            raise RestoreRefused(f"the store is not empty: {resource} has {int(reply[1])} objects, created meanwhile")
        case b"OTHER":
            raise RestoreRefused(f"{resource}: another backup, {reply[1].decode()}, is being restored")
        case _:
            raise RestoreRefused(f"{resource}: another restore of this backup has finished meanwhile")
