"""Prepare and check every object before it is stored, for all verbs: names, system fields, hooks, validation.

A kind's hooks arrive as values in its `Resource`; this module knows no kind.
Upstream: kubernetes/apiserver `pkg/registry/rest/{create,update,meta}.go`, `pkg/registry/generic/registry/store.go`.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, NamedTuple

from apiserver.apimachinery import errors, meta
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.fieldpath import ROOT, FieldError, FieldErrors
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, conversion
from apiserver.runtime import workers
from apiserver.runtime.offload import CHANGE, CHECK_UPDATE, run_sized
from apiserver.schema.context import Context
from apiserver.schema.resource import Object, Permission, Resource, Subresource
from apiserver.schema.types import UPDATE, Struct
from apiserver.storage.errors import TooBig
from apiserver.validation import declarative, report
from apiserver.verbs import entitlements
from apiserver.verbs.context import Call, Services
from apiserver.verbs.entitlements import NONE_REFUSED, NamespaceLabels, Refused
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, mark
from apiserver.wire import body, negotiation
from kubetext import names

KEPT_BY_STATUS = (
    "deletionTimestamp",
    "generation",
    "selfLink",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)
"""Metadata that a write to a subresource leaves as stored."""

DUPLICATE_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, "
    "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)
DUPLICATE_OWNERS_LATER = (
    ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner "
    "references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed: {}"
)

MANY_OWNERS = 1000
"""Longer lists of owner references are compared in a thread."""


def key_of(call: Call, name: str) -> Key:
    """Return the storage key of one object of this request. Upstream checks the parts as late as this, with these texts."""
    namespace = call.info.namespace if call.resource.namespaced else ""
    if call.resource.namespaced and not namespace:
        raise errors.bad_request("Namespace parameter required.")
    if not name:
        raise errors.bad_request("Name parameter required.")
    wrong = names.path_segment(name)
    if wrong:
        raise errors.bad_request(f'Name parameter invalid: "{name}": {";".join(wrong)}')
    return keys.key(namespace, name)


def set_namespace(call: Call, obj: Object) -> None:
    """Set the object's namespace to that of the URL. A cluster-scoped object has none, whatever its body says."""
    metadata = obj["metadata"]
    if not call.resource.namespaced:
        metadata.pop("namespace", None)
        return
    stated = metadata.get("namespace", "")
    if stated and stated != call.info.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = call.info.namespace


def check_name(call: Call, obj: Object) -> None:
    """Raise 400 unless the object of a PUT or PATCH has the name of the URL."""
    stated, wanted = obj["metadata"].get("name", ""), call.info.name
    if not stated:
        raise errors.bad_request(
            f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )
    if stated != wanted:
        raise errors.bad_request(f"the name of the object ({stated}) does not match the name on the URL ({wanted})")


async def dedup_owners(obj: Object, warnings: Warnings, *, after_admission: bool) -> None:
    """Remove repeated owner references, with a warning."""
    owners = meta.metadata(obj).get("ownerReferences")
    if not owners:
        return
    dedup = meta.dedup_owner_references
    many = len(owners) > MANY_OWNERS
    if uids := await workers.BODIES.run_patiently(dedup, obj) if many else dedup(obj):
        text = DUPLICATE_OWNERS_LATER if after_admission else DUPLICATE_OWNERS
        warnings.add(text.format(", ".join(uids)))


def wipe_system_metadata(obj: Object) -> None:
    """Remove metadata that a client may not set by POST. resourceVersion, generation and finalizers stay, as upstream."""
    for name in ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        obj["metadata"].pop(name, None)


def member(resource: Resource, name: str) -> Struct | None:
    """Return the shape of a top-level member that is a struct."""
    for field in resource.shape.fields:
        if field.name == name and isinstance(field.type, Struct):
            return field.type
    return None


def spec_changed(resource: Resource, new: Object, old: Object) -> bool:
    """Return whether spec differs in meaning. The spelling of quantities does not count, nor does empty against absent. In a custom
    resource everything besides metadata counts."""
    if resource.custom is not None:
        return not canonical.same(resource.shape, {**new, "metadata": {}}, {**old, "metadata": {}})
    shape = member(resource, "spec")
    return shape is not None and not canonical.equal(shape, new.get("spec") or {}, old.get("spec") or {})


class Judgement(NamedTuple):
    """Whether a prepared object may be stored, and the permissions that its user needs for that."""

    acceptable: bool
    permissions: Sequence[Permission] = ()


async def check(
    services: Services,
    call: Call,
    new: Object,
    old: Object | None,
    *,
    size: int,
    sub: Subresource | None = None,
    judged: bool = False,
) -> int:
    """Prepare `new` for the store: system fields, the kind's own preparation, then every check. Return its size estimate in bytes.

    * `old` is the stored object; `sub` limits the change to the part that the subresource owns.
    * `size` is about how many bytes both have.
    * `judged`: `old` passed these checks before.

    Raises 422. Warnings of the kind go into the answer.
    """
    resource, labels = call.resource.hub, NamespaceLabels(services, call.info.namespace)
    context = Context(
        gates=services.gates,
        user=call.user,
        verb=call.info.verb,
        now=meta.rfc3339(services.now()),
        namespace_labels=labels,
        cel=services.cel,
        checkpoint=workers.checkpoint,
        old_obeys=judged,
        warn=call.exchange.warnings.add,
    )
    if size <= CHECK_UPDATE.limit:
        size = estimated(new)
    quick = context.cel is None or context.cel.is_quick(resource.expressions(new))
    if resource.custom is not None and resource.custom.has_rules:
        quick = size <= CHANGE.limit
    pool = workers.BODIES if quick else workers.EXPRESSIONS
    judgement = await _judgement(context, resource, new, old, sub=sub, size=size, quick=quick)
    if labels.asked and await labels.refresh():
        judgement = await pool.run_patiently(judge, context, resource, new, old, sub=sub)
    refused = await entitlements.refused(services, call, judgement.permissions)
    if refused or not judgement.acceptable:
        raise await pool.run_patiently(
            refusal, context, resource, new, old, sub=sub, refused=refused, served=call.resource
        )
    for text in resource.warnings(context, new, old):
        call.exchange.warnings.add(text)
    return size


RULE_SECONDS = 0.004
"""How long rules of a custom resource may run on the event loop. Most take some microseconds; a thread evaluates the others again."""


class _TakesLong(Exception):
    """The rules of an object take long."""


async def _judgement(
    context: Context,
    resource: Resource,
    new: Object,
    old: Object | None,
    *,
    sub: Subresource | None,
    size: int,
    quick: bool,
) -> Judgement:
    """Prepare and judge, where it holds up nobody. Unless it is `quick`, that is a thread of its own pool."""
    work = functools.partial(prepare_and_judge, resource=resource, new=new, old=old, sub=sub)
    if not quick:
        return await workers.EXPRESSIONS.run_patiently(work, context)
    if resource.custom is None or not resource.custom.has_rules:
        return await run_sized(CHANGE, size, work, context)
    until = time.perf_counter() + RULE_SECONDS

    def checkpoint() -> None:
        if time.perf_counter() > until:
            raise _TakesLong

    try:
        return work(context._replace(checkpoint=checkpoint))
    except _TakesLong:
        return await workers.EXPRESSIONS.run_patiently(work, context)


def drop_unstored(obj: Object) -> None:
    """Remove metadata that is never persisted (`selfLink`). A dry run still shows it in its response.

    Upstream: kubernetes/apiserver `pkg/storage/api_object_versioner.go` PrepareObjectForStorage.
    """
    obj["metadata"].pop("selfLink", None)


async def exceeds(call: Call, obj: Object, *, size: int) -> bool:
    """Return whether an object is too large for the store even without managedFields. `size` is about how many bytes it has."""
    limit = call.store.object_limit
    if size <= limit:
        return False
    if meta.text_bytes(obj["metadata"]) > limit:
        return True
    bare = {**obj, "metadata": {name: x for name, x in obj["metadata"].items() if name != "managedFields"}}
    return len(await encoded(call.resource.hub, bare, size=size)) > limit


async def to_store(call: Call, obj: Object, *, size: int) -> bytes:
    """Encode the object as it is stored. Raises TooBig at once where its texts alone are too large."""
    least, limit = meta.text_bytes(obj["metadata"]) if size > CHANGE.limit else 0, call.store.object_limit
    if least > limit:
        raise TooBig(f"{least} bytes or more are more than {limit}")
    return await encoded(call.resource.hub, obj, size=size)


def encoded(resource: Resource, obj: Object, *, size: int) -> Awaitable[bytes]:
    """Encode the object as it is stored. `resource` is the version in which it was judged."""
    return run_sized(CHANGE, size, value_of, resource, obj)


def value_of(resource: Resource, obj: Object) -> bytes:
    """Return the stored value of an object. `resource` is the version in which it was judged. That of a custom resource names the version
    of its contents: the stored one, or that of the request where a webhook has still to convert it."""
    value = canonical.encode(resource.stored.shape, conversion.stored_of_hub(resource, obj))
    return value if resource.custom is None else value + mark(resource.encoded_version)


def estimated(new: Object) -> int:
    """Estimate the size of an object in bytes. Beyond the limit of CHANGE the estimate says only that it is larger."""
    try:
        return body.size_estimate(rawjson.light(new, CHANGE.limit), negotiation.JSON)
    except TypeError:
        return sys.maxsize  # deep, with lone surrogates, or long


def prepare_and_judge(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None
) -> Judgement:
    """Prepare `new` and judge it. Each check runs once. `old` is None on create."""
    if old is None:
        prepare_create(context, resource, new)
    else:
        prepare_update(context, resource, new, old, sub=sub)
    return judge(context, resource, new, old, sub=sub)


def judge(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None
) -> Judgement:
    """Judge a prepared object."""
    acceptable = _acceptable(context, resource, new, old, sub=sub)
    if sub is None or old is None:
        return Judgement(acceptable)
    required = sub.requires(context, new, old)
    kept = tuple(required if acceptable else entitlements.worth_asking(required))
    permissions = tuple(item for item in kept if isinstance(item, Permission))
    return Judgement(acceptable and len(permissions) == len(kept), permissions)


def _acceptable(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None
) -> bool:
    by_rule = old is None or (sub is None and resource.rechecks_metadata)
    checks = (names.path_segment_name, _name_rule(resource)) if by_rule else (names.path_segment_name,)
    if not meta.is_acceptable(
        new,
        old,
        namespaced=resource.namespaced,
        name_checks=checks,
        qualified_finalizers=_qualifies_finalizers(resource),
    ):
        return False
    if next(_own_errors(context, resource, new, old, sub=sub), None) is not None:
        return False
    return declarative.satisfied(resource, new, old)


def _qualifies_finalizers(resource: Resource) -> bool:
    """Return whether the kind's own check wants finalizers with a domain. Custom resources warn instead."""
    return resource.custom is None


def _name_rule(resource: Resource) -> meta.NameCheck:
    return resource.name_check or names.subdomain_name


def _own_errors(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None
) -> Iterator[FieldError]:
    """Yield the kind's own errors, besides those of metadata."""
    if sub is not None:
        yield from sub.validate(context, new, old)
        return
    if old is None or resource.validate_shape_on_update:
        yield from report.validate(context, resource.shape, new, old)
    if old is not None:
        yield from report.validate_update(resource.shape, new, old)
    yield from resource.validate(context, new, old)


def prepare_create(context: Context, resource: Resource, obj: Object) -> None:
    """Set the system fields of a new object, then call the kind's own hook."""
    for sub in resource.subresources:
        for name in () if sub.initial else sub.owns:
            obj.pop(name, None)
    if resource.has_status:
        obj.pop("status", None)
    if resource.tracks_generation:
        obj["metadata"]["generation"] = 1
    resource.prepare(context, obj, None)


def prepare_update(context: Context, resource: Resource, new: Object, old: Object, *, sub: Subresource | None) -> None:
    """Make `new` a legal successor of `old` in what the system decides: isolation, generation, times, uid."""
    metadata, stored = new["metadata"], old["metadata"]
    restore(metadata, stored, "generation")
    if sub is not None:
        _isolate(sub, new, old)
        sub.prepare(context, new, old)
    else:
        for other in resource.subresources:
            _take(new, old, other.owns)
        if resource.has_status:
            _take(new, old, ("status",))
        sent_changed = resource.counts_dropped and spec_changed(resource, new, old)
        resource.prepare(context, new, old)
        if resource.tracks_generation and (
            sent_changed if resource.counts_dropped else spec_changed(resource, new, old)
        ):
            metadata["generation"] = stored.get("generation", 0) + 1
    metadata.setdefault("uid", stored["uid"])
    metadata["uid"] = metadata["uid"] or stored["uid"]
    restore(metadata, stored, "creationTimestamp")
    if "deletionTimestamp" in stored:
        restore(metadata, stored, "deletionTimestamp")
        if "deletionGracePeriodSeconds" in stored:
            metadata.setdefault("deletionGracePeriodSeconds", stored["deletionGracePeriodSeconds"])


def _isolate(sub: Subresource, new: Object, old: Object) -> None:
    """Restore everything that a subresource does not own."""
    _take(new, old, tuple(n for n in {**new, **old} if n != "metadata" and n not in sub.owns))
    for name in KEPT_BY_STATUS:
        restore(new["metadata"], old["metadata"], name)


def _take(new: Object, old: Object, members: tuple[str, ...]) -> None:
    for name in members:
        restore(new, old, name)


def restore(new: dict[str, Any], old: dict[str, Any], name: str) -> None:
    """Set `name` to its value in `old`, or remove it if it is absent there."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def refusal(
    context: Context,
    resource: Resource,
    new: Object,
    old: Object | None,
    *,
    sub: Subresource | None,
    refused: Refused = NONE_REFUSED,
    served: Resource | None = None,
) -> StatusError:
    """Return 422 with all errors of an object that may not be stored, and with the refused permissions of its user. `served` is the kind in
    the version of the request; the stored one if None."""
    found = errors_of(context, resource, new, old, sub=sub, refused=refused, served=served)
    if resource.custom is None:
        found = at(context.gates.release, REPORTED)(found)
    return errors.invalid(resource.group_kind, new["metadata"].get("name", ""), found)


def errors_of(
    context: Context,
    resource: Resource,
    new: Object,
    old: Object | None,
    *,
    sub: Subresource | None,
    refused: Refused = NONE_REFUSED,
    served: Resource | None = None,
) -> FieldErrors:
    """Return all errors of an object: those of the kind's own checks, then those that the types of the `served` version declare."""
    if old is None:
        found = creation_errors(context, resource, new)
    else:
        found = update_errors(context, resource, new, old, sub=sub, refused=refused)
    return declarative.combined(served or resource, found, new, old)


def creation_errors(context: Context, resource: Resource, obj: Object) -> FieldErrors:
    """Return the errors of the strategy's check of a new object. If that passes, return those of the generic check of metadata."""
    found = meta.validate_object_meta(
        obj,
        context.gates.release,
        namespaced=resource.namespaced,
        name_check=_name_rule(resource),
        qualified_finalizers=_qualifies_finalizers(resource),
    )
    found += _own_errors(context, resource, obj, None, sub=None)
    return _in_order(resource, found) or _generic_errors(context, resource, obj)


def _in_order(resource: Resource, errors: FieldErrors) -> FieldErrors:
    """Sort the errors that will be reported into the order in which upstream checks."""
    if resource.custom is None:
        errors[:] = report.in_order(resource.shape, errors)
    return errors


def _generic_errors(context: Context, resource: Resource, obj: Object) -> FieldErrors:
    """Return the errors that every write can have, apart from the kind's own check."""
    return meta.validate_object_meta(
        obj,
        context.gates.release,
        namespaced=resource.namespaced,
        name_check=names.path_segment_name,
        qualified_finalizers=False,
    )


def _each_once(errors: FieldErrors) -> FieldErrors:
    """Return the errors without repeated texts."""
    first: dict[str, FieldError] = {}
    for error in errors:
        first.setdefault(str(error), error)
    errors[:] = first.values()
    return errors


def _all(errors: FieldErrors) -> FieldErrors:
    return errors


REPORTED = since(V1_37, _each_once, before=_all, what="an update reports an error of metadata once in `causes`")
"""Returns the errors of a refused object that are reported. Upstream: ErrorList.Filter, which since 1.37 sees the errors of every kind."""


def update_errors(
    context: Context,
    resource: Resource,
    new: Object,
    old: Object,
    *,
    sub: Subresource | None,
    refused: Refused = NONE_REFUSED,
) -> FieldErrors:
    """Return the errors of an update, concatenated as upstream does: the same metadata error can appear several times.

    Stops checking when no further error would be counted.
    """
    release = context.gates.release
    found = _generic_errors(context, resource, new)
    if found.full:
        return found
    found += meta.validate_object_meta_update(new, old, release, qualified_finalizers=False)
    if sub is not None:
        found += entitlements.errors_of(sub.requires(context, new, old), refused)
    own = FieldErrors()
    if sub is None and resource.rechecks_metadata:
        own += meta.validate_object_meta(new, release, namespaced=resource.namespaced, name_check=_name_rule(resource))
    changed = meta.validate_object_meta_update(new, old, release, qualified_finalizers=_qualifies_finalizers(resource))
    own += (error.at(ROOT.child(UPDATE)) for error in changed)
    own += _own_errors(context, resource, new, old, sub=sub)
    found += _in_order(resource, own)
    return found
