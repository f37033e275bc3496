"""One stored object and one change of it, as bytes plus the few attributes that selectors ask for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, NewType, Protocol

import msgspec

Revision = NewType("Revision", int)
"""An epoch and n in one number (`keys.revision`); the resourceVersion on the wire. 0 names no revision."""

Key = NewType("Key", str)
"""`namespace/name`, or `name` for cluster-scoped objects."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class IndexFunc:
    """Reads labels and the values of the indexed fields out of a stored object's bytes. Handed in by `app`; pure.

    `listed_by` are the places of those fields by whose values lists find objects.
    """

    read: Callable[[bytes], tuple[Mapping[str, str], tuple[str, ...]]]
    listed_by: tuple[int, ...] = ()


AdoptFunc = Callable[[bytes], bytes]
"""Returns a stored value as the release that this server is would store it. Handed in by `app`; pure."""

_BEGINNING = b'{"metadata":{'
_UID = b',"uid":"'


_END = b"\n"
_TEXTS = b"\n["


def split(value: bytes) -> tuple[bytes, bytes]:
    """A stored value as the line that is the object's JSON, and the second line, which most lack: how raw JSON was sent, or the version of
    a custom resource (`marked`). The second line has the line break at its front."""
    at = value.find(_END)
    return (value, b"") if at < 0 else (value[:at], value[at:])


def mark(version: str) -> bytes:
    """Return the second line of a value whose JSON is that of a version of its kind. No version begins as the texts of raw JSON do."""
    return b"\n%b" % version.encode()


def marked(behind: bytes) -> str:
    """Return the version that a second line names, or "". Raises UnicodeDecodeError."""
    return "" if behind.startswith(_TEXTS) else sys.intern(behind[1:].decode())


def splice(value: bytes, revision: int) -> bytes:
    """A stored value with its resourceVersion put where clients expect it: right behind `metadata.uid`."""
    return stamp(value, b'"%d"' % revision)


def _member(revision: int) -> bytes:
    return b',"resourceVersion":"%d"' % revision


def stamp(value: bytes, version: bytes) -> bytes:
    """The same with whatever JSON stands for a version.

    An unescaped quote cannot stand inside a JSON string, and metadata is the first member, so the first match is the member itself.
    """
    at = value.find(_UID)
    at = value.index(b'"', at + len(_UID)) + 1 if at >= 0 else len(b'{"metadata":{')
    member = b',"resourceVersion":%b' % version
    if at == len(b'{"metadata":{'):
        member = member[1:] + (b"," if value[at : at + 1] != b"}" else b"")
    return b"".join((value[:at], member, memoryview(value)[at:]))  # one copy of what may be megabytes


class CachedGroup(Protocol):
    """The encodings that an entry shares with its neighbours in lists. They lie in a cache above this package."""

    def leave(self, member: object, /) -> None:
        """Remove a member: its object was written or deleted."""


class CachedFrames(Protocol):
    """The watch frames of one event by form. They lie in the same cache."""

    def get(self, key: object, /) -> Any:
        """Return the frame of one form, or None."""

    def forget(self) -> None:
        """Drop all frames."""


class _Superseded:
    def leave(self, member: object, /) -> None:
        """Nothing is shared."""


SUPERSEDED = _Superseded()
"""The group of every entry that is no longer the newest of its object. Nothing is cached for it."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """An object at a revision.

    `body` is the JSON that clients get, resourceVersion included, without `kind` and `apiVersion`. It is never changed. `verbatim` is the
    text behind it in the stored value; decoders of raw JSON read it. `version` is that of a custom resource's body. `fields` holds the
    values of the resource's indexed fields in its own order. `group` is None until the first list needs one. `uid_hash` is for shard
    selectors, -1 until the first of them. `judged`: this process validated the object before it was stored. `adopted`: the stored bytes
    differ, because a server of another release or definition wrote them.

    No entry is part of a cycle, so the garbage collector does not look at them: with 100,000 it would hold the loop for 20 ms.
    """

    key: Key
    revision: Revision
    body: bytes
    labels: Mapping[str, str]
    fields: tuple[str, ...]
    group: CachedGroup | None = None
    uid_hash: int = -1
    verbatim: bytes = b""
    judged: bool = False
    adopted: bool = False
    version: str = ""

    readable: ClassVar[bool] = True

    @property
    def value(self) -> bytes:
        """The stored value with its resourceVersion, without the version of a custom resource."""
        return self.body + self.verbatim

    def stores(self, value: bytes) -> bool:
        """Whether this is the entry of a stored value. Most others differ in length, and are not copied."""
        behind = mark(self.version) if self.version else self.verbatim
        member = len(_member(self.revision)) if self.revision else 0
        if not 0 <= len(value) + member - len(self.body) - len(behind) <= 1 or not value.endswith(behind):
            return False
        line = value[: len(value) - len(behind)]
        return (splice(line, self.revision) if self.revision else line) == self.body

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.body) + len(self.verbatim)

    @property
    def namespace(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def uid(self) -> bytes:
        """The uid as the body has it, or an empty text."""
        start = self.body.find(_UID) + len(_UID)
        return self.body[start : self.body.index(b'"', start)] if start >= len(_UID) else b""

    def supersede(self) -> None:
        """Leave the group: the object was written or deleted."""
        if self.group is not None:
            self.group.leave(self)
        self.group = SUPERSEDED

    def at(self, revision: Revision) -> Entry:
        """The same content under another revision: how a deletion shows the last state."""
        if revision == self.revision:
            return self
        body = self.body.replace(_member(self.revision), _member(revision), 1)
        return Entry(
            self.key,
            revision,
            body,
            self.labels,
            self.fields,
            uid_hash=self.uid_hash,
            verbatim=self.verbatim,
            version=self.version,
        )


class Unreadable(Entry, gc=False, eq=False):
    """Stands for a stored value that is no object of its kind, whatever made it so: its key and revision are all that is known of it.

    `body` holds just these, so whatever shows entries can show it. It is in no list and no watch; it can be deleted.
    """

    readable: ClassVar[bool] = False

    @classmethod
    def named(cls, key: Key, revision: Revision, fields: tuple[str, ...]) -> Unreadable:
        namespace, _, name = key.rpartition("/")
        placed = f'"name":{json.dumps(name)},' + (f'"namespace":{json.dumps(namespace)},' if namespace else "")
        value = f'{{"metadata":{{{placed}"uid":""}}}}'.encode()
        return cls(key, revision, splice(value, revision), NO_LABELS, fields)

    def at(self, revision: Revision) -> Entry:
        return Unreadable.named(self.key, revision, self.fields)


def is_whole(value: bytes) -> bool:
    """Whether a stored value begins as every object that this server has stored, and is text: what the readers of its parts rely on."""
    if not value.startswith(_BEGINNING):
        return False
    try:
        return value.isascii() or bool(value.decode())
    except UnicodeDecodeError:
        return False


class EventType(IntEnum):
    """The `t` of a log entry."""

    CREATED = 0
    UPDATED = 1
    DELETED = 2


class Event(msgspec.Struct, gc=False, eq=False):
    """One change. For DELETED `entry` is the last state at the deletion's revision; `previous` is the state before (None on CREATED).

    `encodings` remembers watch frames, so that one serves all watchers. Like entries, events are in no cycle.
    """

    revision: Revision
    type: EventType
    entry: Entry
    previous: Entry | None
    encodings: CachedFrames | None = None


def batches(entries: Iterable[Entry], *, count: int, size: int) -> Iterator[list[Entry]]:
    """Yield entries in order, at most `count` at a time and of at most `size` bytes together. A larger one is alone."""
    batch: list[Entry] = []
    held = 0
    for entry in entries:
        if batch and (len(batch) == count or held + entry.size > size):
            yield batch
            batch, held = [], 0
        batch.append(entry)
        held += entry.size
    if batch:
        yield batch
