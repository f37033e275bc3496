"""What has to be asked before a change may be stored, beyond the request that was authorized: what else its user may do, and the labels of
its namespace as they are now. Knows no kind: a subresource declares what a change of it requires, and a hook asks for the labels.

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
"""Questions of one write that are under way together."""
IN_VAIN = 64
"""Of a write that is refused anyway, so many permissions are asked about, and told: a kube-apiserver that answers for itself asks about
all, but here a question is a request."""
LONGEST = 1024
"""Characters of a name that may be asked about in vain."""

Refused = Mapping[Permission, str]
"""Why the user may not, for each permission that is not given."""
NONE_REFUSED: Refused = {}


def worth_asking(required: Iterable[FieldError | Permission]) -> Iterator[FieldError | Permission]:
    """What of it is asked about although the write is refused anyway."""
    short = (item for item in required if isinstance(item, FieldError) or len(item.name) <= LONGEST)
    return itertools.islice(short, IN_VAIN)


async def refused(services: Services, call: Call, required: Sequence[Permission]) -> Refused:
    """What of it the user is not allowed. An authorizer that cannot be asked has not allowed anything, and its error is the reason."""
    found: dict[Permission, str] = {}
    for start in range(0, len(required), AT_ONCE):
        batch = required[start : start + AT_ONCE]
        reasons = await asyncio.gather(*(_why_not(services, call, permission) for permission in batch))
        found |= {permission: why for permission, why in zip(batch, reasons, strict=True) if why is not None}
    return found


async def _why_not(services: Services, call: Call, permission: Permission) -> str | None:
    """None when one of the verbs is allowed, else the refusal of the first."""
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


def told(required: Iterable[FieldError | Permission], refused: Refused) -> Iterator[FieldError]:
    """What is told of what a change requires: the errors, and the permissions that were refused."""
    for item in required:
        if isinstance(item, FieldError):
            yield item
        elif item in refused:
            yield fieldpath.forbidden(item.path, f"{item.text}{refused[item]}")


class NamespaceLabels:
    """The labels of one namespace for the hooks of one write: first as the copy has them, once `refresh` was called as they are now.

    A copy is a moment old. Whoever just put a label on a namespace is not told that it is missing, and nobody profits from one that is
    gone: what was judged by them is judged again if they are others now.
    """

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name
        self._known: Mapping[str, str] | LookupError | None = None
        self.asked = False
        """Whether a hook has asked."""

    def __call__(self) -> Mapping[str, str] | None:
        if not self.asked:
            self._known, self.asked = self._services.namespace_labels(self._name), True
        if isinstance(self._known, LookupError):
            raise self._known
        return self._known

    async def refresh(self) -> bool:
        """Whether they are others than those that the hooks were told."""
        told = self._known
        try:
            self._known = await self._services.newest_labels(self._name)
        except ClusterError as e:
            self._known = LookupError(str(e))
        return self._known != told
