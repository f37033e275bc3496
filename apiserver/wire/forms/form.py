"""The form of an answer: which part of an object is shown, written in one syntax. Each request has one. Verbs use nothing else.

    Form: the part that is shown  Syntax: how it is written
    whole.py    Whole             json_text.py   Compact, Indented
    table.py    Table             yaml_text.py   Yaml
    partial.py  Partial, PartialList   protobuf.py    Protobuf

`heavy` objects and steps take longer than a step of the event loop may: callers give them to a thread.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go`.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from apiserver.apimachinery.request import Query
from apiserver.codecs.objects import canonical, conversion
from apiserver.kinds import type_meta
from apiserver.listcache import group
from apiserver.listcache.chunk import ListRange, chunks
from apiserver.listcache.encoding import EncodingCache, TimedEncoding
from apiserver.listcache.piece import LONG, ChunkPiece, EncodedPiece, Pieces, Step
from apiserver.schema import machinery
from apiserver.schema.resource import Resource
from apiserver.schema.types import Struct
from apiserver.watchcache.entry import NO_LABELS, Entry, split
from apiserver.wire import as_json
from apiserver.wire.forms import media
from apiserver.wire.forms.syntax import DocumentType, Streamed, document_type
from apiserver.wire.representation import Representation

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONVERSION_STEP = 64 << 10
"""Bytes of objects that are converted into another version in one step."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the initial events."""


UNREADABLE = ValueError, LookupError, TypeError, AttributeError, RecursionError
"""Errors that a stored object raises if it is not valid."""


class NoFrame(Exception):
    """The form has no event form (a list of partial metadata): the stream ends at its first event, as upstream's does."""


class ListMeta(NamedTuple):
    """The metadata of a list: the revision of its state, the token of the next page, how many objects remain, the selector of its shard."""

    revision: int
    continue_token: str = ""
    remaining: int | None = None
    shard: str = ""

    def json(self, *, shard: bool = False, always: bool = False) -> bytes:
        """Return the metadata as JSON. Only lists of whole objects have the shard, as upstream's do. `always`: it has `continue` although
        there is no further page."""
        members: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token or always:
            members["continue"] = self.continue_token
        if self.remaining is not None:
            members["remainingItemCount"] = self.remaining
        if shard and self.shard:
            members["shardInfo"] = {"selector": self.shard}
        return as_json.dumps(members)


class Listing(NamedTuple):
    """A list to be sent, with its length in bytes if that is known before. A `large` one is certain to be longer than LONG."""

    length: int | None
    pieces: Pieces
    large: bool = False


LEAST_BYTES = 60
"""No object and no metadata is shorter: a name of one letter, uid, version and time take so many bytes in protobuf, and more elsewhere."""


class Form(ABC):
    """The answers to one request. Values are stored bytes of `resource`. Only `listing` and `initial` work in steps.

    `step`: as `Syntax.step`, for selecting what is shown. The constructor raises 400 for a query that does not fit.
    """

    step: int
    typed = True
    """Whether the elements of a list have their type."""
    _type: DocumentType

    def __init__(
        self,
        representation: Representation,
        resource: Resource,
        *,
        query: Query,
        clock: Callable[[], float],
        cache: EncodingCache,
    ) -> None:
        self.media = representation.media
        self.clock = clock
        self.resource = resource
        self.cache = cache
        self._representation = representation
        self.query = query
        self.syntax = media.syntax(representation.media, pretty=representation.pretty)
        converted = CONVERSION_STEP if resource.conversion is not None else self.step
        self.reach = min(self.step, self.syntax.step, converted)

    @property
    def keeps(self) -> bool:
        """Whether encodings in this form are cached."""
        return True

    @functools.cached_property
    def compressed_key(self) -> str:
        """The key of compressed encodings."""
        return sys.intern(f"{self.key} compressed")

    @functools.cached_property
    def key(self) -> str:
        """The key of encodings in this form. It differs for each served version of a kind."""
        resource, rep = self.resource, self._representation
        target = f"{rep.target.kind}.{rep.target.version}" if rep.target is not None else ""
        served = f"{resource.group}/{resource.version}/{resource.plural}"
        return sys.intern(f"{served} {rep.media} {rep.pretty} {target} {self._variant()}")

    def _variant(self) -> str:
        """Return what else the key consists of."""
        return ""

    def source(self, entry: Entry) -> bytes:
        """Return the part of a stored value that this form reads: the JSON of the object."""
        return entry.body

    def source_of(self, value: bytes) -> bytes:
        """Return the same part of a value without an entry."""
        return split(value)[0]

    def served(self, source: bytes) -> bytes:
        """Convert a stored object into the version of the request."""
        return conversion.value(self.resource, source)

    def heavy(self, size: int) -> bool:
        """Report whether an object of `size` bytes takes too long for a step of the event loop."""
        return size > self.reach

    @abstractmethod
    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        """Return the type and the JSON members of the document that shows one object, `first` in its stream."""

    def single(self, value: bytes) -> bytes:
        """Write one object. Raises 406 for a form that only lists have."""
        return self.syntax.document(*self.shown(self.source_of(value)))

    def cached_document(self, entry: Entry) -> bytes | None:
        """Return a stored object as `single` would write it, or None if that is not cached."""
        return None

    @abstractmethod
    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        """Write a list. `range_` is the part of the resource that it shows, by default all of it. `compressed`: the client takes gzip.

        Raises 406 at once for a form that only single objects have.
        """

    def initial(self, entries: Sequence[Entry], range_: ListRange, *, first: bool) -> Pieces:
        """Write the initial events of a watch, `first` in their stream. Raises NoFrame."""
        for chunk in chunks(entries, range_, self.cache):
            piece = EncodedPiece(self, chunk)
            yield from piece.steps()
            yield self._events("ADDED", piece, chunk.entries, first=first)
            first = False

    def _events(self, event_type: str, piece: EncodedPiece, entries: Sequence[Entry], *, first: bool) -> bytes:
        """Write a frame for each element."""
        assert isinstance(self.syntax, Streamed)
        return self.syntax.events_of(event_type, self._type, piece.members(), typed=self.typed)

    @property
    def varies(self) -> bool:
        """Whether the first frame of a stream differs from the others."""
        return False

    @property
    def least(self) -> int:
        """The fewest bytes that an element of a list can have."""
        return LEAST_BYTES

    def certainly_long(self, entries: Sequence[Entry]) -> bool:
        """Report whether a list of so many objects is longer than LONG for certain."""
        return len(entries) * self.least > LONG

    @property
    def ages(self) -> bool:
        """Whether this form shows ages. Then a cached frame must be a `timed_frame`."""
        return False

    def timed_frame(self, event_type: str, entry: Entry, *, first: bool = False) -> TimedEncoding[bytes]:
        """Write one event of a watch, with the time for which it holds."""
        frame = self.frame(event_type, entry, first=first)
        return TimedEncoding(frame, len(frame), -math.inf, math.inf)

    def frame(self, event_type: str, entry: Entry, *, first: bool = False) -> bytes:
        """Write one event of a watch. Raises NoFrame."""
        return self.readable(entry, lambda one: self._event(event_type, one, first=first))

    def _event(self, event_type: str, entry: Entry, *, first: bool) -> bytes:
        """Encode one event. Costly syntaxes reuse the cached encoding, since many watchers start with the same objects."""
        if not self.syntax.costly:
            return self._frame(event_type, self.source(entry), first=first)
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event_of(event_type, self._type, self.element(entry))

    def _frame(self, event_type: str, source: bytes, *, first: bool) -> bytes:
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event(event_type, *self.shown(source, first=first))

    def bookmark(self, revision: int, *, marker: bool, first: bool = False) -> bytes:
        """Write the zero object of the kind at `revision`. `marker`: the initial events are complete."""
        return self._frame("BOOKMARK", _zero_at(self.resource.stored.shape, revision, marker=marker), first=first)

    def error(self, status: dict[str, Any]) -> bytes:
        """Write an ERROR event. Its Status passes every conversion unchanged."""
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event("ERROR", *_typed(status, machinery.STATUS))

    @abstractmethod
    def element(self, entry: Entry) -> bytes:
        """Encode an object as it stands in a list."""

    def elements(self, entries: Sequence[Entry]) -> list[bytes]:
        """Encode several objects as each stands in a list."""
        return list(map(self.element, entries))

    def encoding_of(self, entry: Entry) -> Any:
        """Encode an object for lists, as it is cached."""
        return self.element(entry)

    def encodings_of(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """Encode several objects for lists, also such as cannot be read."""
        try:
            return self.elements(entries)
        except UNREADABLE:  # one of them
            return [self.readable(entry, self.encoding_of) for entry in entries]

    def joined(self, encodings: Sequence[Any]) -> Any:
        """Join the encodings of neighbours."""
        return self.syntax.joined(encodings)

    def readable(self, entry: Entry, make: Callable[[Entry], T]) -> T:
        """Return what `make` makes of the entry. An object that cannot be read is shown as the zero object of its name.

        So it hides no other object, and its name can be found.
        """
        try:
            return make(entry)
        except UNREADABLE as e:
            about = {"resource": self.resource.storage_name, "key": entry.key, "error": repr(e)[:1024]}
            logger.error("a stored object cannot be read", extra=about)
            return make(_nameplate(entry, self.resource.stored.shape))

    def _document_of(self, entry: Entry) -> bytes | None:
        """Write a document from a cached element of a list, in a syntax whose elements do not depend on their place."""
        if not self.syntax.costly or not isinstance(self.syntax, Streamed):
            return None
        element = group.encoding_of(entry, self.key)
        return None if element is None else self.syntax.document_of(self._type, element)

    def _collection(
        self,
        type_: DocumentType,
        members: bytes,
        name: str,
        entries: Sequence[Entry],
        *,
        range_: ListRange,
        compressed: bool,
        null: bool = False,
    ) -> Listing:
        """Write a list piece by piece. `null`: without elements it has null instead of an array."""
        large = self.certainly_long(entries)
        pieces = None if null and not entries else self.pieces(entries, range_, compressed=compressed)
        return Listing(None, self.syntax.collection(type_, members, name, pieces, large=large), large)

    def pieces(self, entries: Sequence[Entry], range_: ListRange, *, compressed: bool) -> Iterator[ChunkPiece]:
        """Yield the objects of a list, chunk by chunk."""
        for chunk in chunks(entries, range_, self.cache):
            yield EncodedPiece(self, chunk, wants_gzip=compressed)


def range_of(meta: ListMeta) -> ListRange:
    """Return the range of a list that leaves no object out."""
    return ListRange(meta.revision, ends=not meta.continue_token)


def _nameplate(entry: Entry, shape: Struct) -> Entry:
    metadata = {"name": entry.name, "namespace": entry.namespace, "resourceVersion": str(entry.revision)}
    members = as_json.dumps({name: text for name, text in metadata.items() if text})
    body = b'{"metadata":%b%b' % (members, _zero(shape)[len(_EMPTY) :])
    return Entry(entry.key, entry.revision, body, NO_LABELS, ())


def status(representation: Representation, value: Mapping[str, Any]) -> Step[bytes]:
    """Write an error's Status."""
    return document(representation, value, machinery.STATUS)


def document(representation: Representation, value: Mapping[str, Any], shape: Struct) -> Step[bytes]:
    """Write any document that has its kind and apiVersion."""
    syntax = media.syntax(representation.media, pretty=representation.pretty)
    type_, members = _typed(value, shape)
    return Step(lambda: syntax.document(type_, members), len(members) > syntax.step)


def _typed(value: Mapping[str, Any], shape: Struct) -> tuple[DocumentType, bytes]:
    """Return the type of a document, and the JSON of its other members."""
    type_ = document_type(value["kind"], value["apiVersion"], shape)
    return type_, as_json.dumps({name: x for name, x in value.items() if name not in type_meta.MEMBERS})


_EMPTY = b'{"metadata":{}'


def _zero_at(shape: Struct, revision: int, *, marker: bool) -> bytes:
    annotation = b',"annotations":{"%b":"true"}' % INITIAL_EVENTS_END.encode() if marker else b""
    return b'{"metadata":{"resourceVersion":"%d"%b}%b' % (revision, annotation, _zero(shape)[len(_EMPTY) :])


@functools.lru_cache(maxsize=64)
def _zero(shape: Struct) -> bytes:
    zero = canonical.zero(shape)
    return as_json.dumps({"metadata": {}, **{name: x for name, x in zero.items() if name != "metadata"}})
