"""Writes of a controller in this process: through the clients' verbs, so that admission and managedFields apply.

They are audited as requests are, but without their objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.request import RequestInfo, User
from apiserver.audit.record import Auditor, Origin
from apiserver.schema.resource import Object, Resource
from apiserver.storage.errors import KeyExists
from apiserver.verbs import create, delete, rendering, replace
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry
from apiserver.wire.response import Internal

LOOPBACK = "::1"
"""The address of a writer in the same process, as that of kube-apiserver's own client."""


def service_account(name: str) -> User:
    """Return the user of a controller's service account. `name` is the user's name."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
    return User(name, groups=groups)


class Writes:
    """The writes of one controller. `manager` is its field manager. Without an auditor nothing is recorded. All raise StatusError."""

    def __init__(self, services: Services, user: User, *, manager: str, auditor: Auditor | None = None) -> None:
        self._services = services
        self._user = user
        self._manager = manager
        self._auditor = auditor

    async def create(self, resource: Resource, obj: Object) -> None:
        """Create an object of a cluster-scoped kind. Raises KeyExists if the name is taken."""
        call = self._call(resource, "create", "", "")
        options = CreateOptions(field_manager=self._manager)
        async with self._recorded(call, 201):
            await create.insert(self._services, call, obj, options, size=0)

    async def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> None:
        call = self._call(resource, "delete", namespace, name)
        async with self._recorded(call, 200):
            await delete.delete_one(self._services, call, name, options, admitted_as=name)

    async def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Object], None],
        *,
        subresource: str = "",
    ) -> None:
        """Apply `change` to the newest state of an object, and again after a conflict. An unchanged object is not written."""
        call = self._call(resource, "patch", namespace, name, subresource=subresource)

        async def changed(live: Entry | None) -> Object:
            assert live is not None  # this change creates nothing
            new = await rendering.patiently(rendering.decoded, resource, live)
            change(new)
            return new

        order = replace.Order(
            name=name,
            change=changed,
            sub=replace.subresource(call),
            options=UpdateOptions(field_manager=self._manager),
            whole=False,
            size=0,
        )
        async with self._recorded(call, 200):
            await replace.replace(self._services, call, order)

    @asynccontextmanager
    async def _recorded(self, call: Call, code: int) -> AsyncIterator[None]:
        auditor, exchange = self._auditor, call.exchange
        record = None
        if auditor is not None:
            origin = Origin(
                audit_id=self._services.new_uid(),
                uri=call.info.path,
                source_ips=[LOOPBACK],
                user_agent=self._manager,
                received=auditor.now(),
            )
            record = auditor.record(call.info, call.user, lambda: origin, exchange.annotations)
        if auditor is None or record is None:
            yield
            return
        if not await record.received():
            auditor.reject()
            raise errors.internal("failed to store audit event")
        try:
            yield
        except StatusError as e:
            await auditor.finish(record.failed(e, shown=True))
            raise
        except KeyExists:
            await auditor.finish(record.succeeded(409))
            raise
        except BaseException:
            auditor.finish(record.left())
            raise
        await auditor.finish(record.succeeded(code))

    def _call(self, resource: Resource, verb: str, namespace: str, name: str, *, subresource: str = "") -> Call:
        prefix = f"apis/{resource.group}" if resource.group else "api"
        inside = ("namespaces", namespace) if namespace else ()
        parts = [part for part in (resource.plural, name, subresource) if part]
        info = RequestInfo(
            "/".join(("", prefix, resource.version, *inside, *parts)),
            verb,
            verb.upper(),
            is_resource=True,
            prefix="apis" if resource.group else "api",
            parts=tuple(parts),
            group=resource.group,
            version=resource.version,
            namespace=namespace,
            resource=resource.plural,
            subresource=subresource,
            name=name,
        )
        store = self._services.stores[resource.storage_name]
        return Call(info=info, user=self._user, resource=resource, store=store, exchange=Internal())
