"""JSON: compact, which is the stored bytes themselves where it can be, and indented.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/json`.
"""

from __future__ import annotations

from apiserver.wire import as_json
from apiserver.wire.forms.syntax import Brackets, DocumentType, Streamed, Syntax, fits_indented


class Compact(Streamed):
    """One line. Copies bytes and decodes nothing."""

    step = 1 << 20
    costly = False
    separator = b","

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        return b"".join((type_.head, members[1:], b"\n"))

    def untyped(self, compact: bytes) -> bytes:
        return compact + b"\n"

    def element(self, compact: bytes) -> bytes:
        return compact

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        start = b'%b%b,"%b":' % (type_.head, members[1:-1], name.encode())
        return Brackets(start + b"[", b"]}\n", start + b"[]}\n", start + b"null}\n")

    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        return b'{"type":"%b","object":%b%b}\n' % (event_type.encode(), type_.head, members[1:])

    def untyped_event(self, event_type: str, compact: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (event_type.encode(), compact)


class Indented(Syntax):
    """Two blanks a level, and no newline at the end."""

    step = 128 << 10
    costly = False
    separator = b",\n    "

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        return self.untyped(type_.head + members[1:])

    def untyped(self, compact: bytes) -> bytes:
        if not fits_indented(compact):
            return compact
        try:
            return as_json.pretty(as_json.loads(compact))
        except (as_json.TooDeep, RecursionError):
            return compact

    def element(self, compact: bytes) -> bytes:
        return self.untyped(compact).replace(b"\n", b"\n    ")

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        start = self.document(type_, members).removesuffix(b"\n}") + b',\n  "%b": ' % name.encode()
        return Brackets(start + b"[\n    ", b"\n  ]\n}", start + b"[]\n}", start + b"null\n}")


COMPACT = Compact()
INDENTED = Indented()
