"""Serve DELETE of one object and of a collection: preconditions, finalizers, the two phases.

Upstream: kubernetes/apiserver `pkg/registry/generic/registry/store.go` Delete, DeleteCollection and `pkg/registry/rest/delete.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from apiserver.apimachinery import errors, meta, options
from apiserver.apimachinery.options import DeleteOptions
from apiserver.runtime import spans
from apiserver.schema.resource import Object, Resource
from apiserver.storage.store import Write
from apiserver.verbs import admit, attempts, failures, lifecycle, read, recorded, rendering, selection, unreadable
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry, batches
from apiserver.wire import body

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""The finalizers that the garbage collector acts on."""
UID_DIFFERS = (
    "the UID in the precondition ({}) does not match the UID in record ({}). "
    "The object might have been deleted and then recreated"
)
VERSION_DIFFERS = (
    "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). "
    "The object might have been modified"
)
AT_ONCE = 64
"""Deletions of a collection in flight together; they share round trips to the store."""
BYTES_AT_ONCE = 4 << 20
"""Bytes that their objects may have together; a larger object goes alone. Each object exists in memory several times while its deletion is
in flight."""


async def delete(services: Services, call: Call) -> Any:
    """Remove the object, or mark it as deleting while finalizers remain. Answer with the object either way."""
    answer = rendering.negotiate(services, call)
    wanted = await _options(services, call)
    if wanted.ignore_read_error:
        await unreadable.delete(services, call, dry_run=wanted.dry_run)
        return await answer.success(call.info.name)
    spans.event("About to delete object from database")
    entry, removed = await delete_one(services, call, call.info.name, wanted, admitted_as=call.info.name)
    spans.event("Object deleted from database")
    if removed and not call.resource.returns_deleted:
        return await answer.deleted(call.info.name, entry.uid.decode())
    code = 202 if not removed and wanted.orphan_dependents is False else 200
    return await answer.single(entry.value, code=code)


async def delete_collection(services: Services, call: Call) -> Any:
    """Delete the objects that a list selects, one by one. Answer with the list as it was."""
    exchange = call.exchange
    answer = rendering.negotiate(services, call)
    listed = options.parse_list(exchange.query, watch=False)
    chosen = selection.select(call, listed)
    wanted = await _options(services, call)
    wanted.refuse_for_collections()
    chosen = await selection.within_shard(services, chosen, listed)
    with failures.translated(call.info), read.listing_span(call):
        page = await read.page(call, listed, chosen, exact=True, report=unreadable.report(services))
    turns = _Turns()

    def delete_next(entry: Entry) -> Awaitable[None]:
        return turns.take(lambda done: delete_one(services, call, entry.name, wanted, admitted_as="", admitted=done))

    for batch in batches(page.entries, count=AT_ONCE, size=BYTES_AT_ONCE):
        await _all(map(delete_next, batch))
    return await read.listing(answer, page, chosen)


async def _all(deletions: Iterable[Awaitable[None]]) -> None:
    """Wait for every deletion, then raise the first failure."""
    for result in await asyncio.gather(*deletions, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


class _Turns:
    """Turns of the deletions of a collection. Each is admitted after the one before it, and none begins after one that failed. They reach
    the store at the same time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failed = False

    async def take(self, deletion: Callable[[Callable[[], None]], Awaitable[object]]) -> None:
        """Run `deletion` in its turn. It calls its argument once it is admitted. An object that no longer exists does not count as a
        failure."""
        await self._lock.acquire()
        done = _once(self._lock.release)
        try:
            if not self._failed:
                await deletion(done)
        except errors.StatusError as e:
            if e.code != 404:
                self._failed = True
                raise
        finally:
            done()


def _once(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `function` the first time only."""
    left = [function]
    return lambda: left.pop()() if left else None


def _nothing() -> None:
    return None


async def _options(services: Services, call: Call) -> DeleteOptions:
    """Return the options from the body if there is one, otherwise from the query. The query is ignored if there is a body."""
    exchange = call.exchange
    raw = await exchange.body()
    spans.event("limitedReadBody succeeded", len=len(raw))
    if raw:
        members = await body.decode_delete_options(exchange.content_type, raw)
        recorded.delete_options(exchange.recording, members)
        wanted = options.delete_options(members)
    else:
        wanted = options.parse_delete_query(exchange.query)
    if wanted.ignore_read_error and not unreadable.guarded(services):
        wanted = replace(wanted, ignore_read_error=False)
    wanted.validate(services.gates.release)
    return wanted


async def delete_one(
    services: Services,
    call: Call,
    name: str,
    wanted: DeleteOptions,
    *,
    admitted_as: str,
    admitted: Callable[[], None] = _nothing,
) -> tuple[Entry, bool]:
    """Return the object of the answer, and whether it was removed. Calls `admitted` each time the deletion is admitted."""
    return await attempts.until_done(
        call,
        lifecycle.key_of(call, name),
        lambda live: _attempt(services, call, wanted, live, name=name, admitted_as=admitted_as, admitted=admitted),
    )


async def _attempt(
    services: Services,
    call: Call,
    wanted: DeleteOptions,
    live: Entry | None,
    *,
    name: str,
    admitted_as: str,
    admitted: Callable[[], None],
) -> tuple[Entry, bool]:
    if live is None:
        raise rendering.not_found(call, name)
    found = await rendering.patiently(partial(_found, wanted), call.resource, live)
    live, old, finalizers = found
    call.exchange.hold(old, size=live.size)
    if not live.readable and unreadable.guarded(services):
        raise failures.corrupt(call.info, live.key)
    _check_preconditions(call, name, wanted, old["metadata"])
    # Upstream admits the update that begins a deletion. It also admits the deletion if that update leaves no finalizer.
    for _ in range(2 if old["metadata"].get("finalizers") and not finalizers else 1):
        step = admit.Step(
            services, call, operation="DELETE", options=wanted, name=admitted_as, old=old, size=len(live.body)
        )
        await step.delete()
    admitted()
    if live.readable and (finalizers or call.resource.hub.lingers(old)):
        return await _mark(services, call, wanted, live, old=old, finalizers=finalizers), False
    write = Write(live.key, None, live.revision, old["metadata"]["uid"])
    return await call.store.commit(write, dry_run=wanted.dry_run), True


def _found(wanted: DeleteOptions, resource: Resource, live: Entry) -> tuple[Entry, Object, list[str]]:
    """Return the result of `rendering.remains`, and the finalizers that the object will have, which may be many."""
    live, old = rendering.remains(resource, live)
    return live, old, finalizers_after(wanted, old["metadata"].get("finalizers", []))


def _check_preconditions(call: Call, name: str, wanted: DeleteOptions, metadata: Object) -> None:
    for stated, stored, text in (
        (wanted.uid, metadata["uid"], UID_DIFFERS),
        (wanted.resource_version, metadata["resourceVersion"], VERSION_DIFFERS),
    ):
        if stated is not None and stated != stored:
            raise errors.conflict(call.resource.group_kind, name, text.format(stated, stored))


def finalizers_after(wanted: DeleteOptions, existing: list[str]) -> list[str]:
    """Return the finalizers of the object after the garbage collector's were recomputed from the options.

    Priority: orphanDependents, propagationPolicy, the object's present finalizers, and background as the kinds' default.
    """
    had_orphan, had_foreground = ORPHAN in existing, FOREGROUND in existing
    orphan, foreground = had_orphan, had_foreground and not had_orphan
    if wanted.orphan_dependents is not None:
        orphan, foreground = wanted.orphan_dependents, False
    elif wanted.propagation_policy:
        orphan, foreground = wanted.propagation_policy == "Orphan", wanted.propagation_policy == "Foreground"
    if (orphan, foreground) == (had_orphan, had_foreground):
        return existing
    result = [f for f in existing if f not in (ORPHAN, FOREGROUND)]
    return result + [ORPHAN] * orphan + [FOREGROUND] * foreground


async def _mark(
    services: Services, call: Call, wanted: DeleteOptions, live: Entry, *, old: Object, finalizers: list[str]
) -> Entry:
    """Run the first phase: mark the object as deleting. It stays until its finalizers are removed."""
    metadata = {**old["metadata"], "finalizers": finalizers}
    if not finalizers:
        del metadata["finalizers"]
    new = {**old, "metadata": metadata}
    call.resource.hub.ending(new)
    now = meta.rfc3339(services.now())
    if metadata.get("deletionTimestamp", "") == "":
        if metadata.get("generation", 0) > 0:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = now
    metadata["deletionTimestamp"] = min(metadata["deletionTimestamp"], now)
    metadata["deletionGracePeriodSeconds"] = 0
    value = await lifecycle.encoded(call.resource.hub, new, size=live.size)
    if live.stores(value):
        return live
    write = Write(live.key, value, live.revision, metadata["uid"])
    return await attempts.commit(call, write, dry_run=wanted.dry_run)
