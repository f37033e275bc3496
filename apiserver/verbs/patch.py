"""Serve PATCH: a pure function from the live object to the new one, which runs inside the write loop on every round.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from apiserver.apimachinery import errors, meta, options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import PatchOptions
from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.codecs.json import json_syntax
from apiserver.codecs.objects import canonical, conversion, defaults
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.fieldmanager.writer import Writer
from apiserver.kinds.type_meta import MEMBERS
from apiserver.patching import json_patch, merge_patch, strategic
from apiserver.runtime import offload, spans
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle, ownership, recorded, rendering, replace
from apiserver.verbs.context import Call, Services
from apiserver.verbs.patch_type import PatchType
from apiserver.watchcache.entry import Entry
from apiserver.wire import as_json, body, patches


def _json_patched(patch: bytes, live: Object) -> bytes:
    """Apply a JSON patch. Copies can make the result much larger than the patch, so its memory is checked. Raises 413 and 422."""
    result = json_patch.apply(json_patch.parse(patch), as_json.dumps(live))
    if json_patch.growth(patch):
        json_syntax.check_memory(result)
    return result


CHECK_JSON: Callable[[bytes], None] | None = since(
    V1_37, patches.check_json, before=None, what="PATCH refuses bodies that are not JSON before it looks for the object"
)
CHECK_YAML: Callable[[bytes], None] | None = since(
    V1_37, patches.check_yaml, before=None, what="apply refuses bodies that are not YAML before it looks for the object"
)
APPLIED_NOUN = since(V1_37, "patch", before="YAML", what="errors call an applied configuration a patch, before YAML")

JSON_PATCH = PatchType(
    media="application/json-patch+json",
    check=CHECK_JSON,
    read=patches.read_json_patch,
    apply=lambda text, live, _: _json_patched(text, live),
    growth=json_patch.growth,
)
MERGE_PATCH = PatchType(
    media="application/merge-patch+json",
    check=CHECK_JSON,
    read=patches.read_merge_patch,
    apply=lambda text, live, _: merge_patch.apply(text, as_json.dumps(live)),
    touches=merge_patch.touches,
)
STRATEGIC = PatchType(
    media="application/strategic-merge-patch+json",
    check=CHECK_JSON,
    read=patches.read_strategic_patch,
    apply=lambda members, live, writer: strategic.apply(members, live, writer.resource.shape),
    decode=body.decode_merged,
)


def server_side_apply(managers: FieldManagers, release: Release) -> PatchType:
    """Return the patch type of server-side apply, the only one that knows the managers of fields."""
    noun = at(release, APPLIED_NOUN)
    return PatchType(
        media="application/apply-patch+yaml",
        check=at(release, CHECK_YAML),
        read=partial(patches.read_apply_patch, noun=noun),
        apply=managers.applied,
        decode=partial(body.decode_applied, noun=noun),
        creates=True,
        applies=True,
    )


async def patch(services: Services, call: Call) -> Any:
    """Replace the stored object by the result of the patch. An absent object is created, or is a 404 before the patch is applied."""
    exchange = call.exchange
    kind = patch_type(services, call)
    answer = rendering.negotiate(services, call)
    raw = await exchange.body()
    spans.event("limitedReadBody succeeded", len=len(raw))
    wanted = options.parse_patch(exchange.query, apply=kind.applies)
    await _check(kind, raw)
    await recorded.patch(call, raw, applies=kind.applies)
    sub = replace.subresource(call)
    order = replace.Order(
        name=call.info.name,
        change=_change(services, call, kind=kind, raw=raw, wanted=wanted),
        sub=sub,
        options=wanted.as_update(),
        whole=False,
        size=body.size_estimate(raw, kind.media) + kind.growth(raw),
        creates=kind.creates and sub is None,
        owned=kind.applies,
    )
    outcome = await replace.replace(services, call, order)
    return await answer.single(outcome.value, code=201 if outcome.created else 200)


def patch_type(services: Services, call: Call) -> PatchType:
    """Return the type of the patch. Custom resources have no strategic merge patch. Raises 415."""
    stated, known = call.exchange.content_type, services.patch_types
    if call.resource.custom is None:
        return known[patches.media_type(stated, known)]
    return known[patches.media_type_of_custom(stated, [media for media in known if media != STRATEGIC.media])]


async def _check(kind: PatchType, raw: bytes) -> None:
    if kind.check is None:
        return
    slow = len(raw) > offload.DENSE_PATCH.limit or (
        len(raw) > offload.DECODE_SLOWLY.limit and as_json.plain(raw) is None
    )
    if slow:
        await offload.DECODE_SLOWLY.run(kind.check, raw)
    else:
        kind.check(raw)


def _change(
    services: Services, call: Call, *, kind: PatchType, raw: bytes, wanted: PatchOptions
) -> replace.ChangeFunction:
    resource, warnings = call.resource, call.exchange.warnings
    writer = ownership.writer(services, call, wanted.field_manager, force=bool(wanted.force))

    def compute(live: Entry | None, *, hurried: bool = False) -> Object:
        terms = body.Terms(
            resource=resource,
            kinds=services.kinds,
            now=meta.rfc3339(services.now()),
            validation=wanted.validation,
            warnings=warnings,
            hurried=hurried,
        )
        new = patched(kind, raw, live, writer=writer, terms=terms)
        if len(raw) > offload.DENSE_PATCH.limit:
            _check_memory(resource.hub, new)
        if live is None:
            _check_no_uid(call, new)
        lifecycle.set_namespace(call, new)
        lifecycle.check_name(call, new)
        return new

    def change(live: Entry | None) -> Awaitable[Object]:
        if writer.converted is None:
            return once(live)
        return ownership.converting(services, writer.converted, lambda: once(live))

    async def once(live: Entry | None) -> Object:
        size = body.size_estimate(raw, kind.media) + kind.growth(raw) + (live.size if live is not None else 0)
        dense = len(raw) > offload.DENSE_PATCH.limit
        large = size > offload.PATCH.limit or dense
        # To find out takes as long as decoding: only small texts are looked at here.
        if not large and not (len(raw) > offload.DECODE_SLOWLY.limit and as_json.plain(raw) is None):
            with suppress(body.TakesLong):
                return compute(live, hurried=True)
        return await offload.PATCH.run(compute, live)

    return change


def patched(kind: PatchType, raw: bytes, live: Entry | None, *, writer: Writer, terms: body.Terms) -> Object:
    """Return the result of a patch on the stored object, or on None. Raises StatusError.

    Members that the patch does not touch are left out of the work if they would come back unchanged. This saves time where the patch is
    small. It is not tried with a patch larger than the object: if the patch is refused, all of the work runs once more.
    """
    resource = terms.resource
    shown = conversion.from_hub(resource, rendering.decoded(resource, live)) if live is not None else {}
    document = {"kind": resource.kind, "apiVersion": resource.api_version, **shown}
    sent = kind.read(raw, terms.validation)
    # Another version's members, and members with a spelling of their own, would not come back unchanged.
    # So would not members of custom resources, which are pruned.
    whole = live is None or len(raw) > live.size or live.verbatim or resource.conversion or resource.custom
    touched = None if whole else kind.touches(sent.value)
    if touched is not None and touched.isdisjoint(MEMBERS):
        part = {name: x for name, x in document.items() if name in touched or name in MEMBERS}
        with suppress(StatusError):  # the whole object gives the right text
            made = kind.decode(terms, kind.apply(sent.value, part, writer), sent)
            made |= {name: x for name, x in shown.items() if name not in touched}
            defaults.apply(resource.shape, made, now=terms.now)
            return made
        sent = kind.read(raw, terms.validation)
    return kind.decode(terms, kind.apply(sent.value, document, writer), sent)


def _check_memory(resource: Resource, new: Object) -> None:
    """Raise 413 for a result that could not have been sent. By now it has every default of every element, so a small patch may have a large
    result."""
    metadata = new["metadata"]
    # Texts are counted. The text of managedFields is never parsed.
    left = {name: x for name, x in metadata.items() if name not in meta.TEXTS and name != "managedFields"}
    json_syntax.check_memory(
        canonical.encode(resource.shape, {**new, "metadata": left}),
        size=meta.text_bytes(metadata),
        members=sum(len(metadata.get(name) or ()) for name in ("labels", "annotations")),
        elements=len(metadata.get("finalizers") or ()),
    )


def _check_no_uid(call: Call, new: Object) -> None:
    """Raise 409 if the new object names a uid: an absent object has none."""
    if uid := new["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise errors.conflict(call.resource.group_resource, call.info.name, why)
