"""Path elements: how one part of a value is selected, as text of messages and as key of FieldsV1.

An element is a tuple that sorts as upstream's elements do: field < key < value < index, then by what it says.

| element | selects | on the wire | in messages |
|---|---|---|---|
| (0, name) | a member | `f:name` | `.name` |
| (1, ((name, key), ...)) | an item of a list map | `k:{"name":value}` | `[name=value]` |
| (2, key) | an item of a set | `v:value` | `[=value]` |
| (3, n) | a position in a list | `i:n` | `[n]` |

`key` is `values.key`. Upstream: kubernetes-sigs/structured-merge-diff `fieldpath/element.go`, `fieldpath/serialize-pe.go`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from apiserver.apimachinery.fieldpath import go_quote
from apiserver.apimachinery.strconv import parse_int
from apiserver.structuredmerge import values

__all__ = ["Element", "Path", "PathError", "field", "index", "item", "keyed", "quoted", "read", "text", "wire"]

Element = tuple[int, Any]
Path = tuple[Element, ...]

FIELD, KEY, VALUE, INDEX = range(4)


class PathError(ValueError):
    """A key of FieldsV1 that selects nothing; the text is upstream's."""


def field(name: str) -> Element:
    """A member of a map or a struct."""
    return (FIELD, name)


def keyed(keys: Mapping[str, Any]) -> Element:
    """The item of a list map that has these values."""
    return (KEY, tuple((name, values.key(keys[name])) for name in sorted(keys)))


def item(value: Any) -> Element:
    """The item of a set."""
    return (VALUE, values.key(value))


def index(position: int) -> Element:
    """A position in an atomic list."""
    return (INDEX, position)


def text(path: Path) -> str:
    """A path as messages show it: `.status.devices[device="x",pool="p"].data`; a dot in a name is not escaped."""
    return "".join(map(_shown, path))


def _shown(element: Element) -> str:
    rank, what = element
    if rank == FIELD:
        return f".{what}"
    if rank == KEY:
        return "[" + ",".join(f"{name}={_shown_value(key)}" for name, key in what) + "]"
    return f"[={_shown_value(what)}]" if rank == VALUE else f"[{what}]"


def _shown_value(key: values.Key) -> str:
    rank = key[0]
    if rank == values.STRING:
        return go_quote(key[1])
    if rank == values.BOOLEAN:
        return "true" if key[1] else "false"
    if rank == values.NUMBER:
        return _number(key[1], plain_below=None)
    if rank == values.LIST:
        return "[" + ",".join(map(_shown_value, key[1])) + "]"
    return "null" if rank == values.NULL else "".join(f"{name}={_shown_value(value)}" for name, value in key[1])


def wire(element: Element) -> str:
    """An element as key of FieldsV1. Law: `read(wire(e)) == e` for each element that can be stored."""
    rank, what = element
    if rank == FIELD:
        return f"f:{what}"
    if rank == KEY:
        return "k:{" + ",".join(f"{quoted(name)}:{_written(key)}" for name, key in what) + "}"
    return f"v:{_written(what)}" if rank == VALUE else f"i:{what}"


def _written(key: values.Key) -> str:
    """A value as Go's JSON."""
    rank = key[0]
    if rank == values.STRING:
        return quoted(key[1]).translate(_HTML)
    if rank == values.BOOLEAN:
        return "true" if key[1] else "false"
    if rank == values.NUMBER:
        return _number(key[1], plain_below=21)
    if rank == values.LIST:
        return "[" + ",".join(map(_written, key[1])) + "]"
    if rank == values.NULL:
        return "null"
    return "{" + ",".join(f"{quoted(name).translate(_HTML)}:{_written(value)}" for name, value in key[1]) + "}"


def quoted(text: str) -> str:
    """A string in JSON's quotes with the escapes of Go's json-iterator; `<` and its like stay as they are."""
    written = encode_basestring(text)
    return written if len(written) == len(text) + 2 else f'"{text.translate(_ESCAPES)}"'


_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def _number(number: int | float, *, plain_below: int | None) -> str:
    """A number as Go prints it. A float without exponent below 10**plain_below; None: where `%v` does it."""
    if number.__class__ is not float:
        return str(number)
    decimal = Decimal(repr(number))
    exponent = decimal.adjusted() if number else 0
    lowest, limit = (-4, 21) if plain_below is None else (-6, plain_below)
    if lowest <= exponent < limit:
        plain = f"{decimal:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    digits = "".join(map(str, decimal.normalize().as_tuple().digits))
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def read(text: str) -> Element | None:
    """The element of a key of FieldsV1, None if its letter is unknown. Raises PathError."""
    letter, colon = text[:1], text[1:2]
    if len(text.encode()) < 2:
        raise PathError("key must be 2 characters long:")
    if colon != ":":
        raise PathError(f"missing colon: {text}")
    if letter == "f":
        return (FIELD, text[2:])
    if letter == "k":
        return (KEY, _read_keys(text[2:]))
    if letter == "v":
        return (VALUE, _key(_parsed(text[2:])))
    if letter == "i":
        try:
            return (INDEX, parse_int(text[2:]))
        except ValueError as error:
            raise PathError(str(error).replace("ParseInt", "Atoi", 1)) from None
    return None


class _Pairs(tuple[tuple[str, Any], ...]):
    """An object as it was written: its members in order, a repeated one each time."""

    __slots__ = ()


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _float(text: str) -> float:
    number = float(text)
    if number in _INFINITE:
        raise ValueError(f"{text} is too large")
    return number


_INFINITE: Final = (float("inf"), float("-inf"))
# Upstream reads every number of a path element as float64.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_float, parse_float=_float, parse_constant=_refused, strict=True
)


def _parsed(text: str) -> Any:
    """The JSON value at the beginning of a text: what follows it is ignored, as upstream does."""
    try:
        return _DECODER.raw_decode(text.lstrip(" \t\r\n"))[0]
    except (ValueError, RecursionError) as error:
        raise PathError(f"{error}") from None


def _read_keys(text: str) -> tuple[tuple[str, values.Key], ...]:
    parsed = _parsed(text)
    if parsed is None:
        return ()
    if parsed.__class__ is not _Pairs:
        raise PathError("ReadObjectCB: expect { or n")
    return tuple(sorted(((name, _key(value)) for name, value in parsed), key=_name))


def _name(pair: tuple[str, values.Key]) -> str:
    return pair[0]


def _key(value: Any) -> values.Key:
    """`values.key` of what was read; of a repeated member the last counts."""
    if value.__class__ is _Pairs:
        members = dict(value)
        return (values.MAP, tuple((name, _key(members[name])) for name in sorted(members)))
    return (values.LIST, tuple(map(_key, value))) if value.__class__ is list else values.key(value)
