"""Derive types, sizes and values from the OpenAPI schema of a custom resource.

A value is converted only where an expression reads it; a document is never copied. A schema is its JSON: `type`,
`format`, `properties`, `additionalProperties`, `items`, `nullable`, the limits, and the `x-kubernetes-…` extensions.
Documents should fit their schema: a part that does not is an error where it is read.
Upstream: kubernetes/apiserver `pkg/cel/common/{schemas,valuesunstructured,maplist}.go`, `pkg/cel/openapi`, `pkg/cel/escaping.go`.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from kubecel.check.declarations import Shape
from kubecel.kubernetes.environments import NEWEST, Version
from kubecel.parse.language import RESERVED
from kubecel.values.errors import EvaluationError, Panic
from kubecel.values.times import MAX_INT, Duration, Timestamp, parse_duration, parse_timestamp
from kubecel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    list_of,
    map_of,
    opaque,
    struct,
)
from kubecel.values.values import ABSENT, ListView, MapView, Value, equal, find_key, is_list, is_map, text
from kubetext import printing
from kubetext.deepequal import deep_equal

Schema = Mapping[str, Any]

# The largest request of a server limits values that no schema limits.
_REQUEST = 3 * 1024 * 1024
# The longest JSON of times, quotation marks included.
_DURATION_SIZE, _DATE_SIZE, _TIME_SIZE = 32, 12, 32

_ESCAPED = re.compile(r"__|[-./]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_UNESCAPED = re.compile(r"__([^_]+)__")
_PLAIN = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*", re.ASCII)


def escape(name: str) -> str | None:
    """Return the identifier by which an expression reads a field; None without one."""
    if _PLAIN.fullmatch(name) is None:
        return None
    if name in RESERVED:
        return f"__{name}__"
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)


def unescape(name: str) -> str | None:
    """Return the field of an identifier; None for an unknown escape."""
    if "__" not in name:
        return name
    wrong = False

    def replace(match: re.Match[str]) -> str:
        nonlocal wrong
        word = match[1]
        if word in _UNESCAPES:
            return _UNESCAPES[word]
        wrong = wrong or word not in RESERVED or match[0] != name
        return word

    unescaped = _UNESCAPED.sub(replace, name)
    return None if wrong else unescaped


# Types and sizes


class Declared(NamedTuple):
    """A shape, and the least bytes of its JSON, which limit the number of values in one request."""

    shape: Shape
    least: int

    @property
    def most(self) -> int:
        """How many of these values one request can hold (maxCardinality)."""
        return _REQUEST // (self.least + 1)


def declared(schema: Schema, name: str, *, resource: bool = False, release: Version = NEWEST) -> Declared | None:
    """Return what expressions see of a schema, whose objects are named after `name`.

    It is None when they cannot see it (SchemaDeclType). The root of a `resource` always has apiVersion, kind,
    metadata.name and metadata.generateName. From 1.37 on their lengths are limited.
    """
    return _Declarer(release).declared(schema, name, resource=resource)


_SCALARS = {
    "boolean": Declared(Shape(type=BOOL), 4),
    "number": Declared(Shape(type=DOUBLE), 1),
    "integer": Declared(Shape(type=INT), 1),
}


class _Declarer:
    """Derives shapes as one release does."""

    def __init__(self, release: Version) -> None:
        self._release = release

    def declared(self, schema: Schema, name: str, *, resource: bool) -> Declared | None:
        if _is_int_or_string(schema):
            size = _length(schema, _REQUEST - 2)
            return Declared(Shape(type=DYN, max_elements=size), 1)
        if resource:
            schema = with_metadata(schema, self._release)
        kind = schema.get("type")
        if kind == "array":
            return self._list(schema, name)
        if kind == "object":
            return self._map(schema, name) if _values_schema(schema) is not None else self._object(schema, name)
        if kind == "string":
            return _declared_string(schema)
        return _SCALARS.get(kind) if isinstance(kind, str) else None

    def _inner(self, schema: Schema, name: str) -> Declared | None:
        return self.declared(schema, name, resource=_is_embedded(schema))

    def _list(self, schema: Schema, name: str) -> Declared | None:
        items = _items_schema(schema)
        inner = None if items is None else self._inner(items, f"{name}.@idx")
        if inner is None:
            return None
        most = _limit(schema, "maxItems", (_REQUEST - 2) // (inner.least + 1))
        return Declared(Shape(type=list_of(inner.shape.type), items=inner.shape, max_elements=most), 2)

    def _map(self, schema: Schema, name: str) -> Declared | None:
        values = _values_schema(schema)
        assert values is not None
        inner = self._inner(values, f"{name}.@elem")
        if inner is None:
            return None
        most = _limit(schema, "maxProperties", (_REQUEST - 2) // (inner.least + 6))
        keys = Shape(type=STRING)
        return Declared(
            Shape(type=map_of(STRING, inner.shape.type), keys=keys, items=inner.shape, max_elements=most), 2
        )

    def _object(self, schema: Schema, name: str) -> Declared:
        fields = {}
        required = frozenset(schema.get("required") or ())
        least = 2
        for field, its in (schema.get("properties") or {}).items():
            escaped = escape(field)
            inner = self._inner(its, f"{name}.{escaped}")
            if inner is None:
                continue
            if escaped is not None:
                fields[escaped] = inner.shape
            if field in required and its.get("default") is None:
                least += len(field.encode()) + inner.least + 4
        return Declared(Shape(type=struct(name), fields=fields), least)


def _declared_string(schema: Schema) -> Declared:
    form = schema.get("format")
    if form == "byte":
        return Declared(Shape(type=BYTES, max_elements=_limit(schema, "maxLength", _REQUEST - 2)), 2)
    if form == "duration":
        return Declared(Shape(type=DURATION, max_elements=_DURATION_SIZE), 3)
    if form == "date":
        return Declared(Shape(type=TIMESTAMP, max_elements=_DATE_SIZE), 12)
    if form == "date-time":
        return Declared(Shape(type=TIMESTAMP, max_elements=_TIME_SIZE), 21)
    choices = schema.get("enum")
    longest = _REQUEST - 2
    if choices:
        longest = max((len(choice.encode()) for choice in choices if isinstance(choice, str)), default=0)
    return Declared(Shape(type=STRING, max_elements=_length(schema, longest)), 2)


def _limit(schema: Schema, name: str, otherwise: int) -> int:
    limit = schema.get(name)
    return otherwise if limit is None else max(int(limit), 0)


def _length(schema: Schema, otherwise: int) -> int:
    """Return the greatest length of a string in bytes: a code point may take four."""
    return otherwise if schema.get("maxLength") is None else 4 * _limit(schema, "maxLength", 0)


# The greatest length of an object's name.
_NAME = 253


def with_metadata(schema: Schema, release: Version = NEWEST) -> Schema:
    """Return the schema of an object with the fields that every object has (WithTypeAndObjectMeta)."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    names = metadata.get("properties") or {}
    if (
        all(_type(properties.get(name)) == "string" for name in ("kind", "apiVersion"))
        and _type(metadata) == "object"
        and all(_type(names.get(name)) == "string" for name in ("name", "generateName"))
    ):
        return schema
    text = {"type": "string"}
    known: Schema = {"name": text, "generateName": text}
    if release >= (1, 37):
        # The part of a generated name that the server adds has at least one character.
        known = {
            "name": _capped(names.get("name"), _NAME),
            "generateName": _capped(names.get("generateName"), _NAME - 1),
        }
    return {
        **schema,
        "properties": {
            **properties,
            "kind": text,
            "apiVersion": text,
            "metadata": {"type": "object", "properties": known},
        },
    }


def _type(schema: Schema | None) -> Any:
    return None if schema is None else schema.get("type")


def _capped(schema: Schema | None, limit: int) -> Schema:
    stated = None if schema is None else schema.get("maxLength")
    return {"type": "string", "maxLength": limit if stated is None else min(stated, limit)}


def _is_int_or_string(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-int-or-string"))


def _is_embedded(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _items_schema(schema: Schema) -> Schema | None:
    items = schema.get("items")
    return items if isinstance(items, Mapping) else None


def _values_schema(schema: Schema) -> Schema | None:
    values = schema.get("additionalProperties")
    return values if isinstance(values, Mapping) else None


# Values

Reader = Callable[[Value], Value]
"""Returns a document as an expression sees it. Raises EvaluationError when it does not fit its schema."""


def reader(schema: Schema, *, resource: bool = False, release: Version = NEWEST) -> Reader:
    """Return the reader of documents of a schema (UnstructuredToVal).

    The root of a `resource` always has apiVersion, kind, metadata.name and metadata.generateName. Readers of members are
    made when an expression reads them.
    """
    return _Readers(release).of(with_metadata(schema, release) if resource else schema)


def typed(document: Value, schema: Schema, *, release: Version = NEWEST) -> Value:
    """Return one document as an expression sees it. Raises EvaluationError when it does not fit its schema."""
    return reader(schema, release=release)(document)


_GO_TYPES: dict[type, str] = {
    type(None): "<nil>",
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "[]uint8",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    Timestamp: "time.Time",
    Duration: "time.Duration",
}


def _go_type(document: Value) -> str:
    return _GO_TYPES.get(type(document), "types.Value")


class _Part:
    """A member, an item or a value: its name and its reader, which is made when it is first used."""

    __slots__ = ("_readers", "_schema", "name", "read")

    def __init__(self, readers: _Readers, schema: Schema, name: str = "") -> None:
        self._readers = readers
        self._schema = schema
        self.name = name
        self.read: Reader = self._first

    def _first(self, document: Value) -> Value:
        self.read = self._readers.of(self._schema)
        return self.read(document)


class _Readers:
    """Makes readers as one release does."""

    def __init__(self, release: Version) -> None:
        self._lists = _LISTS if release >= (1, 37) else _LISTS_1_36
        self._release = release

    def of(self, schema: Schema) -> Reader:
        read, accepted, failure = self._conversion(schema)
        nullable = bool(schema.get("nullable"))

        def convert(document: Value) -> Value:
            if type(document) in accepted:
                return document if read is None else read(document)
            if document is not None:
                raise EvaluationError(failure.replace("%T", _go_type(document)))
            if nullable:
                return None
            raise EvaluationError("invalid data, got null for schema with nullable=false")

        return convert

    def _conversion(self, schema: Schema) -> tuple[Reader | None, Container[type], str]:
        """Return the conversion of documents, None to leave them unchanged, the types that fit, and the error of the others."""
        if _is_int_or_string(schema):
            return None, (str, int), "invalid data, expected XIntOrString value to be either a string or integer"
        kind = schema.get("type") or ""
        if kind == "object":
            return (
                self._object(schema),
                (dict,),
                "invalid data, expected a map for the provided schema with type=object",
            )
        if kind == "array":
            return (
                self._list(schema),
                (list,),
                "invalid data, expected an array for the provided schema with type=array",
            )
        if kind in _CONVERSIONS:
            return _CONVERSIONS[kind]
        if kind == "string":
            return _FORMATS.get(schema.get("format") or ""), (str,), "invalid data, expected string, got %T"
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return Preserved, _ANYTHING, ""
        failure = (
            "invalid type, expected object, array, number, integer, boolean or string, or no type with "
            f"x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {kind}"
        )
        return None, (), failure

    def _object(self, schema: Schema) -> Reader:
        if _is_embedded(schema):
            schema = with_metadata(schema, self._release)
        properties, values = schema.get("properties"), _values_schema(schema)
        if not properties and values is not None:
            part = _Part(self, values)
            return lambda document: EntriesView(document, part)
        members = {name: _Part(self, its, name) for name, its in (properties or {}).items()}
        escaped = {escape(name) or name: part for name, part in members.items()}
        return lambda document: ObjectView(document, members, escaped)

    def _list(self, schema: Schema) -> Reader:
        items = _items_schema(schema)
        if items is None:
            return _failing("invalid array type, expected Items with a non-empty Schema")
        kind = schema.get("x-kubernetes-list-type") or "atomic"
        if kind not in self._lists:
            return _failing(f"invalid x-kubernetes-list-type, expected 'map', 'set' or 'atomic' but got {kind}")
        part, made = _Part(self, items), self._lists[kind]
        keys = tuple(escape(key) or key for key in schema.get("x-kubernetes-list-map-keys") or ())
        return lambda document: made(document, part, keys)


def _failing(reason: str) -> Reader:
    def fail(_: Value) -> Value:
        raise EvaluationError(reason)

    return fail


_SPANS = re.compile(r"([0-9]+)[ \t\n\v\f\r]*([A-Za-zµ]+)", re.ASCII)
# Words for units, and the beginning of longer words with the same meaning.
_UNITS = (
    (1, ("ns",), "nano"),
    (1_000, ("us", "µs"), "micro"),
    (1_000_000, ("ms",), "milli"),
    (1_000_000_000, ("s",), "sec"),
    (60_000_000_000, ("m",), "min"),
    (3_600_000_000_000, ("h", "hr"), "hour"),
    (86_400_000_000_000, ("d",), "day"),
    (604_800_000_000_000, ("w", "wk"), "week"),
)


def _duration(document: str) -> Duration:
    """Return a duration in Go's format, or in words: `2 days 3 hours`."""
    span = parse_duration(document)
    if span is not None:
        return span
    total, found = 0, False
    for count, unit in _SPANS.findall(document):
        if len(count) > 19 or int(count) > MAX_INT:
            raise EvaluationError(f'Invalid duration {document}: strconv.Atoi: parsing "{count}": value out of range')
        word = unit.lower()
        for nanoseconds, words, beginning in _UNITS:
            if word in words or word.startswith(beginning):
                total, found = total + int(count) * nanoseconds, True
    if not found:
        raise EvaluationError(f"Invalid duration {document}: unable to parse {document} as duration")
    return Duration((total + 2**63) % 2**64 - 2**63)


def _date(document: str) -> Timestamp:
    moment = parse_timestamp(f"{document}T00:00:00Z") if len(document) == 10 else None
    if moment is None:
        raise EvaluationError(f"Invalid date formatted string {document}")
    return moment


def _date_time(document: str) -> Timestamp:
    if not document:
        return Timestamp(0)
    moment = parse_timestamp(document) or parse_timestamp(f"{document}Z")
    if moment is None:
        raise EvaluationError(f"Invalid date-time formatted string {document}")
    return moment


def _bytes(document: str) -> bytes:
    try:
        return base64.b64decode(document.replace("\r", "").replace("\n", ""), altchars=b"-_", validate=True)
    except binascii.Error:
        raise EvaluationError(f"Invalid byte formatted string {document}") from None


_CONVERSIONS: dict[str, tuple[Reader | None, Container[type], str]] = {
    "number": (float, (float, int), "invalid data, expected float, got %T"),
    "integer": (None, (int,), "invalid data, expected int, got %T"),
    "boolean": (None, (bool,), "invalid data, expected bool, got %T"),
}
_FORMATS: dict[str, Reader] = {"duration": _duration, "date": _date, "date-time": _date_time, "byte": _bytes}
_ANYTHING = frozenset((bool, int, float, str, list, dict))


class Preserved:
    """Data without a schema. An expression can only compare it, as part of its parent."""

    __slots__ = ("document",)

    cel_type = opaque("unknown")
    go_type = "*common.unknownPreserved"

    def __init__(self, document: Value) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return deep_equal(self.document, raw(other))

    def __hash__(self) -> int:
        raise TypeError("preserved data is no key")


def raw(value: Value) -> Value:
    """Return the document behind a typed value, or the value itself."""
    return value.document if isinstance(value, (DocumentView, TypedList, Preserved)) else value


class DocumentView(MapView):
    """A JSON object."""

    __slots__ = ("document",)

    go_type = "*common.unstructuredMap"

    def __init__(self, document: dict[str, Value]) -> None:
        self.document = document

    def __len__(self) -> int:
        return len(self.document)

    @abstractmethod
    def known(self, name: str) -> bool:
        """Return whether a member has a schema."""

    def equals(self, other: Value) -> bool:
        if not is_map(other):
            raise EvaluationError("no such overload")
        if len(self) != len(other):
            return False
        for name, value in self.document.items():
            if not self.known(name):
                if not isinstance(other, DocumentView):
                    raise EvaluationError("no such overload")
                if not deep_equal(value, other.document.get(name, value)):
                    return False
                continue
            mine, theirs = self.find(name), find_key(other, name)
            if (mine is ABSENT) != (theirs is ABSENT) or (mine is not ABSENT and not equal(mine, theirs)):
                return False
        return True


class ObjectView(DocumentView):
    """An object with declared members, by their names and by the identifiers of expressions."""

    __slots__ = ("_escaped", "_members")

    def __init__(self, document: dict[str, Value], members: Mapping[str, _Part], escaped: Mapping[str, _Part]) -> None:
        self.document = document
        self._members = members
        self._escaped = escaped

    def __getitem__(self, key: str) -> Value:
        """Return a member. Raises KeyError if it is missing, or if `find` has more to say about it."""
        part = self._escaped[key]
        value = self.document[part.name]
        if value is None:
            raise KeyError(key)
        try:
            return part.read(value)
        except EvaluationError:
            raise KeyError(key) from None

    def known(self, name: str) -> bool:
        return name in self._members

    def find(self, key: Value) -> Value:
        if type(key) is not str:
            raise EvaluationError("no such overload")
        name = unescape(key)
        part = None if name is None else self._members.get(name)
        # A nullable field that is null counts as absent.
        value = None if part is None else self.document.get(part.name)
        return ABSENT if part is None or value is None else part.read(value)

    def __iter__(self) -> Iterator[Value]:
        for name in self.document:
            if name in self._members:
                yield escape(name) or name


class EntriesView(DocumentView):
    """A map, whose values have one schema."""

    __slots__ = ("_values",)

    def __init__(self, document: dict[str, Value], values: _Part) -> None:
        self.document = document
        self._values = values

    def known(self, name: str) -> bool:
        return True

    def find(self, key: Value) -> Value:
        if type(key) is not str:
            raise EvaluationError("no such overload")
        value = self.document.get(key, ABSENT)
        return ABSENT if value is ABSENT else self._values.read(value)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.document)


# Lists

_NO_OVERLOAD = "no such overload"


class TypedList(ListView):
    """A list whose elements have a schema. `keys` are the identifiers of the key fields of a list map."""

    __slots__ = ("_items", "_keys", "document")

    go_type = "*common.unstructuredList"

    def __init__(self, document: list[Value], items: _Part, keys: tuple[str, ...] = ()) -> None:
        self.document = document
        self._items = items
        self._keys = keys

    def __len__(self) -> int:
        return len(self.document)

    def __iter__(self) -> Iterator[Value]:
        read = self._items.read
        return (read(element) for element in self.document)

    @overload
    def __getitem__(self, index: int) -> Value: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Value]: ...

    def __getitem__(self, index: int | slice) -> Value:
        if isinstance(index, slice):
            return [self._items.read(element) for element in self.document[index]]
        return self._items.read(self.document[index])

    def at(self, key: Value) -> Value:
        found = super().at(key)
        if found is not ABSENT and type(key) is not int:
            raise EvaluationError(f"unsupported index: {text(key)}")
        return found

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise EvaluationError(_NO_OVERLOAD)
        return len(self) == len(other) and all(equal(mine, theirs) for mine, theirs in zip(self, other, strict=True))

    def contains(self, value: Value) -> bool:
        failure = None
        for element in self:
            try:
                if equal(element, value):
                    return True
            except EvaluationError as error:
                failure = str(error)
        if failure is not None:
            raise EvaluationError(failure)
        return False


class _Joined(ListView):
    """The result of adding to a set or list map."""

    __slots__ = ("_elements",)

    go_type = "*common.refValSetList"

    def __init__(self, elements: list[Value]) -> None:
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._elements)

    def __getitem__(self, index: int) -> Value:  # type: ignore[override]
        return self._elements[index]


class SetList(TypedList):
    """A list of unique scalars, without order."""

    __slots__ = ()

    def plus(self, other: Value) -> Value:
        return JoinedSet(_set_joined(self, other))

    def equals(self, other: Value) -> bool:
        return _set_equals(self, other)


class JoinedSet(_Joined):
    """A set with further elements."""

    __slots__ = ()

    def plus(self, other: Value) -> Value:
        return JoinedSet(_set_joined(self, other))

    def equals(self, other: Value) -> bool:
        return _set_equals(self, other)


def _set_joined(mine: ListView, other: Value) -> list[Value]:
    known = {_scalar(element) for element in mine}
    joined = list(mine)
    for element in other:
        if (key := _scalar(element)) not in known:
            known.add(key)
            joined.append(element)
    return joined


def _set_equals(mine: ListView, other: Value) -> bool:
    if not is_list(other):
        raise EvaluationError(_NO_OVERLOAD)
    if len(mine) != len(other):
        return False
    known, seen = {_scalar(element) for element in mine}, set()
    for element in other:
        key = _scalar(element)
        if key not in known:
            return False
        seen.add(key)
    return len(seen) == len(known)


def _scalar(element: Value) -> tuple[type, object]:
    if is_list(element) or is_map(element):
        raise EvaluationError("listSet operations are only supported on lists of scalar values")
    return _identity(element)


class MapList(TypedList):
    """A list of objects with key fields, without order."""

    __slots__ = ()

    go_type = "*common.unstructuredMapList"

    def plus(self, other: Value) -> Value:
        return JoinedMaps(_maps_joined(self, other, self._keys), self._keys)

    def equals(self, other: Value) -> bool:
        return _maps_equal(self, other, lambda element: _raw_key(raw(element), self._keys))


class JoinedMaps(_Joined):
    """A list map with further elements."""

    __slots__ = ("_keys",)

    go_type = "*common.refValMapList"

    def __init__(self, elements: list[Value], keys: tuple[str, ...]) -> None:
        super().__init__(elements)
        self._keys = keys

    def plus(self, other: Value) -> Value:
        return JoinedMaps(_maps_joined(self, other, self._keys), self._keys)

    def equals(self, other: Value) -> bool:
        return _maps_equal(self, other, lambda element: _found_key(element, self._keys))


def _maps_joined(mine: ListView, other: Value, keys: tuple[str, ...]) -> list[Value]:
    joined = list(mine)
    places = {_found_key(element, keys): place for place, element in enumerate(joined)}
    for element in other:
        place = places.get(_found_key(element, keys))
        if place is None:
            joined.append(element)
        else:
            joined[place] = element
    return joined


def _maps_equal(mine: ListView, other: Value, key_of: Callable[[Value], object]) -> bool:
    if not is_list(other):
        raise EvaluationError(_NO_OVERLOAD)
    if len(mine) != len(other):
        return False
    known, seen = {key_of(element): element for element in mine}, set()
    for element in other:
        key = key_of(element)
        if key not in known or not equal(known[key], element):
            return False
        seen.add(key)
    return len(seen) == len(known)


def _raw_key(element: Value, keys: tuple[str, ...]) -> object:
    """Return the key of a document. Upstream looks for its fields by their identifiers."""
    return tuple(_identity(element.get(name)) for name in keys) if isinstance(element, dict) else object()


def _found_key(element: Value, keys: tuple[str, ...]) -> object:
    """Return the key of a value. A field that cannot be read counts as null."""
    return tuple(_identity(_field(element, name)) for name in keys)


def _field(element: Value, name: str) -> Value:
    if not is_map(element):
        return None
    try:
        found = find_key(element, name)
    except EvaluationError:
        return None
    return None if found is ABSENT else found


def _identity(value: Value) -> tuple[type, object]:
    """Return a key that distinguishes scalars which are equal in Python."""
    value = raw(value)
    return type(value), value if value.__hash__ is not None else repr(value)


class TypedList136(TypedList):
    """A list as until 1.36: with further elements it is a list of the same kind, and its elements are documents again."""

    __slots__ = ()

    def plus(self, other: Value) -> Value:
        return type(self)(self._joined(other), self._items, self._keys)

    def _joined(self, other: Value) -> list[Value]:
        return self.document + [raw(element) for element in other]


class SetList136(TypedList136):
    """A list of unique scalars until 1.36. It compares documents, and Go panics where an element is no scalar."""

    __slots__ = ()

    go_type = "*common.unstructuredSetList"

    def _joined(self, other: Value) -> list[Value]:
        known = set(map(_hashed, self.document))
        joined = list(self.document)
        for element in map(raw, other):
            if (key := _hashed(element)) not in known:
                known.add(key)
                joined.append(element)
        return joined

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise EvaluationError(_NO_OVERLOAD)
        if len(self) != len(other):
            return False
        known = set(map(_hashed, self.document))
        return all(_hashed(raw(element)) in known for element in other)


def _hashed(element: Value) -> tuple[type, object]:
    if isinstance(element, (bytes, dict, list)):
        raise Panic(f"runtime error: hash of unhashable type {_go_type(element)}")
    return _identity(element)


class MapList136(TypedList136):
    """A list of objects with key fields until 1.36."""

    __slots__ = ()

    go_type = "*common.unstructuredMapList"

    def _joined(self, other: Value) -> list[Value]:
        joined = list(self.document)
        places = {self._key(element): place for place, element in enumerate(joined)}
        for element in map(raw, other):
            place = places.get(self._key(element))
            if place is None:
                joined.append(element)
            else:
                joined[place] = element
        return joined

    def equals(self, other: Value) -> bool:
        if not is_list(other):
            raise EvaluationError(_NO_OVERLOAD)
        if len(self) != len(other):
            return False
        mine = {self._key(element): element for element in self.document}
        for element in other:
            known = mine.get(self._key(raw(element)), ABSENT)
            if known is ABSENT or not equal(self._items.read(known), element):
                return False
        return True

    def _key(self, element: Value) -> object:
        key = _raw_key(element, self._keys)
        if len(self._keys) > _DISTINCT_KEYS and isinstance(element, dict):
            return printing.plain([element.get(name) for name in self._keys])
        return key


# Until 1.36 upstream writes more keys than these as one text, in which different keys may look alike.
_DISTINCT_KEYS = 3

_LISTS: Mapping[str, type[TypedList]] = {"atomic": TypedList, "set": SetList, "map": MapList}
_LISTS_1_36: Mapping[str, type[TypedList]] = {"atomic": TypedList136, "set": SetList136, "map": MapList136}
