"""How documents are written down. A syntax knows no kind: it is given JSON text and the type that the text is of.

Upstream: kubernetes/apimachinery `pkg/runtime/interfaces.go` Serializer.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DocumentType:
    """What a document says it is. `head` is its JSON up to the other members."""

    kind: str
    api_version: str
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        head = f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'
        object.__setattr__(self, "head", head.encode())


document_type = functools.lru_cache(maxsize=256)(DocumentType)
"""Each type once."""


MOST_INDENTED = 16 << 20
"""Bytes of blanks in front of the lines of a document, two for each level. Deeply nested ones come to gigabytes."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_LEVELS = [0] * 256
for _opening, _closing in (b"{}", b"[]"):
    _LEVELS[_opening], _LEVELS[_closing] = 1, -1
_OTHERS = bytes(c for c in range(256) if c not in b"{}[],")


def fits_indented(compact: bytes) -> bool:
    """Whether JSON text can be written a line for each value. What cannot is written in one line, which says the same."""
    brackets = compact.count(b"{") + compact.count(b"[")
    lines = 2 * brackets + compact.count(b",")
    if 2 * brackets * lines <= MOST_INDENTED:
        return True
    structure = _STRING.sub(b"", compact).translate(None, _OTHERS)
    return 2 * sum(accumulate(map(_LEVELS.__getitem__, structure))) <= MOST_INDENTED


class Piece(NamedTuple):
    """A part of an answer, made when its turn comes. A heavy one would hold the event loop for too long: make it in a thread."""

    make: Callable[[], bytes]
    heavy: bool = False


class Brackets(NamedTuple):
    """What stands around the elements of a list; `empty` and `null` are the whole answer when there are none."""

    opening: bytes
    closing: bytes
    empty: bytes
    null: bytes


class Syntax(ABC):
    """One way to write. Stateless, each exists once.

    A document's members come as one JSON object without kind and apiVersion. Within `step` bytes of JSON, whatever they say, writing
    takes some milliseconds. `costly`: it takes so much longer than reading that every element of a list is remembered.
    `separator` stands between two elements of a list.
    """

    step: int
    costly: bool
    separator: bytes

    @abstractmethod
    def document(self, type_: DocumentType, members: bytes) -> bytes:
        """A whole answer."""

    @abstractmethod
    def untyped(self, compact: bytes) -> bytes:
        """A whole answer from JSON that says its type itself, if it has one."""

    @abstractmethod
    def element(self, compact: bytes) -> bytes:
        """An object as it stands in a list."""

    @abstractmethod
    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        """A list whose elements are the member `name`; `members` are its others."""

    def collection(
        self, type_: DocumentType, members: bytes, name: str, pieces: Iterator[Piece] | None
    ) -> Iterator[Piece]:
        """A whole list. Each piece holds one or more elements; None stands for the null that some empty lists are."""
        around = self.brackets(type_, members, name)
        if pieces is None:
            yield Piece(lambda: around.null)
            return
        last, before = next(pieces, None), around.opening
        if last is None:
            yield Piece(lambda: around.empty)
            return
        for piece in pieces:
            yield _within(before, last, b"")
            last, before = piece, self.separator
        yield _within(before, last, around.closing)


class Streamed(Syntax):
    """One that watches can be written in."""

    @abstractmethod
    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        """A frame of a watch."""

    @abstractmethod
    def untyped_event(self, event_type: str, compact: bytes) -> bytes:
        """A frame with an object that says its type itself."""


def _within(before: bytes, piece: Piece, behind: bytes) -> Piece:
    return Piece(lambda: b"".join((before, piece.make(), behind)), piece.heavy)
