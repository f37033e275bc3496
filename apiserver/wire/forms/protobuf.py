"""Protobuf: each object is a message by the numbers of its shape, in an envelope with its type. The elements of a list have no envelope.

An envelope has the type and the length of its object before the object. So a list is encoded first and sent then. Cached pieces are sent as
they are; the others are encoded once more, unless the list is short. Only the type can be sent before: it is, if a list is certain to be
long and not all of it is cached.
Upstream: kubernetes/apimachinery `pkg/runtime/serializer/protobuf/{protobuf,collections}.go`, `pkg/util/framer/framer.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from apiserver.codecs.protobuf import envelope, messages
from apiserver.codecs.protobuf.protowire import sized, varint
from apiserver.listcache.piece import LONG, ChunkPiece, FirstPiece, Pieces, joined
from apiserver.wire.forms.syntax import DocumentType, Streamed

SHORT = 256 << 10
"""Up to so many bytes of a list that are not cached are held until its length is known."""
LONGEST_HELD = 24 << 20
"""Up to so many cached bytes are held. The pieces behind them may push them out of the cache, and then only this list holds them."""

_TYPE, _OBJECT, _RAW = b"\x0a", b"\x12", b"\x0a"
"""Fields of a WatchEvent, and of the RawExtension that holds its object."""
_MORE = 0x80
_FRAME = 4


class Protobuf(Streamed):
    """Frames of watches have their length in four bytes, then an event. Its object has an envelope of its own."""

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
        self, type_: DocumentType, members: bytes, name: str, pieces: Iterator[ChunkPiece] | None, *, large: bool
    ) -> Pieces:
        own = _message(type_, members)
        opening = envelope.opening(type_.api_version, type_.kind)
        if large:
            yield opening
            opening = b""
        made: list[ChunkPiece] = []
        size, held = 0, 0
        for piece in pieces or ():
            if opening and size > LONG and not piece.cached_bytes():
                yield FirstPiece(opening)
                opening = b""
            yield from piece.steps()
            made.append(piece)
            size += piece.size
            if size > SHORT:
                while held < len(made):
                    made[held].release(entirely=size > LONGEST_HELD)
                    held += 1
        before, behind = (b"", own) if _come_first(type_, name) else (own, b"")
        yield opening + varint(size + len(own)) + before
        yield from joined(_given_away(made), b"")
        yield behind + envelope.TAIL

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
            if found is None:  # the bytes around a message depend on its length alone
                found = around[len(element)] = _around(event_type, type_, element)
            before, at = found
            frames += before, element[at:], envelope.TAIL
        return b"".join(frames)


def _around(event_type: str, type_: DocumentType, element: bytes) -> tuple[bytes, int]:
    """Return the bytes of a frame before an element's message, and where in the element the message begins."""
    message = _inside(element)
    frame = _frame(event_type, type_, message)
    return frame[: len(frame) - len(message) - len(envelope.TAIL)], len(element) - len(message)


def _given_away(pieces: list[ChunkPiece]) -> Iterator[ChunkPiece]:
    """Yield pieces and hold none: a piece that is encoded once more is freed when it has been sent."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def _come_first(type_: DocumentType, name: str) -> bool:
    """Report whether the elements of a list stand before its other members."""
    assert type_.shape is not None
    return min(type_.shape.fields, key=lambda field: field.number).name == name


def _message(type_: DocumentType, members: bytes) -> bytes:
    assert type_.shape is not None
    return messages.of_stored(type_.shape, members)


def _inside(element: bytes) -> bytes:
    """Return the message of an element, which stands behind its key and its length."""
    at = 1
    while element[at] & _MORE:
        at += 1
    return element[at + 1 :]


def _frame(event_type: str, type_: DocumentType, message: bytes) -> bytes:
    document = envelope.envelope(type_.api_version, type_.kind, message)
    event = sized(_TYPE, event_type.encode()) + sized(_OBJECT, sized(_RAW, document))
    return len(event).to_bytes(_FRAME, "big") + event


PROTOBUF = Protobuf()
