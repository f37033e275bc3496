"""A proposed change, as every admission plugin sees it.

Upstream: kubernetes/apiserver `pkg/admission/{interfaces,attributes,audit}.go`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from apiserver.admission.core.views import Views
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.request import Annotations, Level, RequestInfo, User, Waits, Warnings
from apiserver.schema.resource import Object, Resource
from kubetext import names

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(slots=True)
class Reinvocation:
    """What mutating plugins know of being asked twice. One that sets `wanted` has all of them asked once more, with `again` set.

    `values` is what a plugin keeps from the first time for the second, by its name.
    """

    again: bool = False
    wanted: bool = False
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Attributes:
    """Made in one place (`verbs/admit.py`), anew in every round of a write.

    `object` is the new object and `old` the stored one, complete with kind, apiVersion and defaults, in the version in which it is stored:
    None where there is none (`old` on CREATE, `object` on DELETE). Nobody changes them in place. `options` are those of the operation: a
    PATCH has UpdateOptions, or CreateOptions where it creates. `name` is empty while a name is still to be generated, and for the objects
    of a deletecollection. `user` is who acts, after impersonation. `warnings` and `annotations` are the request's. `resource` is the
    version that the request named. `until` is when the request is over, by the event loop's clock. `views` show `object` and `old` in
    other forms. `submitted` is the new object as it was before any plugin replaced it.
    """

    operation: Operation
    options: CreateOptions | UpdateOptions | DeleteOptions
    info: RequestInfo
    user: User
    resource: Resource
    name: str
    object: Object | None
    old: Object | None
    warnings: Warnings
    annotations: Annotations
    until: float = math.inf
    submitted: Object | None = None
    reinvocation: Reinvocation = field(default_factory=Reinvocation)
    views: Views = field(default_factory=Views)
    waits: Waits = field(default_factory=Waits)

    @property
    def dry_run(self) -> bool:
        return self.options.dry_run

    @property
    def namespace(self) -> str:
        """The request's; empty for what is in none."""
        return self.info.namespace if self.resource.namespaced else ""

    @property
    def subresource(self) -> str:
        return self.info.subresource

    def become(self, obj: Object | None) -> None:
        """From now on this is the new object. Of a large one before it no other forms stay."""
        if self.object is not None and self.object is not obj:
            self.views.leave(self.object)
        self.object = obj

    def annotate(self, key: str, value: str, level: Level = Level.METADATA) -> None:
        """A note for whoever records the request, under `prefix/name`. The first value of a key stays.

        Raises ValueError for a key of another form.
        """
        if key.count("/") != 1:
            raise ValueError(
                "annotation key has invalid format, the right format is a DNS subdomain prefix and '/' and key name. "
                "(e.g. 'podsecuritypolicy.admission.k8s.io/admit-policy')"
            )
        if wrong := names.label_key(key):
            raise ValueError(f"annotation key name {key!r} has invalid format: {', '.join(wrong)}")
        self.annotations.add(key, value, level)


def forbidden(attributes: Attributes, why: str) -> StatusError:
    """403 of an admission plugin, with the best name that there is (kubernetes/apiserver `pkg/admission/errors.go`)."""
    metadata = attributes.object["metadata"] if attributes.object is not None else {}
    name = attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return errors.forbidden(attributes.resource.group_resource, name, why)
