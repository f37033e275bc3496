"""The attributes of a proposed change, as admission plugins see it.

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
    """The state of reinvocation. A mutating plugin that sets `wanted` has all of them run once more, with `again` set.

    `values` is what a plugin keeps from the first run for the second, by its name.
    """

    again: bool = False
    wanted: bool = False
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Attributes:
    """The attributes of one change. `verbs/admit.py` makes them, anew in every round of a write.

    * `object`, `old`: the new and the stored object, complete with kind, apiVersion and defaults, in the stored version. `old` is None
      on CREATE, `object` on DELETE. They must not be changed in place.
    * `options`: those of the operation. A PATCH has UpdateOptions, or CreateOptions if it creates.
    * `name`: empty while a name is still to be generated, and for the objects of a deletecollection.
    * `user`: the user who acts, after impersonation.
    * `warnings`, `annotations`: those of the request.
    * `resource`: the version that the request named.
    * `until`: when the request ends, by the event loop's clock.
    * `views`: `object` and `old` in other forms.
    * `submitted`: the new object before any plugin replaced it.
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
        """The request's namespace; empty for cluster-scoped objects."""
        return self.info.namespace if self.resource.namespaced else ""

    @property
    def subresource(self) -> str:
        return self.info.subresource

    def become(self, obj: Object | None) -> None:
        """Replace the new object. If the last one is large, its other forms are dropped."""
        if self.object is not None and self.object is not obj:
            self.views.leave(self.object)
        self.object = obj

    def annotate(self, key: str, value: str, level: Level = Level.METADATA) -> None:
        """Add an audit annotation with the key `prefix/name`. The first value of a key stays.

        Raises ValueError for an invalid key.
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
    """Make the 403 of an admission plugin, with the best available name (kubernetes/apiserver `pkg/admission/errors.go`)."""
    metadata = attributes.object["metadata"] if attributes.object is not None else {}
    name = attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return errors.forbidden(attributes.resource.group_resource, name, why)
