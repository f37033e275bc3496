"""Encode and decode objects as protobuf messages, by the numbers of their shape: byte by byte as gogo's generated code does.

Members are written in the order of their numbers, the keys of maps sorted, lists unpacked. Members that are not pointers are always
written, even when empty. Embedded structs are messages of their own. Errors are Go's, in the order in which Go finds them.
Upstream: kubernetes/api `resource/v1/generated.pb.go`, kubernetes/apimachinery `pkg/runtime/generated.pb.go`,
`pkg/apis/meta/v1/{generated.pb,time_proto,micro_time_proto}.go`, `pkg/api/resource/quantity_proto.go`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, times, typed
from apiserver.codecs.protobuf import protowire
from apiserver.codecs.protobuf.protowire import BYTES, MOST_VALUES, VARINT, Budget, DecodeError, TooManyValues
from apiserver.codecs.protobuf.templates import Templates
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
from kubetext.sorting import in_order

__all__ = [
    "MOST_VALUES",
    "DecodeError",
    "TooManyValues",
    "decode",
    "encode",
    "fields_of_stored",
    "of_stored",
    "prepare",
]


def encode(shape: Struct, obj: Object) -> bytes:
    """Return the message of a valid object, without envelope. `obj` is not changed.

    The message has raw JSON as it was sent.
    """
    write = _struct_writer(shape)
    try:
        return write(obj)
    except UnicodeEncodeError:
        return write(canonical.whole(obj))


def prepare(shape: Struct) -> None:
    """Build the encoder and decoder of a shape now, some milliseconds of work, so that no request has to."""
    decode(shape, encode(shape, canonical.zero(shape)))
    typed.splitter(shape, _is_taken_apart)


def of_stored(shape: Struct, data: bytes) -> bytes:
    """Return the message of a stored value, or of one derived from it: the same as `encode` of `canonical.decode`, but faster.

    Texts that differ in a few values are copied and patched (`codecs.protobuf.templates`). In other texts, maps of structs (the attributes
    of devices, for instance) are not decoded: their text is split into entries, and the message of each entry is cached.

    Raises ValueError for bytes that this server has not written.
    """
    return _templates(shape, b"")(data)


def fields_of_stored(shape: Struct, number: int, values: Sequence[bytes]) -> list[bytes]:
    """Return the same for many values, each as the field `number` of another message: with its key and its length.

    Raises ValueError if this server has not written one of them.
    """
    return _templates(shape, _tag(number, BYTES)).all_of(values)


@functools.cache
def _templates(shape: Struct, tag: bytes) -> Templates:
    """Return the templates of a shape, whose messages follow a key and a length if `tag` is set."""
    if not tag:
        return Templates(functools.partial(_of_stored, shape))
    return Templates(lambda data: protowire.sized(tag, _of_stored(shape, data)))


def _of_stored(shape: Struct, data: bytes) -> bytes:
    if b"null" not in data and b"\n" not in data:
        try:
            return _struct_writer(shape)(typed.splitter(shape, _is_taken_apart)(data))
        except (ValueError, RecursionError):  # an error, which `decode` raises in its own words, or a valid text
            pass
    return encode(shape, canonical.decode(shape, data))


def decode(shape: Struct, data: bytes, *, parse: Callable[[bytes], Any] = rawjson.of) -> Object:
    """Return the object of a message, as `decoding.decode` returns it: quantities and times canonical, empty members left out where that
    means absent, structs that are not pointers always present. Unknown fields are skipped.

    `parse` returns the value of raw JSON, and raises ValueError. Raises DecodeError, or its subclass TooManyValues for a message of very
    many small values.
    """
    try:
        made: Object = _struct_reader(shape)(data, None, protowire.budget())
    except IndexError:
        raise DecodeError(protowire.EOF) from None
    except StopIteration:
        raise TooManyValues from None
    replace = typed.raw_replacer(shape)
    if replace is not None:
        replace(made, lambda value: _parsed_raw(value, parse))
    compacted = typed.raw_mapper(shape, verbatim=False)
    return made if compacted is None else compacted(made, rawjson.plain)


def go_name(field: Field) -> str:
    """Return the name of the member in Go. Metadata is embedded, and has the name of its type."""
    if field.name == "metadata" and isinstance(field.type, Struct):
        return field.type.name
    return field.go or field.name[:1].upper() + field.name[1:]


_ITEMS = 1
"""A list or map that is itself an element, or whose Go type has a name, is a message with this one field."""
_KEY, _VALUE = 1, 2
"""The fields of an entry of a map."""
_SECONDS, _NANOS = 1, 2
_CONTENT = 1
"""The one field of a quantity and of raw JSON."""
_ONE_BYTE = 128
_REMEMBERED, _REMEMBERED_BYTES = 1024, 64
"""Entries of maps that are cached, and the bytes of a value that may be: the devices of a fleet have few different entries. Clients must
not be able to fill the cache with long texts."""
_STRING = rb'"([^"\\]*(?:\\.[^"\\]*){0,64})"'
_ENTRY = re.compile(rb"%b:\{%b:(?:%b|-?[0-9]+|true|false)" % (_STRING, _STRING, _STRING), re.DOTALL)
"""An entry of a map in compact JSON whose value is an object of one scalar, without its last brace. The slow path handles a string with
more escapes: `re` keeps some 130 bytes for each of them."""
_KEY_TAG, _VALUE_TAG = bytes([protowire.key(_KEY, BYTES)]), bytes([protowire.key(_VALUE, BYTES)])
_ZERO_TIMES = (times.ZERO, times.ZERO_MICRO)


# Writing. The writer of a field takes a value that is not None and returns the field with its key. The writer of a body returns the
# contents of a message.

_Writer = Callable[[Any], bytes]


def _tag(number: int, wire_type: int) -> bytes:
    return protowire.varint(protowire.key(number, wire_type))


@functools.cache
def _struct_writer(struct: Struct) -> _Writer:
    fields = sorted(struct.fields, key=lambda f: f.number)
    absent = [_absent(f) for f in fields]
    rows = [
        ("" if _is_inline(f) else f.name, _field_writer(f.type, f.number), absent[at], b"".join(absent[at + 1 :]))
        for at, f in enumerate(fields)
    ]
    # An object has few of these members at a time.
    optional = {name: writer for name, writer, zero, _ in rows if name and not zero}

    def write(value: Object) -> bytes:
        parts, left, get = [], len(value), value.get
        for name, writer, zero, rest in rows:
            x = get(name)
            if x is not None:
                parts.append(writer(x))
                left -= 1
                if not left:
                    parts.append(rest)
                    break
            elif zero:
                parts.append(zero)
        return b"".join(parts)

    def write_with_inlined(value: Object) -> bytes:
        parts = []
        for name, writer, zero, _ in rows:
            x = value.get(name) if name else value
            if x is not None:
                parts.append(writer(x))
            elif zero:
                parts.append(zero)
        return b"".join(parts)

    def write_one_of(value: Object) -> bytes:
        if len(value) != 1:
            return write(value)
        for name, x in value.items():
            writer = optional.get(name)
            if writer is not None and x is not None:
                return writer(x)
        return b""

    if len(optional) == len(rows):
        return write_one_of
    return write if all(name for name, *_ in rows) else write_with_inlined


def _is_inline(field: Field) -> bool:
    return field.inline and isinstance(field.type, Struct)


def _absent(field: Field) -> bytes:
    """Return the bytes of an absent member: the zero value of a member that is not a pointer."""
    if types.is_pointer(field):
        return b""
    match field.type:
        case String() | Time() | RawJSON():
            return _tag(field.number, BYTES) + b"\0"
        case Integer() | Boolean():
            return _tag(field.number, VARINT) + b"\0"
        case Quantity():
            return _field_writer(field.type, field.number)("0")
        case Struct():
            return _field_writer(field.type, field.number)({})
    return b""


def _field_writer(type_: Type, number: int) -> _Writer:
    match type_:
        case String():
            return _text_writer(number)
        case Integer() | Boolean():
            return _number_writer(number)
        case ListOf() if not type_.go:
            return _list_writer(type_, number)
        case MapOf():
            return _map_writer(type_, number)
    return _message_writer(_body_writer(type_), number)


@functools.cache
def _body_writer(type_: Type) -> _Writer:
    """Return the writer of a type that is a message, and of a list or map in a place where it has to be one."""
    match type_:
        case Struct():
            return _struct_writer(type_)
        case Quantity():
            return _text_writer(_CONTENT)
        case Time():
            return _micro_time_body if type_.micro else _time_body
        case ListOf():
            return _list_writer(type_, _ITEMS)
        case MapOf():
            return _map_writer(type_, _ITEMS)
    return _raw_body


@functools.cache
def _heads(tag: bytes) -> tuple[bytes, ...]:
    """Return key and length of every value shorter than 128 bytes."""
    return tuple(tag + bytes([size]) for size in range(_ONE_BYTE))


def _text_writer(number: int) -> _Writer:
    tag = _tag(number, BYTES)
    heads = _heads(tag)

    def write(value: str) -> bytes:
        data = value.encode()
        size = len(data)
        return heads[size] + data if size < _ONE_BYTE else protowire.sized(tag, data)

    return write


def _message_writer(body: _Writer, number: int) -> _Writer:
    tag = _tag(number, BYTES)
    heads = _heads(tag)

    def write(value: Any) -> bytes:
        data = body(value)
        size = len(data)
        return heads[size] + data if size < _ONE_BYTE else protowire.sized(tag, data)

    return write


def _number_writer(number: int) -> _Writer:
    tag = _tag(number, VARINT)
    small = _heads(tag)

    def write(value: int) -> bytes:
        return small[value] if 0 <= value < _ONE_BYTE else tag + protowire.varint(value)

    return write


def _list_writer(type_: ListOf, number: int) -> _Writer:
    item = _element_writer(type_.item, number)
    return lambda value: b"".join(map(item, value))


def _element_writer(type_: Type, number: int) -> _Writer:
    """Return the writer of an element. A list or map in a list or map is a message. For times and raw JSON, null is the zero value; nothing
    else is null here."""
    if isinstance(type_, ListOf | MapOf):
        return _message_writer(_body_writer(type_), number)
    inner = _field_writer(type_, number)
    if not isinstance(type_, Time | RawJSON):
        return inner
    zero = _tag(number, BYTES) + b"\0"
    return lambda value: zero if value is None else inner(value)


def _map_writer(type_: MapOf, number: int) -> _Writer:
    tag = _tag(number, BYTES)
    inner = _element_writer(type_.value, _VALUE)
    heads, keys, values = _heads(tag), _heads(_KEY_TAG), _heads(_VALUE_TAG)

    def entry(name: str, value: Any) -> bytes:
        return entry_of(name.encode(), inner(value))

    def entry_of(key: bytes, x: bytes) -> bytes:
        size = len(key)
        start = keys[size] if size < _ONE_BYTE else _KEY_TAG + protowire.varint(size)
        size += len(start) + len(x)
        return (heads[size] if size < _ONE_BYTE else tag + protowire.varint(size)) + start + key + x

    @functools.lru_cache(maxsize=_REMEMBERED)
    def remembered(name: str, member: str, scalar: Any) -> bytes:
        return entry(name, {member: scalar})

    def write(value: Object) -> bytes:
        return b"".join([entry(name, value[name]) for name in in_order(value)])

    def write_structs(value: Object) -> bytes:
        parts = []
        for name in in_order(value):
            x = value[name]
            if len(x) == 1 and len(name) <= _REMEMBERED_BYTES:
                ((member, scalar),) = x.items()
                kind = scalar.__class__
                if (kind is str and len(scalar) <= _REMEMBERED_BYTES) or kind is int or kind is bool:
                    parts.append(remembered(name, member, scalar))
                    continue
            parts.append(entry(name, x))
        return b"".join(parts)

    if not _is_taken_apart(type_):
        return write
    assert isinstance(type_.value, Struct)
    plain = {f.name.encode(): _heads(_tag(f.number, BYTES)) for f in type_.value.fields if isinstance(f.type, String)}
    if any(map(_absent, type_.value.fields)):
        plain.clear()

    def of_match(found: re.Match[bytes]) -> bytes:
        name, member, text = found.groups()
        texts = plain.get(member)
        if text is None or texts is None or len(text) > _REMEMBERED_BYTES or b"\\" in found[0]:
            ((key, value),) = _parsed(b"{%b}}" % found[0]).items()
            return entry(key, value)
        x = texts[len(text)] + text
        return entry_of(name, values[len(x)] + x)

    of_text = _Entries(of_match).__getitem__

    def write_text_or_structs(value: Any) -> bytes:
        if value.__class__ is dict:
            return write_structs(value)
        text = bytes(value)
        try:
            # If all parts are entries, no brace and comma stood inside a text, and no value was itself an object.
            return b"".join(map(of_text, text[1:-2].split(b"},")))
        except _NoEntryError:
            return write_structs(_parsed(text))

    return write_text_or_structs


def _is_taken_apart(type_: Type) -> bool:
    """Return whether entries of such a map, in stored values, are encoded from their text."""
    return isinstance(type_, MapOf) and isinstance(type_.value, Struct) and not typed.holds_raw(type_.value)


_parsed = msgspec.json.Decoder().decode


class _NoEntryError(Exception):
    """A part of a map's text is not an object of one scalar."""


class _Entries(dict[bytes, bytes]):
    """Cache of map entries by their JSON text without its last brace. Most entries of a device equal those of others; one or two are its
    own."""

    def __init__(self, of_match: Callable[[re.Match[bytes]], bytes]) -> None:
        super().__init__()
        self._of_match = of_match

    def __missing__(self, text: bytes) -> bytes:
        found = _ENTRY.fullmatch(text)
        if found is None:
            raise _NoEntryError
        made = self._of_match(found)
        if len(text) <= 2 * _REMEMBERED_BYTES:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[text] = made
        return made


_SECONDS_TAG, _NANOS_TAG = _tag(_SECONDS, VARINT), _tag(_NANOS, VARINT)


def _time_body(text: str) -> bytes:
    return _timestamp(text, micro=False)


def _micro_time_body(text: str) -> bytes:
    return _timestamp(text, micro=True)


@functools.lru_cache(maxsize=1024)
def _timestamp(text: str, *, micro: bool) -> bytes:
    """Return the message of a time, cached: canonical texts are short."""
    if text in _ZERO_TIMES:
        return b""
    seconds, nanos = times.unix(text)
    return _SECONDS_TAG + protowire.varint(seconds) + _NANOS_TAG + protowire.varint(nanos if micro else 0)


_RAW_TAG = _tag(_CONTENT, BYTES)


def _raw_body(value: Any) -> bytes:
    return protowire.sized(_RAW_TAG, rawjson.text(value))


# Reading. Every message, every element and every skipped field takes one turn of `budget`, which is finite. An index is out of range where
# the bytes end too early.

_Body = Callable[[bytes, Any, Budget], Any]
"""Reads a whole message into `value`, which an earlier message of the same field has left, or None; returns the value."""
_Row = Callable[[bytes, int, Object, Budget], int]
"""Reads a field into the object, from the offset behind its key; returns the offset behind the field."""
_Rows = Mapping[int, _Row]


@functools.cache
def _struct_reader(struct: Struct) -> _Body:
    rows: dict[int, _Row] = {}
    for field in struct.fields:
        rows |= _member_rows(field)
    inner = _message_reader(struct.name, rows, {field.number: go_name(field) for field in struct.fields})
    owed = [
        (f.name, _struct_reader(f.type))
        for f in struct.fields
        if isinstance(f.type, Struct) and not types.is_pointer(f) and not f.inline
    ]
    inlined = [_struct_reader(f.type) for f in struct.fields if _is_inline(f) and isinstance(f.type, Struct)]

    def read(data: bytes, value: Any, budget: Budget) -> Any:
        made = inner(data, value, budget)
        for name, zero in owed:
            if name not in made:
                made[name] = zero(b"", None, budget)
        for complete in inlined:
            complete(b"", made, budget)
        return made

    return read if owed or inlined else inner


def _message_reader(message: str, rows: _Rows, names: Mapping[int, str]) -> _Body:
    """Return a reader of fields until the message ends. Errors name the Go type `message`."""
    short = {key: row for key, row in rows.items() if key < _ONE_BYTE}

    def read(data: bytes, value: Any, budget: Budget) -> Any:
        next(budget)
        made: Object = {} if value is None else value
        at, size = 0, len(data)
        while at < size:
            row = short.get(data[at])
            at = strange(data, at, made, budget) if row is None else row(data, at + 1, made, budget)
        return made

    def strange(data: bytes, at: int, made: Object, budget: Budget) -> int:
        key, behind = protowire.read_key(data, at, message)
        row = rows.get(key)
        if row is not None:
            return row(data, behind, made, budget)
        name = names.get(key >> 3)
        if name is not None:
            raise protowire.wrong_type(key & 7, name)
        return protowire.skip(data, at, len(data), budget)

    return read


def _member_rows(field: Field) -> _Rows:
    name, number, type_ = field.name, field.number, field.type
    if isinstance(type_, Struct) and field.inline:
        return {protowire.key(number, BYTES): _inline_row(_struct_reader(type_))}
    dropped: tuple[Any, ...] = ()
    if not types.is_pointer(field):
        dropped = _ZERO_TIMES if isinstance(type_, Time) else ()
        if field.presence is Presence.OMIT_EMPTY:
            dropped += ("", 0)
    return _rows(name, number, type_, dropped)


def _rows(name: str, number: int, type_: Type, dropped: tuple[Any, ...] = ()) -> _Rows:
    match type_:
        case String():
            return {protowire.key(number, BYTES): _text_row(name, dropped)}
        case Integer() | Boolean():
            return {protowire.key(number, VARINT): _number_row(name, _narrowed(type_), dropped)}
        case ListOf() if not type_.go:
            return _list_rows(name, number, type_)
        case MapOf():
            return {protowire.key(number, BYTES): _map_row(name, type_)}
    return {protowire.key(number, BYTES): _body_row(name, _body_reader(type_), dropped)}


@functools.cache
def _body_reader(type_: Type) -> _Body:
    match type_:
        case Struct():
            return _struct_reader(type_)
        case Quantity():
            return _read_quantity
        case Time():
            return functools.partial(_read_time, micro=type_.micro)
        case ListOf():
            return _wrapped(type_, type_.go.rpartition(".")[2], list)
        case MapOf():
            return _wrapped(type_, "", dict)
        case RawJSON():
            return _raw_reader(type_.go.rpartition(".")[2])
    raise TypeError(f"{type_} is no message")


def _wrapped(type_: ListOf | MapOf, message: str, empty: Callable[[], Any]) -> _Body:
    items = "items"
    rows = _list_rows(items, _ITEMS, type_) if isinstance(type_, ListOf) else _rows(items, _ITEMS, type_)
    inner = _message_reader(message, rows, {_ITEMS: "Items"})

    def read(data: bytes, value: Any, budget: Budget) -> Any:
        return inner(data, {items: empty() if value is None else value}, budget)[items]

    return read


def _span(data: bytes, at: int) -> tuple[int, int]:
    size, at = data[at], at + 1
    if size < _ONE_BYTE and at + size <= len(data):
        return at, at + size
    return protowire.read_span(data, at - 1)


def _text_row(name: str, dropped: tuple[Any, ...]) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        size, start = data[at], at + 1
        stop = start + size
        if size >= _ONE_BYTE or stop > len(data):
            start, stop = protowire.read_span(data, at)
        try:
            value = data[start:stop].decode()
        except UnicodeDecodeError:
            value = utf8.decoded(data[start:stop])
        if value or not dropped:
            if name in made:
                next(budget)
            made[name] = value
        else:
            next(budget)
            made.pop(name, None)
        return stop

    return read


def _narrowed(type_: Integer | Boolean) -> Callable[[int], int]:
    return bool if isinstance(type_, Boolean) else functools.partial(protowire.signed, bits=type_.bits)


def _number_row(name: str, narrowed: Callable[[int], int], dropped: tuple[Any, ...]) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        value, at = protowire.read_varint(data, at)
        number = narrowed(value)
        if number in dropped:
            next(budget)
            made.pop(name, None)
        else:
            if name in made:
                next(budget)
            made[name] = number
        return at

    return read


def _body_row(name: str, body: _Body, dropped: tuple[Any, ...]) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        start, stop = _span(data, at)
        made[name] = value = body(data[start:stop], made.get(name), budget)
        if value is None or (dropped and isinstance(value, str) and value in dropped):
            del made[name]
        return stop

    return read


def _inline_row(body: _Body) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        start, stop = _span(data, at)
        body(data[start:stop], made, budget)
        return stop

    return read


def _list_rows(name: str, number: int, type_: ListOf) -> _Rows:
    item = type_.item
    match item:
        case String():
            return {protowire.key(number, BYTES): _texts_row(name)}
        case Integer() | Boolean():
            narrowed = _narrowed(item)
            return {
                protowire.key(number, VARINT): _numbers_row(name, narrowed),
                protowire.key(number, BYTES): _packed_row(name, narrowed),
            }
    return {protowire.key(number, BYTES): _bodies_row(name, _body_reader(item))}


def _items(made: Object, name: str) -> list[Any]:
    items: list[Any] | None = made.get(name)
    if items is None:
        made[name] = items = []
    return items


def _texts_row(name: str) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        next(budget)
        start, stop = _span(data, at)
        _items(made, name).append(utf8.decoded(data[start:stop]))
        return stop

    return read


def _numbers_row(name: str, narrowed: Callable[[int], int]) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        next(budget)
        value, at = protowire.read_varint(data, at)
        _items(made, name).append(narrowed(value))
        return at

    return read


def _packed_row(name: str, narrowed: Callable[[int], int]) -> _Row:
    """Return the reader of packed numbers. The last number may end behind the stated length, as in Go."""

    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        at, stop = protowire.read_span(data, at)
        while at < stop:
            next(budget)
            value, at = protowire.read_varint(data, at)
            _items(made, name).append(narrowed(value))
        return at

    return read


def _bodies_row(name: str, body: _Body) -> _Row:
    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        next(budget)
        start, stop = _span(data, at)
        _items(made, name).append(body(data[start:stop], None, budget))
        return stop

    return read


def _map_row(name: str, type_: MapOf) -> _Row:
    value_of, zero = _value_reader(type_.value)
    of_texts = isinstance(type_.value, String)

    def read_entry(data: bytes, at: int, stop: int, budget: Budget) -> tuple[str, Any]:
        key, value, found, spare = "", None, False, 2
        while at < stop:
            spare -= 1
            if spare < 0:
                next(budget)
            wire, behind = protowire.read_varint(data, at)
            number = protowire.signed(wire >> 3, 32)
            if number == _KEY:
                start, at = _span(data, behind)
                key = utf8.decoded(data[start:at])
            elif number == _VALUE:
                value, at = value_of(data, behind, budget)
                found = True
            else:
                at = protowire.skip(data, at, stop, budget)
        return key, value if found else zero(budget)

    @functools.lru_cache(maxsize=_REMEMBERED)
    def remembered(entry: bytes) -> tuple[str, Any]:
        """Return key and value of an entry. The value is None if it has lists or objects below: these can be changed, so each must be read
        anew."""
        try:
            key, value = read_entry(entry, 0, len(entry), itertools.repeat(None))
        except (IndexError, DecodeError):
            # In Go a key or a value may reach beyond its entry.
            return "", None
        below = value.values() if isinstance(value, dict) else (value,)
        return key, None if any(isinstance(x, dict | list) for x in below) else value

    def read(data: bytes, at: int, made: Object, budget: Budget) -> int:
        next(budget)
        size, start = data[at], at + 1
        stop = start + size
        if size >= _ONE_BYTE or stop > len(data):
            start, stop = protowire.read_span(data, at)
        entries = made.get(name)
        if entries is None:
            made[name] = entries = {}
        if of_texts and (texts := _two_texts(data, start, stop)) is not None:
            key, entries[key] = texts
            return stop
        if size <= _REMEMBERED_BYTES:
            key, value = remembered(data[start:stop])
            if value is not None:
                entries[key] = value.copy() if isinstance(value, dict) else value
                return stop
        key, value = read_entry(data, start, stop, budget)
        entries[key] = value
        return stop

    return read


def _two_texts(data: bytes, start: int, stop: int) -> tuple[str, str] | None:
    """Read an entry that has one short key followed by one short text, the usual form; None for any other entry."""
    if stop - start < len(_KEY_TAG + _VALUE_TAG) + 2 or data[start] != _KEY_TAG[0]:
        return None
    size = data[start + 1]
    at = start + 2 + size
    if size >= _ONE_BYTE or at + 2 > stop or data[at] != _VALUE_TAG[0]:
        return None
    size = data[at + 1]
    if size >= _ONE_BYTE or at + 2 + size != stop:
        return None
    return utf8.decoded(data[start + 2 : at]), utf8.decoded(data[at + 2 : stop])


def _value_reader(type_: Type) -> tuple[Callable[[bytes, int, Budget], tuple[Any, int]], Callable[[Budget], Any]]:
    """Return a reader for the value of an entry, and a function for the value of an entry without one. The reader ignores the wire type in
    the value's key."""
    match type_:
        case String():

            def read_text(data: bytes, at: int, budget: Budget) -> tuple[Any, int]:
                start, stop = _span(data, at)
                return utf8.decoded(data[start:stop]), stop

            return read_text, lambda budget: ""
        case Integer() | Boolean():
            narrowed = _narrowed(type_)

            def read_number(data: bytes, at: int, budget: Budget) -> tuple[Any, int]:
                value, at = protowire.read_varint(data, at)
                return narrowed(value), at

            return read_number, lambda budget: narrowed(0)
    body = _body_reader(type_)

    def read_body(data: bytes, at: int, budget: Budget) -> tuple[Any, int]:
        start, stop = _span(data, at)
        return body(data[start:stop], None, budget), stop

    return read_body, lambda budget: body(b"", None, budget)


def _quantity_row(data: bytes, at: int, made: Object, budget: Budget) -> int:
    next(budget)
    start, stop = _span(data, at)
    text = utf8.decoded(data[start:stop])
    try:
        # Upstream does not remove blanks here.
        if text != text.strip():
            raise quantity.QuantityError(quantity.FORMAT_WRONG)
        made[""] = quantity.canonical(text)
    except quantity.QuantityError as e:
        raise DecodeError(str(e)) from None
    return stop


_quantity_message = _message_reader("Quantity", {protowire.key(_CONTENT, BYTES): _quantity_row}, {_CONTENT: "String_"})


def _read_quantity(data: bytes, value: Any, budget: Budget) -> str:
    text: str = _quantity_message(data, {"": "0" if value is None else value}, budget)[""]
    return text


_TIMESTAMP = (Field(name="seconds", number=1, type=Integer()), Field(name="nanos", number=2, type=Integer(bits=32)))
_timestamp_message = _message_reader(
    "Timestamp",
    {key: row for field in _TIMESTAMP for key, row in _member_rows(field).items()},
    {field.number: go_name(field) for field in _TIMESTAMP},
)


def _read_time(data: bytes, value: Any, budget: Budget, *, micro: bool) -> str:
    if not data:
        return times.ZERO_MICRO if micro else times.ZERO
    made = _timestamp_message(data, None, budget)
    seconds, nanos = divmod(made.get("nanos", 0), 10**9) if micro else (0, 0)
    return times.from_unix(made.get("seconds", 0) + seconds, nanos, micro=micro)


def _raw_reader(message: str) -> _Body:
    """Return a reader that keeps the bytes of raw JSON. They are parsed when the whole message is known to be valid."""

    def row(data: bytes, at: int, made: Object, budget: Budget) -> int:
        next(budget)
        start, stop = _span(data, at)
        made[""] = data[start:stop]
        return stop

    inner = _message_reader(message, {protowire.key(_CONTENT, BYTES): row}, {_CONTENT: "Raw"})

    def read(data: bytes, value: Any, budget: Budget) -> bytes | None:
        raw: bytes | None = inner(data, {"": value}, budget)[""]
        return raw

    return read


def _parsed_raw(value: bytes | None, parse: Callable[[bytes], Any]) -> Any:
    try:
        found = parse(value) if value else None
        return msgspec.UNSET if found is None else found
    except ValueError as e:
        raise DecodeError(f"error parsing data as JSON: {e}") from None
