"""Owners and their dependents: the part of all objects that decides about garbage collection.

Objects come in any order. Each change returns the objects that must be checked because of it; the check then reads their newest state.
Only objects with owners, or whose deletion waits for the collector, take memory here. Upstream: kubernetes/kubernetes
`pkg/controller/garbagecollector/{graph,graph_builder}.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from apiserver.codecs.json import surrogates
from apiserver.runtime.offload import READ_OWNERS
from apiserver.watchcache.entry import Entry, Key

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""The finalizers that select what happens to dependents."""


class Id(NamedTuple):
    """Where an object is stored."""

    resource: str
    key: Key


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None


class Facts(NamedTuple):
    """The relevant facts of an object. `orphaning` and `foreground` are about its finalizers, whether it is being deleted or not."""

    uid: str
    owners: tuple[Owner, ...] = ()
    deleting: bool = False
    orphaning: bool = False
    foreground: bool = False

    @property
    def waiting(self) -> bool:
        """Whether it stays until its dependents are deleted."""
        return self.deleting and self.foreground and not self.orphaning


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_decode = surrogates.skipped(msgspec.json.Decoder(_Object).decode)
_OWNED, _DELETED = b'"ownerReferences":[', b'"deletionTimestamp":"'
"""Every stored object with more facts than its uid contains one of these."""


async def prepare(entry: Entry) -> None:
    """Read a large object in a thread, so that `facts` has it cached."""
    if is_large(entry):
        await READ_OWNERS.run(_of_large, entry)


def facts(entry: Entry) -> Facts:
    """Return the facts of a stored object. Call `prepare` first for a large one."""
    return _of_large(entry) if is_large(entry) else _read(entry)


def is_large(entry: Entry) -> bool:
    """Return whether reading the object takes long enough for a thread."""
    return len(entry.body) > READ_OWNERS.limit


@functools.lru_cache(2)
def _of_large(entry: Entry) -> Facts:
    return _read(entry)


def counts(entry: Entry) -> bool:
    """Return whether the object may have more facts than its uid. False is certain."""
    return _OWNED in entry.body or _DELETED in entry.body


def _read(entry: Entry) -> Facts:
    if not counts(entry):
        return Facts(entry.uid.decode())
    metadata = _decode(entry.body).metadata
    finalizers = metadata.finalizers or ()
    return Facts(
        metadata.uid,
        tuple(metadata.owner_references or ()),
        deleting=bool(metadata.deletion_timestamp),
        orphaning=ORPHAN in finalizers,
        foreground=FOREGROUND in finalizers,
    )


class Graph:
    """The edges from owners, by uid, to dependents."""

    def __init__(self) -> None:
        self._known: dict[Id, Facts] = {}
        self._dependents: dict[str, dict[Id, None]] = {}
        self._blocking: dict[str, dict[Id, None]] = {}
        """Dependents that their owner must wait for."""
        self._waiting: dict[str, Id] = {}
        """Objects that wait for their dependents, by uid."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, at: object) -> bool:
        return at in self._known

    def __iter__(self) -> Iterator[Id]:
        """Iterate over every object that takes memory here."""
        return iter(self._known)

    def dependents(self, uid: str) -> Collection[Id]:
        """Return the dependents of the object with this uid."""
        return self._dependents.get(uid, {}).keys()

    def blocked(self, uid: str) -> bool:
        """Return whether a dependent must be deleted before its owner."""
        return uid in self._blocking

    def waits(self, at: Id) -> bool:
        """Return whether that object waits for its dependents."""
        known = self._known.get(at)
        return known is not None and known.waiting

    def uid(self, at: Id) -> str:
        """Return the uid of an object that takes memory here, "" for any other."""
        known = self._known.get(at)
        return known.uid if known is not None else ""

    def known(self, resource: str) -> list[Id]:
        """Return the objects of a resource that take memory here."""
        return [at for at in self._known if at.resource == resource]

    def put(self, at: Id, now: Facts) -> Iterator[Id]:
        """Take a new or changed object. Yield the objects to check."""
        before = self._known.get(at)
        if before is not None and before.uid != now.uid:
            yield from self.remove(at, before.uid)
            before = None
        was = before or Facts(now.uid)
        if now.owners != was.owners:
            yield from self._moved(at, was.owners, now.owners)
            if now.owners:
                yield at
        if now.owners or now.deleting:
            self._known[at] = now
        elif before is not None:
            del self._known[at]
        if now.waiting and now.uid not in self._waiting:
            self._waiting[now.uid] = at
            yield from tuple(self.dependents(now.uid))
            yield at
        elif not now.waiting:
            self._waiting.pop(now.uid, None)
        if now.deleting and now.orphaning and not (was.deleting and was.orphaning):
            yield at

    def remove(self, at: Id, uid: str) -> Iterator[Id]:
        """Forget the removed object with this uid. Yield the objects to check."""
        before = self._known.pop(at, None)
        self._waiting.pop(uid, None)
        yield from tuple(self.dependents(uid))
        if before is not None:
            yield from self._moved(at, before.owners, ())

    def _moved(self, at: Id, before: tuple[Owner, ...], now: tuple[Owner, ...]) -> Iterator[Id]:
        """Update the edges. Yield waiting owners for which this dependent may have been the last."""
        old, new = _edges(before), _edges(now)
        for uid, blocks in old.items():
            if uid not in new:
                _discard(self._dependents, uid, at)
            if blocks and not new.get(uid):
                _discard(self._blocking, uid, at)
                if uid in self._waiting:
                    yield self._waiting[uid]
            elif uid not in new and uid in self._waiting:
                yield self._waiting[uid]
        for uid, blocks in new.items():
            self._dependents.setdefault(uid, {})[at] = None
            if blocks:
                self._blocking.setdefault(uid, {})[at] = None


def _edges(owners: tuple[Owner, ...]) -> dict[str, bool]:
    """Return the uids of owners, and whether they must wait for the dependent."""
    found: dict[str, bool] = {}
    for owner in owners:
        found[owner.uid] = found.get(owner.uid, False) or bool(owner.block_owner_deletion)
    return found


def _discard(edges: dict[str, dict[Id, None]], uid: str, at: Id) -> None:
    found = edges.get(uid)
    if found is not None:
        found.pop(at, None)
        if not found:
            del edges[uid]
