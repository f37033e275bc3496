"""Read and write the envelope of protobuf objects: four bytes of magic, then runtime.Unknown.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`, `pkg/runtime/{types_proto,generated.pb}.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from apiserver.codecs.protobuf import protowire
from apiserver.codecs.protobuf.protowire import BYTES, DecodeError
from kubetext import utf8

MAGIC = b"k8s\0"
_TYPE_META, _RAW, _CONTENT_ENCODING, _CONTENT_TYPE = 1, 2, 3, 4
_UNKNOWN: Mapping[int, str] = MappingProxyType(
    {_TYPE_META: "TypeMeta", _RAW: "Raw", _CONTENT_ENCODING: "ContentEncoding", _CONTENT_TYPE: "ContentType"}
)
_API_VERSION, _KIND = 1, 2
_META: Mapping[int, str] = MappingProxyType({_API_VERSION: "APIVersion", _KIND: "Kind"})

TAIL = b"\x1a\0\x22\0"
"""The bytes behind the object: an empty content encoding and an empty content type."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The type that a document names, and the message of its object."""

    api_version: str = ""
    kind: str = ""
    raw: bytes = b""
    content_encoding: str = ""
    content_type: str = ""


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return the document of an object's message."""
    return head(api_version, kind, len(raw)) + raw + TAIL


def head(api_version: str, kind: str, size: int) -> bytes:
    """Return the bytes in front of an object's message of `size` bytes."""
    return opening(api_version, kind) + protowire.varint(size)


@functools.lru_cache(maxsize=128)
def opening(api_version: str, kind: str) -> bytes:
    """Return the same bytes up to the size."""
    meta = _field(_API_VERSION, api_version.encode()) + _field(_KIND, kind.encode())
    return MAGIC + _field(_TYPE_META, meta) + _tag(_RAW)


def _tag(number: int) -> bytes:
    return bytes([protowire.key(number, BYTES)])


def _field(number: int, data: bytes) -> bytes:
    return protowire.sized(_tag(number), data)


def opened(data: bytes) -> Envelope:
    """Return the contents of a document. Raises DecodeError."""
    if not data:
        raise DecodeError("empty data")
    if not data.startswith(MAGIC):
        shown = " ".join(map(str, MAGIC))
        raise DecodeError(f"provided data does not appear to be a protobuf message, expected prefix [{shown}]")
    if len(data) == len(MAGIC):
        raise DecodeError("empty body")
    found, meta = dict.fromkeys(_UNKNOWN, b""), dict.fromkeys(_META, b"")
    for number, span in protowire.spans(data[len(MAGIC) :], "Unknown", _UNKNOWN):
        found[number] = span
        if number == _TYPE_META:
            meta |= protowire.spans(span, "TypeMeta", _META)
    return Envelope(
        api_version=utf8.decoded(meta[_API_VERSION]),
        kind=utf8.decoded(meta[_KIND]),
        raw=found[_RAW],
        content_encoding=utf8.decoded(found[_CONTENT_ENCODING]),
        content_type=utf8.decoded(found[_CONTENT_TYPE]),
    )
