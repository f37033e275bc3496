"""Everything that works beside the requests of a stand-alone server, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from apiserver.apimachinery.request import COLLECTOR, EMPTIER, MASTERS, User
from apiserver.audit.record import Auditor
from apiserver.kinds.served import Kinds
from apiserver.runtime import tasks
from apiserver.schema.resource import Resource
from apiserver.standalone import namespace, reviews
from apiserver.standalone.collector import Collector
from apiserver.standalone.follower import Follower, Listener
from apiserver.standalone.namespaces import SYSTEM, Emptier, NamespaceAutoProvision, Namespaces, Provisioner
from apiserver.standalone.writes import Writes, service_account
from apiserver.storage.store import Store
from apiserver.verbs.context import Services
from apiserver.watchcache.entry import Entry

RESOURCES = (namespace.RESOURCE, *reviews.RESOURCES)
"""The kinds that a stand-alone server has beside those that it is for."""
SERVER, MANAGER = User("system:apiserver", groups=(MASTERS,)), "kube-apiserver"
"""The user and field manager that create namespaces, as in kube-apiserver itself."""
CONTROLLERS_MANAGER = "kube-controller-manager"


class Control:
    """The namespaces, the collector and the followers of the stores. Call `start` before anything else."""

    def __init__(self, kinds: Kinds, stores: Mapping[str, Store]) -> None:
        self._kinds = kinds
        self._stores = stores
        self._namespace = _namespace(kinds)
        self.namespaces = Namespaces(stores[self._namespace.storage_name])
        self.provision = NamespaceAutoProvision(self.namespaces, self._create)
        self._provisioner: Provisioner
        self._listeners: tuple[Listener, ...] = ()
        self._followers = [Follower(stores[kind.storage_name], self) for kind in kinds.stored]

    def start(self, services: Services, auditor: Auditor | None) -> None:
        kinds, stores, kind = self._kinds, self._stores, self._namespace
        self._provisioner = Provisioner(
            kinds, kind, self.namespaces, Writes(services, SERVER, manager=MANAGER, auditor=auditor)
        )
        collecting, emptying = (
            Writes(services, service_account(name), manager=CONTROLLERS_MANAGER, auditor=auditor)
            for name in (COLLECTOR, EMPTIER)
        )
        self.collector = Collector(kinds, stores, collecting, caught_up=self.caught_up)
        self._emptier = Emptier(kinds, kind, stores, emptying)
        self._listeners = (self._provisioner, self.collector, self._emptier)

    async def prepare(self) -> None:
        """Create the namespaces that every server has. Raises StatusError, StorageError."""
        for name in SYSTEM:
            await self._create(name)

    async def run(self, after: Callable[[], Awaitable[None]]) -> None:
        """Wait for `after`, then work until cancelled."""
        await after()
        runs = [follower.run for follower in self._followers]
        runs += [self._provisioner.run, self.collector.run, self._emptier.run]
        await tasks.together(run() for run in runs)

    async def _create(self, name: str) -> None:
        await self._provisioner.create(name)

    async def caught_up(self) -> None:
        """Wait until the controllers have seen everything that was acknowledged before."""
        await asyncio.gather(*(follower.caught_up() for follower in self._followers))

    # A listener that calls the others

    def begun(self, resource: str) -> None:
        for listener in self._listeners:
            listener.begun(resource)

    def seen(self, resource: str, entry: Entry) -> None:
        for listener in self._listeners:
            listener.seen(resource, entry)

    def removed(self, resource: str, entry: Entry) -> None:
        for listener in self._listeners:
            listener.removed(resource, entry)

    def listed(self, resource: str) -> Iterator[None]:
        for listener in self._listeners:
            yield from listener.listed(resource)


def serves_namespaces(kinds: Kinds) -> bool:
    """Return whether namespaces are objects of this server, because it has no cluster."""
    return kinds.at("", namespace.RESOURCE.version, namespace.RESOURCE.plural) is not None


def _namespace(kinds: Kinds) -> Resource:
    found = kinds.at("", namespace.RESOURCE.version, namespace.RESOURCE.plural)
    assert found is not None
    return found
