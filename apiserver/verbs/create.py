"""Serve POST: decode, set managers, admit, prepare, validate, admit, commit, respond.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/create.go`, `pkg/registry/generic/registry/store.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from apiserver.apimachinery import errors, meta, options
from apiserver.apimachinery.options import CreateOptions
from apiserver.runtime import spans
from apiserver.schema.resource import Object
from apiserver.storage.errors import KeyExists, TooBig
from apiserver.storage.store import Write
from apiserver.verbs import admit, attempts, failures, lifecycle, ownership, recorded, rendering
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry, Revision, stamp
from apiserver.wire import body
from kubetext import names, quoting

NAME_ATTEMPTS = 8
"""How often a generated name may clash before the client gets an error."""


async def create(services: Services, call: Call) -> Any:
    """Create one object. Answer 201 with the object as stored."""
    answer = rendering.negotiate(services, call)
    stored = await _stored(services, call)
    spans.event("Write to database call succeeded")
    return await answer.single(stored, code=201)


async def sent(services: Services, call: Call) -> tuple[Object, CreateOptions, int]:
    """Read the object of a POST in its namespace. Return it with the request's options and its approximate size in bytes. Raises
    StatusError."""
    exchange = call.exchange
    body.check_content_type(exchange.content_type)
    raw = await exchange.body()
    spans.event("limitedReadBody succeeded", len=len(raw))
    wanted = options.parse_create(exchange.query)
    spans.event("About to convert to expected version")
    obj = await body.decode_object(
        call.resource,
        exchange.content_type,
        raw,
        kinds=services.kinds,
        now=meta.rfc3339(services.now()),
        validation=wanted.validation,
        warnings=exchange.warnings,
    )
    spans.event("Conversion done")
    size = body.size_estimate(raw, exchange.content_type)
    await recorded.sent(call, obj, size=size)
    lifecycle.set_namespace(call, obj)
    return obj, wanted, size


async def _stored(services: Services, call: Call) -> bytes:
    obj, wanted, size = await sent(services, call)
    lifecycle.wipe_system_metadata(obj)
    await lifecycle.dedup_owners(obj, call.exchange.warnings, after_admission=False)
    spans.event("About to store object in database")
    try:
        return await insert(services, call, obj, wanted, size=size)
    except KeyExists as clash:
        raise await _exists(call, clash.entry) from clash


async def insert(
    services: Services,
    call: Call,
    obj: Object,
    wanted: CreateOptions,
    *,
    size: int,
    owned: bool = False,
    allowed: Callable[[], Awaitable[None]] | None = None,
) -> bytes:
    """Commit `obj` under its own name or a generated one. Return its value with its resourceVersion.

    `size` is about how many bytes it has. With `owned`, its managedFields are final. `allowed` checks that the user may create, where that
    was not checked before.

    Raises StatusError. Raises KeyExists if its own name is taken and it has no generateName.
    """
    if await lifecycle.exceeds(call, obj, size=size):
        # It is too large to store, with or without managedFields. Admission may still make it smaller.
        if not owned:
            obj["metadata"].pop("managedFields", None)
        owned = True
    if not owned:
        obj = await ownership.owned(services, call, obj, None, manager=wanted.field_manager, size=size)
    given = obj["metadata"].get("name", "")
    step = admit.Step(services, call, operation="CREATE", options=wanted, name=given, old=None, size=size)
    call.exchange.hold(obj, step, size=size)
    obj = await step.mutate(obj)
    await lifecycle.dedup_owners(obj, call.exchange.warnings, after_admission=True)
    metadata = obj["metadata"]
    metadata["creationTimestamp"] = meta.rfc3339(services.now())
    metadata["uid"] = services.new_uid()
    base = "" if metadata.get("name") else metadata.get("generateName", "")
    for _ in range(NAME_ATTEMPTS if base else 1):
        if base:
            metadata["name"] = names.generate_name(base, services.choose)
        try:
            return await _fitting(
                services, call, obj, step, size=size, dry_run=wanted.dry_run, owned=owned, allowed=allowed
            )
        except KeyExists as e:
            # Upstream looks at generateName alone, even if a name is given too. A PATCH retries on the existing object.
            if not base and (allowed is not None or not metadata.get("generateName")):
                raise
            clash = e
    raise await _exists(call, clash.entry, generated=True) from clash


async def _fitting(
    services: Services,
    call: Call,
    obj: Object,
    step: admit.Step,
    *,
    size: int,
    dry_run: bool,
    owned: bool,
    allowed: Callable[[], Awaitable[None]] | None,
) -> bytes:
    """Commit the object. If it is too large, try once more without managedFields, which are worth less than the object."""
    with failures.translated(call.info):
        try:
            return await _commit(services, call, obj, step, size=size, dry_run=dry_run, allowed=allowed)
        except TooBig:
            if owned or obj["metadata"].pop("managedFields", None) is None:
                raise
            return await _commit(services, call, obj, step, size=size, dry_run=dry_run, allowed=allowed)


async def _commit(
    services: Services,
    call: Call,
    obj: Object,
    step: admit.Step,
    *,
    size: int,
    dry_run: bool,
    allowed: Callable[[], Awaitable[None]] | None,
) -> bytes:
    size = await lifecycle.check(services, call, obj, None, size=size)
    if allowed is not None:
        await allowed()
    await step.validate(obj)
    key = lifecycle.key_of(call, obj["metadata"].get("name", ""))
    stated = obj["metadata"].get("resourceVersion", "")
    if not dry_run:
        # A PATCH that creates is an update of an absent object, and has checked its version already.
        if allowed is None and _is_version(stated):
            raise errors.raw("resourceVersion should not be set on objects to be created")
        lifecycle.drop_unstored(obj)
    value = await lifecycle.to_store(call, obj, size=size)
    write = Write(key, value, Revision(0), obj["metadata"]["uid"])
    with spans.span("Create redis", lambda: call.storing(key)):
        entry = await attempts.commit(call, write, dry_run=dry_run)
    entry.judged = not call.resource.converted
    # A dry run returns the resourceVersion that the client sent for a new object, whatever it is.
    return stamp(entry.value, quoting.go_json(stated).encode()) if stated and dry_run else entry.value


def _is_version(text: str) -> bool:
    """Return whether the text names a state. Text that is not a number is ignored, as 0 is."""
    try:
        return bool(options.parse_revision(text))
    except ValueError:
        return False


async def _exists(call: Call, entry: Entry, *, generated: bool = False) -> errors.StatusError:
    """Return the conflict with an existing object. `generated`: the object that cannot be created has a generateName."""
    metadata = (await rendering.patiently(rendering.remains, call.resource, entry))[1]["metadata"]
    said = errors.generate_name_conflict if generated else errors.already_exists
    return said(call.resource.group_resource, metadata["name"], being_deleted="deletionTimestamp" in metadata)
