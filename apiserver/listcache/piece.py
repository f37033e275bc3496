"""Pieces: the parts of an answer in the order of sending, and the steps that make them.

A form yields `bytes`, pieces and steps. A step must run before the next item is asked for; a heavy one in a thread. The response sends the
bytes and the text of each piece, or, for clients that take gzip, its compressed encoding.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from apiserver.listcache import gzip
from apiserver.listcache.chunk import Chunk
from apiserver.listcache.encoding import EncodingCache, IncompleteEncoding, JoinedEncoding, Use
from apiserver.listcache.group import encoding_of
from apiserver.listcache.gzip import CompressedEncoding
from apiserver.watchcache.entry import Entry

T_co = TypeVar("T_co", covariant=True)

PORTION = 512 << 10
"""Bytes of a long answer that are worth a write: half a millisecond. A write drives everything else out of the processor's caches: with a
quarter of these bytes a third of a list's time goes by between writes. Larger copies have pages of their own (`allocator.LARGE_BYTES`),
which take longer to come and go."""

LONG = 128 << 10
"""Answers above this many bytes are compressed for clients that take it (upstream's `defaultGzipThresholdBytes`)."""

MOST_JOINED = 32
"""Pieces that are sent together, however short they are: some tenths of a millisecond."""


class Step(NamedTuple, Generic[T_co]):
    """Work that must be done before the next piece. A heavy step would hold the event loop for too long: run it in a thread."""

    run: Callable[[], T_co]
    heavy: bool = False


class Piece(ABC):
    """A part of an answer that other answers share."""

    __slots__ = ()

    @abstractmethod
    def texts(self) -> Sequence[bytes]:
        """Return its text, in one part or several."""

    @abstractmethod
    def compressed(self) -> Iterable[CompressedEncoding]:
        """Return the same compressed."""


Pieces: TypeAlias = Iterator[bytes | Piece | Step[None]]
"""An answer in the order of sending."""


def finished(pieces: Pieces) -> Iterator[bytes | Piece]:
    """Yield what is sent. Run every step in this thread, which is not the event loop's."""
    for piece in pieces:
        if isinstance(piece, Step):
            piece.run()
        else:
            yield piece


def texts(piece: bytes | Piece) -> Sequence[bytes]:
    """Return the text of a piece in parts."""
    return (piece,) if isinstance(piece, bytes) else piece.texts()


def text(piece: bytes | Piece) -> bytes:
    """Return the text of a piece."""
    return piece if isinstance(piece, bytes) else b"".join(piece.texts())


class FirstPiece(Piece):
    """The first piece of an answer that is certain to be longer than LONG. It can be sent before the others are made."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def texts(self) -> Sequence[bytes]:
        return (self.data,)

    def compressed(self) -> Iterable[CompressedEncoding]:
        return (gzip.compress(self.data),)


class Form(Protocol):
    """The part of `wire.forms.form.Form` that pieces use."""

    cache: EncodingCache
    reach: int
    """Bytes of objects that one step encodes."""

    @property
    def key(self) -> str:
        """The key of its encodings."""

    @property
    def compressed_key(self) -> str:
        """The key of its compressed encodings."""

    @property
    def keeps(self) -> bool:
        """Whether its encodings are cached."""

    def heavy(self, size: int) -> bool:
        """Report whether an object of `size` bytes takes too long for a step of the event loop."""

    def encodings_of(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """Encode several objects."""

    def joined(self, encodings: Sequence[Any]) -> Any:
        """Join the encodings of the members of a chunk."""


class ChunkPiece(Piece):
    """One chunk of a list in one form."""

    __slots__ = ("_chunk", "_compressed", "form")

    def __init__(self, form: Form, chunk: Chunk) -> None:
        self.form, self._chunk = form, chunk
        self._compressed: CompressedEncoding | None = None

    def steps(self) -> Iterator[Step[None]]:
        """Yield the work that must be done before there is a text."""
        yield from ()

    @property
    def size(self) -> int:
        """Bytes of the text, after the steps."""
        return len(self.text())

    @abstractmethod
    def text(self) -> bytes:
        """Return the elements as they stand in a list."""

    def texts(self) -> Sequence[bytes]:
        return (self.text(),)

    def cached_bytes(self) -> int:
        """Return about how many bytes are sent, or 0 if any of them are not cached."""
        self._compressed = cached = self._cached_compressed()
        return len(cached.data) if cached is not None else 0

    def compressed(self) -> Iterable[CompressedEncoding]:
        compressed = self._compressed or self._cached_compressed()
        self.form.cache.uses[Use.PIECE_MADE if compressed is None else Use.PIECE_FOUND] += 1
        if compressed is None:
            compressed = gzip.compress(self.text())
            self._keep_compressed(compressed)
        return (compressed,)

    def release(self, *, entirely: bool = False) -> None:
        """Drop what only this piece holds, or `entirely` also what the cache holds now. The steps can be repeated."""

    def _cached_compressed(self) -> CompressedEncoding | None:
        cached: CompressedEncoding | None = self._chunk.cached_compressed(self.form.compressed_key)
        return cached

    def _keep_compressed(self, compressed: CompressedEncoding) -> None:
        self._chunk.keep_compressed(self.form.cache, self.form.compressed_key, compressed, len(compressed.data))


class StoredPiece(ChunkPiece):
    """A chunk whose elements are the stored bytes. Only the compressed encoding is cached. `head` as in `together`."""

    __slots__ = ("_head",)

    def __init__(self, form: Form, chunk: Chunk, *, head: bytes = b"") -> None:
        super().__init__(form, chunk)
        self._head = head

    def text(self) -> bytes:
        return together([entry.body for entry in self._chunk.entries], self._head)

    def texts(self) -> Sequence[bytes]:
        """Copy nothing, for slow clients, unless there is a head."""
        if self._head:
            return (self.text(),)
        between = [part for entry in self._chunk.entries for part in (entry.body, b",")]
        return between[:-1]


def together(bodies: Sequence[bytes], head: bytes) -> bytes:
    """Join the elements of a list. `head` replaces the opening brace of each, unless it is empty."""
    if not head or not bodies:
        return b",".join(bodies)
    parts = [body[1:] for body in bodies]
    parts[0] = head + parts[0]
    return (b"," + head).join(parts)


class EncodedPiece(ChunkPiece):
    """A chunk whose elements must be encoded. `wants_gzip`: its client takes gzip."""

    __slots__ = ("encoding", "wants_gzip")

    encoding: Any
    """The chunk in this form; None until the steps are done."""

    def __init__(self, form: Form, chunk: Chunk, *, wants_gzip: bool = False) -> None:
        self.form, self._chunk, self.wants_gzip = form, chunk, wants_gzip
        self._compressed = None
        self.encoding = self._cached()

    def _cached(self) -> Any:
        cached = self._chunk.cached(self.form.key)
        if cached is None or isinstance(cached, IncompleteEncoding):
            return None
        self.form.cache.uses[Use.OBJECT_FOUND] += self._chunk.length
        return cached

    def cached_bytes(self) -> int:
        if self.encoding is None:
            return 0
        if not self.wants_gzip:
            return self.size
        self._compressed = cached = self._cached_compressed()
        return len(cached.data) if cached is not None else 0

    def steps(self) -> Iterator[Step[None]]:
        if self.encoding is None:
            self.encoding = self._cached()  # another list may have made it since
        if self.encoding is not None:
            return
        form = self.form
        members, at = self._begun(), 0
        while places := self._next(members, at):
            yield self._step(members, places)
            at = places[-1] + 1
        self.encoding = form.joined(members)
        if form.keeps:
            self._chunk.keep(form.cache, form.key, self.encoding, self.encoding.size)

    def release(self, *, entirely: bool = False) -> None:
        group = self._chunk.group
        if entirely or group is None or group.get(self.form.key) is not self.encoding:
            self.encoding = None

    def members(self) -> list[Any]:
        """Return the elements one by one, after the steps."""
        encoding = self.encoding
        if isinstance(encoding, JoinedEncoding):
            return encoding.members()
        return [encoding.member(at) for at in range(self._chunk.length)]

    def text(self) -> bytes:
        text: bytes = self.encoding.text
        return text

    def _begun(self) -> list[Any]:
        """Return the cached encoding of each member, or None. Lists at the same time share it: each makes what is still missing."""
        form, chunk = self.form, self._chunk
        entries = chunk.entries
        if not form.keeps:
            return [None] * len(entries)
        begun = chunk.cached(form.key)
        if not isinstance(begun, IncompleteEncoding):
            # A new group has taken over what was cached of its members.
            begun = IncompleteEncoding([encoding_of(one, form.key) if chunk.group is None else None for one in entries])
            chunk.keep(form.cache, form.key, begun, begun.size)
        missing = begun.members.count(None)
        form.cache.uses[Use.OBJECT_FOUND] += len(entries) - missing
        form.cache.uses[Use.OBJECT_MADE] += missing
        return begun.members

    def _next(self, members: Sequence[Any], at: int) -> list[int]:
        """Return the next places that are missing, as many as one step allows. A heavy object is alone in its step."""
        objects, start, reach = self._chunk.objects, self._chunk.start, self.form.reach
        places, size = list[int](), 0
        for place in range(at, len(members)):
            if members[place] is None:
                entry = objects[start + place]
                size += len(entry.body) + len(entry.verbatim)
                if size > reach and places:
                    break
                places.append(place)
        return places

    def _step(self, members: list[Any], places: Sequence[int]) -> Step[None]:
        entries = self._chunk.entries
        heavy = len(places) == 1 and self.form.heavy(entries[places[0]].size)
        return Step(functools.partial(_encode, self.form, entries, members, places), heavy)

    def _keep_compressed(self, compressed: CompressedEncoding) -> None:
        if self.form.keeps:
            super()._keep_compressed(compressed)


def _encode(form: Form, entries: Sequence[Entry], members: list[Any], places: Sequence[int]) -> None:
    for at, encoding in zip(places, form.encodings_of([entries[at] for at in places]), strict=True):
        members[at] = encoding


class JoinedPiece(Piece):
    """Pieces that are sent together, with what stands before and between them."""

    __slots__ = ("_before", "_pieces", "_separator")

    def __init__(self, before: bytes, pieces: Sequence[ChunkPiece], separator: bytes) -> None:
        self._before, self._pieces, self._separator = before, pieces, separator

    def texts(self) -> Sequence[bytes]:
        parts, before = list[bytes](), self._before
        for piece in self._pieces:
            if before:
                parts.append(before)
            parts += piece.texts()
            before = self._separator
        return parts

    def compressed(self) -> Iterator[CompressedEncoding]:
        before = self._before
        for piece in self._pieces:
            if before:
                yield gzip.compress_again(before)
            yield from piece.compressed()
            before = self._separator


def joined(pieces: Iterable[ChunkPiece], separator: bytes) -> Pieces:
    """Join the pieces of a list. Cached ones are sent together: each write costs more than they do."""
    some, size, before = list[ChunkPiece](), 0, b""
    for piece in pieces:
        more = piece.cached_bytes()
        if some and (not more or size + more > PORTION or len(some) == MOST_JOINED):
            yield JoinedPiece(before, some, separator)
            some, size, before = [], 0, separator
        if more:
            some.append(piece)
            size += more
        else:
            yield from piece.steps()
            yield JoinedPiece(before, (piece,), separator)
            before = separator
    if some:
        yield JoinedPiece(before, some, separator)
