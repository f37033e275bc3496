"""Run one round of PUT and PATCH: live -> change -> set managers -> admit -> validate -> admit -> commit if the revision is unchanged.

A new value equal to the stored one is not written, unless a server of another release stored it. Neither is one that only has later times
in managedFields. A patch that creates handles an absent object as a POST does. If another client creates it first, the next round works on
that object.
Upstream: kubernetes/apiserver `pkg/registry/generic/registry/store.go` Update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from apiserver.apimachinery import errors, fieldpath, options
from apiserver.apimachinery.errors import GroupKind
from apiserver.apimachinery.options import UpdateOptions
from apiserver.codecs.objects import canonical
from apiserver.runtime import spans
from apiserver.runtime.offload import READ_STORED, run_sized
from apiserver.runtime.spans import Span
from apiserver.schema.resource import Object, Resource, Subresource
from apiserver.storage.errors import Moved, TooBig
from apiserver.storage.store import Write
from apiserver.verbs import admit, attempts, create, lifecycle, ownership, rendering
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry, Key, splice

ChangeFunction = Callable[[Entry | None], Awaitable[Object]]
"""`live -> new`, pure, and called again on every round. It is awaited because a large change is computed in a thread. The caller owns the
result. A PUT ignores the stored object."""


class Part(NamedTuple):
    """The object for admission in place of the whole one: `shown(obj)`, of the kind `resource`. `merged(obj, part)` takes a changed one
    back."""

    resource: Resource
    shown: Callable[[Object], Object]
    merged: Callable[[Object, Object], Object]


class Order(NamedTuple):
    """One PUT or PATCH.

    * `whole`: the new object is what was sent, as in PUT, and a foreign uid in it is a 409.
    * `size` is about how many bytes the change has.
    * `creates`: an absent object is created.
    * `owned`: the change sets managedFields itself.
    * `part`: admission sees a part of the object.
    """

    name: str
    change: ChangeFunction
    sub: Subresource | None
    options: UpdateOptions
    whole: bool
    size: int
    creates: bool = False
    owned: bool = False
    part: Part | None = None


class Outcome(NamedTuple):
    """The value that the object then has (or would have), with its resourceVersion, and whether it is new."""

    value: bytes
    created: bool = False


def subresource(call: Call) -> Subresource | None:
    """Return the subresource that this request writes; None for the main endpoint."""
    return call.resource.subresource(call.info.subresource) if call.info.subresource else None


async def replace(services: Services, call: Call, order: Order) -> Outcome:
    """Change the stored object. Raises StatusError."""
    key = lifecycle.key_of(call, order.name)
    return await attempts.until_done(call, key, lambda live: _round(services, call, order, live))


async def _round(services: Services, call: Call, order: Order, live: Entry | None, *, tracked: bool = True) -> Outcome:
    """Run one round. If the object with managedFields is too large for the store, run another without them (not `tracked`)."""
    if live is None:
        return await _create(services, call, order)
    resource, warnings = call.resource.hub, call.exchange.warnings
    size = order.size + live.size
    old = await rendering.patiently(rendering.decoded, resource, live)
    new = await order.change(live)
    call.exchange.hold(old, new, size=size)
    if order.whole:
        _check_uid(call, live.key, new, old)
    tracked = tracked and (order.owned or not await lifecycle.exceeds(call, new, size=size))
    if tracked and not order.owned:
        new = await ownership.owned(services, call, new, old, manager=order.options.field_manager, size=size)
    step = admit.Step(
        services, call, operation="UPDATE", options=order.options, name=order.name, old=old, size=size, part=order.part
    )
    new = await step.mutate(new)
    call.exchange.hold(new, step, size=size)
    if not tracked:
        new["metadata"].pop("managedFields", None)
    await lifecycle.dedup_owners(new, warnings, after_admission=True)
    _check_version(call, order.name, new, live)
    stored_size = await lifecycle.check(services, call, new, old, size=size, sub=order.sub, judged=live.judged)
    await ownership.keep_times(resource, new, old, size=size)
    await step.validate(new)
    if _finished(new, old) and not resource.lingers(new):
        return await _remove(call, order, live, await lifecycle.encoded(resource, new, size=stored_size))
    if not order.options.dry_run:
        lifecycle.drop_unstored(new)
    if not live.adopted and await run_sized(READ_STORED, live.size, canonical.same, resource.shape, new, old):
        with _storing(call, live):
            return Outcome((await call.store.confirm(live)).value)
    try:
        value = await lifecycle.to_store(call, new, size=stored_size)
        write = Write(live.key, value, live.revision, old["metadata"]["uid"])
        with _storing(call, live):
            entry = await attempts.commit(call, write, dry_run=order.options.dry_run)
    except TooBig:
        if order.owned or not tracked:
            raise
        return await _round(services, call, order, live, tracked=False)
    entry.judged = order.sub is None and not call.resource.converted
    return Outcome(entry.value)


def _storing(call: Call, live: Entry) -> Span:
    """Begin the span of a write."""
    return spans.span("GuaranteedUpdate redis", lambda: call.storing(live.key))


async def _create(services: Services, call: Call, order: Order) -> Outcome:
    if not order.creates:
        raise rendering.not_found(call, order.name)
    new = await order.change(None)
    _version(new)
    if not order.options.dry_run:
        new["metadata"].pop("resourceVersion", None)
    info = dataclasses.replace(call.info, verb="create")
    made = await create.insert(
        services,
        call,
        new,
        order.options.as_create(),
        size=order.size,
        owned=order.owned,
        allowed=lambda: services.allowed(call.user, info),
    )
    return Outcome(made, created=True)


def _check_uid(call: Call, key: Key, new: Object, old: Object) -> None:
    stated, stored = new["metadata"].get("uid", ""), old["metadata"]["uid"]
    if stated and stated != stored:
        root = "" if call.resource.custom is None else "/registry"
        raise errors.conflict(
            call.resource.group_resource,
            call.info.name,
            f"StorageError: invalid object, Code: 4, Key: {root}/{call.store.resource}/{key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {stated}, UID in object meta: {stored}",
        )


def _version(new: Object) -> int:
    """Return the version that the request names, or 0. Raises StatusError for text that is not a number, even where the version is
    ignored."""
    try:
        return options.parse_revision(new["metadata"].get("resourceVersion", "")) or 0
    except ValueError as e:
        raise errors.raw(str(e)) from e


def _check_version(call: Call, name: str, new: Object, live: Entry) -> None:
    """Raise 409 unless the version that the request names is the stored one, in every round. No version (or 0) is an unconditional
    write, which some kinds refuse with 422: the error has the kind's plural in place of its name, as upstream."""
    stated = _version(new)
    if not stated and call.resource.needs_version:
        text = "must be specified for an update"
        kind = GroupKind(call.resource.group, call.resource.plural)
        raise errors.invalid(kind, name, [fieldpath.invalid("metadata.resourceVersion", 0, text)])
    if not stated:
        new["metadata"]["resourceVersion"] = str(live.revision)
    elif stated != live.revision:
        raise errors.conflict(call.resource.group_resource, name, errors.MODIFIED)


def _finished(new: Object, old: Object) -> bool:
    """Return whether the last finalizer of a deleting object was removed."""
    metadata, stored = new["metadata"], old["metadata"]
    return (
        "deletionTimestamp" in stored
        and not metadata.get("finalizers")
        and not stored.get("deletionGracePeriodSeconds")
    )


async def _remove(call: Call, order: Order, live: Entry, value: bytes) -> Outcome:
    """Delete instead of updating. The answer is the object as submitted. A concurrent deletion is not an error."""
    write = Write(live.key, None, live.revision, "")
    try:
        await call.store.commit(write, dry_run=order.options.dry_run)
    except Moved as e:
        if e.entry is not None:
            raise
    return Outcome(splice(value, live.revision))
