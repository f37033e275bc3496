"""Apply one mutation to an object: merge a configuration into it, or apply a JSON patch. Pure, and knows no requests.

Objects are of one version of a kind, with kind and apiVersion, as JSON or plain values; none is changed. Upstream: kubernetes/apiserver
`pkg/admission/plugin/policy/mutating/patch/{smd,json_patch}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from apiserver.admission.policies import objects
from apiserver.admission.policies.objects import Unfit
from apiserver.codecs.json import surrogates
from apiserver.codecs.objects import decoding, unstructured
from apiserver.codecs.objects.decoding import DecodeError
from apiserver.fieldmanager import typedefs
from apiserver.kinds import type_meta
from apiserver.patching import json_patch
from apiserver.schema.resource import Object, Resource
from kubecel.values.mutation import ObjectValue, PatchValue, misplaced
from kubecel.values.values import Value, is_list
from kubetext.quoting import go_quote
from structuredmerge import paths, validation
from structuredmerge.merging import merge
from structuredmerge.paths import FIELD, INDEX, Element
from structuredmerge.types import Type

SCHEME = "pkg/runtime/scheme.go:111"
"""kube-apiserver's name for its known kinds."""
MOST_COMPLAINTS = 100
"""The most errors of an object that are reported."""


class Refused(Exception):
    """A mutation that cannot be made. The text is upstream's; the policy decides what follows."""


def configured(resource: Resource, live: Mapping[str, Any], value: Value) -> Object:
    """Merge an expression's result, `Object{…}`, into a plain object as server-side apply would, and decode it. Raises Refused.

    The result is of that version, without kind and apiVersion, not defaulted. New fields have no manager.
    """
    if not isinstance(value, ObjectValue):
        raise Refused("unsupported return type from ApplyConfiguration expression")
    _check_places(value)
    try:
        made = objects.configuration(value)
    except Unfit as e:
        raise Refused(str(e)) from None
    merged = _merged(resource, live, {**made, "apiVersion": resource.api_version, "kind": resource.kind})
    try:
        return unstructured.decode(resource.shape, merged).object
    except DecodeError as e:
        kind = f"{resource.api_version}, Kind={resource.kind}"
        raise Refused(f"unable to convert unstructured object to {kind}: {e}") from None


def _check_places(value: Value) -> None:
    if wrong := list(islice(misplaced(value), MOST_COMPLAINTS)):
        raise Refused("type mismatch: " + "\n".join(wrong))


def _merged(resource: Resource, live: Mapping[str, Any], applied: dict[str, Any]) -> Object:
    type_ = typedefs.type_of(resource)
    failed = "error applying patch: "
    if wrong := validation.validate(applied, type_, foreign=True):
        raise Refused(f"{failed}failed to convert patch object to typed object: {validation.joined(wrong)}")
    if atomic := list(islice(_atomics(applied, type_), MOST_COMPLAINTS)):
        listed = ", ".join(atomic)
        raise Refused(f"{failed}invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {listed}")
    merged: Object = merge(live, applied, type_)
    return merged


def _atomics(value: Any, type_: Type, path: tuple[Element, ...] = ()) -> Iterator[str]:
    """Yield the paths of all parts that could only be replaced as a whole, in declared members and in lists."""
    if isinstance(value, dict) and type_.map is not None:
        if type_.map.atomic:
            yield paths.text(path)
        for name, part in value.items():
            member = type_.map.members.get(name)
            if member is not None:
                yield from _atomics(part, member.type, (*path, (FIELD, name)))
    elif isinstance(value, list) and type_.list is not None:
        if type_.list.atomic:
            yield paths.text(path)
        for i, part in enumerate(value):
            yield from _atomics(part, type_.list.item, (*path, (INDEX, i)))


def json_patched(live: bytes, value: Value) -> bytes | None:
    """Apply a list of `JSONPatch{…}` to the JSON of an object. None if a test operation fails: the mutation is then skipped.

    Raises Refused, and 413 for too large a patch.
    """
    if not is_list(value):
        raise Refused("type mismatch: JSONPatchType.expression should evaluate to array")
    operations = []
    for each in value:
        if not isinstance(each, PatchValue):
            raise Refused("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
        _check_places(each.value)
        try:
            operations.append(objects.operation(each))
        except Unfit as e:
            message = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
            raise Refused(f"{message}: {e}") from None
    patch = json_patch.parse(msgspec.json.encode(operations), nulls=True)
    try:
        return json_patch.applied(patch, live)
    except json_patch.TestFailed:
        return None
    except json_patch.Inapplicable as e:
        raise Refused(f"JSON Patch: {e}") from None


def other_kind(resource: Resource, patched: bytes) -> str:
    """Return upstream's decoding error for JSON with another kind or apiVersion; empty if both fit or are missing."""
    value = _head(patched) if patched.startswith(b"{") else _decode(patched)
    stated = {"kind": value.kind, "apiVersion": value.api_version} if isinstance(value, _Head) else value
    try:
        type_meta.read(stated)
    except type_meta.Unreadable as e:
        return str(e)
    kind, version = stated["kind"] or resource.kind, stated["apiVersion"] or resource.api_version
    if (kind, version) == (resource.kind, resource.api_version):
        return ""
    return f"no kind {go_quote(kind)} is registered for version {go_quote(version)} in scheme {go_quote(SCHEME)}"


class _Head(msgspec.Struct):
    kind: Any = None
    api_version: Any = msgspec.field(name="apiVersion", default=None)


_head = surrogates.replaced(msgspec.json.Decoder(_Head).decode)
_decode = surrogates.replaced(msgspec.json.Decoder().decode)


def strict_error(resource: Resource, patched: bytes) -> str:
    """Return the error of upstream's strict decoder for the JSON of an object of that version; empty without one."""
    members: dict[str, Any] = _decode(patched)
    for name in unstructured.TYPE_META:
        members.pop(name, None)
    unknown = decoding.decode(resource.shape, members).unknown
    listed = ", ".join(f"unknown field {go_quote(path)}" for path in islice(unknown, MOST_COMPLAINTS))
    return f"strict decoding error: {listed}" if listed else ""
