"""Objects as they are. In compact JSON a list is a join of stored bytes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from apiserver.schema import machinery
from apiserver.watchcache.entry import Entry
from apiserver.wire.forms import json_text
from apiserver.wire.forms.form import Form, Listing, ListMeta
from apiserver.wire.forms.syntax import DocumentType, Piece, document_type

PIECE = 256 << 10
"""Bytes after which a piece of a list of stored bytes is handed on."""


class Whole(Form):
    """Every member of the object. `_plain`: answers are made of the stored bytes themselves."""

    step = 1 << 62

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._plain = self.syntax is json_text.COMPACT and self.resource.conversion is None
        if self._plain:
            self.reach = self.step
        resource = self.resource
        self._type = document_type(resource.kind, resource.api_version, resource.shape)
        self._element_type = document_type("", "", resource.shape)

    def source(self, entry: Entry) -> bytes:
        return entry.value if self.syntax.verbatim else entry.body

    def source_of(self, value: bytes) -> bytes:
        return value if self.syntax.verbatim else super().source_of(value)

    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        return self._type, self.served(source)

    def remembered(self, entry: Entry) -> bytes | None:
        return self._document_of(entry)

    def listing(self, entries: Sequence[Entry], meta: ListMeta) -> Listing:
        members = b'{"metadata":%b}' % meta.json(shard=True)
        type_ = document_type(self.resource.list_kind, self.resource.api_version, machinery.LIST)
        if not self._plain:
            return self._collection(type_, members, "items", entries)
        around = json_text.COMPACT.brackets(type_, members, "items")
        bodies = [entry.body for entry in entries]
        length = len(around.opening) + sum(map(len, bodies)) + max(len(bodies) - 1, 0) + len(around.closing)
        return Listing(length, _joined(around.opening, bodies, around.closing))

    def element(self, entry: Entry) -> bytes:
        if not self.syntax.costly and self.resource.conversion is None:
            return self.syntax.element(self._element_type, entry.body)
        element: bytes | None = self._remembered(entry)
        if element is None:
            element = self.syntax.element(self._element_type, self.served(self.source(entry)))
            self.cache.remember(entry, self.key, element, size=len(element), in_turn=True)
        return element


def _joined(opening: bytes, bodies: Sequence[bytes], closing: bytes) -> Iterator[Piece]:
    """Joins as many stored objects as make up a piece, never all of them."""
    start, size, before = 0, 0, opening
    for end, body in enumerate(bodies, 1):
        size += len(body)
        if size >= PIECE:
            yield Piece(functools.partial(_join, before, bodies[start:end], b""))
            start, size, before = end, 0, b","
    if start < len(bodies):
        yield Piece(functools.partial(_join, before, bodies[start:], closing))
    else:
        yield Piece(lambda: (opening if not bodies else b"") + closing)


def _join(before: bytes, bodies: Sequence[bytes], behind: bytes) -> bytes:
    return b"".join((before, b",".join(bodies), behind))
