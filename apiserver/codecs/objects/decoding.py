"""Decode JSON values to objects of a shape. Refuse wrong types in the words of Go's decoder, and find unknown members with their paths.

The types of `typed` check and order a regular value at once. Any other value (a wrong type, an unknown member, a null in a list) is walked
in the order of the input, as Go's decoder does. The rest then takes the regular way.

A value has lost the repeated members of its text, unless `as_written` read it; the caller that has the text reports them. Raw JSON is
`msgspec.Raw` where the value comes from JSON text.
Upstream: kubernetes-sigs/json `internal/golang/encoding/json/{decode,kubernetes_patch}.go`.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from apiserver.codecs.json import as_written, json_strings, rawjson, surrogates
from apiserver.codecs.json.as_written import Literal
from apiserver.codecs.objects import times, typed
from apiserver.schema import types
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Field, Integer, ListOf, MapOf, Quantity, RawJSON, String, Struct, Time, Type
from kubetext import quantity, utf8
from kubetext.strconv import json_float

MAX_STRICT_ERRORS = 100
"""Upstream stops collecting unknown and duplicate members at this number."""

TOO_DEEP = "exceeded max depth"


class Decoded(NamedTuple):
    """An object in canonical spelling, with members in shape order, and the paths of the members that were dropped."""

    object: Object
    unknown: list[str]


class DecodeError(Exception):
    """The value does not fit the shape. The text is Go's."""


def decode(shape: Struct, value: Any, *, root: str = "", raw: bytes = b"") -> Decoded:
    """Decode `value` into a new object.

    null becomes an empty object, and a null member is absent. Quantities and times become canonical. Structs that are not pointers are
    always present.

    `root` is the Go type that errors name for the outermost struct, if it differs from the shape's name. `raw` is the JSON text of the
    value. It keeps the spelling of numbers (`1e3`, integers beyond 64 bits) and of amounts with escapes. It is read again only where that
    spelling matters.

    Further members of an open struct stay as they are.

    Raises DecodeError.
    """
    if shape.open:
        return _decode_open(shape, value, root=root, raw=raw)
    read = _reader(shape)
    value = {} if value is None else value
    escapes = b"\\" in raw and _ESCAPED_AMOUNT.search(raw) is not None
    if escapes and not _spell_amounts(value, shape, raw):
        return _decode_again(shape, value, raw, root=root)
    try:
        try:
            return Decoded(read(value), [])
        except (msgspec.ValidationError, UnicodeEncodeError, _Unspelled, quantity.QuantityError, times.TimeError):
            walk = _Walk(shape, value, root)
            unknown = walk.unknown
            if walk.unspelled and raw:
                value = _spelled(shape, value, raw)
                if escapes:
                    _spell_amounts(value, shape, raw)
                walk = _Walk(shape, value, root)
        if walk.error:
            raise DecodeError(walk.error)
        return Decoded(read(walk.object), unknown)
    except (RecursionError, rawjson.TooDeep):
        raise DecodeError(TOO_DEEP) from None


def _decode_open(shape: Struct, value: Any, *, root: str, raw: bytes) -> Decoded:
    declared = types.closed(shape)
    if not isinstance(value, dict):
        return decode(declared, value, root=root, raw=raw)
    names = {field.name for field in types.members(shape)}
    found = decode(declared, {name: x for name, x in value.items() if name in names}, root=root, raw=raw)
    found.object.update((name, x) for name, x in value.items() if name not in names)
    return found


def decode_written(shape: Struct, value: Any, *, root: str = "") -> Decoded:
    """Decode a value that `as_written` read. A repeated member is decoded into the value that is present already, as in Go, and each
    occurrence is checked. `root` is that of `decode`.

    Raises DecodeError.
    """
    try:
        walk = _Walk(shape, {} if value is None else value, root)
        if walk.error:
            raise DecodeError(walk.error)
        return Decoded(_reader(shape)(walk.object), walk.unknown)
    except (RecursionError, rawjson.TooDeep):
        raise DecodeError(TOO_DEEP) from None


_IN_AMOUNTS = rb"[-+.0-9eEinumkKMGTP \t\r\n\f\v]*"
_ESCAPED_AMOUNT = json_strings.linear(rb'"%b(?:\\(?:u[0-9a-fA-F]{4}|[bfnrt/])%b)+"' % (_IN_AMOUNTS, _IN_AMOUNTS))
"""A text that may be an amount once its escapes are read."""


def _spell_amounts(value: Any, shape: Struct, raw: bytes) -> bool:
    """Restore amounts with escapes as the JSON spells them. Go reads no escapes in amounts, so these are invalid. Return whether the JSON
    has the structure of the shape: only then they can be found so."""
    try:
        texts = typed.splitter(shape, _is_amount)(raw)
    except (ValueError, RecursionError):
        return False
    _put_texts(value, texts)
    return True


def _decode_again(shape: Struct, value: Any, raw: bytes, *, root: str) -> Decoded:
    """Decode a value of another structure from its text. Raises DecodeError."""
    written = as_written.read(shape, utf8.decoded(raw))
    if isinstance(written, dict) and isinstance(value, dict):
        written = as_written.without(written, written.keys() - value.keys())
    return decode_written(shape, written, root=root)


def _put_texts(value: Any, texts: Any) -> None:
    """Put `texts` into `value`. `texts` are dicts and lists with raw JSON in place of amounts; other values stay."""
    if isinstance(value, dict) and isinstance(texts, dict):
        places: Any = texts.keys() & value.keys()
    elif isinstance(value, list) and isinstance(texts, list):
        places = range(len(texts))
    else:
        return
    for place in places:
        text = texts[place]
        if isinstance(text, msgspec.Raw):
            if isinstance(value[place], str) and b"\\" in bytes(text):
                value[place] = bytes(text)[1:-1].decode()
        else:
            _put_texts(value[place], text)


def _is_amount(type_: Type) -> bool:
    return isinstance(type_, Quantity)


class _Unspelled(Exception):
    """A quantity came as a float: its spelling decides the result."""


def _spelled(shape: Struct, value: Any, raw: bytes) -> Any:
    """Return the same value with its floats as they were written."""
    try:
        again = _literally(shape, raw)
    except (ValueError, RecursionError):
        return value
    if not isinstance(value, dict) or not isinstance(again, dict):
        return again
    return {name: x for name, x in again.items() if name in value}


_anything_literally = surrogates.replaced(msgspec.json.Decoder(float_hook=Literal).decode)


def _literally(shape: Struct, raw: bytes) -> Any:
    try:
        return typed.parser(shape, Literal)(raw)
    except msgspec.ValidationError:
        # The value has another structure, for which it is refused: nobody sees its raw JSON.
        return _anything_literally(raw)


# The regular way.


@functools.cache
def _reader(shape: Struct) -> Callable[[Any], Object]:
    class_, normalize = typed.reading(shape), _normalizer(shape)

    def read(value: Any) -> Object:
        found: Object = msgspec.to_builtins(msgspec.convert(value, class_), builtin_types=_RAW, enc_hook=_SENT)
        if normalize is not None:
            normalize(found)
        return found

    return read


_RAW = (msgspec.Raw,)
_SENT = operator.attrgetter("sent")
"""Returns the text of a quantity.Respelled, in values that were read before."""


_Normalizer = Callable[[Any], Any]
"""Makes quantities, times and raw JSON below a value canonical. Changes structs, lists and maps in place. Returns the value or its
replacement; None if the member has no value."""


@functools.cache
def _normalizer(type_: Type) -> _Normalizer | None:
    """Return the normalizer of a type; None if it has nothing to normalize."""
    match type_:
        case Quantity():
            return _normalize_quantity
        case Time():
            return functools.partial(times.canonical, micro=True) if type_.micro else times.canonical
        case RawJSON():
            return rawjson.normalized if type_.verbatim else rawjson.normalized_compact
        case ListOf():
            inner = _normalizer(type_.item)
            return inner and _list_normalizer(inner)
        case MapOf():
            inner = _normalizer(type_.value)
            return inner and _map_normalizer(inner)
        case Struct():
            steps = [(f.name, step) for f in types.members(type_) if (step := _normalizer(f.type))]
            return _struct_normalizer(steps) if steps else None
    return None


_REMEMBERED_BYTES = 24
"""Longer quantities are not cached: clients must not be able to fill the cache with texts they make up."""


@functools.lru_cache(maxsize=4096)
def _remembered(text: str) -> str:
    """Return the canonical quantity, cached: the devices of a fleet have few different amounts."""
    return quantity.canonical(text)


def _normalize_quantity(value: Any) -> str:
    if isinstance(value, float):
        raise _Unspelled
    if isinstance(value, str) and len(value) <= _REMEMBERED_BYTES:
        return _remembered(value)
    return quantity.canonical(value)


def _list_normalizer(inner: _Normalizer) -> _Normalizer:
    def normalize(value: list[Any]) -> list[Any]:
        value[:] = map(inner, value)
        return value

    return normalize


def _map_normalizer(inner: _Normalizer) -> _Normalizer:
    def normalize(value: Object) -> Object:
        for key, x in value.items():
            value[key] = inner(x)
        return value

    return normalize


def _struct_normalizer(steps: list[tuple[str, _Normalizer]]) -> _Normalizer:
    def normalize(value: Object) -> Object:
        for name, step in steps:
            if name in value:
                normalized = step(value[name])
                if normalized is None:
                    del value[name]
                else:
                    value[name] = normalized
        return value

    return normalize


# The irregular way: the walk that repeats the steps of Go's decoder.


def _go_name(type_: Type) -> str:
    """Return the type as Go prints it."""
    match type_:
        case Struct():
            return f"{type_.go}.{type_.name}"
        case ListOf():
            return type_.go or f"[]{_go_name(type_.item)}"
        case MapOf():
            return f"map[{type_.go_key}]{_go_name(type_.value)}"
        case String() | RawJSON():
            return type_.go
        case Integer():
            return f"int{type_.bits}"
        case Boolean():
            return "bool"
        case Quantity():
            return "resource.Quantity"
        case Time():
            return "v1.MicroTime" if type_.micro else "v1.Time"


@functools.cache
def _places(struct: Struct) -> Mapping[str, tuple[Field, tuple[str, ...], type | None]]:
    """Map each JSON member to its field, the embedded Go structs around it, which errors name, and a Python type whose every value is
    valid."""
    found: dict[str, tuple[Field, tuple[str, ...], type | None]] = {}
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            for name, (inner, way, plain) in _places(field.type).items():
                found[name] = inner, (field.type.name, *way), plain
        else:
            found[field.name] = field, (), {String: str, Boolean: bool}.get(type(field.type))
    return found


class _Immediate(Exception):
    """An error of a type that decodes itself (times, quantities). It ends decoding and hides all earlier errors."""


class _Slice(list[Any]):
    """A Go slice. Elements behind its end stay in memory, and come back when it grows."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        super().__init__()
        self._behind: list[Any] = []
        """In reverse order: the last element comes first."""

    def at(self, index: int) -> Any:
        """Return the element at `index`, or None. Extends the slice if necessary."""
        if index == len(self):
            self.append(self._behind.pop() if self._behind else None)
        return self[index]

    def end(self, length: int) -> None:
        """Cut the slice to `length`. An empty slice keeps no elements behind its end."""
        while len(self) > length:
            self._behind.append(self.pop())
        if not length:
            self._behind.clear()


class _Walk:
    """Go's decoder on a decoded value: a repeated member is decoded into the value that is present already.

    * `error` is the first error ("" if none).
    * `unknown` has the paths of unknown members.
    * `object` is the value without unknown members and nulls, with valid times and quantities.
    * `unspelled` is True if the spelling of a float would have mattered.
    """

    def __init__(self, shape: Struct, value: Any, root: str) -> None:
        self.error = ""
        self.unknown: list[str] = []
        self.unspelled = False
        self._seen: set[str] = set()
        self._struct = ""
        self._fields: tuple[str, ...] = ()
        self._root = root or shape.name
        try:
            self.object = self._value(shape, value, "")
        except _Immediate as e:
            self.error = str(e)

    def _value(self, type_: Type, value: Any, path: str, there: Any = None) -> Any:
        """Return the result of decoding the value into `there`, which may change. The caller handles null."""
        match type_:
            case Struct() if isinstance(value, dict):
                return self._members(type_, value, path, there)
            case MapOf() if isinstance(value, dict):
                return self._entries(type_.value, value, path, there)
            case ListOf() if isinstance(value, list):
                return self._elements(type_.item, value, path, there)
            case Quantity() | Time():
                return self._self_reading(type_, value)
            case RawJSON():
                return value
        if not _fits(type_, value):
            self.error = self.error or self._mismatch(value, type_)
        return value

    def _entries(self, type_: Type, value: Object, path: str, there: Any) -> Object:
        """Decode the entries of a map. Its values are always new ones."""
        found = there if isinstance(there, dict) else {}
        for key, x in as_written.members(value):
            found[key] = self._element(type_, x, f"{path}.{key}" if path else key)
        return found

    def _elements(self, type_: Type, value: list[Any], path: str, there: Any) -> list[Any]:
        found = there if isinstance(there, _Slice) else _Slice()
        for i, x in enumerate(value):
            found[i] = self._element(type_, x, f"{path}[{i}]", found.at(i))
        found.end(len(value))
        return found

    def _element(self, type_: Type, value: Any, path: str, there: Any = None) -> Any:
        if value is not None:
            return self._value(type_, value, path, there)
        return _zero(type_) if there is None or not _outlives_null(type_, there) else there

    def _members(self, struct: Struct, value: Object, path: str, there: Any) -> Object:
        places, outer = _places(struct), (self._struct, self._fields)
        found = there if isinstance(there, dict) else {}
        name_in_errors = struct.name if outer[0] else self._root
        for name, x in as_written.members(value):
            place = places.get(name)
            if place is None:
                self._note_unknown(f"{path}.{name}" if path else name)
                continue
            field, way, plain = place
            if type(x) is plain:
                found[name] = x
            elif x is not None:
                self._struct, self._fields = name_in_errors, (*outer[1], *way, name)
                found[name] = self._value(field.type, x, f"{path}.{name}" if path else name, found.get(name))
                self._struct, self._fields = outer
            elif name in found and (types.is_pointer(field) or not _outlives_null(field.type, found[name])):
                del found[name]
        return found

    def _note_unknown(self, path: str) -> None:
        if len(self.unknown) < MAX_STRICT_ERRORS and path not in self._seen:
            self._seen.add(path)
            self.unknown.append(path)

    def _self_reading(self, type_: Quantity | Time, value: Any) -> Any:
        """Return an amount or a time as it was written, if that is known. Both are read once more."""
        try:
            if isinstance(type_, Quantity):
                text = self._quantity_text(value)
                return str(quantity.canonical(text)) if type(text) is float else _readable(text)
            if isinstance(value, str):
                times.canonical(value, micro=type_.micro)
                return value
        except (quantity.QuantityError, times.TimeError) as e:
            raise _Immediate(str(e)) from None
        raise _Immediate(self._mismatch(value, String()))

    def _quantity_text(self, value: Any) -> str | float:
        """Return the text that upstream parses: the JSON text itself. Only numbers and strings can be quantities."""
        if isinstance(value, bool | list | dict):
            return json_kind(value)
        if type(value) is float:
            self.unspelled = True
        text: str | float = value.text if isinstance(value, Literal) else value
        return text

    def _mismatch(self, value: Any, type_: Type) -> str:
        kind = json_kind(value)
        if kind == "number" and isinstance(type_, Integer):
            self.unspelled = self.unspelled or type(value) is float
            kind = f"number {_number_text(value)}"
        into = f"struct field {self._struct}.{'.'.join(self._fields)}" if self._fields else "value"
        return f"json: cannot unmarshal {kind} into Go {into} of type {_go_name(type_)}"


def _readable(amount: str | float) -> str | float:
    """Raise QuantityError for an invalid amount."""
    quantity.canonical(amount)
    return amount


def _fits(type_: Type, value: Any) -> bool:
    match type_:
        case String():
            return isinstance(value, str)
        case Boolean():
            return isinstance(value, bool)
        case Integer():
            low, high = types.bounds(type_)
            return type(value) is int and low <= value <= high
    return False


def _outlives_null(type_: Type, there: Any) -> bool:
    """Return whether null keeps a value that is not behind a pointer."""
    match type_:
        case ListOf() | MapOf() | Time():
            return False
        case Quantity():
            return _keeps_text(str(there))
    return True


_AMOUNT = re.compile(r"[-+]?([0-9]+)(?:([KMGTPE])i|[a-zA-Z](?:-?[0-9]+)?)?")
_DECIMAL_DIGITS = 18
_BINARY_DIGITS = {"K": 11, "M": 8, "G": 5, "T": 2}


def _keeps_text(amount: str) -> bool:
    """Return whether Go's quantity keeps its spelling.

    null resets the amount, but Go shows the kept text. Go keeps short texts in canonical spelling, except every eighth binary one.
    """
    found = _AMOUNT.fullmatch(amount)
    if found is None or len(amount) > _REMEMBERED_BYTES or quantity.canonical(amount) != amount:
        return False
    digits, unit = found.groups()
    if not unit:
        return len(digits) <= _DECIMAL_DIGITS
    return len(digits) <= _BINARY_DIGITS.get(unit, 0) and int(digits) % 8 > 0


def _zero(type_: Type) -> Any:
    """Return the value that Go gives a null element of a list or map."""
    match type_:
        case Struct() | MapOf():
            return {}
        case ListOf():
            return []
        case Boolean():
            return False
        case Integer():
            return 0
        case Quantity():
            return "0"
        case Time():
            return times.ZERO_MICRO if type_.micro else times.ZERO
        case String():
            return ""
    return None


def json_kind(value: Any) -> str:
    """Return the kind of a JSON value as Go's decoder names it."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _number_text(value: Any) -> str:
    """Return a number as it was written, if that is known; otherwise as Go writes the number that YAML has."""
    if isinstance(value, Literal):
        return value.text
    return json_float(value) if isinstance(value, float) else str(value)
