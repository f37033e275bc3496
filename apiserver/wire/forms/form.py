"""One form of an answer: what of an object is shown, written in one syntax. A request has one, and verbs ask nothing else.

    Form ─ what is shown          Syntax ─ how it is written
    whole.py    Whole             json_text.py   Compact, Indented
    table.py    Table             yaml_text.py   Yaml
    partial.py  Partial, PartialList   protobuf.py    Protobuf

Whatever takes longer than a step of the event loop may is marked: `heavy` objects and heavy pieces are for a thread.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go`.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from apiserver.apimachinery.request import Query
from apiserver.codecs.objects import canonical, conversion
from apiserver.kinds import type_meta
from apiserver.listcache import group as groups
from apiserver.listcache.encoding import EncodingCache
from apiserver.listcache.group import ListRange
from apiserver.listcache.piece import LONG
from apiserver.schema import machinery
from apiserver.schema.resource import Resource
from apiserver.schema.types import Struct
from apiserver.watchcache.entry import NO_LABELS, Entry, split
from apiserver.wire import as_json
from apiserver.wire.forms import media
from apiserver.wire.forms.sections import EncodedPiece
from apiserver.wire.forms.syntax import ChunkPiece, DocumentType, Pieces, Step, Streamed, document_type, ready
from apiserver.wire.representation import Representation

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONVERSION_STEP = 64 << 10
"""Bytes of objects that are turned into another version of their kind in one step."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the initial events."""


UNREADABLE = ValueError, LookupError, TypeError, AttributeError, RecursionError
"""What is raised for a stored object that is not what it should be, whoever wrote it."""


class NoFrame(Exception):
    """The form has no event form (a list of partial metadata): the stream ends at its first event, as upstream's does."""


class ListMeta(NamedTuple):
    """What is told of a list as a whole: the version of the state that it is of, how to go on, how many objects are left then, and the
    selector of the shard that it is."""

    revision: int
    continue_token: str = ""
    remaining: int | None = None
    shard: str = ""

    def json(self, *, shard: bool = False) -> bytes:
        """The list's metadata. Only lists of whole objects tell the shard, as upstream's do."""
        members: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            members["continue"] = self.continue_token
        if self.remaining is not None:
            members["remainingItemCount"] = self.remaining
        if shard and self.shard:
            members["shardInfo"] = {"selector": self.shard}
        return as_json.dumps(members)


class Listing(NamedTuple):
    """A list to be sent; its length in bytes if that is known before it is made. A `large` one is certain to be LONG."""

    length: int | None
    pieces: Pieces
    large: bool = False


class TimedEncoding(NamedTuple, Generic[T]):
    """What was made of objects with their ages, in bytes as many as `size`: the same from one moment up to another."""

    what: T
    size: int
    since: float
    until: float

    def at(self, now: float) -> T | None:
        return self.what if self.since <= now < self.until else None


LEAST_BYTES = 60
"""Neither an object nor its metadata is shown in less: a name of one letter, uid, version and time take as many in protobuf, and more
elsewhere."""


class Form(ABC):
    """The answers to one request. Values are stored bytes of `resource`; all methods but `listing` take their time at once.

    `step`: as `Syntax.step`, for finding out what is shown. Raises 400 when it is made, for a query that does not fit.
    """

    step: int
    typed = True
    """Whether the elements of a list say what they are."""
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
        """Whether what is made of an object is kept, for others who ask for this form."""
        return True

    @functools.cached_property
    def compressed_key(self) -> str:
        """The same for what was compressed."""
        return sys.intern(f"{self.key} deflated")

    @functools.cached_property
    def key(self) -> str:
        """What an encoding in this form is remembered under, beside objects of all served versions of a kind."""
        resource, rep = self.resource, self._representation
        target = f"{rep.target.kind}.{rep.target.version}" if rep.target is not None else ""
        served = f"{resource.group}/{resource.version}/{resource.plural}"
        return sys.intern(f"{served} {rep.media} {rep.pretty} {target} {self._variant()}")

    def _variant(self) -> str:
        """What else tells two forms apart."""
        return ""

    def source(self, entry: Entry) -> bytes:
        """What of a stored value this form is made of: the JSON of the object."""
        return entry.body

    def source_of(self, value: bytes) -> bytes:
        """The same of a value that is no entry's."""
        return split(value)[0]

    def served(self, source: bytes) -> bytes:
        """A stored object in the version that is asked for."""
        return conversion.value(self.resource, source)

    def heavy(self, size: int) -> bool:
        """Whether an object whose value has so many bytes takes too long for a step of the event loop."""
        return size > self.reach

    @abstractmethod
    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        """The type and the JSON members of what one object is shown as; `first` of its stream."""

    def single(self, value: bytes) -> bytes:
        """One object. Raises 406 for a form that only lists have."""
        return self.syntax.document(*self.shown(self.source_of(value)))

    def remembered(self, entry: Entry) -> bytes | None:
        """A stored object as `single` would write it; None when that has to be made."""
        return None

    @abstractmethod
    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        """Many objects; `range_` says which, where these are not all there are. `compressed`: perhaps they are sent so.

        Raises 406 for a form that only single objects have, at once.
        """

    def initial(self, entries: Sequence[Entry], range_: ListRange, *, first: bool) -> Pieces:
        """The frames that show them at the begin of a watch, `first` in their stream. Raises NoFrame."""
        for run in groups.chunks(entries, range_, self.cache):
            section = EncodedPiece(self, run)
            yield from section.steps()
            yield ready(self._events("ADDED", section, run.entries, first=first))
            first = False

    def _events(self, event_type: str, section: EncodedPiece, entries: Sequence[Entry], *, first: bool) -> bytes:
        """A frame for each element."""
        assert isinstance(self.syntax, Streamed)
        return self.syntax.events_of(event_type, self._type, section.cut(), typed=self.typed)

    @property
    def varies(self) -> bool:
        """Whether the first frame of a stream differs from the others."""
        return False

    @property
    def least(self) -> int:
        """As few bytes as an element of a list can have."""
        return LEAST_BYTES

    def certainly_long(self, entries: Sequence[Entry]) -> bool:
        """Whether a list of so many is LONG, whatever they are."""
        return len(entries) * self.least > LONG

    @property
    def ages(self) -> bool:
        """Whether what is shown of an object changes as time goes by. Then whoever keeps a frame asks for one that is `told`."""
        return False

    def timed_frame(self, event_type: str, entry: Entry, *, first: bool = False) -> TimedEncoding[bytes]:
        """As `frame`, with the time for which it holds."""
        frame = self.frame(event_type, entry, first=first)
        return TimedEncoding(frame, len(frame), -math.inf, math.inf)

    def frame(self, event_type: str, entry: Entry, *, first: bool = False) -> bytes:
        """One event of a watch. Raises NoFrame."""
        return self.readable(entry, lambda one: self._event(event_type, one, first=first))

    def _event(self, event_type: str, entry: Entry, *, first: bool) -> bytes:
        """From what is remembered where writing is costly: watchers begin with the same objects."""
        if not self.syntax.costly:
            return self._frame(event_type, self.source(entry), first=first)
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event_of(event_type, self._type, self.element(entry))

    def _frame(self, event_type: str, source: bytes, *, first: bool) -> bytes:
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event(event_type, *self.shown(source, first=first))

    def bookmark(self, revision: int, *, marker: bool, first: bool = False) -> bytes:
        """The zero object of the kind at `revision`. `marker` tells that the initial events are complete."""
        return self._frame("BOOKMARK", _zero_at(self.resource.stored.shape, revision, marker=marker), first=first)

    def error(self, status: dict[str, Any]) -> bytes:
        """An ERROR event. Its Status passes every conversion unchanged."""
        assert isinstance(self.syntax, Streamed)
        return self.syntax.event("ERROR", *_typed(status, machinery.STATUS))

    @abstractmethod
    def element(self, entry: Entry) -> bytes:
        """An object as it stands in a list."""

    def elements(self, entries: Sequence[Entry]) -> list[bytes]:
        """Several objects as each stands in a list."""
        return list(map(self.element, entries))

    def encoding_of(self, entry: Entry) -> Any:
        """What is kept of an object for lists: its element."""
        return self.element(entry)

    def encodings_of(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """The same of several, of those that cannot be read too."""
        try:
            return self.elements(entries)
        except UNREADABLE:  # one of them
            return [self.readable(entry, self.encoding_of) for entry in entries]

    def joined(self, parts: Sequence[Any]) -> Any:
        """What is kept of neighbours."""
        return self.syntax.joined(parts)

    def readable(self, entry: Entry, make: Callable[[Entry], T]) -> T:
        """What `make` makes of the entry. One that cannot be read, whatever made it so, is shown as the zero object of its name, so that
        it hides no other and can be found."""
        try:
            return make(entry)
        except UNREADABLE as e:
            about = {"resource": self.resource.storage_name, "key": entry.key, "error": repr(e)[:1024]}
            logger.error("a stored object cannot be read", extra=about)
            return make(_nameplate(entry, self.resource.stored.shape))

    def _document_of(self, entry: Entry) -> bytes | None:
        """From its element of a list, in a syntax whose elements are remembered and say nothing of where they stand."""
        if not self.syntax.costly or not isinstance(self.syntax, Streamed):
            return None
        element = groups.member(entry, self.key)
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
        """A list that is made section by section. `null`: an empty one is no array."""
        sections = (
            None if null and not entries else functools.partial(self.sections, entries, range_, compressed=compressed)
        )
        large = self.certainly_long(entries)
        pieces = self.syntax.collection(type_, members, name, sections, large=large)
        return Listing(None, pieces, large)

    def sections(self, entries: Sequence[Entry], range_: ListRange, *, compressed: bool) -> Iterator[ChunkPiece]:
        """The objects of a list in this form."""
        for run in groups.chunks(entries, range_, self.cache):
            yield EncodedPiece(self, run, compressed=compressed)


def range_of(meta: ListMeta) -> ListRange:
    """Of a list whose objects lie side by side."""
    return ListRange(meta.revision, ends=not meta.continue_token)


def _nameplate(entry: Entry, shape: Struct) -> Entry:
    metadata = {"name": entry.name, "namespace": entry.namespace, "resourceVersion": str(entry.revision)}
    members = as_json.dumps({name: text for name, text in metadata.items() if text})
    body = b'{"metadata":%b%b' % (members, _zero(shape)[len(_EMPTY) :])
    return Entry(entry.key, entry.revision, body, NO_LABELS, ())


def status(representation: Representation, value: Mapping[str, Any]) -> Step[bytes]:
    """An error's Status."""
    return document(representation, value, machinery.STATUS)


def document(representation: Representation, value: Mapping[str, Any], shape: Struct) -> Step[bytes]:
    """Any document that says what it is."""
    syntax = media.syntax(representation.media, pretty=representation.pretty)
    type_, members = _typed(value, shape)
    return Step(lambda: syntax.document(type_, members), len(members) > syntax.step)


def _typed(value: Mapping[str, Any], shape: Struct) -> tuple[DocumentType, bytes]:
    """What a document says it is, and the JSON of its other members."""
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
