"""Decode the bodies of custom resources, and what patches and configurations result in.

A structural schema takes the place of a shape: whatever JSON comes is pruned by it. Only metadata has a shape.
The order is upstream's: kind and apiVersion, metadata, unknown members, nulls, embedded resources, defaults.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (schemaCoercingDecoder, unstructuredDefaulter),
kubernetes/apimachinery `pkg/runtime/serializer/json/json.go`, `pkg/apis/meta/v1/unstructured/helpers.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from apiserver.apimachinery import errors, fieldpath, meta
from apiserver.apimachinery.errors import GroupKind
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import json_syntax, rawjson
from apiserver.codecs.json.json_syntax import SyntaxProblem, TooBig
from apiserver.codecs.objects import unstructured
from apiserver.codecs.objects.conversion import copied
from apiserver.codecs.objects.decoding import TOO_DEEP, DecodeError
from apiserver.codecs.yaml import as_yaml
from apiserver.kinds import type_meta
from apiserver.kinds.served import Kinds
from apiserver.kinds.type_meta import MEMBERS, TypeMeta, Unfit, Unreadable
from apiserver.runtime.offload import DECODE, DECODE_SLOWLY, run_sized
from apiserver.schema import shapes
from apiserver.schema.custom import Custom
from apiserver.schema.resource import Object, Resource
from apiserver.structural.embedded import read_metadata
from apiserver.wire import as_json, complaints, decoding_errors, negotiation, patches
from apiserver.wire.decoding_errors import TakesLong, Terms
from apiserver.wire.patches import Document
from kubetext import printing

MEDIA = tuple(media for media in negotiation.ACCEPTED if media != negotiation.PROTOBUF)
"""The media types of bodies. kube-apiserver lists protobuf as well, and breaks the connection when a body has it."""
_METADATA = "metadata"


class _Reading(NamedTuple):
    """A decoded document, and its JSON as errors show it.

    * `repeats` are the texts about repeated members.
    * `nulls`: it may hold nulls.
    * `failure` is Go's error for a value that it cannot hold. The document then has kind and apiVersion alone.
    """

    value: Any
    source: bytes
    repeats: Sequence[str] = ()
    nulls: bool = True
    failure: str = ""


async def decode_object(
    resource: Resource,
    media: str,
    raw: bytes,
    *,
    size: int,
    kinds: Kinds,
    validation: str,
    warnings: Warnings,
) -> Object:
    """Return the object of a POST or PUT, with defaults, without kind and apiVersion. Raises 415, 400, 413 and 422.

    `media` is the media type, and `size` the estimate of the work. `kinds` are all kinds. `validation` is Strict, Warn or Ignore.
    """
    if media not in MEDIA:
        raise errors.unsupported_media_type(MEDIA)
    quick = as_json.plain(raw) if media == negotiation.JSON and len(raw) <= DECODE.limit else None
    decode = functools.partial(
        _object, resource, media, raw, quick, kinds=kinds, validation=validation, warnings=warnings
    )
    return (
        await run_sized(DECODE, size, decode) if quick is not None else await run_sized(DECODE_SLOWLY, len(raw), decode)
    )


def _object(
    resource: Resource,
    media: str,
    raw: bytes,
    quick: as_json.Reading | None,
    *,
    kinds: Kinds,
    validation: str,
    warnings: Warnings,
) -> Object:
    judged = validation != "Ignore"
    try:
        found = _read_yaml(raw) if media != negotiation.JSON else _read_json(raw, quick, judged=judged)
        said = type_meta.read(found.value).completed(resource)
    except Unreadable as e:
        raise decoding_errors.unrecognized(resource, raw, e) from e
    try:
        stated = _stated(found)
    except Unfit as e:
        raise decoding_errors.unhandled(resource, said, e) from e
    if not stated.kind:
        shown = raw if judged else found.source
        missing = Unfit(f"Object 'Kind' is missing in '{shown.decode('utf-8', 'replace')}'")
        if judged:
            raise decoding_errors.unrecognized(resource, raw, missing)
        raise decoding_errors.unhandled(resource, said, missing)
    try:
        obj, unknown = _pruned(resource, stated, found, kinds, judged=judged)
        problems = [*found.repeats, *unknown]
        if problems and validation == "Strict":
            raise Unfit(decoding_errors.strict_text(problems))
    except (Unfit, DecodeError) as e:
        raise decoding_errors.unhandled(resource, stated, e) from e
    if judged:
        decoding_errors.warn(problems, warnings)
    if stated.api_version != resource.api_version:
        what = f"the API version in the data ({stated.api_version})"
        raise errors.bad_request(f"{what} does not match the expected API version ({resource.api_version})")
    _check_type(resource, stated, obj)
    return obj


def _read_json(raw: bytes, quick: as_json.Reading | None, *, judged: bool) -> _Reading:
    """Decode JSON. Raises Unreadable, and 413."""
    json_syntax.check_memory(raw)
    try:
        found = quick or as_json.read(raw)
        value = patches.exact_numbers(found.value, raw)
    except TooBig as e:
        # Kind and apiVersion are judged first, and such a number may stand in them.
        return _Reading(as_json.written(raw, shapes.CUSTOM), raw, failure=str(e))
    except SyntaxProblem as e:
        raise Unreadable(f"{decoding_errors.SYNTAX}{e}") from e
    repeats = complaints.find_in_text(found.text, complaints.anything) if judged and found.suspicious else ()
    return _Reading(value, raw, repeats, nulls=b"null" in raw)


def _read_yaml(raw: bytes) -> _Reading:
    """Decode YAML. Raises Unreadable, and 413."""
    json_syntax.check_memory(raw)
    try:
        found = as_yaml.read(raw)
    except as_yaml.YAMLProblem as e:
        raise Unreadable(str(e)) from e
    source = as_json.dumps(found.value)
    return _Reading(patches.exact_numbers(found.value, source), source, [found.repeats] if found.repeats else ())


def _stated(found: _Reading) -> TypeMeta:
    """Return the type that the decoded members state, whose names are exact now. Raises Unfit."""
    if found.failure:
        raise Unfit(found.failure)
    members = found.value or {}
    kind, api_version = members.get("kind"), members.get("apiVersion")
    try:
        group, version, _ = type_meta.read({"apiVersion": api_version if isinstance(api_version, str) else ""})
    except Unreadable:
        return TypeMeta("", "", "")
    return TypeMeta(group, version, kind if isinstance(kind, str) else "")


def _pruned(
    resource: Resource, stated: TypeMeta, found: _Reading, kinds: Kinds, *, judged: bool
) -> tuple[Object, list[str]]:
    """Return the complete object without kind and apiVersion, and the errors of strict decoding. Raises Unfit and DecodeError.

    A document of another version is pruned by the schema of that version; one of an unknown version has no known members.
    """
    obj: Object = found.value
    api_version = obj.get("apiVersion", "")
    if not isinstance(api_version, str):
        shown = f"{printing.plain(api_version)} is of the type {printing.go_type(api_version)}, expected string"
        raise Unfit(f".apiVersion accessor error: {shown}")
    metadata = read_metadata(obj.get(_METADATA))
    for name in MEMBERS:
        obj.pop(name, None)
    obj[_METADATA] = metadata.object
    paths = [f"{_METADATA}.{path}" for path in metadata.unknown]
    if (stated.group, stated.kind) == (resource.group, resource.kind):
        paths += _completed(_custom(resource, stated, kinds), obj, nulls=found.nulls, deep=_may_be_deep(found.source))
    return obj, [f'unknown field "{path}"' for path in paths] if judged else []


def _may_be_deep(source: bytes) -> bool:
    return source.count(b"{") + source.count(b"[") > patches.DEPTH


def _custom(resource: Resource, stated: TypeMeta, kinds: Kinds) -> Custom | None:
    if stated.version == resource.version:
        return resource.custom
    named = type_meta.find(stated, kinds)
    return None if named is None else named.custom


def _completed(custom: Custom | None, obj: Object, *, nulls: bool, deep: bool) -> list[str]:
    """Complete an object in place. Return the paths of its unknown members. `deep`: it may be too deep to be stored. Raises Unfit and
    DecodeError."""
    if custom is None:
        unknown = sorted(name for name in obj if name != _METADATA)
        for name in unknown:
            del obj[name]
        return unknown
    unknown = []
    in_embedded: list[str] = []
    custom.prune(obj, unknown)
    complete = custom.fill if nulls else custom.default
    complete(obj)
    wrong = custom.coerce(obj, in_embedded)
    if wrong:
        raise Unfit(wrong)
    if deep and as_json.deeper_than(obj, patches.DEPTH):
        raise DecodeError(TOO_DEEP)
    return unknown + in_embedded


def _check_type(resource: Resource, stated: TypeMeta, obj: Object) -> None:
    """Raise 422 for an object of another type. Upstream: `pkg/registry/customresource/validator.go` (ValidateTypeMeta)."""
    found = []
    if stated.kind != resource.kind:
        found.append(fieldpath.invalid("kind", stated.kind, f"must be {resource.kind}"))
    if stated.api_version != resource.api_version:
        found.append(fieldpath.invalid("apiVersion", stated.api_version, f"must be {resource.api_version}"))
    if found:
        raise errors.invalid(GroupKind(stated.group, stated.kind), meta.name(obj), found)


# Patches.


def decode_patched(terms: Terms, result: Any, sent: Document) -> Object:
    """Return the object that a patch results in, complete as that of `decode_object`. `result` is JSON text or a value.

    Its errors are a 422 about `patch`, which shows the document. Raises TakesLong instead of blocking, if `terms` are hurried.
    """
    judged = terms.validation != "Ignore"
    try:
        text = result if isinstance(result, bytes) else as_json.dumps(result)
    except RecursionError:
        raise decoding_errors.unfit("", DecodeError(TOO_DEEP)) from None
    quick = as_json.plain(text)
    if quick is None and terms.hurried and len(text) > DECODE_SLOWLY.limit:
        raise TakesLong
    try:
        found = _read_json(text, quick, judged=judged)
        type_meta.read(found.value)
        stated = _stated(found)
        if not stated.kind:
            raise Unfit(f"Object 'Kind' is missing in '{_in_order(text)}'")
        obj, unknown = _pruned(terms.resource, stated, found, terms.kinds, judged=judged)
        decoding_errors.judge(terms, [*sent.complaints, *found.repeats, *unknown])
    except (Unreadable, Unfit, DecodeError) as e:
        raise decoding_errors.unfit(_in_order(text), e) from e
    if not stated.version:
        raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    _check_type(terms.resource, stated, obj)
    return obj


def _in_order(text: bytes) -> str:
    """Return the JSON of an object as a patch leaves it upstream: sorted members, scalars as they were sent."""
    try:
        return rawjson.escaped(rawjson.sorted_text(text)).decode()
    except (ValueError, rawjson.TooDeep):
        return text.decode("utf-8", "replace")


def decode_applied(terms: Terms, value: Object, sent: Document, *, noun: str = "patch") -> Object:
    """Return the object that an applied configuration results in, without kind and apiVersion. `value` is the merged object with defaults.

    Nothing is pruned, and nulls stay: the types of the merge have refused what the schema does not know. Errors of the configuration's text
    are reported now, as 400 or as warnings; `noun` is what they call it. Metadata that cannot be read is a bare 500.
    """
    metadata = value.get(_METADATA) or {}
    try:
        managers = (sent.value.get(_METADATA) or {}).get("managedFields")
        if managers:  # unreadable ones, because an apply that names managers is refused before
            unstructured.decode(shapes.OBJECT_META, {**metadata, "managedFields": managers}, anew=False)
        decoded = unstructured.decode(shapes.OBJECT_META, metadata, anew=False).object
    except DecodeError as e:
        raise errors.raw(str(e)) from e
    try:
        # The merge may have left parts of the live object in its result.
        obj = {name: copied(x) for name, x in value.items() if name not in (*MEMBERS, _METADATA)}
    except RecursionError:
        raise errors.raw(TOO_DEEP) from None
    obj[_METADATA] = decoded
    if sent.complaints and terms.validation == "Strict":
        raise errors.bad_request(f"error strict decoding {noun}: {', '.join(sent.complaints)}")
    decoding_errors.warn(sent.complaints, terms.warnings)
    return obj
