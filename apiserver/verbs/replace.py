"""One round of PUT and PATCH: live -> change -> own -> admit -> validate -> admit -> commit if the revision is still the same.

A value that is the present one is not written.
Upstream: kubernetes/apiserver `pkg/registry/generic/registry/store.go` Update.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apiserver.apimachinery import errors, options
from apiserver.apimachinery.options import UpdateOptions
from apiserver.schema.resource import Object, Subresource
from apiserver.storage.errors import Moved
from apiserver.storage.store import Write
from apiserver.verbs import admit, attempts, lifecycle, rendering
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry, Key, splice

ChangeFunction = Callable[[Entry], Awaitable[Object]]
"""`live -> new`, pure, and called again on every round; awaited because a large one is computed in a thread. The caller owns the
result. A PUT does not look at what is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one PUT or PATCH wants done. `preconditioned` makes a foreign uid in the new object a 409, as PUT does."""

    name: str
    change: ChangeFunction
    sub: Subresource | None
    options: UpdateOptions
    preconditioned: bool


def subresource(call: Call) -> Subresource | None:
    """The subresource that this request writes, None for the main endpoint."""
    return call.resource.subresource(call.info.subresource) if call.info.subresource else None


async def replace(services: Services, call: Call, order: Order) -> bytes:
    """The body of the object as it is then (or would be). Raises StatusError."""
    key = lifecycle.key_of(call, order.name)
    return await attempts.until_settled(call, key, lambda live: _round(services, call, order, live))


async def _round(services: Services, call: Call, order: Order, live: Entry | None) -> bytes:
    if live is None:
        raise rendering.gone(call, order.name)
    resource, warnings = call.resource.stored, call.exchange.warnings
    old = rendering.decoded(live)
    new = await order.change(live)
    if order.preconditioned:
        _check_uid(call, live.key, new, old)
    await lifecycle.dedup_owners(new, warnings, after_admission=False)
    step = admit.Step(services, call, operation="UPDATE", options=order.options, name=order.name, old=old)
    new = await step.mutate(new)
    await lifecycle.dedup_owners(new, warnings, after_admission=True)
    _check_version(call, order.name, new, live)
    await lifecycle.check_update(services, call, new, old, sub=order.sub)
    await step.validate(new)
    value = await lifecycle.encoded(resource, new)
    if _finished(new, old):
        return await _remove(call, order, live, value)
    write = Write(live.key, value, live.revision, old["metadata"]["uid"])
    return (await call.store.commit(write, dry_run=order.options.dry_run)).body


def _check_uid(call: Call, key: Key, new: Object, old: Object) -> None:
    stated, stored = new["metadata"].get("uid", ""), old["metadata"]["uid"]
    if stated and stated != stored:
        raise errors.conflict(
            call.resource.group_resource,
            call.info.name,
            f"StorageError: invalid object, Code: 4, Key: /{call.store.resource}/{key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {stated}, UID in object meta: {stored}",
        )


def _check_version(call: Call, name: str, new: Object, live: Entry) -> None:
    """A version that the request names must be the stored one, in every round; none (or 0) is an unconditional write."""
    text = new["metadata"].get("resourceVersion", "")
    try:
        stated = options.parse_revision(text) or 0
    except ValueError as e:
        raise errors.raw(str(e)) from e
    if not stated:
        new["metadata"]["resourceVersion"] = str(live.revision)
    elif stated != live.revision:
        raise errors.conflict(call.resource.group_resource, name, errors.MODIFIED)


def _finished(new: Object, old: Object) -> bool:
    """The last finalizer of a deleting object is gone."""
    metadata, stored = new["metadata"], old["metadata"]
    return (
        "deletionTimestamp" in stored
        and not metadata.get("finalizers")
        and not stored.get("deletionGracePeriodSeconds")
    )


async def _remove(call: Call, order: Order, live: Entry, value: bytes) -> bytes:
    """Deletes instead of updating; the answer is the object as submitted. A concurrent winner is not an error."""
    write = Write(live.key, None, live.revision, "")
    try:
        await call.store.commit(write, dry_run=order.options.dry_run)
    except Moved as e:
        if e.entry is not None:
            raise
    return splice(value, live.revision)
