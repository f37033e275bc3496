"""The namespaces of a stand-alone server: objects of the kind Namespace, created with the first object in them.

Upstream: kubernetes/kubernetes `plugin/pkg/admission/namespace/autoprovision/admission.go`,
`pkg/controlplane/controller/systemnamespaces/system_namespaces_controller.go`, `pkg/controller/namespace/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import BACKGROUND, DeleteOptions
from apiserver.cluster.namespaces import NAME_LABEL, EveryNamespace, Namespace
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Object, Resource
from apiserver.standalone.namespace import FINALIZER, TERMINATING, finalizers
from apiserver.standalone.queue import Queue
from apiserver.standalone.writes import Writes
from apiserver.storage.errors import KeyExists
from apiserver.storage.store import Store
from apiserver.verbs.failures import UNAVAILABLE
from apiserver.watchcache.entry import Entry
from apiserver.watchcache.errors import StorageError
from kubetext import names

SYSTEM = ("default", "kube-system")
"""The namespaces that exist from the start."""
FILL_SECONDS = 10.0
"""How long a create waits until the namespaces are known."""
REMEMBERED_BYTES = 16 << 10
"""A longer namespace is decoded each time, because the cache must stay small."""
AT_ONCE = 64
"""Concurrent deletions while a namespace is emptied."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Namespaces(EveryNamespace):
    """Every namespace exists: as it is stored, or as it would be created."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def stored(self, name: str) -> bool:
        """Return whether an object of that name exists. Raises StorageError."""
        return self._store.view().get(name) is not None

    async def filled(self) -> None:
        """Wait until the memory of namespaces is filled, as requests wait for that of their own kind."""
        if self._store.filling:
            await self._store.wait_until_filled(seconds=FILL_SECONDS)

    def lookup(self, name: str) -> Namespace | None:
        try:
            entry = self._store.view().get(name)
        except StorageError:
            entry = None
        if entry is None or not entry.readable:
            return super().lookup(name)
        return _shown(entry) if len(entry.body) <= REMEMBERED_BYTES else _decoded(entry)

    def labels(self, name: str) -> Mapping[str, str] | None:
        return ((self.lookup(name) or {}).get("metadata") or {}).get("labels") or {}


@lru_cache(256)
def _shown(entry: Entry) -> Namespace:
    """Decode a namespace once: each write into it reads it, and it hardly changes."""
    return _decoded(entry)


def _decoded(entry: Entry) -> Namespace:
    return {"kind": "Namespace", "apiVersion": "v1", **_decode(entry.body)}


class NamespaceAutoProvision:
    """The admission plugin that creates the missing namespace of a new object. A dry run creates nothing."""

    operations = ("CREATE",)

    def __init__(self, namespaces: Namespaces, create: Callable[[str], Awaitable[None]]) -> None:
        self._namespaces = namespaces
        self._create = create

    async def admit(self, attributes: Attributes) -> Object | None:
        """Create the namespace if needed. Raises StatusError when it cannot be looked up or stored."""
        name = attributes.namespace
        if not name or attributes.dry_run or attributes.operation != "CREATE":
            return None
        await self._namespaces.filled()
        try:
            if not self._namespaces.stored(name):
                await self._create(name)
        except StorageError as e:
            raise errors.service_unavailable(UNAVAILABLE) from e
        return None


class Provisioner:
    """Creates namespaces. Listens to all stores: objects may have been stored before namespaces existed, or by another program."""

    def __init__(self, kinds: Kinds, resource: Resource, namespaces: Namespaces, writes: Writes) -> None:
        self._namespaced = {kind.storage_name for kind in kinds.stored if kind.namespaced}
        self._resource = resource
        self._namespaces = namespaces
        self._writes = writes
        self._seen: set[str] = set()
        self._queue: Queue[str] = Queue(self.create, name="namespaces", workers=1)

    async def run(self) -> None:
        """Create namespaces until cancelled."""
        for name in SYSTEM:
            self._queue.add(name)
        await self._queue.run()

    async def create(self, name: str) -> None:
        """Create the namespace unless it exists. Ignores invalid names. Raises StatusError, StorageError."""
        if names.dns_label(name) or self._namespaces.stored(name):
            return
        try:
            labels = {NAME_LABEL: name}
            await self._writes.create(self._resource, {"metadata": {"name": name, "labels": labels}})
        except KeyExists:
            return

    def begun(self, resource: str) -> None:
        return None

    def listed(self, resource: str) -> Iterator[None]:
        return iter(())

    def seen(self, resource: str, entry: Entry) -> None:
        if resource in self._namespaced and entry.namespace not in self._seen:
            self._seen.add(entry.namespace)
            self._queue.add(entry.namespace)

    def removed(self, resource: str, entry: Entry) -> None:
        if resource == self._resource.storage_name:
            self._seen.discard(entry.name)


class Emptier:
    """Deletes the contents of a namespace that is being deleted, then releases the namespace. Listens to all stores."""

    def __init__(self, kinds: Kinds, resource: Resource, stores: Mapping[str, Store], writes: Writes) -> None:
        self._inside = [kind for kind in kinds.stored if kind.namespaced]
        self._resource = resource
        self._stores = stores
        self._writes = writes
        self._terminating: set[str] = set()
        self._queue: Queue[str] = Queue(self._empty, name="namespace controller", workers=2)

    async def run(self) -> None:
        """Empty namespaces until cancelled."""
        await self._queue.run()

    def begun(self, resource: str) -> None:
        return None

    def listed(self, resource: str) -> Iterator[None]:
        for name in tuple(self._terminating):
            self._queue.add(name)
            yield

    def seen(self, resource: str, entry: Entry) -> None:
        if resource == self._resource.storage_name and entry.fields[0] == TERMINATING:
            self._terminating.add(entry.name)
            self._queue.add(entry.name)

    def removed(self, resource: str, entry: Entry) -> None:
        if resource == self._resource.storage_name:
            self._terminating.discard(entry.name)
        elif entry.namespace in self._terminating:
            self._queue.add(entry.namespace)

    async def _empty(self, name: str) -> None:
        """Empty a namespace. Objects with finalizers stay, and so does the namespace; it is checked again when one of them is removed."""
        entry = self._stores[self._resource.storage_name].view().get(name)
        if entry is None or not entry.readable or FINALIZER not in finalizers(_decode(entry.body)):
            return
        left = 0
        for kind in self._inside:
            left += await self._delete_all(kind, name)
        if left:
            return

        def change(obj: Object) -> None:
            obj["spec"] = {"finalizers": [found for found in finalizers(obj) if found != FINALIZER]}

        await self._writes.change(self._resource, "", name, change, subresource="finalize")

    async def _delete_all(self, kind: Resource, namespace: str) -> int:
        """Delete the objects of a kind. Return how many are left."""
        store = self._stores[kind.storage_name]
        await store.barrier()
        entries: Iterator[Entry] = store.view().scan(f"{namespace}/")
        while some := list(islice(entries, AT_ONCE)):
            done = await asyncio.gather(
                *(self._delete(kind, namespace, entry) for entry in some), return_exceptions=True
            )
            for failure in done:
                if isinstance(failure, BaseException):
                    raise failure
        return store.view().count(f"{namespace}/")

    async def _delete(self, kind: Resource, namespace: str, entry: Entry) -> None:
        if b'"deletionTimestamp":"' in entry.body:
            return
        try:
            await self._writes.delete(kind, namespace, entry.name, DeleteOptions(propagation_policy=BACKGROUND))
        except StatusError as e:
            if e.code != 404:
                raise
