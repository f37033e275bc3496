"""What a webhook's JSON patch makes of an object.

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
from apiserver.codecs.objects import canonical, conversion, decoding
from apiserver.kinds import type_meta
from apiserver.kinds.served import Kinds
from apiserver.patching import json_patch
from apiserver.runtime.workers import BODIES
from apiserver.schema.resource import Object, Resource

LARGE = 16 << 10
"""Bytes of a patch, of what it makes the object grow by, and of the object, above which it is applied in a thread."""
LONG = 4 << 10
"""Bytes of a patch above which it is read in a thread: what is wrong with it is found byte by byte."""


@dataclass(frozen=True, slots=True)
class Patched:
    """The object in its stored form, whether it means something else than before, and what is noted of it."""

    object: Object
    changed: bool
    note: str


async def read(response: Response) -> json_patch.Patch:
    """The operations of an answer. Raises UndecodablePatch, and StatusError 413."""
    if len(response.patch) > LONG:
        return await BODIES.run_patiently(response.operations)
    return response.operations()


async def applied(
    patch: json_patch.Patch, response: Response, concern: Concern, attributes: Attributes, *, kinds: Kinds
) -> Patched:
    """What a patch makes of the new object, as it was shown. Raises StatusError 500 for a patch that does not fit, and 413."""
    work = functools.partial(_applied, patch, response.patch, concern, attributes, kinds=kinds)
    if len(response.patch) + json_patch.growth(response.patch) + attributes.views.size > LARGE:
        return await BODIES.run_patiently(work)
    return work()


def _applied(
    patch: json_patch.Patch, sent: bytes, concern: Concern, attributes: Attributes, *, kinds: Kinds
) -> Patched:
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
        or not canonical.equal(resource.shape, _shown(obj, resource), found)
    )
    made = views.headed(claimed, views.defaulted(claimed, found, attributes))
    return Patched(made, changed, _note_of_patch(concern.webhook, sent))


def _stamped(attributes: Attributes) -> bool:
    """Whether the object has managers that were written down just now and never were JSON. Upstream has that moment to the nanosecond, JSON
    to the second: there an object that comes back from its first patch is always another one."""
    obj, old = attributes.object, attributes.old
    if obj is None or obj is not attributes.submitted:
        return False
    before = old["metadata"].get("managedFields") if old is not None else None
    return any(entry not in (before or ()) for entry in obj["metadata"].get("managedFields") or ())


def _shown(obj: Object, resource: Resource) -> Object:
    return obj if resource.conversion is None else conversion.served(resource, conversion.copied(obj))


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
    """What is noted of a patch: its operations, the members of each in order."""
    operations = [o and {name: o[name] for name in sorted(o)} for o in _operations(patch)]
    return _note(webhook, {"patch": operations, "patchType": "JSONPatch"})


def note_of_mutation(webhook: Webhook, *, changed: bool) -> str:
    """What is noted of a call."""
    return _note(webhook, {"mutated": changed})


def _note(webhook: Webhook, members: Mapping[str, Any]) -> str:
    note = {"configuration": webhook.configuration, "webhook": webhook.name, **members}
    return rawjson.escaped(rawjson.shown(note)).decode()
