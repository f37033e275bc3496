"""From decoded JSON to an object of a shape: wrong types refused in the words of Go's decoder, unknown members found with their paths.

A regular value passes in one go, checked and ordered by the types of `typed`. Anything else (a wrong type, an unknown member, a null
in a list) is walked again in the order of the input, with the bookkeeping of Go's decoder; what remains goes the regular way.
What is repeated in the text is gone when a value arrives here, unless it was read `as_written`; who has the text reports it. Raw JSON is
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
from kubetext import quantity
from kubetext.strconv import json_float

MAX_STRICT_ERRORS = 100
"""Upstream stops collecting unknown and duplicate members here."""

TOO_DEEP = "exceeded max depth"


class Decoded(NamedTuple):
    """An object in canonical spelling, members in shape order, and the paths of the members that were dropped."""

    object: Object
    unknown: list[str]


class DecodeError(Exception):
    """The value does not fit the shape; the text is Go's."""


def decode(shape: Struct, value: Any, *, root: str = "", raw: bytes = b"") -> Decoded:
    """Reads `value` into a new object.

    null is an empty object, and a null member an absent one. Quantities and times become canonical. Structs that are no pointers are
    always there.
    `root` is the Go type that errors name for the outermost struct, if it is not the shape's own name. `raw`, the JSON text of the
    value, keeps the spelling of numbers (`1e3`, integers beyond 64 bits) and of amounts with escapes where it shows; it is read again
    only in that case.
    Raises DecodeError.
    """
    read = _reader(shape)
    value = {} if value is None else value
    escapes = b"\\" in raw and _ESCAPED_AMOUNT.search(raw) is not None
    if escapes:
        _spell_amounts(value, shape, raw)
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


def decode_written(shape: Struct, value: Any) -> Decoded:
    """The same of a value that was read `as_written`: a member that is repeated is decoded into what is there already, as Go does it, and
    what is wrong with any of them is told. Raises DecodeError."""
    try:
        walk = _Walk(shape, {} if value is None else value, "")
        if walk.error:
            raise DecodeError(walk.error)
        return Decoded(_reader(shape)(walk.object), walk.unknown)
    except (RecursionError, rawjson.TooDeep):
        raise DecodeError(TOO_DEEP) from None


_IN_AMOUNTS = rb"[-+.0-9eEinumkKMGTP \t\r\n\f\v]*"
_ESCAPED_AMOUNT = json_strings.linear(rb'"%b(?:\\(?:u[0-9a-fA-F]{4}|[bfnrt/])%b)+"' % (_IN_AMOUNTS, _IN_AMOUNTS))
"""A text that may be an amount once its escapes are read."""


def _spell_amounts(value: Any, shape: Struct, raw: bytes) -> None:
    """Puts amounts with escapes back as they are written in the JSON: Go reads no escapes there, so that they are none."""
    try:
        texts = typed.splitter(shape, _is_amount)(raw)
    except (ValueError, RecursionError):
        return  # another structure, which is refused
    _put_texts(value, texts)


def _put_texts(value: Any, texts: Any) -> None:
    """`texts` are dicts and lists with raw JSON in place of amounts; what stands elsewhere is left alone."""
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
    """A quantity came as a float: its spelling decides what becomes of it."""


def _spelled(shape: Struct, value: Any, raw: bytes) -> Any:
    """The same value with its floats as they were written."""
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
        # It has another structure, for which it is refused: whatever raw JSON in it becomes, nobody will see it.
        return _anything_literally(raw)


# The regular way.


@functools.cache
def _reader(shape: Struct) -> Callable[[Any], Object]:
    class_, settle = typed.reading(shape), _settler(shape)

    def read(value: Any) -> Object:
        found: Object = msgspec.to_builtins(msgspec.convert(value, class_), builtin_types=_RAW, enc_hook=_SENT)
        if settle is not None:
            settle(found)
        return found

    return read


_RAW = (msgspec.Raw,)
_SENT = operator.attrgetter("sent")
"""Of quantity.Respelled, in what had been read before."""


_Settler = Callable[[Any], Any]
"""Makes quantities, times and raw JSON below a value canonical: changes structs, lists and maps in place, returns the value or its
replacement, None for none."""


@functools.cache
def _settler(type_: Type) -> _Settler | None:
    """None when there is nothing to settle below."""
    match type_:
        case Quantity():
            return _settle_quantity
        case Time():
            return functools.partial(times.canonical, micro=True) if type_.micro else times.canonical
        case RawJSON():
            return rawjson.settled if type_.verbatim else rawjson.settled_compact
        case ListOf():
            inner = _settler(type_.item)
            return inner and _list_settler(inner)
        case MapOf():
            inner = _settler(type_.value)
            return inner and _map_settler(inner)
        case Struct():
            steps = [(f.name, step) for f in types.members(type_) if (step := _settler(f.type))]
            return _struct_settler(steps) if steps else None
    return None


_REMEMBERED_BYTES = 24
"""Longer quantities are not remembered: a cache must not hold what a client made up."""


@functools.lru_cache(maxsize=4096)
def _remembered(text: str) -> str:
    """The devices of a fleet have few different amounts."""
    return quantity.canonical(text)


def _settle_quantity(value: Any) -> str:
    if isinstance(value, float):
        raise _Unspelled
    if isinstance(value, str) and len(value) <= _REMEMBERED_BYTES:
        return _remembered(value)
    return quantity.canonical(value)


def _list_settler(inner: _Settler) -> _Settler:
    def settle(value: list[Any]) -> list[Any]:
        value[:] = map(inner, value)
        return value

    return settle


def _map_settler(inner: _Settler) -> _Settler:
    def settle(value: Object) -> Object:
        for key, x in value.items():
            value[key] = inner(x)
        return value

    return settle


def _struct_settler(steps: list[tuple[str, _Settler]]) -> _Settler:
    def settle(value: Object) -> Object:
        for name, step in steps:
            if name in value:
                settled = step(value[name])
                if settled is None:
                    del value[name]
                else:
                    value[name] = settled
        return value

    return settle


# The walk in Go's footsteps.


def _go_name(type_: Type) -> str:
    """The type as Go prints it."""
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
    """Each JSON member with the embedded Go structs that lead to it, which decoding errors name, and the Python type of which every
    value is in order."""
    found: dict[str, tuple[Field, tuple[str, ...], type | None]] = {}
    for field in struct.fields:
        if field.inline and isinstance(field.type, Struct):
            for name, (inner, way, plain) in _places(field.type).items():
                found[name] = inner, (field.type.name, *way), plain
        else:
            found[field.name] = field, (), {String: str, Boolean: bool}.get(type(field.type))
    return found


class _Immediate(Exception):
    """An error of a type that reads itself (times, quantities): it ends decoding and hides all that was found before."""


class _Slice(list[Any]):
    """A slice of Go. Elements behind its end are still there, and come back when it grows."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        super().__init__()
        self._behind: list[Any] = []
        """The last one first."""

    def at(self, index: int) -> Any:
        """What is there, None for nothing. Makes room for it."""
        if index == len(self):
            self.append(self._behind.pop() if self._behind else None)
        return self[index]

    def end(self, length: int) -> None:
        """Nothing is left behind the end of an empty one."""
        while len(self) > length:
            self._behind.append(self.pop())
        if not length:
            self._behind.clear()


class _Walk:
    """Go's decoder on a decoded value: what is repeated goes into what is there.

    `error` is the first complaint ("" if none), `unknown` the paths of unknown members, `object` the value without these and without
    nulls, times and quantities in order. `unspelled` tells that the way a float was written would have mattered.
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
        """What decoding the value into what is there makes of that, which may change; null is decoded elsewhere."""
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
        """Of a map. Its values are always new ones."""
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
        """An amount as it was written, if that is known, and a time likewise: both are read once more."""
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
        """What upstream parses: the JSON text itself, of which only numbers and strings can be quantities."""
        if isinstance(value, bool | list | dict):
            return _json_kind(value)
        if type(value) is float:
            self.unspelled = True
        text: str | float = value.text if isinstance(value, Literal) else value
        return text

    def _mismatch(self, value: Any, type_: Type) -> str:
        kind = _json_kind(value)
        if kind == "number" and isinstance(type_, Integer):
            self.unspelled = self.unspelled or type(value) is float
            kind = f"number {_number_text(value)}"
        into = f"struct field {self._struct}.{'.'.join(self._fields)}" if self._fields else "value"
        return f"json: cannot unmarshal {kind} into Go {into} of type {_go_name(type_)}"


def _readable(amount: str | float) -> str | float:
    """Raises QuantityError for what is none."""
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
    """Whether null changes nothing about a value that no pointer leads to."""
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
    """Whether a quantity of Go remembers how it was written: null takes the amount, but what is shown is that text. It does so with short
    ones in canonical spelling, and not with every eighth binary one."""
    found = _AMOUNT.fullmatch(amount)
    if found is None or len(amount) > _REMEMBERED_BYTES or quantity.canonical(amount) != amount:
        return False
    digits, unit = found.groups()
    if not unit:
        return len(digits) <= _DECIMAL_DIGITS
    return len(digits) <= _BINARY_DIGITS.get(unit, 0) and int(digits) % 8 > 0


def _zero(type_: Type) -> Any:
    """What Go makes of a null element of a list or map."""
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


def _json_kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _number_text(value: Any) -> str:
    """A number as it was written, as far as that is known; else as Go writes what YAML says."""
    if isinstance(value, Literal):
        return value.text
    return json_float(value) if isinstance(value, float) else str(value)
