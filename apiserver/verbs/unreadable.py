"""Handle stored values that cannot be decoded.

* Gate AllowUnsafeMalformedObjectDeletion on: lists name them. A client deletes one only with the option for it and the permission.
* Gate off: lists skip them, and an ordinary deletion removes them.

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
"""The verb that the user must be allowed on the object, besides delete."""
ANNOTATION = "apiserver.k8s.io/unsafe-delete-ignore-read-error"
MOST_SHOWN = 100


def guarded(services: Services) -> bool:
    return services.gates.enabled(features.ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION)


def refusal(call: Call, found: Sequence[Entry]) -> StatusError:
    """Return the error of a list for the entries that are not readable."""
    causes = [
        {
            "reason": "UnexpectedServerResponse",
            "message": failures.corrupt_text(call.info, entry.key),
            "field": failures.shown_key(call.info, entry.key),
        }
        for entry in found[:MOST_SHOWN]
    ]
    if len(found) > MOST_SHOWN:
        causes.append({"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"})
    return errors.unreadable(call.resource.group_resource, causes)


async def delete(services: Services, call: Call) -> None:
    """Remove the value stored under the name, which must be unreadable. Preconditions, finalizers and admission do not apply."""
    call.exchange.annotations.add(ANNOTATION, "")
    await _permit(services, call)
    await attempts.until_done(
        call, lifecycle.key_of(call, call.info.name), lambda live: _remove(call, live, name=call.info.name)
    )


async def _permit(services: Services, call: Call) -> None:
    """Raise 403 unless the user has the permission. An authorizer that cannot be reached does not give it."""
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
