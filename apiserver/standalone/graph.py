"""Owners and their dependents: the part of all objects that decides about garbage collection.

Objects come in any order. Each change returns the objects that must be checked because of it; the check then reads their newest state.
Only objects with owners, or whose deletion waits for the collector, take memory here. Upstream: kubernetes/kubernetes
`pkg/controller/garbagecollector/{graph,graph_builder}.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from apiserver.codecs.json import surrogates
from apiserver.runtime.offload import READ_OWNERS
from apiserver.watchcache.entry import Entry, Key

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""The finalizers that select what happens to dependents."""
MANY = 1000
"""Owners of an object that are not put into the shared dicts: tens of thousands would take a step of the event loop."""
SHARDS = 256
"""The dicts of one sort of edges. To enlarge one dict of 700,000 owners takes 45 ms."""


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


@dataclass(frozen=True)
class Facts:
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

    @cached_property
    def known(self) -> Known:
        """The part that a graph keeps."""
        uids = dict.fromkeys(owner.uid for owner in self.owners)
        return Known(
            self.uid,
            waiting=self.waiting,
            orphaned=self.deleting and self.orphaning,
            owners=tuple(uids) if len(uids) <= MANY else frozenset(uids),
            blocking=frozenset(owner.uid for owner in self.owners if owner.block_owner_deletion),
            mark=hash(self.owners),
        )


class Known(NamedTuple):
    """The part of an object's facts that a graph keeps.

    An object may have tens of thousands of owners. Only their uids are kept, and `mark`: a hash that shows whether the owners have changed.
    """

    uid: str
    waiting: bool = False
    orphaned: bool = False
    owners: tuple[str, ...] | frozenset[str] = ()
    """A tuple is smaller, a set is faster where there are many."""
    blocking: frozenset[str] = frozenset()
    """The owners that must wait for the object."""
    mark: int = hash(())


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
    """Read a large object in a thread. `facts` then has it, until the caller awaits something."""
    if is_large(entry) and entry not in _large:
        _large[entry] = await READ_OWNERS.run(_of_large, entry)
        for old in tuple(_large)[:-2]:
            forget(old)


def facts(entry: Entry) -> Facts:
    """Return the facts of a stored object. Call `prepare` first for a large one."""
    return _large.get(entry) or _read(entry)


def is_large(entry: Entry) -> bool:
    """Return whether reading the object takes long enough for a thread."""
    return len(entry.body) > READ_OWNERS.limit


_large: dict[Entry, Facts] = {}
"""The facts of the large objects that are being worked on, of two at most."""


def forget(entry: Entry) -> None:
    """Free the facts of an object that nobody works on any more. They may take several times its bytes."""
    _large.pop(entry, None)


async def read(entry: Entry) -> Facts:
    """Return the facts of a stored object, and keep nothing. A large one is read in a thread, unless `prepare` has read it."""
    await prepare(entry)
    found = facts(entry)
    forget(entry)
    return found


async def waits(entry: Entry) -> bool:
    """Return whether a stored object waits until its dependents are deleted."""
    return _DELETED in entry.body and (await read(entry)).waiting


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


def _of_large(entry: Entry) -> Facts:
    found = _read(entry)
    found.known  # noqa: B018 - kept with the facts: it takes milliseconds
    return found


class Edges:
    """Edges from owners, by uid, to dependents.

    A dependent with MANY owners keeps them in a set of its own. A look for the dependents of an owner goes through all these sets.
    """

    def __init__(self) -> None:
        # Most owners in a long list have one dependent, which needs no dict.
        self._shards: tuple[dict[str, Id | dict[Id, None]], ...] = tuple({} for _ in range(SHARDS))
        self._large: dict[Id, frozenset[str]] = {}

    def of(self, uid: str) -> Collection[Id]:
        """Return the dependents of the object with this uid."""
        found = self._shard(uid).get(uid, {})
        small = (found,) if isinstance(found, Id) else found.keys()
        large = [at for at, owners in self._large.items() if uid in owners]
        return (*small, *large) if large else small

    def __contains__(self, uid: str) -> bool:
        return uid in self._shard(uid) or any(uid in owners for owners in self._large.values())

    def move(self, at: Id, before: Collection[str], now: Collection[str]) -> None:
        """Replace the owners of a dependent."""
        left, new = (() if len(owners) > MANY else owners for owners in (before, now))
        stay = frozenset(new)
        for uid in left:
            if uid not in stay:
                self._discard(uid, at)
        for uid in new:
            self._add(uid, at)
        if len(now) > MANY:
            self._large[at] = frozenset(now)
        else:
            self._large.pop(at, None)

    def clear(self) -> None:
        """Forget everything, a piece at a time."""
        for shard in self._shards:
            shard.clear()
        while self._large:
            self._large.popitem()

    def _shard(self, uid: str) -> dict[str, Id | dict[Id, None]]:
        return self._shards[hash(uid) % SHARDS]

    def _add(self, uid: str, at: Id) -> None:
        shard = self._shard(uid)
        found = shard.setdefault(uid, at)
        if isinstance(found, dict):
            found[at] = None
        elif found != at:
            shard[uid] = {found: None, at: None}

    def _discard(self, uid: str, at: Id) -> None:
        shard = self._shard(uid)
        found = shard.get(uid)
        if isinstance(found, dict):
            found.pop(at, None)
        if not found or found == at:
            shard.pop(uid, None)


class Graph:
    """The edges from owners, by uid, to dependents."""

    def __init__(self) -> None:
        self._known: dict[Id, Known] = {}
        self._dependents = Edges()
        self._blocking = Edges()
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
        return self._dependents.of(uid)

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

    def put(self, at: Id, facts: Facts) -> Iterator[Id]:
        """Take a new or changed object. Yield the objects to check."""
        now, before = facts.known, self._known.get(at)
        if before is not None and before.uid != now.uid:
            yield from self.remove(at, before.uid)
            before = None
        was = before or Known(now.uid)
        if now.mark != was.mark:
            yield from self._moved(at, was, now)
            if now.owners:
                yield at
        else:
            now = now._replace(owners=was.owners, blocking=was.blocking)  # the texts that are kept already
        if now.owners or facts.deleting:
            self._known[at] = now
        elif before is not None:
            del self._known[at]
        if now.waiting and now.uid not in self._waiting:
            self._waiting[now.uid] = at
            yield from tuple(self.dependents(now.uid))
            yield at
        elif not now.waiting:
            self._waiting.pop(now.uid, None)
        if now.orphaned and not was.orphaned:
            yield at

    def remove(self, at: Id, uid: str) -> Iterator[Id]:
        """Forget the removed object with this uid. Yield the objects to check."""
        before = self._known.pop(at, None)
        self._waiting.pop(uid, None)
        yield from tuple(self.dependents(uid))
        if before is not None:
            yield from self._moved(at, before, Known(uid))

    def clear(self) -> None:
        """Forget everything, a piece at a time, so that other threads run meanwhile."""
        self._dependents.clear()
        self._blocking.clear()
        while self._known:
            self._known.popitem()

    def _moved(self, at: Id, before: Known, now: Known) -> Iterator[Id]:
        """Update the edges. Yield waiting owners for which this dependent may have been the last."""
        self._dependents.move(at, before.owners, now.owners)
        self._blocking.move(at, before.blocking, now.blocking)
        stay = frozenset(now.owners)
        for uid in _shared(before.owners, self._waiting):
            if uid not in stay or (uid in before.blocking and uid not in now.blocking):
                yield self._waiting[uid]


def _shared(one: Collection[str], other: Collection[str]) -> list[str]:
    """Return the texts in both collections. `other` is fast to look into."""
    if len(one) <= len(other):
        return [text for text in one if text in other]
    held = frozenset(one)
    return [text for text in other if text in held]
