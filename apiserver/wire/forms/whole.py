"""Objects as they are. In compact JSON a list is a join of stored bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from apiserver.listcache.chunk import ListRange, chunks
from apiserver.listcache.piece import LONG, PORTION, ChunkPiece, Pieces, StoredPiece, together
from apiserver.schema import machinery
from apiserver.watchcache.entry import Entry
from apiserver.wire.forms import json_text
from apiserver.wire.forms.form import Form, Listing, ListMeta, range_of
from apiserver.wire.forms.syntax import Brackets, DocumentType, document_type

MEASURED = 32
"""Objects that are measured together, unless they are too large."""
COPIED = 1 << 20
"""Bytes of an object that are copied on the event loop. Larger blocks get fresh pages from the system, half a millisecond for each MiB."""


class Whole(Form):
    """Every member of the object. `_plain`: answers are made of the stored bytes themselves. Elements of lists say their type only in
    custom resources: there `head` replaces their opening brace."""

    step = 1 << 62
    typed = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._plain = self.syntax is json_text.COMPACT and self.resource.conversion is None
        if self._plain:
            self.reach = COPIED
        resource = self.resource
        self._type = document_type(resource.kind, resource.api_version, resource.shape)
        self.typed = resource.custom is not None
        self._element_type = self._type if self.typed else document_type("", "", resource.shape)
        self.head = self._type.head if self.typed else b""

    def source(self, entry: Entry) -> bytes:
        return entry.value if self.syntax.verbatim else entry.body

    def source_of(self, value: bytes) -> bytes:
        return value if self.syntax.verbatim else super().source_of(value)

    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        return self._type, self.served(source)

    def cached_document(self, entry: Entry) -> bytes | None:
        return self._document_of(entry)

    @property
    def keeps(self) -> bool:
        return self.syntax.costly or self.resource.conversion is not None

    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        members = b'{"metadata":%b}' % meta.json(shard=True, always=self.typed)
        type_ = document_type(self.resource.list_kind, self.resource.api_version, machinery.LIST)
        range_ = range_ or range_of(meta)
        if not self._plain:
            return self._collection(type_, members, "items", entries, range_=range_, compressed=compressed)
        around = json_text.COMPACT.brackets(type_, members, "items")
        large = self.certainly_long(entries)
        # To know how long a large list is, every object would have to be looked at before anything is sent.
        length = None if large else _length(around, entries, self.head)
        if length is not None and length <= LONG:
            pieces: Pieces = iter((_at_once(around, entries, self.head),))
        elif compressed:
            pieces = self._collection(type_, members, "items", entries, range_=range_, compressed=True).pieces
        else:
            pieces = _joined(around, entries, self.head)
        return Listing(length, pieces, large)

    def pieces(self, entries: Sequence[Entry], range_: ListRange, *, compressed: bool) -> Iterator[ChunkPiece]:
        if not self._plain:
            return super().pieces(entries, range_, compressed=compressed)
        return (StoredPiece(self, chunk, head=self.head) for chunk in chunks(entries, range_, self.cache))

    def initial(self, entries: Sequence[Entry], range_: ListRange, *, first: bool) -> Pieces:
        if not self._plain:
            yield from super().initial(entries, range_, first=first)
            return
        for bodies in batches(entries):
            yield json_text.COMPACT.events_of("ADDED", self._type, bodies, typed=False)

    def element(self, entry: Entry) -> bytes:
        if not self.syntax.costly and self.resource.conversion is None:
            return self.syntax.element(self._element_type, entry.body)
        return self.syntax.element(self._element_type, self.served(self.source(entry)))

    def elements(self, entries: Sequence[Entry]) -> list[bytes]:
        sources = [entry.body + entry.verbatim if self.syntax.verbatim else entry.body for entry in entries]
        if self.resource.conversion is not None:
            sources = list(map(self.served, sources))
        return self.syntax.elements(self._element_type, sources)


def batches(entries: Sequence[Entry]) -> Iterator[list[bytes]]:
    """Yield the bodies of as many objects as are worth a write."""
    bodies: list[bytes] = []
    size = 0
    for start in range(0, len(entries), MEASURED):
        some = [entry.body for entry in entries[start : start + MEASURED]]
        more = sum(map(len, some))
        if size + more < PORTION:
            bodies += some
            size += more
            continue
        for body in some:
            bodies.append(body)
            size += len(body)
            if size >= PORTION:
                yield bodies
                bodies, size = [], 0
    if bodies:
        yield bodies


def _length(around: Brackets, entries: Sequence[Entry], head: bytes) -> int:
    bodies = sum(map(len, [entry.body for entry in entries])) + max(len(entries) - 1, 0)
    heads = (len(head) - 1) * len(entries) if head else 0
    return len(around.opening) + bodies + heads + len(around.closing)


def _joined(around: Brackets, entries: Sequence[Entry], head: bytes) -> Pieces:
    """Join as many stored objects as are worth a write, never all of them."""
    yield around.opening
    between = b""
    for bodies in batches(entries):
        yield between + together(bodies, head)
        between = b","
    yield around.closing


def _at_once(around: Brackets, entries: Sequence[Entry], head: bytes) -> bytes:
    return b"".join((around.opening, together([entry.body for entry in entries], head), around.closing))
