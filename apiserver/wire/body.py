"""Decode request bodies to objects: media type, syntax, kind, shape, defaults, and the errors of strict decoding.

The texts are those of kube-apiserver.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/{create,update,patch,rest}.go`, kubernetes/apimachinery
`pkg/runtime/serializer/{json/json,protobuf/protobuf,versioning/versioning}.go`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import as_written, json_syntax, rawjson
from apiserver.codecs.objects import conversion, decoding, defaults, unstructured
from apiserver.codecs.protobuf import envelope as as_protobuf
from apiserver.codecs.protobuf import messages
from apiserver.codecs.yaml import as_yaml
from apiserver.kinds import type_meta
from apiserver.kinds.served import Kinds
from apiserver.kinds.type_meta import TypeMeta, Unfit, Unreadable
from apiserver.runtime.offload import DECODE, DECODE_PROTOBUF, DECODE_SLOWLY, Work, run_sized
from apiserver.schema import machinery
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Struct
from apiserver.wire import as_json, complaints, custom_body, decoding_errors, negotiation, representation
from apiserver.wire.decoding_errors import TakesLong, Terms
from apiserver.wire.patches import Document
from kubetext import printing, quoting

__all__ = [
    "ELEMENT",
    "TakesLong",
    "Terms",
    "check_content_type",
    "decode_applied",
    "decode_delete_options",
    "decode_merged",
    "decode_object",
    "decode_patched",
    "size_estimate",
]

ELEMENT = 32
"""Bytes of a value with its name, in typical objects."""


def size_estimate(raw: bytes, content_type: str) -> int:
    """Return the size in bytes of a typical object that takes as much work as this body. Very many small values take more work than their
    bytes suggest, and protobuf is dense."""
    if content_type.startswith(negotiation.PROTOBUF):
        return 4 * len(raw)
    return max(len(raw), ELEMENT * (raw.count(b",") + raw.count(b"\n"))) if len(raw) <= DECODE.limit else len(raw)


# Media types.


def check_content_type(content_type: str) -> str:
    """Return the media type of an object's body; JSON if none is stated. Raises 415."""
    media = _media_type(content_type) if content_type else negotiation.JSON
    if media not in negotiation.ACCEPTED:
        raise errors.unsupported_media_type(negotiation.ACCEPTED)
    return media


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA = re.compile(rf"{_TOKEN}(?:/{_TOKEN})?")
_PARAMETER = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*(?:({_TOKEN})|"((?:[^"\\\r\n]|\\.)*)")')
_ESCAPED = re.compile(r'\\([()<>@,;:\\"/\[\]?=])')


def _media_type(content_type: str) -> str:
    """Return the type in lower case; "" if Go's MIME parser would refuse the header (golang/go `src/mime/mediatype.go`). A parameter may be
    repeated with the same value."""
    media, semicolon, _ = content_type.partition(";")
    values: dict[str, str] = {}
    at = len(media)
    while parameter := _PARAMETER.match(content_type, at):
        name, bare, quoted = parameter.groups()
        value = bare if bare is not None else _ESCAPED.sub(r"\1", quoted)
        if values.setdefault(name.lower(), value) != value:
            return ""
        at = parameter.end()
    media = media.strip().lower()
    complete = not semicolon or content_type[at:].strip() in ("", ";")
    return media if complete and _MEDIA.fullmatch(media) else ""


# Objects.


class _Document(NamedTuple):
    """A decoded body: its value, its JSON text (empty for YAML), the shape that decoded it, and its repeated keys.

    `written` is the text from which `as_written` reads all repeated members; empty if not needed.
    """

    value: Any
    source: bytes
    text: bytes = b""
    shape: Struct | None = None
    suspicious: bool = False
    written: str = ""
    repeats: str = ""

    def type_meta(self, resource: Resource) -> TypeMeta:
        """Return kind and version of the document. Raises Unreadable."""
        return type_meta.read(self.value).completed(resource)

    def decoded(self, resource: Resource) -> decoding.Decoded:
        """Return an object of that kind, without defaults. Raises decoding.DecodeError."""
        value = self.value
        if self.text and self.shape is not resource.shape:
            value = (
                as_written.read(resource.shape, self.written)
                if self.written
                else as_json.loads(self.text, resource.shape)
            )
        members = as_written.without(value or {}, type_meta.MEMBERS)
        if self.written:
            return decoding.decode_written(resource.shape, members)
        return decoding.decode(resource.shape, members, raw=self.text)

    def complaints(self, resource: Resource, unknown: list[str]) -> list[str]:
        """Return the errors of strict decoding, in its order. The text about repeated YAML keys is one error and comes first."""
        found = [self.repeats] if self.repeats else []
        in_order: list[str] = []
        if self.suspicious:
            rule = complaints.shaped(resource.shape, extra=type_meta.MEMBERS)
            # If nothing is repeated, the text need not be read again.
            in_order = (
                complaints.find_in_text(self.written, rule) if self.written else complaints.find_in(self.value, rule)
            )
        return found + (in_order or [f"unknown field {quoting.go_quote(path)}" for path in unknown])


@dataclass(frozen=True, slots=True)
class _Message:
    """A body in protobuf. Strict decoding finds no errors in it."""

    envelope: as_protobuf.Envelope

    def type_meta(self, resource: Resource) -> TypeMeta:
        stated = self.envelope
        kind = stated.kind or resource.kind
        return type_meta.of_message(stated.api_version, kind, group=resource.group, version=resource.version)

    def decoded(self, resource: Resource) -> decoding.Decoded:
        """Return an object of that kind. Raises messages.DecodeError, and 413."""
        return decoding.Decoded(_message(resource.shape, self.envelope.raw), [])

    def complaints(self, resource: Resource, unknown: list[str]) -> list[str]:
        return []


def _message(shape: Struct, raw: bytes) -> Object:
    """Return the object of a message."""
    try:
        return messages.decode(shape, raw, parse=_raw_json)
    except messages.TooManyValues:
        raise json_syntax.too_many_values() from None


def _raw_json(text: bytes) -> Any:
    """Return the value of raw JSON. Raises ValueError with Go's text."""
    try:
        return rawjson.of(text)
    except rawjson.TooDeep:
        raise
    except ValueError:
        json_syntax.check(text)
        raise


@dataclass(slots=True)
class _Decoded:
    object: Object
    complaints: list[str] = field(default_factory=list)


async def decode_object(
    resource: Resource,
    content_type: str,
    raw: bytes,
    *,
    kinds: Kinds,
    now: str,
    validation: str,
    warnings: Warnings,
) -> Object:
    """Return the object of a POST or PUT in its stored form, with defaults, without kind and apiVersion. Raises 415 and 400.

    `kinds` are all kinds. `validation` is Strict, Warn or Ignore.
    """
    media = check_content_type(content_type)
    if resource.custom is not None:
        size = size_estimate(raw, media)
        return await custom_body.decode_object(
            resource, media, raw, size=size, kinds=kinds, validation=validation, warnings=warnings
        )
    quick = as_json.plain(raw, resource.shape) if media == negotiation.JSON and len(raw) <= DECODE.limit else None
    decode = functools.partial(
        _object,
        resource,
        media,
        raw,
        quick,
        kinds=kinds,
        now=now,
        validation=validation,
        warnings=warnings,
    )
    if quick is not None:
        return await run_sized(DECODE, size_estimate(raw, media), decode)
    return await run_sized(_work(media), len(raw), decode)


def _work(media: str) -> Work:
    """Return the work of decoding a body that may not be in order."""
    return DECODE_PROTOBUF if media == negotiation.PROTOBUF else DECODE_SLOWLY


def _object(
    resource: Resource,
    media: str,
    raw: bytes,
    quick: as_json.Reading | None,
    *,
    kinds: Kinds,
    now: str,
    validation: str,
    warnings: Warnings,
) -> Object:
    try:
        document = _read(media, raw, resource.shape, quick)
        meta = document.type_meta(resource)
    except Unreadable as e:
        raise decoding_errors.unrecognized(resource, raw, e) from e
    try:
        decoded = _decode(resource, meta, document, kinds, now=now, judged=validation != "Ignore")
        if decoded.complaints and validation == "Strict":
            raise Unfit(decoding_errors.strict_text(decoded.complaints))
    except (Unfit, decoding.DecodeError, messages.DecodeError) as e:
        raise decoding_errors.unhandled(resource, meta, e) from e
    decoding_errors.warn(decoded.complaints, warnings)
    if meta.api_version != resource.api_version:
        what = f"the API version in the data ({meta.api_version})"
        raise errors.bad_request(f"{what} does not match the expected API version ({resource.api_version})")
    return decoded.object


def _read(media: str, raw: bytes, shape: Struct, quick: as_json.Reading | None = None) -> _Document | _Message:
    """Decode a body. `shape` is the expected one; `quick` is an earlier result. Raises Unreadable, and 413."""
    try:
        if media == negotiation.PROTOBUF:
            return _Message(as_protobuf.opened(raw))
        json_syntax.check_memory(raw)
        if media == negotiation.JSON:
            return _read_json(raw, shape, quick)
        converted = as_yaml.read(raw)
        return _Document(converted.value, raw, repeats=converted.repeats)
    except as_json.SyntaxProblem as e:
        raise Unreadable(f"{decoding_errors.SYNTAX}{e}") from e
    except messages.TooManyValues:
        raise json_syntax.too_many_values() from None
    except (as_yaml.YAMLProblem, messages.DecodeError) as e:
        raise Unreadable(str(e)) from e


def _read_json(raw: bytes, shape: Struct, quick: as_json.Reading | None = None) -> _Document:
    """Decode JSON. Raises SyntaxProblem."""
    plain = quick or as_json.plain(raw, shape)
    if plain is not None:
        return _Document(plain.value, raw, raw, shape)
    whole = as_json.plain(raw)
    if whole is not None:
        # Nothing is repeated: the document has members that the shape does not know.
        return _Document(whole.value, raw, raw, suspicious=True)
    text = as_json.checked(raw)
    return _Document(as_written.read(shape, text), raw, raw, shape, suspicious=True, written=text)


def _decode(
    resource: Resource,
    meta: TypeMeta,
    document: _Document | _Message,
    kinds: Kinds,
    *,
    now: str,
    judged: bool,
) -> _Decoded:
    """Return the document as an object of the endpoint's kind. Raises Unfit and decoding.DecodeError.

    A document of another served kind is decoded as that kind first, whose errors therefore win. Another version of the same kind is
    accepted.
    """
    if not meta.version and isinstance(document, _Document):
        raise Unfit(f"Object 'apiVersion' is missing in '{document.source.decode('utf-8', 'replace')}'")
    claimed = type_meta.find(meta, kinds)
    into = type_meta.hub_type(resource)
    if claimed is None:
        raise type_meta.unregistered(meta, kinds.known, into)
    found = document.decoded(claimed)
    if (claimed.group, claimed.kind) != (resource.group, resource.kind):
        raise type_meta.unconvertible(meta, into)
    defaults.apply(claimed.shape, found.object, now=now)
    return _Decoded(
        conversion.stored(claimed, found.object), document.complaints(claimed, found.unknown) if judged else []
    )


# Patches.


def decode_patched(terms: Terms, result: Any, sent: Document) -> Object:
    """Return the object that a patch results in, in its stored form, with defaults, as `decode_object` does. `result` is JSON text or a
    value.

    Its errors are a 422 about `patch`, which shows the document. Raises TakesLong instead of blocking, if `terms` are hurried.
    """
    if terms.resource.custom is not None:
        return custom_body.decode_patched(terms, result, sent)
    judged = terms.validation != "Ignore"
    try:
        text = result if isinstance(result, bytes) else as_json.dumps(result)
    except RecursionError:
        raise decoding_errors.unfit("", decoding.DecodeError(decoding.TOO_DEEP)) from None
    quick = as_json.plain(text, terms.resource.shape)
    if quick is None and terms.hurried and len(text) > DECODE_SLOWLY.limit:
        raise TakesLong
    try:
        decoded = _patched(terms.resource, text, quick, terms.kinds, now=terms.now, judged=judged)
        decoding_errors.judge(terms, [*sent.complaints, *decoded.complaints])
    except (Unreadable, Unfit, decoding.DecodeError) as e:
        raise decoding_errors.unfit(text.decode(), e) from e
    return decoded.object


def decode_merged(terms: Terms, value: Object, sent: Document) -> Object:
    """Return the same for a strategic merge patch. Its 422 shows the patch as merging has left it. kind and apiVersion are ignored."""
    try:
        decoded = unstructured.decode(terms.resource.shape, value)
        unknown = decoded.unknown if terms.validation != "Ignore" else ()
        decoding_errors.judge(terms, [*sent.complaints, *(f'unknown field "{path}"' for path in unknown)])
    except (Unfit, decoding.DecodeError) as e:
        raise decoding_errors.unfit(printing.plain(sent.value), e) from e
    return _completed(terms, decoded.object)


def decode_applied(terms: Terms, value: Object, sent: Document, *, noun: str = "patch") -> Object:
    """Return the same for an applied configuration.

    The configuration and the live object were validated before the merge. An error found all the same (an invalid quantity, the time of a
    manager) is a bare 500.

    `noun` is what errors call the configuration.

    Raw JSON still has its text if the result is the live object itself: nothing changed then, and it stays as it was sent. Errors of the
    configuration are reported only now: as 400 or as warnings.
    """
    if terms.resource.custom is not None:
        return custom_body.decode_applied(terms, value, sent, noun=noun)
    shape = terms.resource.shape
    managers = (sent.value.get("metadata") or {}).get("managedFields")
    try:
        if managers:  # unreadable ones, because an apply that names managers is refused before
            unstructured.decode(shape, {"metadata": {**value["metadata"], "managedFields": managers}}, anew=False)
        found = unstructured.decode(shape, value, anew=False).object
    except decoding.DecodeError as e:
        raise errors.raw(_not_converted(terms.resource, sent.value, str(e))) from e
    completed = _completed(terms, found)
    if sent.complaints and terms.validation == "Strict":
        raise errors.bad_request(f"error strict decoding {noun}: {', '.join(sent.complaints)}")
    decoding_errors.warn(sent.complaints, terms.warnings)
    return completed


def _completed(terms: Terms, found: Object) -> Object:
    defaults.apply(terms.resource.shape, found, now=terms.now)
    return conversion.stored(terms.resource, found)


def _not_converted(resource: Resource, patch: Object, why: str) -> str:
    kind, metadata = f"{resource.api_version}, Kind={resource.kind}", patch.get("metadata") or {}
    where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {kind}"
    return f"failed to convert new object ({where}) to proper version: unable to convert unstructured object to {kind}: {why}"


def _patched(
    resource: Resource, text: bytes, quick: as_json.Reading | None, kinds: Kinds, *, now: str, judged: bool
) -> _Decoded:
    document = _read_json(text, resource.shape, quick)
    meta = type_meta.read(document.value)
    if not meta.version and not meta.group:
        return _without_version(resource, meta, document.value or {}, now=now, judged=judged)
    completed = meta.completed(resource)
    return _decode(resource, completed, document, kinds, now=now, judged=judged)


def _without_version(resource: Resource, meta: TypeMeta, value: Object, *, now: str, judged: bool) -> _Decoded:
    """Decode a document without apiVersion. Upstream uses its version-independent type, which shares no member name with any version."""
    if meta.kind not in ("", resource.kind):
        raise type_meta.not_registered_internally(meta.kind, resource.group)
    shape = resource.stored.shape
    empty = decoding.decode(shape, {}).object
    defaults.apply(shape, empty, now=now)
    unknown = [name for name in value if name not in type_meta.MEMBERS] if judged else []
    return _Decoded(empty, [f"unknown field {quoting.go_quote(name)}" for name in unknown])


# Delete options.


async def decode_delete_options(content_type: str, raw: bytes) -> Object:
    """Return the unchecked members of a DeleteOptions body that is not empty. Raises 415 and 400. The same for every resource."""
    media = check_content_type(content_type)
    return await run_sized(_work(media), len(raw), _delete_options, media, raw)


def _delete_options(media: str, raw: bytes) -> Object:
    try:
        document = _read(media, raw, machinery.DELETE_OPTIONS)
        if isinstance(document, _Message):
            return _options_of(document.envelope)
        type_meta.check_delete_options(type_meta.read(document.value))
        members: Object = document.value or {}
        if document.written or (document.text and _is_unspelled(members)):
            written = members if document.written else as_json.written(raw, machinery.DELETE_OPTIONS)
            stated = as_written.without(written, type_meta.MEMBERS)
            return decoding.decode_written(machinery.DELETE_OPTIONS, stated).object
    except (Unreadable, Unfit, decoding.DecodeError, messages.DecodeError) as e:
        raise errors.bad_request(str(e)) from e
    return members


def _is_unspelled(members: Object) -> bool:
    """Return whether the error about a number shows how it was written."""
    return isinstance(members.get("gracePeriodSeconds"), float)


def _options_of(envelope: as_protobuf.Envelope) -> Object:
    group, version = representation.META_GROUP, representation.META_VERSIONS[0]
    meta = type_meta.of_message(envelope.api_version, envelope.kind, group=group, version=version)
    type_meta.check_delete_options(meta)
    return _message(machinery.DELETE_OPTIONS, envelope.raw)
