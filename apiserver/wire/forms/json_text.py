"""JSON: compact, which is the stored bytes themselves where it can be, and indented.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/json`.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.wire import as_json
from apiserver.wire.forms.syntax import Brackets, DocumentType, Streamed, Text, fits_indented


class Compact(Text, Streamed):
    """One line. Copies bytes and decodes nothing."""

    step = 1 << 20
    costly = False
    separator = b","

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        return b"".join((type_.head, members[1:], b"\n"))

    def element(self, type_: DocumentType, members: bytes) -> bytes:
        return type_.head + members[1:] if type_.kind else members

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        start = b'%b%b,"%b":' % (type_.head, members[1:-1], name.encode())
        return Brackets(start + b"[", b"]}\n", start + b"[]}\n", start + b"null}\n")

    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        return b'{"type":"%b","object":%b%b}\n' % (event_type.encode(), type_.head, members[1:])

    def document_of(self, type_: DocumentType, element: bytes) -> bytes:
        return self.document(type_, element)

    def event_of(self, event_type: str, type_: DocumentType, element: bytes) -> bytes:
        return self.event(event_type, type_, element)

    def events_of(self, event_type: str, type_: DocumentType, elements: Sequence[bytes], *, typed: bool) -> bytes:
        head = b'{"type":"%b","object":%b' % (event_type.encode(), b"{" if typed else type_.head)
        return b"".join((head, (b"}\n" + head).join([element[1:] for element in elements]), b"}\n"))


class Indented(Text):
    """Two blanks a level, and no newline at the end."""

    step = 128 << 10
    costly = False
    separator = b",\n    "

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        compact = type_.head + members[1:]
        if not fits_indented(compact):
            return compact
        try:
            return as_json.indent(compact)
        except RecursionError:
            return compact

    def element(self, type_: DocumentType, members: bytes) -> bytes:
        return self.document(type_, members).replace(b"\n", b"\n    ")

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        start = self.document(type_, members).removesuffix(b"\n}") + b',\n  "%b": ' % name.encode()
        return Brackets(start + b"[\n    ", b"\n  ]\n}", start + b"[]\n}", start + b"null\n}")


COMPACT = Compact()
INDENTED = Indented()
