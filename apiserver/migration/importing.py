"""Implement `sluice store import`: check everything first, then write. It may run again at any time: imported objects stay.

An object under a name that is taken is imported only if it has the same uid and was not written here since its import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from apiserver.migration.objects import Item, Reader, Stored, Unfit, described
from apiserver.migration.sources import Source
from apiserver.runtime.progress import Progress, Silent
from apiserver.schema.resource import Resource
from apiserver.storage.operations.loading import ABSENT, Carried, Held, Loading

SHOWN = 100
"""Refused objects that are printed."""


@dataclass(slots=True)
class Refusals:
    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        self.count += 1
        if self.count <= SHOWN:
            self.shown.append(text)

    def lines(self) -> Iterator[str]:
        for text in self.shown:
            yield f"refused: {text}"
        if self.count > SHOWN:
            yield f"refused: {self.count - SHOWN} more"


@dataclass(slots=True)
class Counts:
    """Counts of one kind."""

    read: int = 0
    created: int = 0
    renewed: int = 0

    def line(self, kind: Resource, source: Resource | None, *, verb: str, here: int) -> str:
        through = f" through {source.version}" if source is not None else ""
        unchanged = self.read - self.created - self.renewed
        counted = f"{self.read} read{through}, {self.created} {verb}, {self.renewed} renewed, {unchanged} already there"
        surplus = here - self.read
        return f"{kind.plural}: {counted}" + (f"; here are {surplus} more" if surplus > 0 else "")


@dataclass(slots=True)
class Import:
    source: Source
    loading: Loading
    reader: Reader
    kinds: Sequence[Resource]
    progress: Progress = field(default_factory=Silent)

    async def run(self, *, dry_run: bool) -> tuple[list[str], bool]:
        """Return the lines to print, and whether the store has everything now, or would have. Raises ClusterError, MigrationError and
        StorageError."""
        refusals = Refusals()
        for text in self.source.refusals:
            refusals.add(text)
        judged = {kind.storage_name: await self._pass(kind, refusals, write=False) for kind in self.kinds}
        if not refusals.count and not dry_run:
            judged = {kind.storage_name: await self._pass(kind, refusals, write=True) for kind in self.kinds}
            verb = "imported"
        else:
            verb = "to import"
        lines = [
            judged[kind.storage_name].line(
                kind, self.source.version(kind), verb=verb, here=await self.loading.count(kind.storage_name)
            )
            for kind in self.kinds
        ]
        if refusals.count and verb == "to import":
            lines.append("nothing was written")
        return [*lines, *refusals.lines()], not refusals.count

    async def _pass(self, kind: Resource, refusals: Refusals, *, write: bool) -> Counts:
        counts = Counts()
        self.progress.begin(f"{'importing' if write else 'looking at'} {kind.plural}")
        async for page in self.source.pages(kind):
            counts.read += len(page)
            stored = [found for item in page if (found := await self._stored(item, refusals)) is not None]
            held = await self.loading.held(kind.storage_name, [found.key for found in stored])
            carried = [
                item
                for found, there in zip(stored, held, strict=True)
                if (item := _carried(kind, found, there, refusals)) is not None
            ]
            counts.created += sum(item.expected == ABSENT for item in carried)
            counts.renewed += sum(item.expected != ABSENT for item in carried)
            if write:
                for key in await self.loading.put(kind.storage_name, carried):
                    refusals.add(f"{kind.plural} {key}: something else was written there meanwhile")
            self.progress.advance(len(page), left=self.source.left)
        return counts

    async def _stored(self, item: Item, refusals: Refusals) -> Stored | None:
        try:
            return await self.reader.stored(item)
        except Unfit as error:
            refusals.add(str(error))
            return None


def _carried(kind: Resource, found: Stored, there: Held | None, refusals: Refusals) -> Carried | None:
    """Return the write for an object, or None if there is nothing to write."""
    if there is None:
        return Carried(found.key, found.uid, found.value)
    if there.value == found.value:
        return None
    named = described(kind, found.object)
    if there.uid != found.uid:
        refusals.add(f"{named}: is here already, as another object (uid {there.uid}, not {found.uid})")
        return None
    if not there.loaded:
        refusals.add(f"{named}: is here already, and was changed here since")
        return None
    return Carried(found.key, found.uid, found.value, there.id)
