"""Handle stored values that cannot be decoded.

* Gate AllowUnsafeMalformedObjectDeletion on: lists name them. A client deletes one only with the option for it and the permission.
* Gate off: lists skip them, and an ordinary deletion removes them.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/delete.go` authorizeUnsafeDelete,
`pkg/registry/generic/registry/corrupt_obj_deleter.go`, `pkg/storage/etcd3/corrupt_obj_deleter.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from apiserver.apimachinery import errors, fieldpath
from apiserver.apimachinery.errors import GroupKind, StatusError
from apiserver.apimachinery.options import IGNORE_READ_ERROR
from apiserver.apimachinery.releases import V1_37, at, since
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


class Report(NamedTuple):
    """How a list reports unreadable objects: what its message says besides the usual words, and the number of objects from which it says
    that there are too many."""

    summary: Callable[[Sequence[Mapping[str, str]]], str]
    too_many: int


def _first_and_count(causes: Sequence[Mapping[str, str]]) -> str:
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return f": {causes[0]['message']}{more}"


REPORT = since(
    V1_37,
    Report(_first_and_count, too_many=MOST_SHOWN),
    before=Report(lambda _: "", too_many=MOST_SHOWN + 1),
    what="the message of a list with unreadable objects has the first one and their number",
)


def report(services: Services) -> Report | None:
    """Return how lists report unreadable objects, None if they skip them."""
    return at(services.gates.release, REPORT) if guarded(services) else None


def refusal(call: Call, found: Sequence[Entry], report: Report) -> StatusError:
    """Return the error of a list for the entries that are not readable."""
    causes = [
        {
            "reason": "UnexpectedServerResponse",
            "message": failures.corrupt_text(call.info, entry.key),
            "field": failures.shown_key(call.info, entry.key),
        }
        for entry in found[:MOST_SHOWN]
    ]
    why = report.summary(causes)
    if len(found) >= report.too_many:
        causes.append({"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"})
    return errors.unreadable(call.resource.group_resource, causes, why=why)


async def delete(services: Services, call: Call, *, dry_run: bool) -> None:
    """Remove the value stored under the name, which must be unreadable, or cannot be converted. Preconditions, finalizers and admission do
    not apply."""
    call.exchange.annotations.add(ANNOTATION, "")
    await _permit(services, call)
    refused = at(services.gates.release, NOT_UNREADABLE)

    async def remove(live: Entry | None) -> None:
        if live is None or await _is_readable(call, live):
            raise refused(call, live)
        await call.store.commit(Write(live.key, None, live.revision, ""), dry_run=dry_run)

    await attempts.until_done(call._replace(converter=None), lifecycle.key_of(call, call.info.name), remove)


async def _is_readable(call: Call, live: Entry) -> bool:
    if call.converter is not None:
        try:
            live = await call.converter.entry(live)
        except StatusError:
            return False
    return (await rendering.patiently(rendering.remains, call.resource, live))[0].readable


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


def _not_unreadable(call: Call, live: Entry | None) -> StatusError:
    """Return the error for an object that is missing or readable, from 1.37 on."""
    if live is None:
        return errors.not_found(call.resource.group_resource, call.info.name)
    why = "unsafe deletion is not allowed because the object is decodable from storage"
    root = "" if call.resource.custom is None else "/registry"
    where = f"Key: {root}{failures.shown_key(call.info, live.key)}, ResourceVersion: 0"
    text = f"StorageError: invalid object, Code: 4, {where}, AdditionalErrorMsg: {why}"
    return errors.conflict(call.resource.group_resource, call.info.name, text)


def _not_unreadable_1_36(call: Call, _: Entry | None) -> StatusError:
    kind = GroupKind(call.resource.group, call.resource.plural)
    detail = "is exclusively used to delete corrupt object(s), try again by removing this option"
    return errors.invalid(kind, call.info.name, [fieldpath.invalid(IGNORE_READ_ERROR, value=True, detail=detail)])


NOT_UNREADABLE = since(
    V1_37,
    _not_unreadable,
    before=_not_unreadable_1_36,
    what="unsafe deletion of a readable object is a conflict, that of a missing one is 404",
)
