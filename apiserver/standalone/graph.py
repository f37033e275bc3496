"""Owners and their dependents: the part of all objects that decides about garbage collection.

Objects come in any order. Each change returns the objects that must be checked because of it; the check then reads their newest state.
Only objects with owners, or whose deletion waits for the collector, take memory here. Upstream: kubernetes/kubernetes
`pkg/controller/garbagecollector/{graph,graph_builder}.go`.
"""

from __future__ import annotations

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


_large: dict[Entry, Facts] = {}
"""The facts of the large objects that are being worked on, of two at most."""


def _of_large(entry: Entry) -> Facts:
    found = _large.get(entry)
    if found is None:
        found = _large[entry] = _read(entry)
        for old in tuple(_large)[:-2]:
            forget(old)
    return found


def forget(entry: Entry) -> None:
    """Free the facts of an object that nobody works on any more. They may take several times its bytes."""
    _large.pop(entry, None)


def waits(entry: Entry) -> bool:
    """Return whether a stored object waits until its dependents are deleted."""
    return _DELETED in entry.body and facts(entry).waiting


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


class _Known(NamedTuple):
    """The part of an object's facts that is kept.

    An object may have tens of thousands of owners. Only their uids are kept, and `mark`: a hash that shows whether the owners have changed.
    """

    uid: str
    waiting: bool = False
    orphaned: bool = False
    owners: tuple[str, ...] = ()
    blocking: frozenset[str] = frozenset()
    """The owners that must wait for the object."""
    mark: int = hash(())

    @staticmethod
    def of(facts: Facts) -> _Known:
        """Return the part of facts that is kept."""
        return _Known(
            facts.uid,
            waiting=facts.waiting,
            orphaned=facts.deleting and facts.orphaning,
            owners=tuple(dict.fromkeys(owner.uid for owner in facts.owners)),
            blocking=frozenset(owner.uid for owner in facts.owners if owner.block_owner_deletion),
            mark=hash(facts.owners),
        )


_Edges = dict[str, Id | dict[Id, None]]
"""Dependents by the uid of their owner. Most owners in a long list have one dependent, which needs no dict."""


class Graph:
    """The edges from owners, by uid, to dependents."""

    def __init__(self) -> None:
        self._known: dict[Id, _Known] = {}
        self._dependents: _Edges = {}
        self._blocking: _Edges = {}
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
        found = self._dependents.get(uid, {})
        return (found,) if isinstance(found, Id) else found.keys()

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
        now, before = _Known.of(facts), self._known.get(at)
        if before is not None and before.uid != now.uid:
            yield from self.remove(at, before.uid)
            before = None
        was = before or _Known(now.uid)
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
            yield from self._moved(at, before, _Known(uid))

    def _moved(self, at: Id, before: _Known, now: _Known) -> Iterator[Id]:
        """Update the edges. Yield waiting owners for which this dependent may have been the last."""
        stay = frozenset(now.owners)
        for uid in before.owners:
            left, released = uid not in stay, uid in before.blocking and uid not in now.blocking
            if left:
                _discard(self._dependents, uid, at)
            if released:
                _discard(self._blocking, uid, at)
            if (left or released) and uid in self._waiting:
                yield self._waiting[uid]
        for uid in now.owners:
            _add(self._dependents, uid, at)
            if uid in now.blocking:
                _add(self._blocking, uid, at)


def _add(edges: _Edges, uid: str, at: Id) -> None:
    found = edges.setdefault(uid, at)
    if isinstance(found, dict):
        found[at] = None
    elif found != at:
        edges[uid] = {found: None, at: None}


def _discard(edges: _Edges, uid: str, at: Id) -> None:
    found = edges.get(uid)
    if isinstance(found, dict):
        found.pop(at, None)
    if not found or found == at:
        edges.pop(uid, None)
