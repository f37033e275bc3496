"""Check what a change requires beyond the authorized request: further permissions of its user, and the present labels of its namespace.

Knows no kind: a subresource declares what a change of it requires, and a hook asks for the labels.
Upstream: kubernetes/kubernetes `pkg/registry/resource/utils.go`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.cluster.errors import ClusterError
from apiserver.schema.resource import Permission
from apiserver.verbs.context import Call, Services

AT_ONCE = 8
"""Permissions of one write that are checked at the same time."""
IN_VAIN = 64
"""Permissions that are checked and reported for a write that is refused anyway. kube-apiserver checks all of them, because it is its own
authorizer; here each check is a request."""
LONGEST = 1024
"""Longest name, in characters, that is checked for such a write."""

Refused = Mapping[Permission, str]
"""The reason of the authorizer, for each refused permission."""
NONE_REFUSED: Refused = {}


def worth_asking(required: Iterable[FieldError | Permission]) -> Iterator[FieldError | Permission]:
    """Yield the requirements that are checked although the write is refused anyway."""
    short = (item for item in required if isinstance(item, FieldError) or len(item.name) <= LONGEST)
    return itertools.islice(short, IN_VAIN)


async def refused(services: Services, call: Call, required: Sequence[Permission]) -> Refused:
    """Return the permissions that the user does not have. An authorizer that cannot be reached allows nothing, and its error is the
    reason."""
    found: dict[Permission, str] = {}
    for start in range(0, len(required), AT_ONCE):
        batch = required[start : start + AT_ONCE]
        reasons = await asyncio.gather(*(_why_not(services, call, permission) for permission in batch))
        found |= {permission: why for permission, why in zip(batch, reasons, strict=True) if why is not None}
    return found


async def _why_not(services: Services, call: Call, permission: Permission) -> str | None:
    """Return None if one of the verbs is allowed, otherwise the refusal of the first."""
    first: str | None = None
    for verb in permission.verbs:
        info = dataclasses.replace(
            call.info,
            verb=verb,
            namespace=call.info.namespace if permission.namespaced else "",
            subresource=permission.subresource,
            name=permission.name,
        )
        why = await services.why_not(call.user, info)
        if why is None:
            return None
        first = first or why
    return first


def errors_of(required: Iterable[FieldError | Permission], refused: Refused) -> Iterator[FieldError]:
    """Yield the errors of a change: its field errors, and one for each permission that was refused."""
    for item in required:
        if isinstance(item, FieldError):
            yield item
        elif item in refused:
            yield fieldpath.forbidden(item.path, f"{item.text}{refused[item]}")


class NamespaceLabels:
    """The labels of one namespace for the hooks of one write: first from the cache, after `refresh` the newest.

    A cache is a moment old. So a client that just added a label gets no error about it, and nobody profits from a removed label: the write
    is judged again if the labels differ.
    """

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name
        self._known: Mapping[str, str] | LookupError | None = None
        self.asked = False
        """Whether a hook has asked for the labels."""

    def __call__(self) -> Mapping[str, str] | None:
        if not self.asked:
            self._known, self.asked = self._services.namespace_labels(self._name), True
        if isinstance(self._known, LookupError):
            raise self._known
        return self._known

    async def refresh(self) -> bool:
        """Read the labels anew. Return whether they differ from those that the hooks got."""
        former = self._known
        try:
            self._known = await self._services.newest_labels(self._name)
        except ClusterError as e:
            self._known = LookupError(str(e))
        return self._known != former
