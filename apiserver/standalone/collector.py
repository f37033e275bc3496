"""The garbage collector: handles the dependents of deleted owners, and objects whose owners do not exist.

Each object is checked by itself, in its newest state. So a restart continues where the last process ended: it checks every object
again. A user of its own makes the writes, through admission like every client. Only owners of kinds that are served here can be looked
up; objects with other owners are left alone. Upstream: kubernetes/kubernetes
`pkg/controller/garbagecollector/{garbagecollector,operations,patch}.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import BACKGROUND, FOREGROUND, ORPHAN, DeleteOptions
from apiserver.kinds.served import Kinds
from apiserver.runtime.offload import READ_OWNERS
from apiserver.schema.resource import Object, Resource
from apiserver.standalone import graph
from apiserver.standalone.graph import Facts, Graph, Id, Owner
from apiserver.standalone.queue import Queue
from apiserver.standalone.writes import Writes
from apiserver.storage.store import Store
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry

WORKERS = 20
"""Objects that are checked concurrently; as upstream's `--concurrent-gc-syncs`."""
AT_ONCE = 256
"""Owners of one object that are looked up in one step: an object may have thousands."""


class Verdict(Enum):
    """The state of an owner: it exists, does not exist, or waits for its dependents."""

    SOLID = "solid"
    DANGLING = "dangling"
    WAITING = "waiting"


Verdicts = Mapping[str, Verdict]
"""By the uid of the owner. If several references have one uid, an existing owner counts."""


class Collector:
    """Listens to all stores. `caught_up` returns when this listener has seen everything that was acknowledged before."""

    def __init__(
        self, kinds: Kinds, stores: Mapping[str, Store], writes: Writes, *, caught_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._kinds = kinds
        self._stores = stores
        self._writes = writes
        self._caught_up = caught_up
        self._resources = {kind.storage_name: kind for kind in kinds.stored}
        self._graph = Graph()
        self._unlisted: dict[str, dict[Id, None]] = {}
        """Known objects of a resource that is being listed again, and that have not been listed yet."""
        self._queue: Queue[Id] = Queue(self._look, name="garbage collector", workers=WORKERS)

    @property
    def pending(self) -> int:
        """The number of objects that wait for a check."""
        return len(self._queue)

    async def run(self) -> None:
        """Collect until cancelled."""
        try:
            await self._queue.run()
        finally:
            READ_OWNERS.pool.submit(self._graph.clear)  # millions of edges would be freed in one step

    # Listener

    def begun(self, resource: str) -> None:
        self._unlisted[resource] = dict.fromkeys(self._graph.known(resource))

    def listed(self, resource: str) -> Iterator[None]:
        for at in self._unlisted.pop(resource, ()):
            self._add(self._graph.remove(at, self._graph.uid(at)))
            yield
        # An owner may be among what was removed unseen.
        for at in tuple(self._graph):
            self._queue.add(at)
            yield

    def seen(self, resource: str, entry: Entry) -> None:
        if entry.readable:
            at = Id(resource, entry.key)
            if self._unlisted:
                self._unlisted.get(resource, {}).pop(at, None)
            # Most objects have no owners, and never had any.
            if at in self._graph or graph.counts(entry):
                changed = tuple(self._graph.put(at, graph.facts(entry)))
                self._add(changed)
                if at not in changed:
                    graph.forget(entry)

    def removed(self, resource: str, entry: Entry) -> None:
        self._add(self._graph.remove(Id(resource, entry.key), entry.uid.decode()))

    def _add(self, found: Iterable[Id]) -> None:
        for at in found:
            self._queue.add(at)

    # One object

    async def _look(self, at: Id) -> None:
        """Do what the object needs now. Raises StatusError and StorageError; the queue then calls it again."""
        entry = self._stores[at.resource].view().get(at.key)
        if entry is None or not entry.readable:
            return
        facts = await graph.read(entry)
        if facts.deleting and facts.orphaning:
            await self._orphan(at, facts)
        elif facts.waiting:
            await self._finish(at, facts)
        elif facts.owners and not facts.deleting:
            await self._judge(at, entry, facts)

    async def _orphan(self, at: Id, facts: Facts) -> None:
        """Remove the owner from its dependents, then release the object."""
        await self._caught_up()
        dependents = tuple(self._graph.dependents(facts.uid))
        for start in range(0, len(dependents), WORKERS):
            chunk = dependents[start : start + WORKERS]
            await _all(self._disown(dependent, {facts.uid}) for dependent in chunk)
        await self._release(at, facts.uid, graph.ORPHAN)

    async def _finish(self, at: Id, facts: Facts) -> None:
        """Release an object once the dependents that it must wait for are deleted."""
        if self._graph.blocked(facts.uid):
            return
        await self._caught_up()
        if not self._graph.blocked(facts.uid):
            await self._release(at, facts.uid, graph.FOREGROUND)

    async def _judge(self, at: Id, entry: Entry, facts: Facts) -> None:
        """Delete a dependent without an owner. If it has another owner, remove the references to missing ones."""
        verdicts = await self._verdicts(at, facts)
        if verdicts is None or set(verdicts.values()) == {Verdict.SOLID}:
            return
        await self._caught_up()
        newest = self._stores[at.resource].view().get(at.key)
        if newest is not entry:
            self._queue.add(at)
            return
        verdicts = await self._verdicts(at, facts)
        if verdicts is None:
            return
        found = set(verdicts.values())
        if Verdict.SOLID in found:
            if len(found) > 1:
                await self._disown(at, {uid for uid, verdict in verdicts.items() if verdict is not Verdict.SOLID})
            return
        policy = ORPHAN if facts.orphaning else FOREGROUND if facts.foreground else BACKGROUND
        dependents = self._graph.dependents(facts.uid)
        if Verdict.WAITING in found and dependents:
            if any(map(self._graph.waits, dependents)):
                # A circle of owners would wait for itself.
                await self._change(at, facts.uid, _unblock)
            policy, entry = FOREGROUND, self._stores[at.resource].view().get(at.key) or entry
        await self._delete(at, entry, facts, policy)

    async def _verdicts(self, at: Id, facts: Facts) -> Verdicts | None:
        """Return the verdict on each owner; None if one cannot be looked up here."""
        found: dict[str, Verdict] = {}
        for place, owner in enumerate(facts.owners):
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            resource = self._kind_of(owner)
            namespace = at.key.rpartition("/")[0]
            if resource is None or (resource.namespaced and not namespace):
                return None
            verdict = await self._verdict(resource, namespace, owner)
            if found.get(owner.uid, Verdict.DANGLING) is Verdict.DANGLING:
                found[owner.uid] = verdict
        return found

    def _kind_of(self, owner: Owner) -> Resource | None:
        group, _, version = owner.api_version.rpartition("/")
        resource = self._kinds.named(group, version, owner.kind)
        served = resource is not None and self._kinds.at(group, version, resource.plural) is not None
        return resource.stored if resource is not None and served and not resource.virtual else None

    async def _verdict(self, resource: Resource, namespace: str, owner: Owner) -> Verdict:
        key = keys.key(namespace if resource.namespaced else "", owner.name)
        entry = self._stores[resource.storage_name].view().get(key)
        if entry is None or not entry.readable or entry.uid.decode() != owner.uid:
            return Verdict.DANGLING
        return Verdict.WAITING if await graph.waits(entry) else Verdict.SOLID

    # Writes

    async def _delete(self, at: Id, entry: Entry, facts: Facts, policy: str) -> None:
        """Delete the object as it was judged. A change of something else than its owners does not save it."""
        options = DeleteOptions(
            uid=facts.uid, resource_version=str(entry.revision), preconditions=True, propagation_policy=policy
        )
        resource, (namespace, name) = self._resources[at.resource], _parts(at)
        try:
            await self._writes.delete(resource, namespace, name, options)
        except StatusError as e:
            if e.code == 404:
                return
            newest = self._stores[at.resource].view().get(at.key)
            if e.code != 409 or newest is None:
                raise
            found = await graph.read(newest)
            if (found.uid, found.owners) != (facts.uid, facts.owners):
                raise
            await self._writes.delete(
                resource, namespace, name, DeleteOptions(uid=facts.uid, preconditions=True, propagation_policy=policy)
            )

    async def _disown(self, at: Id, uids: Collection[str]) -> None:
        def change(metadata: Object) -> None:
            kept = [owner for owner in metadata.get("ownerReferences") or () if owner.get("uid", "") not in uids]
            _set(metadata, "ownerReferences", kept)

        await self._change(at, "", change)

    async def _release(self, at: Id, uid: str, finalizer: str) -> None:
        def change(metadata: Object) -> None:
            _set(metadata, "finalizers", [name for name in metadata.get("finalizers") or () if name != finalizer])

        await self._change(at, uid, change)

    async def _change(self, at: Id, uid: str, change: Callable[[Object], None]) -> None:
        """Change the metadata of an object; with `uid`, only of the object with this uid. A missing object is no error."""

        def changed(obj: Object) -> None:
            if not uid or obj["metadata"]["uid"] == uid:
                change(obj["metadata"])

        try:
            await self._writes.change(self._resources[at.resource], *_parts(at), changed)
        except StatusError as e:
            if e.code != 404:
                raise


def _unblock(metadata: Object) -> None:
    owners = metadata.get("ownerReferences") or ()
    metadata["ownerReferences"] = [
        {**owner, "blockOwnerDeletion": False} if owner.get("blockOwnerDeletion") else owner for owner in owners
    ]


def _set(metadata: Object, name: str, values: list[object]) -> None:
    if values:
        metadata[name] = values
    else:
        metadata.pop(name, None)


def _parts(at: Id) -> tuple[str, str]:
    """Return namespace and name."""
    namespace, _, name = at.key.rpartition("/")
    return namespace, name


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """Wait for all, then raise the first failure."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
