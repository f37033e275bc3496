"""How documents are written down. A syntax knows no kind: it is given JSON text and the type that the text is of.

    Syntax ─┬─ Text ──── members keep their names: json_text, yaml_text
            └─ Streamed  watches can be written in it: json_text.Compact, protobuf

Upstream: kubernetes/apimachinery `pkg/runtime/interfaces.go` Serializer.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Generic, NamedTuple, TypeVar

from apiserver.codecs.json import json_strings
from apiserver.listcache import gzip
from apiserver.listcache.encoding import JoinedEncoding
from apiserver.listcache.gzip import CompressedEncoding
from apiserver.listcache.piece import PORTION, Piece
from apiserver.schema.types import Struct


@dataclass(frozen=True, slots=True)
class DocumentType:
    """What a document is. `head` is its JSON up to the other members; an element of a list that says it for all has no kind.

    `shape` is for a syntax that needs more than the text; None for what such a syntax does not write (Table). `number` is that of the
    member of a list in which documents of this type stand.
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
"""Each type once."""


MOST_INDENTED = 16 << 20
"""Bytes of blanks in front of the lines of a document, two for each level. Deeply nested ones come to gigabytes."""
_STRING = re.compile(json_strings.STRING)
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
    structure = _STRING.sub(b"", json_strings.without_escaped_quotes(compact)).translate(None, _OTHERS)
    return 2 * sum(accumulate(map(_LEVELS.__getitem__, structure))) <= MOST_INDENTED


T_co = TypeVar("T_co", covariant=True)


class Step(NamedTuple, Generic[T_co]):
    """A part of an answer, made when its turn comes. A heavy one would hold the event loop for too long: make it in a thread."""

    run: Callable[[], T_co]
    heavy: bool = False


Pieces = Iterator[Step[bytes | Piece]]
"""The parts of a list in their order; of those that are empty nothing is sent, they are work to be done."""


class ChunkPiece(ABC):
    """Some neighbouring elements of a list, with what stands between them."""

    __slots__ = ()
    size: int
    """Bytes of the text, once the work is done."""

    @abstractmethod
    def cached_bytes(self) -> int:
        """About how many bytes are sent of it, where nothing has to be made for that; else 0."""

    @abstractmethod
    def steps(self) -> Pieces:
        """What has to be done before its text is there."""

    @abstractmethod
    def text(self) -> bytes:
        """The elements as they stand in a list."""

    def texts(self) -> Sequence[bytes]:
        """The same in the pieces in which it is there."""
        return (self.text(),)

    @abstractmethod
    def compressed(self) -> CompressedEncoding:
        """The same compressed."""

    @abstractmethod
    def release(self, *, entirely: bool = False) -> None:
        """Forgets what was made for it alone, or `entirely`: whoever keeps the rest may give it up. The work can be done once more."""


class JoinedPiece(NamedTuple):
    """Sections one behind the other, with what stands before and between them: a segment."""

    before: bytes
    sections: Sequence[ChunkPiece]
    separator: bytes

    def texts(self) -> Sequence[bytes]:
        parts, before = list[bytes](), self.before
        for section in self.sections:
            if before:
                parts.append(before)
            parts += section.texts()
            before = self.separator
        return parts

    def compressed(self) -> Iterator[CompressedEncoding]:
        before = self.before
        for section in self.sections:
            if before:
                yield gzip.compress_again(before)
            yield section.compressed()
            before = self.separator


MOST_JOINED = 32
"""Sections that go together, however little is sent of them: some tenths of a millisecond."""


def joined(sections: Iterable[ChunkPiece], separator: bytes) -> Pieces:
    """All of them. Those that are at hand go together: what each step costs is more than what they do."""
    some, size, before = list[ChunkPiece](), 0, b""
    for section in sections:
        more = section.cached_bytes()
        if some and (not more or size + more > PORTION or len(some) == MOST_JOINED):
            yield ready(JoinedPiece(before, some, separator))
            some, size, before = [], 0, separator
        if more:
            some.append(section)
            size += more
        else:
            yield from section.steps()
            yield ready(JoinedPiece(before, (section,), separator))
            before = separator
    if some:
        yield ready(JoinedPiece(before, some, separator))


Sections = Callable[[], Iterator[ChunkPiece]]
"""The elements of a list, once for each call."""


class Syntax(ABC):
    """One way to write. Stateless, each exists once.

    A document's members come as one JSON object without kind and apiVersion. Within `step` bytes of JSON, whatever they say, writing
    takes some milliseconds. `costly`: it takes so much longer than reading that every element of a list is remembered. `verbatim`: raw
    JSON is written as it was sent, so members may come with its texts behind them (`schema.canonical`). `separator` stands between two
    elements of a list.
    """

    step: int
    costly: bool
    verbatim: bool = False
    separator: bytes = b""

    @abstractmethod
    def document(self, type_: DocumentType, members: bytes) -> bytes:
        """A whole answer."""

    @abstractmethod
    def element(self, type_: DocumentType, members: bytes) -> bytes:
        """An object as it stands in a list."""

    def elements(self, type_: DocumentType, several: Sequence[bytes]) -> list[bytes]:
        """Several objects as each stands in a list."""
        return [self.element(type_, members) for members in several]

    @abstractmethod
    def collection(
        self, type_: DocumentType, members: bytes, name: str, sections: Sections | None, *, large: bool
    ) -> Pieces:
        """A list whose elements are the member `name`; `members` are its others. None stands for the null that some empty lists are. A
        `large` one begins as soon as it can."""

    def joined(self, elements: Sequence[bytes]) -> JoinedEncoding:
        """Neighbours in a list."""
        return JoinedEncoding(elements, self.separator)


class Brackets(NamedTuple):
    """What stands around the elements of a list; `empty` and `null` are the whole answer when there are none."""

    opening: bytes
    closing: bytes
    empty: bytes
    null: bytes


class Text(Syntax):
    """One in which a list can be opened before it is known how long it will be."""

    @abstractmethod
    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        """A list whose elements are the member `name`; `members` are its others."""

    def collection(
        self, type_: DocumentType, members: bytes, name: str, sections: Sections | None, *, large: bool
    ) -> Pieces:
        around = self.brackets(type_, members, name)
        if sections is None:
            yield ready(around.null)
            return
        elements = sections()
        first = next(elements, None)
        if first is None:
            yield ready(around.empty)
            return
        yield ready(around.opening)
        yield from joined(chain((first,), elements), self.separator)
        yield ready(around.closing)


def ready(part: bytes | Piece) -> Step[bytes | Piece]:
    """What is there already."""
    return Step(lambda: part)


class Streamed(Syntax):
    """One that watches can be written in."""

    @abstractmethod
    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        """A frame of a watch."""

    @abstractmethod
    def document_of(self, type_: DocumentType, element: bytes) -> bytes:
        """A whole answer from an object as it stands in a list that says the type for all."""

    @abstractmethod
    def event_of(self, event_type: str, type_: DocumentType, element: bytes) -> bytes:
        """A frame of a watch from the same."""

    @abstractmethod
    def events_of(self, event_type: str, type_: DocumentType, elements: Sequence[bytes], *, typed: bool) -> bytes:
        """Frames of a watch, one for each object as it stands in a list. `typed`: there each says its type."""
