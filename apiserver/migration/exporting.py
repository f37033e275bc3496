"""Implement `sluice store export`: write the store's objects to a kube-apiserver that serves the group itself again.

An API accepts the parts of an object that users may set. An object that kube-apiserver still has under its uid (it was imported from there)
is updated and stays the same object. Any other is created: it gets another uid, another creationTimestamp and generation 1, and a deletion
that had begun begins again. Claims keep their allocations and reservations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiserver.cluster.errors import Refused
from apiserver.codecs.objects import canonical
from apiserver.kinds.served import rank
from apiserver.migration.importing import Refusals
from apiserver.migration.objects import Item, Reader, Unfit, described
from apiserver.migration.sources import Server, collection, raw_json
from apiserver.runtime.progress import Progress, Silent
from apiserver.schema.resource import Object, Resource
from apiserver.storage.operations.loading import Loading
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, marked, split

SYSTEM = (
    "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "managedFields", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
"""Metadata that each server sets itself."""
STATUS = "status"
QUERY = {"fieldManager": "sluice-export", "fieldValidation": "Strict"}


@dataclass(slots=True)
class Counts:
    """Counts of one kind."""

    there: int = 0
    """Objects that are equal on both sides."""
    created: int = 0
    updated: int = 0
    surplus: int = 0
    """Objects that only the target has; with `prune`, those of them that were deleted."""

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
    _created: list[str] = field(default_factory=list)
    """Each custom resource that got another uid, with both. Objects that it owns name the former one."""

    async def run(self) -> tuple[list[str], bool]:
        """Return the lines to print, and whether the target has everything now, or would have. Raises ClusterError and StorageError."""
        lines = []
        for kind in self.kinds:
            served = self.target.version(kind)
            if served is None and not await self.loading.count(kind.storage_name):
                continue
            # A newer version than the stored one has the same JSON.
            if served is None or rank(served.version) > rank(kind.version) or not served.same_json:
                self._refusals.add(
                    f"{kind.plural}: {self.target.client.server} does not serve {kind.api_version} itself"
                )
                continue
            lines.append((await self._kind(served)).told(kind, dry_run=self.dry_run, prune=self.prune))
        return [*lines, *self._deletions, *self._created, *self._refusals.lines()], not self._refusals.count

    async def _kind(self, kind: Resource) -> Counts:
        counts = Counts()
        verb = "looking at" if self.dry_run else "exporting"
        self.progress.begin(f"{verb} {kind.plural}", await self.loading.count(kind.storage_name))
        async for page in self.loading.values(kind.storage_name):
            for key, value in page:
                self.progress.advance(1)
                try:
                    obj = _decoded(kind, value)
                except ValueError as error:
                    self._refusals.add(f"{kind.plural} {key}: what is stored is no object: {error}")
                except Unfit as error:
                    self._refusals.add(f"{kind.plural} {key}: {error}")
                else:
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
            existing = await self._existing(kind, obj)
            if existing is None:
                counts.created += 1
                if not self.dry_run:
                    await self._create(kind, obj)
            elif _same(kind, obj, existing):
                counts.there += 1
            elif _continues(kind, obj, existing):
                counts.updated += 1
                if not self.dry_run:
                    await self._update(kind, obj, existing)
            else:
                uid = existing["metadata"]["uid"]
                self._refusals.add(
                    f"{named}: is there already, as another object (uid {uid}, not {obj['metadata']['uid']})"
                )
        except (Refused, Unfit) as error:
            self._refusals.add(f"{named}: {error}")

    # Requests

    async def _existing(self, kind: Resource, obj: Object) -> Object | None:
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
        existing = await self.reader.decoded(Item(kind, raw))
        if kind.custom is not None:
            self._created.append(
                f"new uid: {described(kind, obj)}: {existing['metadata']['uid']}, was {metadata['uid']}"
            )
        await self._status(kind, obj, existing)
        if "deletionTimestamp" in metadata:
            await self._ask_deletion(kind, existing)

    async def _update(self, kind: Resource, obj: Object, existing: Object) -> None:
        """Update everything but the status, then the status."""
        metadata = {**_own(obj), **_managed(obj), **_system(existing)}
        if not _equal(kind, _without_status(kind, obj), _without_status(kind, existing)):
            content = _json(kind, {**obj, "metadata": metadata})
            existing = await self.reader.decoded(
                Item(kind, await self.target.client.fetch("PUT", _path(kind, obj), query=QUERY, content=content))
            )
        await self._status(kind, obj, existing)
        if "deletionTimestamp" in obj["metadata"] and "deletionTimestamp" not in existing["metadata"]:
            await self._ask_deletion(kind, existing)

    async def _status(self, kind: Resource, obj: Object, existing: Object) -> None:
        if _has_status(kind) and not canonical.equal(kind.shape, _status_of(obj), _status_of(existing)):
            metadata = {**existing["metadata"], **_managed(obj)}
            content = _json(kind, {**existing, "metadata": metadata, "status": obj.get("status", {})})
            await self.target.client.fetch("PUT", f"{_path(kind, obj)}/status", query=QUERY, content=content)

    async def _ask_deletion(self, kind: Resource, existing: Object) -> None:
        options = {"preconditions": {"uid": existing["metadata"]["uid"]}}
        await self.target.client.fetch("DELETE", _path(kind, existing), content=raw_json(options))

    async def _delete(self, kind: Resource, existing: Object) -> bool:
        """Delete an object and remove its finalizers: their owners have handled this deletion in the store. Return whether it is deleted
        now."""
        try:
            if existing["metadata"].get("finalizers"):
                metadata = {name: x for name, x in existing["metadata"].items() if name != "finalizers"}
                content = _json(kind, {**existing, "metadata": metadata})
                await self.target.client.fetch("PUT", _path(kind, existing), query=QUERY, content=content)
                if "deletionTimestamp" in metadata:
                    return True
            await self._ask_deletion(kind, existing)
        except Refused as error:
            if error.code != 404:
                self._refusals.add(f"{described(kind, existing)}: {error}")
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


def _decoded(kind: Resource, value: bytes) -> Object:
    """Return the object of a stored value in the stored version. Raises ValueError, and Unfit for one that only a webhook converts."""
    if kind.custom is not None:
        value = kind.custom.adopt(value)
        version = marked(split(value)[1])
        if version != kind.stored.version:
            stored = kind.stored.api_version
            raise Unfit(
                f"is stored in {kind.group}/{version}, not in {stored}: update it here, which stores it in {stored}"
            )
    return canonical.decode(kind.shape, value)


def _path(kind: Resource, obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{collection(kind, metadata.get('namespace', '') if kind.namespaced else '')}/{metadata['name']}"


def _json(kind: Resource, obj: Object) -> bytes:
    line = canonical.encode_shown(kind.shape, obj)
    return kind.head + line[1:]


def _own(obj: Object) -> Object:
    """Return the metadata that users set."""
    return {name: x for name, x in obj["metadata"].items() if name not in SYSTEM}


def _system(obj: Object) -> Object:
    """Return the metadata that identifies the target's object."""
    return {name: x for name, x in obj["metadata"].items() if name in SYSTEM and name != "managedFields"}


def _managed(obj: Object) -> Object:
    return {name: x for name, x in obj["metadata"].items() if name == "managedFields"}


def _has_status(kind: Resource) -> bool:
    """Return whether a write of the whole object keeps the status that is there."""
    return any(sub.name == STATUS for sub in kind.subresources) if kind.custom is not None else kind.has_status


def _without_status(kind: Resource, obj: Object) -> Object:
    return {name: x for name, x in obj.items() if name != STATUS} if _has_status(kind) else obj


def _status_of(obj: Object) -> Object:
    return {"metadata": {}, "status": obj.get("status") or {}}


def _equal(kind: Resource, a: Object, b: Object) -> bool:
    return canonical.equal(kind.shape, {**a, "metadata": _own(a)}, {**b, "metadata": _own(b)})


def _same(kind: Resource, obj: Object, existing: Object) -> bool:
    """Return whether users see no difference, except in metadata that each server sets."""
    ends = ["deletionTimestamp" in x["metadata"] for x in (obj, existing)]
    return ends[0] == ends[1] and _equal(kind, obj, existing)


def _continues(kind: Resource, obj: Object, existing: Object) -> bool:
    """Return whether it is the same object, or one whose creation from this one was not finished."""
    if existing["metadata"]["uid"] == obj["metadata"]["uid"]:
        return True
    if _has_status(kind) and existing.get("status"):
        return False
    return _equal(kind, _without_status(kind, obj), _without_status(kind, existing))
