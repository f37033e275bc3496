"""Apply a webhook's JSON patch to an object.

The object is shown in a version, and what comes out of the patch is read as Go's serializer reads it: by the kind and apiVersion that it
says itself, those of the version where it says none. Members that the version does not have are dropped, and absent ones defaulted.
Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/mutating/dispatcher.go`, kubernetes/apimachinery
`pkg/runtime/serializer/json/json.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from apiserver.admission.core import views
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.webhooks.configuration import Concern, Webhook
from apiserver.admission.webhooks.review import Response
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import rawjson, surrogates
from apiserver.codecs.objects import canonical, decoding
from apiserver.kinds import type_meta
from apiserver.kinds.served import Kinds
from apiserver.patching import json_patch
from apiserver.runtime.offload import CHANGE, READ_REVIEW, run_sized
from apiserver.schema.resource import Object, Resource


@dataclass(frozen=True, slots=True)
class Patched:
    """The object in its stored form, whether its meaning changed, and its annotation."""

    object: Object
    changed: bool
    note: str


async def read(response: Response) -> json_patch.Patch:
    """Return the operations of an answer. Raises UndecodablePatch, and StatusError 413."""
    return await run_sized(READ_REVIEW, len(response.patch), response.operations)


async def applied(
    patch: json_patch.Patch, response: Response, concern: Concern, attributes: Attributes, *, kinds: Kinds
) -> Patched:
    """Apply a patch to the new object in the version that was sent. Raises StatusError 500 if it does not fit, and 413."""
    size = len(response.patch) + json_patch.growth(response.patch) + attributes.views.size
    obj, resource = attributes.object, concern.match.resource
    assert obj is not None
    await attributes.views.prepare(obj, resource)
    work = functools.partial(_applied, patch, response.patch, concern, kinds=kinds)
    claimed, found, changed, written = await run_sized(CHANGE, size, work, attributes)
    if attributes.views.restore is not None and claimed.custom is not None and claimed.custom.webhook is not None:
        found = await attributes.views.restore(found, claimed) if claimed is not attributes.resource else found
    return Patched(views.headed(attributes, found), changed, written)


def _applied(
    patch: json_patch.Patch, sent: bytes, concern: Concern, attributes: Attributes, *, kinds: Kinds
) -> tuple[Resource, Object, bool, str]:
    """Return the version of the result, the result, whether it is another object, and the annotation of the patch as it was `sent`. A
    webhook must still convert the result to the version of the change."""
    obj, resource = attributes.object, concern.match.resource
    assert obj is not None
    before = attributes.views.text(obj, resource)
    try:
        text = json_patch.applied(patch, before)
        claimed = _claimed(text, resource, kinds)
        found = views.decoded(claimed, text)
    except RecursionError:
        raise errors.internal(decoding.TOO_DEEP) from None
    except (json_patch.Inapplicable, type_meta.Unreadable, type_meta.Unfit, ValueError) as e:
        raise errors.internal(str(e)) from e
    changed = (
        claimed is not resource
        or _stamped(attributes)
        or not canonical.equal(resource.shape, attributes.views.members(obj, resource), found)
    )
    return claimed, views.defaulted(claimed, found, attributes), changed, _note_of_patch(concern.webhook, sent)


def _stamped(attributes: Attributes) -> bool:
    """Whether the object has managers that were written down just now and never were JSON. Upstream has that moment to the nanosecond, JSON
    to the second: there an object that comes back from its first patch is always another one."""
    obj, old = attributes.object, attributes.old
    if obj is None or obj is not attributes.submitted:
        return False
    before = old["metadata"].get("managedFields") if old is not None else None
    return any(entry not in (before or ()) for entry in obj["metadata"].get("managedFields") or ())


def _claimed(text: bytes, resource: Resource, kinds: Kinds) -> Resource:
    """The version of the kind that the patched document says it is of. Raises Unreadable, Unfit, and 500 for another kind."""
    meta = type_meta.read(_head(text)).completed(resource)
    if not meta.version:
        raise ValueError(f"Object 'apiVersion' is missing in '{text.decode()}'")
    claimed = type_meta.find(meta, kinds)
    if claimed is None:
        raise type_meta.not_registered(meta)
    if claimed.stored is not resource.stored:
        raise _another(meta, resource)
    return claimed


def _another(meta: type_meta.TypeMeta, resource: Resource) -> StatusError:
    return errors.raw(str(type_meta.unconvertible(meta, type_meta.hub_type(resource))))


def _head(text: bytes) -> Any:
    """The value of a document as far as kind and apiVersion go."""
    if text[:1] != b"{":
        return msgspec.json.decode(text)
    members: dict[str, msgspec.Raw] = _members(text)
    return {name: msgspec.json.decode(x) for name, x in members.items() if name.lower() in ("kind", "apiversion")}


_members = surrogates.kept(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)
_operations = surrogates.kept(msgspec.json.Decoder(list[dict[str, msgspec.Raw] | None]).decode)


def _note_of_patch(webhook: Webhook, patch: bytes) -> str:
    """Return the annotation of a patch: its operations, with sorted members."""
    operations = [o and {name: o[name] for name in sorted(o)} for o in _operations(patch)]
    return _note(webhook, {"patch": operations, "patchType": "JSONPatch"})


def note_of_mutation(webhook: Webhook, *, changed: bool) -> str:
    """Return the annotation of a call."""
    return _note(webhook, {"mutated": changed})


def _note(webhook: Webhook, members: Mapping[str, Any]) -> str:
    note = {"configuration": webhook.configuration, "webhook": webhook.name, **members}
    return rawjson.escaped(rawjson.shown(note)).decode()
