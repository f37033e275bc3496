"""Writes that a controller of this process makes: by the verbs that clients use, so that admission and managedFields see them."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.request import RequestInfo, User
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import create, delete, rendering, replace
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry
from apiserver.wire.response import Internal


def service_account(name: str) -> User:
    """The user of a controller's service account, by the name of the user."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
    return User(name, groups=groups)


class Writes:
    """The writes of one controller. `manager` is its field manager. All raise StatusError."""

    def __init__(self, services: Services, user: User, *, manager: str) -> None:
        self._services = services
        self._user = user
        self._manager = manager

    async def create(self, resource: Resource, obj: Object) -> None:
        """Creates an object of a kind without namespaces. Raises KeyExists when there is one of that name."""
        call = self._call(resource, "create", "", "")
        options = CreateOptions(field_manager=self._manager)
        await create.insert(self._services, call, obj, options, size=0)

    async def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> None:
        call = self._call(resource, "delete", namespace, name)
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
        """Lets `change` alter the newest state of an object, again when somebody else was faster. Where it alters nothing, nothing is
        written."""
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
        await replace.replace(self._services, call, order)

    def _call(self, resource: Resource, verb: str, namespace: str, name: str, *, subresource: str = "") -> Call:
        info = RequestInfo(
            "",
            verb,
            verb.upper(),
            is_resource=True,
            prefix="apis" if resource.group else "api",
            group=resource.group,
            version=resource.version,
            namespace=namespace,
            resource=resource.plural,
            subresource=subresource,
            name=name,
        )
        store = self._services.stores[resource.storage_name]
        return Call(info=info, user=self._user, resource=resource, store=store, exchange=Internal())
