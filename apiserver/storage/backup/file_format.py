"""The format of backups: gzip of JSON lines, in a fixed order, with checksums. Knows no store.

    {"format": "sluice-backup", "formatVersion": 1, "sluice": …, "created": …, "resources": […]}
    {"resource": "GROUP/PLURAL", "version": …, "epoch": …, "schema": …, "objects": N, "bytes": …}
    N × {"key": "NAMESPACE/NAME", "version": …, "uid": …, "value": {…}}
    {"end": "GROUP/PLURAL", "objects": N, "sha256": …}        then the next resource
    {"end": "backup", "resources": …, "objects": …, "sha256": …}

`value` is the stored JSON, byte for byte. Objects that were sent as raw JSON have `raw`, too: base64 of what is stored behind the JSON.
A value that is no JSON object in one line has only `base64`. A checksum of a resource covers its lines before the checksum. The last
one covers all lines before it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import msgspec

from apiserver.runtime.progress import Progress
from apiserver.watchcache import entry, keys

FORMAT = "sluice-backup"
VERSION = 1
"""Raised when readers of the version before would misread a file. New members do not raise it: readers ignore those."""
LEVEL = 1
"""The level of gzip. A higher level takes several times the CPU time and makes files a tenth to a third smaller."""
CHUNK_BYTES = 64 << 10
LINE_BYTES = 64 << 20
"""The longest line that a reader holds. The largest stored value has 1.5 MiB unless an operator allows more."""
MOST_OBJECTS = 20_000_000
"""Per resource. A reader remembers each key, and a file may claim anything."""
HEAD_BYTES = 1 << 20
KEY_BYTES = 1024
_GZIP = 16 + zlib.MAX_WBITS
_DIGEST_BYTES = 16
_RESOURCE = re.compile(r"[a-z0-9.-]{0,253}/[a-z0-9.-]{1,253}\Z")
_MOST_VERSION = 1 << 63


class BadBackup(Exception):
    """The file is not a whole backup. The text says what is wrong, and where."""


def is_resource(name: str) -> bool:
    """Return whether this is GROUP/PLURAL; the core group is empty."""
    return _RESOURCE.match(name) is not None


class Content(NamedTuple):
    """A resource in a backup: all its objects at one version."""

    resource: str
    version: int
    epoch: int
    schema: str
    objects: int
    bytes: int
    """The size of all values."""


class Kept(NamedTuple):
    """One object as it is stored."""

    key: str
    version: int
    uid: str
    value: bytes


class _Line(msgspec.Struct, omit_defaults=True):
    """Any line. Absent members keep their defaults."""

    format: str = ""
    format_version: int = msgspec.field(default=0, name="formatVersion")
    sluice: str = ""
    created: str = ""
    resources: list[str] | int | None = None
    resource: str = ""
    end: str = ""
    key: str = ""
    version: str = ""
    epoch: int = 0
    schema: str = ""
    objects: int | None = None
    bytes: int = 0
    uid: str = ""
    value: msgspec.Raw = msgspec.Raw(b"")
    raw: str = ""
    base64: str | None = None
    sha256: str = ""


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


def _object_line(kept: Kept) -> bytes:
    """Encode an object. Its value is inserted as it is if a reader then finds the same bytes again."""
    start = _encode(_Line(key=kept.key, version=str(kept.version), uid=kept.uid))
    value, raw = entry.split(kept.value)
    if value[:1] == b"{" and b"\r" not in value:
        sent = b',"raw":"%b"' % base64.b64encode(raw) if raw else b""
        line = b'%b,"value":%b%b}\n' % (start[:-1], value, sent)
        try:
            value.decode()
            if _value(_decode(line)) == kept.value:
                return line
        except (ValueError, RecursionError):  # no JSON, no UTF-8, or too deep for this reader
            pass
    return b'%b,"base64":"%b"}\n' % (start[:-1], base64.b64encode(kept.value))


def _value(line: _Line) -> bytes:
    """Return the stored value of an object's line. Raises ValueError."""
    if line.base64 is not None:
        return base64.b64decode(line.base64, validate=True)
    return bytes(line.value) + base64.b64decode(line.raw, validate=True)


# ---------------------------------------------------------------------------------------------------------------- writing


class Writer:
    """Writes a backup to a stream, and holds one compressed block of it at a time."""

    def __init__(self, out: BinaryIO, *, sluice: str, created: str, resources: list[str]) -> None:
        self._out = out
        self._gzip = zlib.compressobj(LEVEL, wbits=_GZIP)
        self._all, self._part = hashlib.sha256(), hashlib.sha256()
        self._objects, self._resources = 0, resources
        self._line(
            _Line(format=FORMAT, format_version=VERSION, sluice=sluice, created=created, resources=list(resources))
        )

    def begin(self, content: Content) -> None:
        self._content = content
        self._part = hashlib.sha256()
        self._line(
            _Line(
                resource=content.resource,
                version=str(content.version),
                epoch=content.epoch,
                schema=content.schema,
                objects=content.objects,
                bytes=content.bytes,
            )
        )

    def add(self, kept: Kept) -> None:
        self._objects += 1
        self._text(_object_line(kept))

    def end(self) -> None:
        self._line(_Line(end=self._content.resource, objects=self._content.objects, sha256=self._part.hexdigest()))

    def finish(self) -> None:
        """Write the last line and everything that is still held."""
        self._line(
            _Line(end="backup", resources=len(self._resources), objects=self._objects, sha256=self._all.hexdigest())
        )
        self._out.write(self._gzip.flush())
        self._out.flush()

    def _line(self, line: _Line) -> None:
        self._text(_encode(line) + b"\n")

    def _text(self, line: bytes) -> None:
        self._all.update(line)
        self._part.update(line)
        if packed := self._gzip.compress(line):
            self._out.write(packed)


# ---------------------------------------------------------------------------------------------------------------- reading


@dataclass(slots=True)
class Summary:
    """Describes a backup. `name` identifies it: the start of its checksum."""

    sluice: str = ""
    created: str = ""
    name: str = ""
    contents: list[Content] = field(default_factory=list)

    @property
    def objects(self) -> int:
        return sum(content.objects for content in self.contents)

    def lines(self) -> list[str]:
        """Describe the backup for an operator."""
        return [
            f"backup {self.name}, made {self.created} by Sluice {self.sluice}",
            *(
                f"{each.resource}: {each.objects} objects, {each.bytes} bytes, at resourceVersion {each.version}"
                for each in self.contents
            ),
        ]


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a compressed file. Holds at most LINE_BYTES. Raises BadBackup."""
    gzip, held = zlib.decompressobj(wbits=_GZIP), bytearray()
    first = True
    while not gzip.eof:
        packed = gzip.unconsumed_tail or file.read(CHUNK_BYTES)
        if first and packed[:2] != b"\x1f\x8b":
            raise BadBackup(
                "this is not a backup: it is empty" if not packed else "this is not a backup: it is not in gzip"
            )
        first = False
        if not packed:
            raise BadBackup("the file is cut off: its end is missing")
        try:
            text = gzip.decompress(packed, HEAD_BYTES)
        except zlib.error as error:
            raise BadBackup(f"the file is damaged: {error}") from None
        if b"\n" not in text:
            held += text
        else:
            *whole, rest = (bytes(held) + text).split(b"\n")
            held = bytearray(rest)
            yield from whole
        if len(held) > LINE_BYTES:
            raise BadBackup(f"a line has more than {LINE_BYTES >> 20} MiB")
    if held:
        raise BadBackup("the last line has no end")
    if gzip.unused_data or file.read(1):
        raise BadBackup("something follows the end of the backup")


class Reader:
    """Reads a backup and checks all of it on the way: order, counts, keys and checksums. `summary` grows meanwhile."""

    def __init__(self, file: BinaryIO) -> None:
        self.summary = Summary()
        self._lines = _lines(file)
        self._number = 0
        self._all = hashlib.sha256()

    def parts(self) -> Iterator[Content | Kept]:
        """Yield each resource, followed by its objects. Raises BadBackup."""
        head = self._next()
        if head.format != FORMAT:
            raise BadBackup("this is not a backup: the first line has no format")
        if head.format_version != VERSION:
            raise BadBackup(
                f"the backup has version {head.format_version} of the format, this program reads version {VERSION}: use the version of "
                f"Sluice that made it ({head.sluice[:100]!r})"
            )
        if not isinstance(head.resources, list):
            raise self._wrong("does not list the resources")
        if len(set(head.resources)) != len(head.resources):
            raise self._wrong("lists a resource twice")
        self.summary.sluice, self.summary.created = head.sluice[:100], head.created[:100]
        for resource in head.resources:
            yield from self._part(resource)
        expected = self._all.hexdigest()
        last = self._next()
        if last.end != "backup":
            raise self._wrong("is not the end of the backup")
        if last.resources != len(head.resources) or last.objects != self.summary.objects:
            raise self._wrong("counts other resources or objects than the backup has")
        if last.sha256 != expected:
            raise self._wrong("has another checksum than the backup: the file was changed")
        for _ in self._lines:
            raise BadBackup("something follows the end of the backup")
        self.summary.name = expected[:16]

    def _part(self, resource: str) -> Iterator[Content | Kept]:
        part = hashlib.sha256()
        content = self._content(self._next(part), resource)
        self.summary.contents.append(content)
        yield content
        seen: set[bytes] = set()
        size = 0
        for _ in range(content.objects):
            kept = self._object(self._next(part), content)
            mark = hashlib.blake2b(kept.key.encode(), digest_size=_DIGEST_BYTES).digest()
            if mark in seen:
                raise self._wrong(f"repeats the key {kept.key}")
            seen.add(mark)
            size += len(kept.value)
            yield kept
        if size != content.bytes:
            raise self._wrong(f"ends {size} bytes of values, not {content.bytes}")
        expected = part.hexdigest()
        end = self._next()
        if end.end != resource or end.objects != content.objects:
            raise self._wrong(f"is not the end of {resource}")
        if end.sha256 != expected:
            raise self._wrong(f"has another checksum than {resource}: the file was changed")

    def _content(self, line: _Line, resource: str) -> Content:
        if line.resource != resource or not is_resource(resource):
            raise self._wrong(f"does not begin the resource {resource[:100]!r}")
        if line.objects is None or not 0 <= line.objects <= MOST_OBJECTS:
            raise self._wrong(f"counts objects outside of 0 to {MOST_OBJECTS}")
        version = self._version(line)
        if line.epoch != keys.parts(version)[0]:
            raise self._wrong("has an epoch that is not the version's")
        return Content(resource, version, line.epoch, line.schema, line.objects, line.bytes)

    def _object(self, line: _Line, content: Content) -> Kept:
        if not line.key or len(line.key) > KEY_BYTES:
            raise self._wrong("is not an object with a key")
        version = self._version(line)
        if version > content.version:
            raise self._wrong(f"has a version above that of {content.resource}")
        try:
            value = _value(line)
        except ValueError:
            raise self._wrong("has a value that is not base64") from None
        if not value:
            raise self._wrong("has no value")
        return Kept(line.key, version, line.uid, value)

    def _version(self, line: _Line) -> int:
        digits = line.version
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) < _MOST_VERSION):
            raise self._wrong("has no version")
        return int(digits)

    def _next(self, *parts: hashlib._Hash) -> _Line:
        """Return the next line. `parts` are the checksums that cover it, beside that of the backup."""
        self._number += 1
        line = next(self._lines, None)
        if line is None:
            raise BadBackup(f"the backup ends after {self._number - 1} lines, before its last line")
        try:
            decoded = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(f"is no line of a backup: {error}") from None
        for checksum in (self._all, *parts):
            checksum.update(line)
            checksum.update(b"\n")
        return decoded

    def _wrong(self, said: str) -> BadBackup:
        return BadBackup(f"line {self._number} {said}")


def verify(file: BinaryIO, progress: Progress) -> Summary:
    """Read a whole backup. Raises BadBackup."""
    progress.begin("verifying")
    reader = Reader(file)
    for part in reader.parts():
        if isinstance(part, Content):
            progress.begin(f"verifying {part.resource}", part.objects)
        else:
            progress.advance(1)
    return reader.summary
