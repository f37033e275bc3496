"""Run the admission step of create, update and delete: show a change to the plugins, and return what they make of it.

Upstream: kubernetes/apiserver `pkg/registry/rest/{create,update,delete}.go` (AdmissionToValidateObjectFunc and its siblings),
`pkg/endpoints/handlers/{create,update,patch,delete}.go`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.core.views import Views
from apiserver.apimachinery import errors
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.conversion.converter import Conversions
from apiserver.conversion.review import Failed
from apiserver.runtime.offload import CHANGE, run_sized
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from apiserver.verbs.context import Call, Services

if TYPE_CHECKING:
    from apiserver.verbs.replace import Part


class Step:
    """Admission of one change in one round: first `mutate`, then `validate`, or `delete` alone. Costs nothing without plugins."""

    def __init__(
        self,
        services: Services,
        call: Call,
        *,
        operation: Operation,
        options: CreateOptions | UpdateOptions | DeleteOptions,
        name: str,
        old: Object | None,
        size: int,
        part: Part | None = None,
    ) -> None:
        """`size` is about how many bytes the object has. `part`: plugins see a part of the object."""
        self._chain = services.admission
        self._managers = services.managers
        self._call = call
        self._operation = operation
        self._options = options
        self._name = name
        self._old = old
        self._size = size
        self._part = part
        self._now = services.now
        self._attributes: Attributes | None = None
        self._conversions = services.conversions

    async def mutate(self, obj: Object) -> Object:
        """Return a new object as the mutating plugins change it. No manager owns their changes. Unreadable managedFields are restored."""
        if not self._chain.mutating:
            return obj
        attributes = self._of(obj)
        shown = attributes.submitted = attributes.object
        await self._chain.admit(attributes)
        attributes.views.let_go()
        made = attributes.object
        if made is None or made is shown:
            return obj
        replaced = {name: value for name, value in made.items() if name not in ("kind", "apiVersion")}
        if self._part is not None:
            return self._part.merged(obj, replaced)
        size = max(self._size, lifecycle.estimated(replaced))
        await run_sized(CHANGE, size, self._managers.readmitted, replaced, obj, self._call.exchange.warnings)
        lifecycle.set_namespace(self._call, replaced)
        return replaced

    async def validate(self, obj: Object) -> None:
        """Show the object to the validating plugins, as it would be stored and under its final name."""
        if self._chain.validating:
            await self._chain.validate(self._of(obj))

    async def delete(self) -> None:
        """Run both for a deletion: plugins cannot replace an object here."""
        if self._chain.mutating or self._chain.validating:
            attributes = self._of(None)
            await self._chain.admit(attributes)
            await self._chain.validate(attributes)

    def _of(self, obj: Object | None) -> Attributes:
        attributes, shown = self._attributes, self._shown(obj)
        if attributes is None:
            call = self._call
            attributes = self._attributes = Attributes(
                operation=self._operation,
                options=self._options,
                info=call.info,
                user=call.user,
                resource=call.resource if self._part is None else self._part.resource,
                name=self._name,
                object=shown,
                old=self._shown(self._old),
                warnings=call.exchange.warnings,
                annotations=call.exchange.annotations,
                until=call.exchange.until,
                waits=call.exchange.waits,
                views=self._views(),
            )
        attributes.become(shown)
        attributes.name = self._name or ("" if obj is None else obj["metadata"].get("name", ""))
        return attributes

    def _views(self) -> Views:
        """Return views that do not refer to this step: a reference cycle would keep the object until the next garbage collection."""
        convert = partial(_converted, self._conversions, self._call.resource)
        restore = partial(_restored, self._conversions, self._call.resource)
        return Views(size=self._size, clock=self._now, convert=convert, restore=restore)

    def _shown(self, obj: Object | None) -> Object | None:
        if obj is None:
            return None
        resource = self._call.resource.hub
        if self._part is not None:
            obj, resource = self._part.shown(obj), self._part.resource
        return {"kind": resource.kind, "apiVersion": resource.api_version, **obj}


async def _converted(conversions: Conversions, source: Resource, members: Object, target: Resource) -> Object:
    try:
        made = await conversions.typed(source, target, members)
    except Failed as e:
        raise errors.internal(str(e)) from e
    return {name: x for name, x in made.items() if name not in ("apiVersion", "kind")}


async def _restored(conversions: Conversions, target: Resource, members: Object, source: Resource) -> Object:
    return await _converted(conversions, source, members, target)
