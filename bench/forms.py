"""The forms in which clients ask for slices, as they ask, and how many objects an answer in each of them has."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from bench.client import JSON, PROTOBUF

_GROUP = ";g=meta.k8s.io;v=v1"
_TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@dataclass(frozen=True)
class Form:
    """`accept` of a list, and of one object or a watch where that is another."""

    name: str
    accept: str
    each: str = ""

    @property
    def watched(self) -> str:
        return self.each or self.accept

    @property
    def protobuf(self) -> bool:
        return self.accept.startswith(PROTOBUF)


WHOLE = Form("JSON", JSON)
TABLE = Form("Table", _TABLE)
MESSAGES = Form("protobuf", PROTOBUF)
METADATA = Form("metadata", f"{JSON};as=PartialObjectMetadataList{_GROUP}", f"{JSON};as=PartialObjectMetadata{_GROUP}")
METADATA_MESSAGES = Form(
    "metadata protobuf",
    f"{PROTOBUF};as=PartialObjectMetadataList{_GROUP}",
    f"{PROTOBUF};as=PartialObjectMetadata{_GROUP}",
)
FORMS = (WHOLE, TABLE, MESSAGES, METADATA, METADATA_MESSAGES)


def objects(form: Form, body: bytes, *, gzip: bool = False) -> int:
    """Count the objects of a list. Raises ValueError when the list is malformed or incomplete."""
    if gzip:
        stream = zlib.decompressobj(31)
        body = stream.decompress(body)
        if not stream.eof or stream.unused_data:
            raise ValueError("the answer is not one whole gzip stream")
    if form.protobuf:
        return _repeated(_message(body), field=2)
    document = json.loads(body)
    return len(document["rows" if document["kind"] == "Table" else "items"])


def events(form: Form, received: bytes) -> int:
    """How many ADDED events a watch has sent before its bookmark. Takes the bytes of the connection, header and chunks included."""
    body = b"".join(_chunks(received.partition(b"\r\n\r\n")[2]))
    if not form.protobuf:
        kinds = [json.loads(line)["type"] for line in body.splitlines()]
    else:
        kinds = [_text(frame, field=1) for frame in _frames(body)]
    if kinds.count("ADDED") != len(kinds) - 1 or kinds[-1] != "BOOKMARK":
        raise ValueError(f"a watch-list ended with {kinds[-3:]}")
    return len(kinds) - 1


def _chunks(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        yield body[end + 2 : end + 2 + size]
        at = end + 4 + size


def _frames(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        yield body[at + 4 : at + 4 + size]
        at += 4 + size


def _message(body: bytes) -> bytes:
    """The content of Kubernetes' envelope: magic bytes and `Unknown`, whose field 2 it is."""
    if body[:4] != b"k8s\0":
        raise ValueError("no magic bytes")
    [raw] = [body[a:b] for number, a, b in _fields(body, 4) if number == 2]
    return raw


def _repeated(message: bytes, *, field: int) -> int:
    return sum(number == field for number, _, _ in _fields(message, 0))


def _text(message: bytes, *, field: int) -> str:
    [text] = [message[a:b].decode() for number, a, b in _fields(message, 0) if number == field]
    return text


def _fields(message: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of what has a length; other fields are passed over."""
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            _, at = _varint(message, at)
            continue
        if tag & 7 != 2:
            raise ValueError(f"a field of wire type {tag & 7}")
        size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError("the message is cut off")
        yield tag >> 3, at, at + size
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
