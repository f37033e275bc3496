"""Objects as rows of a meta.k8s.io Table: the kind's columns, or name and creation time for a kind that declares none.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go` asTable, `pkg/registry/rest/table.go`.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from apiserver.apimachinery import errors, meta
from apiserver.apimachinery.request import Query
from apiserver.codecs.objects import decoding
from apiserver.listcache.chunk import Chunk, ListRange, chunks
from apiserver.listcache.encoding import Encoding, JoinedEncoding, TimedEncoding
from apiserver.listcache.gzip import CompressedEncoding
from apiserver.listcache.piece import ChunkPiece, EncodedPiece
from apiserver.schema import shapes
from apiserver.schema.resource import Column, Object, Resource
from apiserver.schema.types import Struct
from apiserver.watchcache.entry import Entry
from apiserver.wire import as_json
from apiserver.wire.forms import json_text, partial
from apiserver.wire.forms.form import INITIAL_EVENTS_END, Form, Listing, ListMeta, range_of
from apiserver.wire.forms.syntax import DocumentType, Streamed, Syntax, document_type
from apiserver.wire.representation import TABLE

logger = logging.getLogger(__name__)

NONE, METADATA, OBJECT = "None", "Metadata", "Object"
FAILED = "<error>"
"""Shown instead of a cell that raises: one object must not hide all others of its kind."""
_FAILED_SINCE = -math.inf
"""Stands for the moment from which an age counts, if reading that raises."""
_ROW = document_type("", "")
_ROW_BYTES = 256
"""Cost of a cached row besides its texts."""


def include_object(query: Query) -> str:
    """Return the part of the object that rows hold. Raises 400."""
    asked = query.text("includeObject") or METADATA
    if asked not in (NONE, METADATA, OBJECT):
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{asked}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return asked


def _documented(name: str) -> str:
    return next((field.doc for field in shapes.OBJECT_META.fields if field.name == name), "")


def _name(obj: Object, _: float) -> str:
    return str(obj["metadata"].get("name", ""))


def _created(obj: Object, _: float) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))


DEFAULT_COLUMNS = (
    Column(name="Name", cell=_name, reads=["metadata.name"], format="name", description=_documented("name")),
    Column(
        name="Created At",
        cell=_created,
        reads=["metadata.creationTimestamp"],
        type="date",
        description=_documented("creationTimestamp"),
    ),
)


def columns_of(resource: Resource) -> Sequence[Column]:
    return resource.columns or DEFAULT_COLUMNS


@functools.lru_cache(maxsize=64)
def _definitions(columns: tuple[Column, ...]) -> bytes:
    """Return the JSON of the column definitions."""
    return as_json.dumps(
        [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in columns
        ]
    )


@functools.lru_cache(maxsize=64)
def _least(syntax: Syntax, columns: int) -> int:
    """Return the bytes of the shortest row without an object."""
    return len(syntax.element(_ROW, b'{"cells":[%b],"object":null}' % b",".join([b"0"] * columns)))


_text = functools.lru_cache(maxsize=1024)(as_json.dumps)
"""Return the JSON of an age: there are not many."""


def _readable(shape: Struct, body: bytes) -> Object:
    """Return the object. Raises the decoder's error if the bytes do not fit the shape."""
    return decoding.decode(shape, as_json.loads(body), raw=body).object


Since = float | str | None
"""The moment from which an age counts, or the text of a cell without an age; None is null."""


class _Row:
    """A row's JSON, cut where an age stands: `texts` has one more than `since`. Its length is its cost in the cache."""

    __slots__ = ("since", "texts")

    def __init__(self, texts: tuple[bytes, ...], since: tuple[Since, ...]) -> None:
        self.texts = texts
        self.since = since

    def at(self, ages: _Ages) -> bytes:
        """Return its text with these ages."""
        parts = [self.texts[0]]
        for since, text in zip(self.since, self.texts[1:], strict=True):
            parts += ages[since], text
        return b"".join(parts)

    def __len__(self) -> int:
        return _ROW_BYTES + sum(map(len, self.texts))


class _Around(NamedTuple):
    """A frame without its version and its row."""

    before: bytes
    between: bytes
    behind: bytes


class _Rows(Encoding):
    """The rows of a chunk, all of the same columns, without ages."""

    __slots__ = ("_rows", "_since", "_template", "size")

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = rows
        self.size = sum(map(len, rows))
        self._template: list[bytes] = []
        for row in rows:
            for text in row.texts:
                self._template += text, b""
            self._template[-1] = b","
        self._template.pop()
        self._since = list(zip(*(row.since for row in rows), strict=True))

    def member(self, at: int) -> _Row:
        return self._rows[at]

    def at(self, ages: _Ages) -> bytes:
        """Return text, age, text, age, text, comma: as often as there are rows."""
        parts, columns = self._template.copy(), len(self._since)
        for column, since in enumerate(self._since):
            parts[1 + 2 * column :: 2 * columns + 2] = map(ages.__getitem__, since)
        return b"".join(parts)

    def framed(self, ages: _Ages, revisions: Sequence[bytes], around: _Around, first: _Around) -> bytes:
        """Return a frame for each row, `first` around the first of them."""
        count, columns = len(self._rows), len(self._since)
        texts = list(zip(*(row.texts for row in self._rows), strict=True))
        each = 2 * columns + 5
        parts: list[bytes] = [b""] * (each * count)
        parts[0::each] = [around.before] * count
        parts[1::each] = revisions
        parts[2::each] = [around.between] * count
        for column in range(columns + 1):
            parts[3 + 2 * column :: each] = texts[column]
        for column, since in enumerate(self._since):
            parts[4 + 2 * column :: each] = map(ages.__getitem__, since)
        parts[each - 1 :: each] = [around.behind] * count
        parts[0], parts[2], parts[each - 1] = first
        return b"".join(parts)

    def until(self, ages: _Ages) -> float:
        """Return the time before which the text with these ages stays as it is."""
        return min((ages.until[one] for since in self._since for one in since), default=math.inf)


class _Ages(dict[Since, bytes]):
    """The JSON of each age now, and the time before which it stays as it is, for each age that was used."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self.until: dict[Since, float] = {_FAILED_SINCE: math.inf}
        self[_FAILED_SINCE] = _text(FAILED)

    def __missing__(self, since: Since) -> bytes:
        if since is None or isinstance(since, str):
            shown, self.until[since] = since, math.inf
        else:
            shown, self.until[since] = meta.age_at(since, self.now), meta.same_age_until(since, self.now)
        age = self[since] = _text(shown)
        return age


class _TablePiece(EncodedPiece):
    """A chunk of rows. Its text and its compressed encoding are cached until an age in it changes."""

    __slots__ = ("_ages", "_shown", "_text_key")

    def __init__(self, form: Table, chunk: Chunk, ages: _Ages, *, wants_gzip: bool) -> None:
        super().__init__(form, chunk, wants_gzip=wants_gzip)
        self._text_key = form.text_key
        self._ages = ages
        self._shown: bytes | None = None

    @property
    def size(self) -> int:
        """Also known before the text is."""
        size: int = self.encoding.size
        return size

    def text(self) -> bytes:
        rows: _Rows = self.encoding
        return rows.at(self._ages)

    def texts(self) -> Sequence[bytes]:
        if self._shown is None:
            self._shown = self._cached_timed(self._text_key)
        if self._shown is None:
            self._shown = self.text()
            self._keep_timed(self._text_key, self._shown, len(self._shown))
        return (self._shown,)

    def _cached_compressed(self) -> CompressedEncoding | None:
        cached: CompressedEncoding | None = self._cached_timed(self.form.compressed_key)
        return cached

    def _keep_compressed(self, compressed: CompressedEncoding) -> None:
        self._keep_timed(self.form.compressed_key, compressed, len(compressed.data))

    def _cached_timed(self, key: str) -> Any:
        cached: TimedEncoding[Any] | None = self._chunk.cached(key)
        return cached.at(self._ages.now) if cached is not None else None

    def _keep_timed(self, key: str, encoding: Any, size: int) -> None:
        if self.form.keeps:
            rows: _Rows = self.encoding
            timed = TimedEncoding(encoding, size, self._ages.now, rows.until(self._ages))
            self._chunk.keep(self.form.cache, key, timed, size)


class Table(Form):
    """Rows with the part of the object that `includeObject` names. Rows without the whole object are cached; their ages are not."""

    step = 64 << 10

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        target = self._representation.target
        assert target is not None
        self._api_version = target.api_version
        self._type = document_type(TABLE, self._api_version)
        self._include = include_object(self.query)
        self._cut = self.syntax is json_text.COMPACT
        """Whether rows are cut where an age stands. In other syntaxes they are written whole each time."""

    def _variant(self) -> str:
        return self._include

    @property
    def varies(self) -> bool:
        """Only the first frame of a stream names the columns."""
        return True

    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        return self._shown(source, _Ages(self.clock()), first=first)

    def _shown(self, source: bytes, ages: _Ages, *, first: bool) -> tuple[DocumentType, bytes]:
        """Show one object as a Table at the object's version, which an object of a dry run does not have."""
        body = self.served(source)
        obj = self._read(body)
        version = obj["metadata"].get("resourceVersion")
        metadata = as_json.dumps({"resourceVersion": version} if version else {})
        head = self._head(metadata, _definitions(tuple(columns_of(self.resource))) if first else b"null")
        return self._type, b'%b,"rows":[%b]}' % (head, self._row(body, obj).at(ages))

    @property
    def least(self) -> int:
        return _least(self.syntax, len(columns_of(self.resource))) if self._include == NONE else super().least

    @property
    def ages(self) -> bool:
        return any(column.since is not None for column in columns_of(self.resource))

    def timed_frame(self, event_type: str, entry: Entry, *, first: bool = False) -> TimedEncoding[bytes]:
        assert isinstance(self.syntax, Streamed)
        event, ages = self.syntax.event, _Ages(self.clock())
        frame = self.readable(entry, lambda one: event(event_type, *self._shown(self.source(one), ages, first=first)))
        return TimedEncoding(frame, len(frame), ages.now, min(ages.until.values(), default=math.inf))

    @property
    def keeps(self) -> bool:
        return self._include != OBJECT and self._cut

    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        members = self._head(meta.json(), _definitions(tuple(columns_of(self.resource)))) + b"}"
        null = not self.resource.columns
        return self._collection(
            self._type, members, "rows", entries, range_=range_ or range_of(meta), compressed=compressed, null=null
        )

    @functools.cached_property
    def text_key(self) -> str:
        """The key of the rows of a chunk with their ages."""
        return sys.intern(f"{self.key} with ages")

    def pieces(self, entries: Sequence[Entry], range_: ListRange, *, compressed: bool) -> Iterator[ChunkPiece]:
        if not self._cut:
            yield from super().pieces(entries, range_, compressed=compressed)
            return
        ages = _Ages(self.clock())
        for chunk in chunks(entries, range_, self.cache):
            yield _TablePiece(self, chunk, ages, wants_gzip=compressed)

    def _events(self, event_type: str, piece: EncodedPiece, entries: Sequence[Entry], *, first: bool) -> bytes:
        around = self._around(event_type, first=False)
        begun = self._around(event_type, first=True) if first else around
        revisions = [b"%d" % entry.revision for entry in entries]
        rows: _Rows = piece.encoding
        return rows.framed(_Ages(self.clock()), revisions, around, begun)

    def _around(self, event_type: str, *, first: bool) -> _Around:
        assert isinstance(self.syntax, Streamed)
        columns = _definitions(tuple(columns_of(self.resource))) if first else b"null"
        head = self._head(b'{"resourceVersion":"\0"}', columns)
        return _Around(*self.syntax.event(event_type, self._type, b'%b,"rows":[\0]}' % head).split(b"\0"))

    def _head(self, metadata: bytes, columns: bytes) -> bytes:
        """Return a Table's members up to its rows."""
        return b'{"metadata":%b,"columnDefinitions":%b' % (metadata, columns)

    def element(self, entry: Entry) -> bytes:
        return self.syntax.element(_ROW, self._row_of(entry).at(_Ages(self.clock())))

    def encoding_of(self, entry: Entry) -> _Row | bytes:
        return self._row_of(entry) if self._cut else self.element(entry)

    def encodings_of(self, entries: Sequence[Entry]) -> Sequence[Any]:
        return [self.readable(entry, self.encoding_of) for entry in entries]

    def joined(self, encodings: Sequence[Any]) -> _Rows | JoinedEncoding:
        return _Rows(encodings) if self._cut else super().joined(encodings)

    @functools.cached_property
    def _read(self) -> Callable[[bytes], Object]:
        """Read the members of an object that a row shows."""
        reads: list[str] = ["metadata.resourceVersion"]
        if self._include == NONE:
            reads.append("metadata.annotations")
        for column in columns_of(self.resource):
            if column.reads is None:
                return as_json.loads
            reads += column.reads
        return as_json.excerpt(frozenset(reads))

    def _row_of(self, entry: Entry) -> _Row:
        body = self.served(self.source(entry))
        return self._row(body, self._read(body))

    def _row(self, body: bytes, obj: Object) -> _Row:
        texts: list[bytes] = []
        since: list[Since] = []
        now, before, cells = self.clock(), b'{"cells":[', []
        for column in columns_of(self.resource):
            if column.since is None:
                try:
                    cells.append(column.cell(obj, now))
                except Exception as e:  # noqa: BLE001 - the kind's own code
                    self._failed(column, body, e)
                    cells.append(FAILED)
                continue
            since.append(self._since(column, column.since, body, obj))
            texts.append(before + (self._written(cells, body) + b"," if cells else b""))
            before, cells = b",", []
        last = before + self._written(cells, body) if cells else before.removesuffix(b",")
        texts.append(b'%b],"object":%b}' % (last, self._attached(body, obj)))
        return _Row(tuple(texts), tuple(since))

    def _since(self, column: Column, since: Callable[[Object], float | str | None], body: bytes, obj: Object) -> Since:
        try:
            moment = since(obj)
            if moment is None:
                return column.ageless
            return moment if isinstance(moment, str) else float(moment)
        except Exception as e:  # noqa: BLE001 - the kind's own code
            self._failed(column, body, e)
            return _FAILED_SINCE

    def _written(self, cells: list[Any], body: bytes) -> bytes:
        """Return the JSON of cells side by side, without brackets."""
        try:
            return as_json.dumps(cells)[1:-1]
        except Exception:  # noqa: BLE001 - a cell may be anything
            return as_json.dumps([self._writable(cell, body) for cell in cells])[1:-1]

    def _writable(self, cell: Any, body: bytes) -> Any:
        try:
            as_json.dumps(cell)
        except Exception as e:  # noqa: BLE001 - the one that is looked for
            self._tell("a cell of a table is no JSON", body, cell=repr(cell)[:256], error=repr(e)[:1024])
            return FAILED
        return cell

    def _failed(self, column: Column, body: bytes, why: Exception) -> None:
        """Logs it. Raises `why` again where the object itself cannot be read."""
        self._tell("a cell of a table failed", body, column=column.name, error=repr(why)[:1024], why=why)

    def _tell(self, message: str, body: bytes, *, why: Exception | None = None, **more: str) -> None:
        try:
            metadata = _readable(self.resource.shape, body)["metadata"]
        except Exception as e:  # noqa: BLE001 - whatever makes it unreadable
            raise why or e from None
        key = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
        logger.error(message, extra={"resource": self.resource.storage_name, "key": key, **more})

    def _attached(self, body: bytes, obj: Object) -> bytes:
        """Return the row's object. The marker behind the initial events always has its metadata."""
        if self._include == OBJECT:
            return self.resource.head + body[1:]
        if self._include == NONE and obj["metadata"].get("annotations", {}).get(INITIAL_EVENTS_END) != "true":
            return b"null"
        return partial.partial(self._api_version, body)
