"""`sluice store export`: what the store holds, written through a kube-apiserver that serves the group itself again.

An API keeps of an object what its users may say. One that kube-apiserver still has under its uid (it was imported from there) is
brought up to date and stays the same object. Any other is created: it gets another uid, another creationTimestamp and generation 1,
and a deletion that had begun begins again. Claims keep what was allocated to them and for whom they are reserved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver.cluster.errors import Refused
from apiserver.codecs.objects import canonical
from apiserver.migration.importing import Refusals
from apiserver.migration.objects import Item, Reader, Unfit, described
from apiserver.migration.progress import Progress, Silent
from apiserver.migration.sources import Server, collection, raw_json
from apiserver.schema.resource import Object, Resource
from apiserver.storage.loading import Loading
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key

SYSTEM = (
    "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "managedFields", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
"""Metadata that a server gives, and that is another's there."""
QUERY = {"fieldManager": "sluice-export", "fieldValidation": "Strict"}


@dataclass(slots=True)
class Counts:
    """Of one kind."""

    there: int = 0
    """What is there as it is here."""
    created: int = 0
    updated: int = 0
    surplus: int = 0
    """What is there and not here; with `prune`, what of it is deleted."""

    def told(self, kind: Resource, *, dry_run: bool, prune: bool) -> str:
        verbs = ("to create", "to update") if dry_run else ("created", "updated")
        counted = f"{self.created} {verbs[0]}, {self.updated} {verbs[1]}, {self.there} there already"
        if not self.surplus:
            return f"{kind.plural}: {counted}"
        rest = ("to delete" if dry_run else "deleted") if prune else "only there (--prune deletes them)"
        return f"{kind.plural}: {counted}, {self.surplus} {rest}"


@dataclass(slots=True)
class Export:
    target: Server
    loading: Loading
    reader: Reader
    kinds: Sequence[Resource]
    prune: bool
    dry_run: bool
    progress: Progress = field(default_factory=Silent)
    _refusals: Refusals = field(default_factory=Refusals)
    _deletions: list[str] = field(default_factory=list)
    """Each object that `prune` deletes, by name."""

    async def run(self) -> tuple[list[str], bool]:
        """What is to be told, and whether everything is there now, or would be. Raises ClusterError and StorageError."""
        lines = []
        for kind in self.kinds:
            if self.target.version(kind) != kind:
                self._refusals.add(
                    f"{kind.plural}: {self.target.client.server} does not serve {kind.api_version} itself"
                )
                continue
            lines.append((await self._kind(kind)).told(kind, dry_run=self.dry_run, prune=self.prune))
        return [*lines, *self._deletions, *self._refusals.lines()], not self._refusals.count

    async def _kind(self, kind: Resource) -> Counts:
        counts = Counts()
        verb = "looking at" if self.dry_run else "exporting"
        self.progress.begin(f"{verb} {kind.plural}", await self.loading.count(kind.storage_name))
        async for page in self.loading.values(kind.storage_name):
            for key, value in page:
                self.progress.advance(1)
                try:
                    obj = canonical.decode(kind.shape, value)
                except ValueError as error:
                    self._refusals.add(f"{kind.plural} {key}: what is stored is no object: {error}")
                    continue
                await self._object(kind, obj, counts)
        self.progress.begin(f"looking for {kind.plural} that are only there")
        async for obj in self._only_there(kind):
            if not self.prune:
                counts.surplus += 1
            elif self.dry_run or await self._delete(kind, obj):
                counts.surplus += 1
                self._deletions.append(f"{'to delete' if self.dry_run else 'deleted'}: {described(kind, obj)}")
        return counts

    async def _object(self, kind: Resource, obj: Object, counts: Counts) -> None:
        named = described(kind, obj)
        try:
            theirs = await self._theirs(kind, obj)
            if theirs is None:
                counts.created += 1
                if not self.dry_run:
                    await self._create(kind, obj)
            elif _same(kind, obj, theirs):
                counts.there += 1
            elif _continues(kind, obj, theirs):
                counts.updated += 1
                if not self.dry_run:
                    await self._update(kind, obj, theirs)
            else:
                uid = theirs["metadata"]["uid"]
                self._refusals.add(
                    f"{named}: is there already, as another object (uid {uid}, not {obj['metadata']['uid']})"
                )
        except (Refused, Unfit) as error:
            self._refusals.add(f"{named}: {error}")

    # Questions

    async def _theirs(self, kind: Resource, obj: Object) -> Object | None:
        try:
            raw = await self.target.client.fetch("GET", _path(kind, obj))
        except Refused as error:
            if error.code == 404:
                return None
            raise
        return await self.reader.decoded(Item(kind, raw))

    async def _create(self, kind: Resource, obj: Object) -> None:
        made = {**obj, "metadata": _own(obj) | _managed(obj)}
        metadata = obj["metadata"]
        path = collection(kind, metadata.get("namespace", "") if kind.namespaced else "")
        raw = await self.target.client.fetch("POST", path, query=QUERY, content=_json(kind, made))
        theirs = await self.reader.decoded(Item(kind, raw))
        await self._status(kind, obj, theirs)
        if "deletionTimestamp" in metadata:
            await self._ask_deletion(kind, theirs)

    async def _update(self, kind: Resource, obj: Object, theirs: Object) -> None:
        """What is not the status first."""
        metadata = {**_own(obj), **_managed(obj), **_system(theirs)}
        if not _equal(kind, {**obj, "status": {}}, {**theirs, "status": {}}):
            content = _json(kind, {**obj, "metadata": metadata})
            theirs = await self.reader.decoded(
                Item(kind, await self.target.client.fetch("PUT", _path(kind, obj), query=QUERY, content=content))
            )
        await self._status(kind, obj, theirs)
        if "deletionTimestamp" in obj["metadata"] and "deletionTimestamp" not in theirs["metadata"]:
            await self._ask_deletion(kind, theirs)

    async def _status(self, kind: Resource, obj: Object, theirs: Object) -> None:
        if kind.has_status and not canonical.equal(kind.shape, _status_of(obj), _status_of(theirs)):
            metadata = {**theirs["metadata"], **_managed(obj)}
            content = _json(kind, {**theirs, "metadata": metadata, "status": obj.get("status", {})})
            await self.target.client.fetch("PUT", f"{_path(kind, obj)}/status", query=QUERY, content=content)

    async def _ask_deletion(self, kind: Resource, theirs: Object) -> None:
        options = {"preconditions": {"uid": theirs["metadata"]["uid"]}}
        await self.target.client.fetch("DELETE", _path(kind, theirs), content=raw_json(options))

    async def _delete(self, kind: Resource, theirs: Object) -> bool:
        """With whatever holds it: who would let go of it has done so here. Whether it is deleted now."""
        try:
            if theirs["metadata"].get("finalizers"):
                metadata = {name: x for name, x in theirs["metadata"].items() if name != "finalizers"}
                content = _json(kind, {**theirs, "metadata": metadata})
                await self.target.client.fetch("PUT", _path(kind, theirs), query=QUERY, content=content)
                if "deletionTimestamp" in metadata:
                    return True
            await self._ask_deletion(kind, theirs)
        except Refused as error:
            if error.code != 404:
                self._refusals.add(f"{described(kind, theirs)}: {error}")
                return False
        return True

    async def _only_there(self, kind: Resource) -> AsyncIterator[Object]:
        async for page in self.target.pages(kind):
            self.progress.advance(len(page), left=self.target.left)
            found: dict[Key, Object] = {}
            for item in page:
                try:
                    obj = await self.reader.decoded(item)
                except Unfit as error:
                    self._refusals.add(str(error))
                    continue
                metadata = obj["metadata"]
                found[keys.key(metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])] = obj
            held = await self.loading.held(kind.storage_name, list(found))
            for obj, here in zip(found.values(), held, strict=True):
                if here is None:
                    yield obj


def _path(kind: Resource, obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{collection(kind, metadata.get('namespace', '') if kind.namespaced else '')}/{metadata['name']}"


def _json(kind: Resource, obj: Object) -> bytes:
    line = canonical.encode_shown(kind.shape, obj)
    return kind.head + line[1:]


def _own(obj: Object) -> Object:
    """The metadata that users say."""
    return {name: x for name, x in obj["metadata"].items() if name not in SYSTEM}


def _system(obj: Object) -> Object:
    """What names the object that is there."""
    return {name: x for name, x in obj["metadata"].items() if name in SYSTEM and name != "managedFields"}


def _managed(obj: Object) -> Object:
    return {name: x for name, x in obj["metadata"].items() if name == "managedFields"}


def _status_of(obj: Object) -> Object:
    return {"metadata": {}, "status": obj.get("status") or {}}


def _equal(kind: Resource, a: Object, b: Object) -> bool:
    return canonical.equal(kind.shape, {**a, "metadata": _own(a)}, {**b, "metadata": _own(b)})


def _same(kind: Resource, obj: Object, theirs: Object) -> bool:
    """Whether users see no difference but in what a server gives."""
    ends = ["deletionTimestamp" in x["metadata"] for x in (obj, theirs)]
    return ends[0] == ends[1] and _equal(kind, obj, theirs)


def _continues(kind: Resource, obj: Object, theirs: Object) -> bool:
    """Whether it is the same object, or one whose creation from this one was not finished."""
    if theirs["metadata"]["uid"] == obj["metadata"]["uid"]:
        return True
    return not theirs.get("status") and _equal(kind, {**obj, "status": {}}, {**theirs, "status": {}})
