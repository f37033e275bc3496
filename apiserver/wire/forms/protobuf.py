"""Protobuf: each object a message by the numbers of its shape, in the envelope that tells what it is; the elements of a list have none.

An envelope says what its object is, then how long, before the object comes. So a list is made first and sent then: what is remembered for
others too as it is, what is not, unless it is short, once more. Only what it is can be sent before,
and is, where there is still something to make of one that is certain to be long.
Upstream: kubernetes/apimachinery `pkg/runtime/serializer/protobuf/{protobuf,collections}.go`, `pkg/util/framer/framer.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from apiserver.codecs.protobuf import envelope, messages
from apiserver.codecs.protobuf.protowire import sized, varint
from apiserver.listcache.piece import LONG, FirstPiece
from apiserver.wire.forms.syntax import ChunkPiece, DocumentType, Pieces, Sections, Streamed, joined, ready

SHORT = 256 << 10
"""Up to so many bytes of a list are kept until its length is known, though nobody else has a use for them."""
LONGEST_HELD = 24 << 20
"""Up to so many of what the cache keeps: what comes behind them may push them out of it, and then they are this list's alone."""

_TYPE, _OBJECT, _RAW = b"\x0a", b"\x12", b"\x0a"
"""Fields of a WatchEvent, and the one of the RawExtension that its object is."""
_MORE = 0x80
_FRAME = 4


class Protobuf(Streamed):
    """Watches are frames: the length in four bytes, then an event whose object stands in an envelope of its own."""

    step = 64 << 10
    costly = True
    verbatim = True

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        return envelope.envelope(type_.api_version, type_.kind, _message(type_, members))

    def element(self, type_: DocumentType, members: bytes) -> bytes:
        (made,) = self.elements(type_, (members,))
        return made

    def elements(self, type_: DocumentType, several: Sequence[bytes]) -> list[bytes]:
        assert type_.shape is not None
        return messages.fields_of_stored(type_.shape, type_.number, several)

    def collection(
        self, type_: DocumentType, members: bytes, name: str, sections: Sections | None, *, large: bool
    ) -> Pieces:
        own = _message(type_, members)
        opening = envelope.opening(type_.api_version, type_.kind)
        if large:
            yield ready(opening)
            opening = b""
        elements: list[ChunkPiece] = []
        size, held = 0, 0
        for section in sections() if sections is not None else ():
            if opening and size > LONG and not section.cached_bytes():
                yield ready(FirstPiece(opening))
                opening = b""
            yield from section.steps()
            elements.append(section)
            size += section.size
            if size > SHORT:
                while held < len(elements):
                    elements[held].release(entirely=size > LONGEST_HELD)
                    held += 1
        before, behind = (b"", own) if _come_first(type_, name) else (own, b"")
        yield ready(opening + varint(size + len(own)) + before)
        yield from joined(_given_away(elements), b"")
        yield ready(behind + envelope.TAIL)

    def event(self, event_type: str, type_: DocumentType, members: bytes) -> bytes:
        return _frame(event_type, type_, _message(type_, members))

    def document_of(self, type_: DocumentType, element: bytes) -> bytes:
        return envelope.envelope(type_.api_version, type_.kind, _inside(element))

    def event_of(self, event_type: str, type_: DocumentType, element: bytes) -> bytes:
        return _frame(event_type, type_, _inside(element))

    def events_of(self, event_type: str, type_: DocumentType, elements: Sequence[bytes], *, typed: bool) -> bytes:
        frames: list[bytes] = []
        around: dict[int, tuple[bytes, int]] = {}
        for element in elements:
            found = around.get(len(element))
            if found is None:  # what stands around a message depends on its length alone
                found = around[len(element)] = _around(event_type, type_, element)
            before, at = found
            frames += before, element[at:], envelope.TAIL
        return b"".join(frames)


def _around(event_type: str, type_: DocumentType, element: bytes) -> tuple[bytes, int]:
    """What stands before the message of an element in a frame, and where in the element the message begins."""
    message = _inside(element)
    frame = _frame(event_type, type_, message)
    return frame[: len(frame) - len(message) - len(envelope.TAIL)], len(element) - len(message)


def _given_away(sections: list[ChunkPiece]) -> Iterator[ChunkPiece]:
    """One by one: what has to be made of them once more is held by nobody when it has been sent."""
    sections.reverse()
    while sections:
        yield sections.pop()


def _come_first(type_: DocumentType, name: str) -> bool:
    """Whether the elements of a list stand before its other members."""
    assert type_.shape is not None
    return min(type_.shape.fields, key=lambda field: field.number).name == name


def _message(type_: DocumentType, members: bytes) -> bytes:
    assert type_.shape is not None
    return messages.of_stored(type_.shape, members)


def _inside(element: bytes) -> bytes:
    """The message of an element, which stands behind its key and its length."""
    at = 1
    while element[at] & _MORE:
        at += 1
    return element[at + 1 :]


def _frame(event_type: str, type_: DocumentType, message: bytes) -> bytes:
    document = envelope.envelope(type_.api_version, type_.kind, message)
    event = sized(_TYPE, event_type.encode()) + sized(_OBJECT, sized(_RAW, document))
    return len(event).to_bytes(_FRAME, "big") + event


PROTOBUF = Protobuf()
