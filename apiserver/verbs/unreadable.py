"""Stored values that are no objects, where the gate AllowUnsafeMalformedObjectDeletion is on: lists tell which they are, and they are
deleted only by who says that this is meant and may do it. Where it is off they are listed around, and deleted as everything else is.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/delete.go` authorizeUnsafeDelete,
`pkg/registry/generic/registry/corrupt_obj_deleter.go`, `pkg/storage/etcd3/corrupt_obj_deleter.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apiserver.apimachinery import errors, fieldpath
from apiserver.apimachinery.errors import GroupKind, StatusError
from apiserver.apimachinery.options import IGNORE_READ_ERROR
from apiserver.cluster.errors import ClusterError
from apiserver.config import features
from apiserver.storage.store import Write
from apiserver.verbs import attempts, failures, lifecycle, rendering
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry

VERB = "unsafe-delete-ignore-read-errors"
"""What the user must be allowed to do to the object, beside deleting it."""
ANNOTATION = "apiserver.k8s.io/unsafe-delete-ignore-read-error"
MOST_TOLD = 100


def guarded(services: Services) -> bool:
    return services.gates.enabled(features.ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION)


def refusal(call: Call, found: Sequence[Entry]) -> StatusError:
    """Of a list, for the entries that are not readable."""
    causes = [
        {
            "reason": "UnexpectedServerResponse",
            "message": failures.corrupt_text(call.info, entry.key),
            "field": failures.shown_key(call.info, entry.key),
        }
        for entry in found[:MOST_TOLD]
    ]
    if len(found) > MOST_TOLD:
        causes.append({"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"})
    return errors.unreadable(call.resource.group_resource, causes)


async def delete(services: Services, call: Call) -> None:
    """Removes what is stored under the name, which must not be readable. No preconditions, finalizers or admission hold it."""
    call.exchange.annotations.add(ANNOTATION, "")
    await _permit(services, call)
    await attempts.until_settled(
        call, lifecycle.key_of(call, call.info.name), lambda live: _remove(call, live, name=call.info.name)
    )


async def _permit(services: Services, call: Call) -> None:
    """Raises 403 unless the user may do that; an authorizer that cannot be asked has not allowed it."""
    try:
        decision = await services.decide(call.user, replace(call.info, verb=VERB))
    except ClusterError as e:
        why = f'error while checking permission for "{VERB}", {e}'
    else:
        if decision.allowed:
            return
        why = f'not permitted to do "{VERB}", reason: {decision.reason}'
    raise errors.forbidden(call.resource.group_resource, call.info.name, why)


async def _remove(call: Call, live: Entry | None, *, name: str) -> None:
    if live is None or (await rendering.patiently(rendering.remains, call.resource, live))[0].readable:
        kind = GroupKind(call.resource.group, call.resource.plural)
        detail = "is exclusively used to delete corrupt object(s), try again by removing this option"
        raise errors.invalid(kind, name, [fieldpath.invalid(IGNORE_READ_ERROR, value=True, detail=detail)])
    await call.store.commit(Write(live.key, None, live.revision, ""), dry_run=False)
