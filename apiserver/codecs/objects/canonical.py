r"""Encode each object in one spelling: its stored bytes, as Go would write them. Also the zero object of a kind, and semantic equality.

Knows shapes, no kinds. The types of `typed` write regular objects. Writers in Python handle every other object: they put members into shape
order, apply the presence rules and sort maps. Both give the same bytes.

A value is one line of JSON, in which raw JSON is compact. If some raw JSON was sent in another spelling, a second line has the texts:

    {"metadata":{…},"spec":{… "parameters":{"a":1} … "parameters":{"b":2} …}}
    [null,"{\"b\": 2}"]

The second line is an array with one item for each raw JSON, in the order of the first line. The item is null if the first line has the text
as it was sent. Compact JSON has no newline, so the first one ends the object.

The second line of a custom resource names the version of its object instead (`watchcache.entry.mark`): `v1`. Decoders do not read it.
Upstream: golang/go `src/encoding/json/encode.go`, kubernetes/apimachinery `pkg/api/equality/semantic.go`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import Shown
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import times, typed
from apiserver.schema import types
from apiserver.schema.resource import Object
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
)
from kubetext import quantity, utf8
from kubetext.deepequal import deep_equal
from kubetext.sorting import in_order

UNSTORED = frozenset(("resourceVersion",))
"""Metadata that is not part of the stored value."""


def encode(shape: Struct, obj: Object) -> bytes:
    """Return the stored value of an object of a kind, without kind, apiVersion and resourceVersion. `obj` is not changed."""
    return _encoder(shape, stored=True)(obj)


def encode_served(shape: Struct, obj: Object) -> bytes:
    """Return the same for an object of a version that is not stored, as clients get it: with its resourceVersion. `obj` is not changed."""
    return _encoder(shape)(obj)


def encode_shown(shape: Struct, obj: Object) -> bytes:
    """Return the first line alone: the JSON that clients get, in which raw JSON is compact. `obj` is not changed."""
    return _encoder(shape)(obj).partition(b"\n")[0]


def shown(shape: Struct, obj: Object) -> Shown:
    """Return the same as errors print it. Raw JSON may hold numbers and text that no parser here takes."""
    return fieldpath.shown_json(encode_shown(shape, obj).decode())


def encode_value(value: Any) -> bytes:
    """Return the JSON of a decoded value of any shape, with members in their order."""
    return rawjson.escaped(_dump(value))


def decode(shape: Struct, data: bytes) -> Object:
    """Return the object of a stored value, or of one derived from it. The caller owns the result.

    Raw JSON is as it was sent; without the second line it is compact. Raises ValueError for bytes that this server has not written.
    """
    return _decoder(shape)(data)


def prepare(shape: Struct) -> None:
    """Build the encoder and decoder of a kind now, some milliseconds of work, so that no request has to."""
    decode(shape, encode(shape, zero(shape)))


def zero(shape: Struct) -> Object:
    """Return the object with no member set, which bookmarks carry."""
    made: Object = _struct_writer(shape)({})
    return made


def writer(type_: Type) -> Callable[[Any], Any]:
    """Return a function from a value of this type to the value that Go's JSON has: presence rules applied, maps sorted.

    The function does not accept None. It does not change its argument, and may return it.
    """
    return _writer(type_) or _as_it_is


def left_out_when_empty(field: Field) -> bool:
    """Return whether Go's JSON of a struct omits this member when its value is empty. Raw JSON is omitted only when it is absent, whatever
    it holds."""
    return field.presence is Presence.OMIT_EMPTY and not isinstance(field.type, RawJSON)


def absent_value(field: Field) -> Callable[[], Any] | None:
    """Return a function that makes the value written for an absent member; None if the member is left out."""
    if field.presence is Presence.ALWAYS:
        return _zero_of(field.type)
    return _null if field.presence is Presence.NULLABLE else None


def equal(shape: Struct, a: Object, b: Object) -> bool:
    """Return whether two values of a struct mean the same: quantities by amount, absent lists and maps as empty ones."""
    return _struct_equality(shape)(a, b)


def same(shape: Struct, a: Object, b: Object) -> bool:
    """Return True if two decoded objects certainly have the same stored value. This is quick; False means unknown."""
    return a == b and (not shape.open or _same_further(shape, a, b))


@functools.cache
def _encoder(shape: Struct, *, stored: bool = False) -> Callable[[Object], bytes]:
    if shape.open:
        return _open_encoder(shape, stored=stored)
    to_line = _line_encoder(_stored(shape) if stored else shape, stored=stored)
    mapper = typed.raw_mapper(shape, verbatim=True)

    def encode_line(obj: Object) -> bytes:
        return rawjson.escaped(to_line(obj))

    return encode_line if mapper is None else functools.partial(_encode_with_texts, encode_line, mapper)


def _open_encoder(shape: Struct, *, stored: bool) -> Callable[[Object], bytes]:
    encode_declared = _encoder(types.closed(shape), stored=stored)
    declared = {field.name for field in types.members(shape)}

    def encode_open(obj: Object) -> bytes:
        further = {name: x for name, x in obj.items() if name not in declared}
        line = encode_declared(obj)
        if not further:
            return line
        between = b"," if len(line) > len(b"{}") else b""
        return b"%b%b%b" % (line[:-1], between, rawjson.escaped(rawjson.sorted_json(further))[1:])

    return encode_open


def _encode_with_texts(encode_line: Callable[[Object], bytes], mapper: typed.Mapper, obj: Object) -> bytes:
    texts: list[str | None] = []

    def compact(value: Any) -> Any:
        found = rawjson.compact(value)
        texts.append(None if found is value else rawjson.text(value).decode())
        return found

    line = encode_line(mapper(obj, compact))
    return b"%b\n%b" % (line, msgspec.json.encode(texts)) if any(texts) else line


@functools.cache
def _decoder(shape: Struct) -> Callable[[bytes], Object]:
    decode_value = _value_decoder(shape)
    if not shape.open:
        return decode_value
    return lambda data: decode_value(data.partition(b"\n")[0])


def _value_decoder(shape: Struct) -> Callable[[bytes], Object]:
    parse, replace, restore = typed.parser(shape), typed.raw_replacer(shape), _time_restorer(shape)
    mapper = typed.raw_mapper(shape, verbatim=True)

    def decode_line(line: bytes) -> Object:
        try:
            obj: Object = parse(line)
        except RecursionError as e:
            raise ValueError("nested too deep") from e
        if b"null" in line:
            if replace is not None:
                replace(obj, rawjson.unless_null)
            if restore is not None:
                restore(obj)
        return obj

    return decode_line if mapper is None else functools.partial(_decode_with_texts, decode_line, mapper)


@functools.cache
def _time_restorer(type_: Type) -> Callable[[Any], None] | None:
    """Return a function that puts Go's zero time where null was stored, in place; None if the type has no such time below. A nil pointer is
    not stored at all."""
    match type_:
        case Struct():
            zeros = [
                (f.name, times.ZERO_MICRO if f.type.micro else times.ZERO)
                for f in types.members(type_)
                if isinstance(f.type, Time) and f.presence is Presence.POINTER
            ]
            below = [(f.name, inner) for f in types.members(type_) if (inner := _time_restorer(f.type)) is not None]
            return _struct_restorer(zeros, below) if zeros or below else None
        case ListOf():
            item = _time_restorer(type_.item)
            return item and functools.partial(_restore_each, item)
        case MapOf():
            member = _time_restorer(type_.value)
            return member and (lambda value: _restore_each(member, value.values()))
    return None


def _struct_restorer(
    zeros: Sequence[tuple[str, str]], below: Sequence[tuple[str, Callable[[Any], None]]]
) -> Callable[[Any], None]:
    def restore(value: Object) -> None:
        for name, zero in zeros:
            if name in value and value[name] is None:
                value[name] = zero
        for name, inner in below:
            if (x := value.get(name)) is not None:
                inner(x)

    return restore


def _restore_each(restore: Callable[[Any], None], values: Iterable[Any]) -> None:
    for value in values:
        if value is not None:
            restore(value)


_texts = msgspec.json.Decoder(list[str | None]).decode


def _decode_with_texts(decode_line: Callable[[bytes], Object], mapper: typed.Mapper, data: bytes) -> Object:
    end = data.find(b"\n")
    if end < 0:
        return decode_line(data)
    obj, texts = decode_line(data[:end]), iter(_texts(data[end:]))
    try:
        made: Object = mapper(obj, lambda value: value if (text := next(texts)) is None else msgspec.Raw(text.encode()))
    except StopIteration:
        raise ValueError("raw JSON without its text") from None
    if next(texts, texts) is not texts:
        raise ValueError("texts without their raw JSON")
    return made


@functools.cache
def _line_encoder(shape: Struct, *, stored: bool) -> Callable[[Object], bytes]:
    class_, write = typed.writing(shape), _struct_writer(shape, stored=stored)
    to_json = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode  # `str` encodes quantity.Respelled

    def encode_any(obj: Object) -> bytes:
        return _dump(write(obj))

    def encode_regular(obj: Object) -> bytes:
        try:
            return to_json(msgspec.convert(obj, class_))
        except (msgspec.ValidationError, UnicodeEncodeError):
            return encode_any(obj)

    return encode_any if class_ is None else encode_regular


@functools.cache
def _stored(shape: Struct) -> Struct:
    """Return the shape without the members that are not stored."""
    fields = [
        Field(name=f.name, number=f.number, type=_stored_metadata(f.type), presence=f.presence)
        if f.name == "metadata" and isinstance(f.type, Struct)
        else f
        for f in types.members(shape)
    ]
    return Struct(name=shape.name, fields=fields)


def _stored_metadata(struct: Struct) -> Struct:
    return Struct(name=struct.name, fields=[f for f in types.members(struct) if f.name not in UNSTORED])


def _dump(value: Any) -> bytes:
    try:
        return rawjson.dumps(value)
    except TypeError:
        return rawjson.dumps(whole(value))


def whole(value: Any) -> Any:
    """Return a copy of a decoded value without lone surrogates, which Go replaces."""
    if isinstance(value, dict):
        return {utf8.whole(name): whole(x) for name, x in value.items()}
    if isinstance(value, list):
        return [whole(x) for x in value]
    return utf8.whole(value) if isinstance(value, str) else value


# Writers: from a value that is not None to the value that orjson encodes. A map or list that needs no change is returned as it is.

_Writer = Callable[[Any], Any]


@functools.cache
def _writer(type_: Type, *, stored: bool = False) -> _Writer | None:
    """Return the writer of a type; None if its values are written as they are.

    With `stored`, empty lists and maps are written as absent ones: upstream's storage (protobuf) does not tell them apart.
    """
    match type_:
        case Struct() if type_.open:
            return _open_writer(type_, stored=stored)
        case Struct():
            return _struct_writer(type_, stored=stored)
        case ListOf():
            return _list_writer(_writer(type_.item, stored=stored))
        case MapOf():
            return _map_writer(_writer(type_.value, stored=stored))
        case Time():
            return _write_time
    return None


@functools.cache
def _struct_writer(struct: Struct, *, stored: bool = False) -> _Writer:
    fields = types.members(struct)
    table = {
        f.name: (i, left_out_when_empty(f), stored and _null_when_empty(f), _writer(f.type, stored=stored))
        for i, f in enumerate(fields)
    }
    owed = {f.name: absent for f in fields if (absent := absent_value(f)) is not None}
    names = tuple(table)

    def complete(made: Object) -> Object:
        for name, absent in owed.items():
            if name not in made:
                made[name] = absent()
        return {name: made[name] for name in names if name in made}

    def write(value: Object) -> Object:
        made: Object = {}
        last, ordered = -1, True
        for name, x in value.items():
            member = table.get(name)
            if member is None or x is None:
                continue
            index, omit_empty, null_empty, writer = member
            if writer is not None:
                x = writer(x)
            if not x:
                if omit_empty:
                    continue
                if null_empty:
                    x = None
            made[name] = x
            if index < last:
                ordered = False
            last = index
        if not ordered or (owed and not made.keys() >= owed.keys()):
            return complete(made)
        return made

    return write


def _open_writer(struct: Struct, *, stored: bool) -> _Writer:
    write, declared = _struct_writer(struct, stored=stored), {field.name for field in types.members(struct)}
    return lambda value: write(value) | {name: x for name, x in value.items() if name not in declared}


def _null_when_empty(field: Field) -> bool:
    return field.presence is Presence.ALWAYS and isinstance(field.type, ListOf | MapOf)


_Zero = Callable[[], Any]


def _null() -> None:
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _zero_of(type_: Type) -> _Zero:
    match type_:
        case Struct():
            return functools.partial(_struct_writer(type_), {})
        case String():
            return str
        case Integer():
            return int
        case Boolean():
            return bool
        case Quantity():
            return lambda: "0"
    return _null


def _list_writer(writer: _Writer | None) -> _Writer | None:
    if writer is None:
        return None
    return lambda value: [x if x is None else writer(x) for x in value]


def _map_writer(writer: _Writer | None) -> _Writer:
    def write(value: Object) -> Object:
        keys = [*in_order(value)]
        if writer is not None:
            return {k: x if (x := value[k]) is None else writer(x) for k in keys}
        return value if keys == list(value) else {k: value[k] for k in keys}

    return write


def _write_time(value: str) -> str | None:
    return None if value in (times.ZERO, times.ZERO_MICRO) else value


# Equality: a comparison gets two values of the type; either may be None for absent.

Equality = Callable[[Any, Any], bool]


@functools.cache
def equality(type_: Type) -> Equality:
    """Return a function that tells whether two values mean the same. Absent equals empty; all spellings of a quantity are equal."""
    match type_:
        case Struct():
            return _struct_equality(type_)
        case ListOf():
            return _list_equality(type_)
        case MapOf():
            return _map_equality(type_)
        case Quantity():
            return _same_amount
        case RawJSON():
            return operator.eq
    return _same_plain


@functools.cache
def _struct_equality(struct: Struct) -> Equality:
    table = {f.name: comparison(f) for f in types.members(struct)}

    def same_open(a: Object | None, b: Object | None) -> bool:
        a, b = a or {}, b or {}
        return same_declared(a, b) and _same_further(struct, a, b)

    def same_declared(a: Object | None, b: Object | None) -> bool:
        a, b = a or {}, b or {}
        if a == b:
            return True
        return all(table[name](a.get(name), b.get(name)) for name in {**a, **b} if name in table)

    return same_open if struct.open else same_declared


def _same_further(struct: Struct, a: Object, b: Object) -> bool:
    """Compare the further members of an open struct. Python takes true for 1, Go does not."""
    declared = {field.name for field in types.members(struct)}
    mine, yours = ({name: x for name, x in obj.items() if name not in declared} for obj in (a, b))
    return deep_equal(mine, yours)


def comparison(field: Field) -> Equality:
    """Return the comparison of a member. Pointers tell absent from empty, but lists and maps are never pointers."""
    same = equality(field.type)
    if not types.is_pointer(field) or isinstance(field.type, ListOf | MapOf):
        return same
    return lambda a, b: (a is None) == (b is None) and same(a, b)


def _list_equality(type_: ListOf) -> Equality:
    same = equality(type_.item)

    def equal_lists(a: list[Any] | None, b: list[Any] | None) -> bool:
        a, b = a or [], b or []
        if a == b:
            return True
        return len(a) == len(b) and all(map(same, a, b))

    return equal_lists


def _map_equality(type_: MapOf) -> Equality:
    same = equality(type_.value)

    def equal_maps(a: Object | None, b: Object | None) -> bool:
        a, b = a or {}, b or {}
        if a == b:
            return True
        return a.keys() == b.keys() and all(same(x, b[k]) for k, x in a.items())

    return equal_maps


def _same_plain(a: Any, b: Any) -> bool:
    """Compare text, numbers, booleans and times: absent equals the zero value."""
    return a == b or (_is_zero(a) and _is_zero(b))


def _is_zero(value: Any) -> bool:
    return not value or value in (times.ZERO, times.ZERO_MICRO)


def _same_amount(a: str | None, b: str | None) -> bool:
    a, b = a or "0", b or "0"
    return a == b or quantity.parse(a) == quantity.parse(b)
