"""OwnerReferencesPermissionEnforcement: check the rights that new owner references amount to.

An object with an owner is deleted with it. So a user who gives a stored object an owner must be allowed to delete it. An owner may have
to wait for a dependent before it is deleted. So a user who asks for that must be allowed to set the owner's finalizers. Off by default,
as upstream. Upstream: kubernetes/kubernetes `plugin/pkg/admission/gc/gc_admission.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from apiserver.admission.core.attributes import Attributes, Operation, forbidden
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError, NoSuchKind
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Object

Reference = Mapping[str, Any]


class Found(Protocol):
    """The collection of a kind."""

    @property
    def path(self) -> str:
        """The path of the collection in all namespaces."""

    @property
    def namespaced(self) -> bool: ...


class Mapper(Protocol):
    async def collection(self, api_version: str, kind: str) -> Found:
        """Return the collection of a kind. Raises NoSuchKind, ClusterError."""


class OwnerReferencesPermissionEnforcement:
    """`decide` authorizes a user's request, `kinds` are Sluice's, and `mapper` knows all others; None if there are no others."""

    operations: Collection[Operation] = ("CREATE", "UPDATE")

    def __init__(
        self, decide: Callable[[User, RequestInfo], Awaitable[Decision]], kinds: Kinds, mapper: Mapper | None
    ) -> None:
        self._decide = decide
        self._kinds = kinds
        self._mapper = mapper

    async def validate(self, attributes: Attributes) -> None:
        """Check new owner references. Raises 403."""
        new, old = _references(attributes.object), _references(attributes.old)
        if new == old:
            return
        if attributes.operation != "CREATE":
            why = await self._why_not(attributes, _deletion(attributes))
            if why is not None:
                raise forbidden(attributes, f"cannot set an ownerRef on a resource you can't delete: {why}")
        blocking = list(_newly_blocking(new, old))
        if not blocking or await self._why_not(attributes, _EVERY_FINALIZER) is None:
            return
        for reference in blocking:
            info = await self._finalizers(attributes, reference)
            why = await self._why_not(attributes, info)
            if why is not None:
                text = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
                raise forbidden(attributes, f"{text}: {why}")

    async def _why_not(self, attributes: Attributes, info: RequestInfo) -> str | None:
        """Return None if the user may do it, else the reason and the error as Go prints them."""
        try:
            decision = await self._decide(attributes.user, info)
        except ClusterError as error:
            return f", {error}"
        return None if decision.allowed else f"{decision.reason}, <nil>"

    async def _finalizers(self, attributes: Attributes, reference: Reference) -> RequestInfo:
        """Describe an update of the owner's finalizers. A namespaced owner is in the namespace of its dependent."""
        api_version, kind = reference["apiVersion"], reference["kind"]
        group, _, version = api_version.rpartition("/")
        ours = self._kinds.named(group, version, kind)
        if ours is not None:
            plural, namespaced = ours.plural, ours.namespaced
        else:
            try:
                if self._mapper is None:
                    raise NoSuchKind(f'no matches for kind "{kind}" in version "{api_version}"')
                found = await self._mapper.collection(api_version, kind)
            except (NoSuchKind, ClusterError) as error:
                text = f"cannot find RESTMapping for APIVersion {api_version} Kind {kind}"
                raise forbidden(
                    attributes, f"cannot set blockOwnerDeletion in this case because {text}: {error}"
                ) from None
            plural, namespaced = found.path.rpartition("/")[2], found.namespaced
        return RequestInfo(
            path="",
            verb="update",
            method="",
            is_resource=True,
            group=group,
            version=version,
            namespace=attributes.namespace if namespaced else "",
            resource=plural,
            subresource="finalizers",
            name=reference["name"],
        )


_EVERY_FINALIZER = RequestInfo(
    path="",
    verb="update",
    method="",
    is_resource=True,
    group="*",
    version="*",
    resource="*",
    subresource="finalizers",
    name="*",
)
"""A user with this right needs no check for each owner, and no wait for discovery."""


def _deletion(attributes: Attributes) -> RequestInfo:
    resource = attributes.resource
    return RequestInfo(
        path="",
        verb="delete",
        method="",
        is_resource=True,
        group=resource.group,
        version=resource.version,
        namespace=attributes.namespace,
        resource=resource.plural,
        subresource=attributes.subresource,
        name=attributes.name,
    )


def _references(obj: Object | None) -> list[Reference]:
    return (obj["metadata"].get("ownerReferences") or []) if obj is not None else []


def _newly_blocking(new: list[Reference], old: list[Reference]) -> Iterator[Reference]:
    """Yield each new blocking reference once, by what is asked about it."""
    before = {reference["uid"]: reference.get("blockOwnerDeletion") for reference in old}
    seen = set()
    for reference in new:
        owner = reference["apiVersion"], reference["kind"], reference["name"]
        if reference.get("blockOwnerDeletion") and not before.get(reference["uid"]) and owner not in seen:
            seen.add(owner)
            yield reference
