"""How documents are written. A syntax knows no kind: it gets JSON text and the type of that text.

    Syntax ─┬─ Text ──── members keep their names: json_text, yaml_text
            └─ Streamed  watches can be written in it: json_text.Compact, protobuf

Upstream: kubernetes/apimachinery `pkg/runtime/interfaces.go` Serializer.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import NamedTuple

from apiserver.codecs.json import json_strings
from apiserver.listcache.encoding import JoinedEncoding
from apiserver.listcache.piece import ChunkPiece, Pieces, joined
from apiserver.schema.types import Struct


@dataclass(frozen=True, slots=True)
class DocumentType:
    """The type of a document. `head` is its JSON up to the other members. Elements have no kind if their list says it for all.

    `shape` is for a syntax that needs more than the text; None for types that such a syntax does not write (Table). `number` is that of the
    list's member which holds documents of this type.
    """

    kind: str
    api_version: str
    shape: Struct | None = None
    number: int = 2
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        # Go omits it where it is empty, as in the discovery of the core group.
        version = f'"apiVersion":"{self.api_version}",' if self.api_version else ""
        head = f'{{"kind":"{self.kind}",{version}' if self.kind else "{"
        object.__setattr__(self, "head", head.encode())


document_type = functools.lru_cache(maxsize=256)(DocumentType)
"""Return the type; each exists once."""


MOST_INDENTED = 16 << 20
"""Bytes of blanks in front of the lines of a document, two for each level. Deeply nested ones come to gigabytes."""
_STRING = re.compile(json_strings.STRING)
_LEVELS = [0] * 256
for _opening, _closing in (b"{}", b"[]"):
    _LEVELS[_opening], _LEVELS[_closing] = 1, -1
_OTHERS = bytes(c for c in range(256) if c not in b"{}[],")


def fits_indented(compact: bytes) -> bool:
    """Report whether JSON text can be written with a line for each value. Other text is written in one line, which means the same."""
    brackets = compact.count(b"{") + compact.count(b"[")
    lines = 2 * brackets + compact.count(b",")
    if 2 * brackets * lines <= MOST_INDENTED:
        return True
    structure = _STRING.sub(b"", json_strings.without_escaped_quotes(compact)).translate(None, _OTHERS)
    return 2 * sum(accumulate(map(_LEVELS.__getitem__, structure))) <= MOST_INDENTED


class Syntax(ABC):
    """One way to write documents. Stateless, each exists once.

    A document's members come as one JSON object without kind and apiVersion. Writing any `step` bytes of JSON takes some milliseconds.
    `costly`: writing takes so much longer than reading that every element of a list is cached. `verbatim`: raw JSON is written as it was
    sent, so members may come with its texts behind them (`codecs.objects.canonical`). `separator` stands between two elements of a list.
    """

    step: int
    costly: bool
    verbatim: bool = False
    separator: bytes = b""

    @abstractmethod
    def document(self, type_: DocumentType, members: bytes) -> bytes:
        """Write a whole answer."""

    @abstractmethod
    def element(self, type_: DocumentType, members: bytes) -> bytes:
        """Write an object as an element of a list."""

    def elements(self, type_: DocumentType, several: Sequence[bytes]) -> list[bytes]:
        """Write several objects, each as an element of a list."""
        return [self.element(type_, members) for members in several]

    @abstractmethod
    def collection(
        self, type_: DocumentType, members: bytes, name: str, pieces: Iterator[ChunkPiece] | None, *, large: bool
    ) -> Pieces:
        """Write a list with its elements, `pieces`, as the member `name`, and its other `members`.

        None stands for the null that some empty lists are. A `large` list begins as soon as it can.
        """

    def joined(self, elements: Sequence[bytes]) -> JoinedEncoding:
        """Join neighbours of a list."""
        return JoinedEncoding(elements, self.separator)


class Brackets(NamedTuple):
    """The text around the elements of a list. `empty` and `null` are the whole answers of lists without elements."""

    opening: bytes
    closing: bytes
    empty: bytes
    null: bytes


class Text(Syntax):
    """A syntax in which a list can begin before its length is known."""

    @abstractmethod
    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        """Write the text around a list with its elements as the member `name`, and its other `members`."""

    def collection(
        self, type_: DocumentType, members: bytes, name: str, pieces: Iterator[ChunkPiece] | None, *, large: bool
    ) -> Pieces:
        around = self.brackets(type_, members, name)
        if pieces is None:
            yield around.null
            return
        first = next(pieces, None)
        if first is None:
            yield around.empty
            return
        yield around.opening
        yield from joined(chain((first,), pieces), self.separator)
        yield around.closing


class Streamed(Syntax):
    """A syntax that watches can be written in."""

    @abstractmethod
    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        """Write a frame of a watch."""

    @abstractmethod
    def document_of(self, type_: DocumentType, element: bytes) -> bytes:
        """Write a whole answer from an element of a list that says the type for all."""

    @abstractmethod
    def event_of(self, event_type: str, type_: DocumentType, element: bytes) -> bytes:
        """Write a frame of a watch from the same."""

    @abstractmethod
    def events_of(self, event_type: str, type_: DocumentType, elements: Sequence[bytes], *, typed: bool) -> bytes:
        """Write a frame of a watch for each element. `typed`: each element says its type."""
