"""Changes as admission plugins see them, for the tests of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from apiserver import resources
from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.core.views import Views
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.request import Annotations, User, Warnings
from apiserver.cluster.errors import ClusterError
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Object

GROUP = "things.example.com"
SERVED = {f"{GROUP}/v1beta1": "true", f"{GROUP}/v1beta2": "true"}
KINDS = Kinds(resources.RESOURCES, group=GROUP, runtime_config=SERVED)
"""In three versions."""
NOW = 1_800_000_000.0
_METHODS = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}
_OPTIONS: Mapping[str, Any] = {"CREATE": CreateOptions, "UPDATE": UpdateOptions, "DELETE": DeleteOptions}


class Namespaces:
    """Namespaces that the watch has shown, kube-apiserver's answers, and how often it was asked."""

    def __init__(self, known: Mapping[str, Any] | None = None, live: Mapping[str, Any] | None = None) -> None:
        self.known = dict(known or {})
        self.live = dict(live or {})
        self.ready = asyncio.Event()
        self.ready.set()
        self.asked: list[str] = []
        self.error: ClusterError | None = None

    def lookup(self, name: str) -> Mapping[str, Any] | None:
        return self.known.get(name)

    async def ask(self, name: str) -> Mapping[str, Any] | None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.live.get(name)


def labelled(**labels: str) -> Object:
    """An object, or a namespace, with these labels."""
    return {"metadata": {"name": "c", "labels": labels}}


def change(
    operation: Operation = "CREATE",
    *,
    plural: str = "resourceclaims",
    version: str = "v1",
    namespace: str = "ns",
    subresource: str = "",
    name: str = "c",
    new: Object | None = None,
    old: Object | None = None,
    **more: Any,
) -> Attributes:
    """The attributes of a change of an object `c` by default. `more` are further members of the attributes."""
    resource = KINDS.at(GROUP, version, plural)
    assert resource is not None
    inside = f"/namespaces/{namespace}" if resource.namespaced else ""
    path = f"/apis/{GROUP}/{version}{inside}/{plural}" + ("" if operation == "CREATE" else f"/{name or 'c'}")
    head = {"kind": resource.kind, "apiVersion": resource.stored.api_version}
    members: dict[str, Any] = {
        "options": _OPTIONS[operation](),
        "user": User("jane", "1", ("g", "system:authenticated")),
        "warnings": Warnings(),
        "annotations": Annotations(),
        "views": Views(clock=lambda: NOW),
        **more,
    }
    return Attributes(
        operation=operation,
        info=parse(_METHODS[operation], f"{path}/{subresource}" if subresource else path),
        resource=resource,
        name=name,
        object=None if operation == "DELETE" else {**head, **(new if new is not None else labelled())},
        old=None if operation == "CREATE" else {**head, **(old if old is not None else labelled())},
        **members,
    )
