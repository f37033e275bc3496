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
import re
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from kubetext import utf8
from kubetext.quoting import go_quote
from kubetext.strconv import parse_int
from structuredmerge import values

__all__ = [
    "TRAILING_DATA",
    "Element",
    "Path",
    "PathError",
    "field",
    "index",
    "item",
    "keyed",
    "quoted",
    "read",
    "report",
    "text",
    "wire",
]

Element = tuple[int, Any]
Path = tuple[Element, ...]

FIELD, KEY, VALUE, INDEX = range(4)


class PathError(ValueError):
    """A key of FieldsV1 is malformed. The message is upstream's."""


def field(name: str) -> Element:
    """Return the element of a member of a map or a struct."""
    return (FIELD, name)


def keyed(keys: Mapping[str, Any]) -> Element:
    """Return the element of the list map item with these key values."""
    return (KEY, tuple((name, values.key(keys[name])) for name in sorted(keys)))


def item(value: Any) -> Element:
    """Return the element of a set item."""
    return (VALUE, values.key(value))


def index(position: int) -> Element:
    """Return the element of a position in an atomic list."""
    return (INDEX, position)


def text(path: Path) -> str:
    """Return a path as messages show it: `.status.devices[device="x",pool="p"].data`. A dot in a name is not escaped."""
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
        number = key[1]
        return _number(number, plain=_PLAIN_IN_MESSAGES) if isinstance(number, int | float) else "{{undefined}}"
    if rank == values.LIST:
        return "[" + ",".join(map(_shown_value, key[1])) + "]"
    return "null" if rank == values.NULL else "".join(f"{name}={_shown_value(value)}" for name, value in key[1])


def wire(element: Element) -> str:
    """Return an element as a key of FieldsV1. Law: `read(wire(e)) == e` for each element that can be stored."""
    rank, what = element
    if rank == FIELD:
        return f"f:{what}"
    if rank == KEY:
        return "k:{" + ",".join(f"{quoted(name)}:{_written(key)}" for name, key in what) + "}"
    return f"v:{_written(what)}" if rank == VALUE else f"i:{what}"


def _written(key: values.Key) -> str:
    """Return a value as Go's JSON."""
    rank = key[0]
    if rank == values.STRING:
        return _quoted_value(key[1])
    if rank == values.BOOLEAN:
        return "true" if key[1] else "false"
    if rank == values.NUMBER:
        return _number(key[1], plain=_PLAIN_ON_THE_WIRE)
    if rank == values.LIST:
        return "[" + ",".join(map(_written, key[1])) + "]"
    if rank == values.NULL:
        return "null"
    return "{" + ",".join(f"{_quoted_value(name)}:{_written(value)}" for name, value in key[1]) + "}"


def quoted(text: str) -> str:
    """Return a string in JSON's quotes with the escapes of Go's json-iterator, which does not escape `<`, `>` and `&`."""
    written = encode_basestring(text)
    if "\b" in text or "\f" in text:
        return _ESCAPE.sub(_spelled, written)
    return written


_ESCAPE = re.compile(r"\\.")
_SPELLED = {r"\b": r"\u0008", r"\f": r"\u000c"}


def _spelled(escape: re.Match[str]) -> str:
    return _SPELLED.get(escape.group(), escape.group())


def _quoted_value(text: str) -> str:
    """Return a string as it is written inside a value."""
    return quoted(text) if _UNSAFE(text) is None else quoted(text).translate(_HTML)


_UNSAFE = re.compile("[<>&\u2028\u2029]").search


_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


# Powers of ten for which Go prints floats without exponent: `%v`, and encoders of JSON.
_PLAIN_IN_MESSAGES = range(-4, 6)
_PLAIN_ON_THE_WIRE = range(-6, 21)


def _number(number: int | float, *, plain: range) -> str:
    """Return a number with the fewest digits that denote it; a float outside `plain` with an exponent."""
    if number.__class__ is not float:
        return str(number)
    decimal = Decimal(repr(number))
    exponent = decimal.adjusted() if number else 0
    if exponent in plain:
        written = f"{decimal:f}"
        return written.rstrip("0").rstrip(".") if "." in written else written
    sign, (first, *rest), _ = decimal.normalize().as_tuple()
    point = "." if rest else ""
    return f"{'-' * sign}{first}{point}{''.join(map(str, rest))}e{exponent:+03d}"


def read(text: str, *, whole: bool = False) -> Element | None:
    """Return the element of a FieldsV1 key; None if its letter is unknown. Raises PathError.

    `whole`: text after a JSON value is an error, as since v6.4.2 of structured-merge-diff. Earlier versions ignore it.
    """
    letter, colon = text[:1], text[1:2]
    if colon != ":":
        short = len(text.encode(errors="replace")) < 2
        raise PathError("key must be 2 characters long:" if short else f"missing colon: {text}")
    if letter == "f":
        return (FIELD, text[2:])
    if letter == "k":
        return (KEY, _read_keys(text[2:], whole=whole))
    if letter == "v":
        return (VALUE, _read_value(text[2:], whole=whole))
    if letter == "i":
        try:
            return (INDEX, parse_int(text[2:]))
        except ValueError as error:
            raise PathError(str(error).replace("ParseInt", "Atoi", 1)) from None
    return None


class _Pairs(tuple[tuple[str, Any], ...]):
    """An object as it was written: all members in order, repeated ones included."""

    __slots__ = ()


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _float(text: str) -> float:
    number = float(text)
    if number in _INFINITE:
        raise PathError(f'strconv.ParseFloat: parsing "{text}": value out of range')
    return number


_INFINITE: Final = (float("inf"), float("-inf"))
# Upstream reads every number of a path element as float64.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_float, parse_float=_float, parse_constant=_refused, strict=True
)


def _parsed(text: str, start: int, *, whole: bool) -> Any:
    """Return the JSON value at an offset."""
    paired = utf8.paired(text)
    try:
        value, end = _DECODER.raw_decode(paired, start)
    except PathError:
        raise
    except (ValueError, RecursionError) as error:
        raise PathError(report("Read", str(error), text.encode(errors="replace"), start)) from None
    if whole and (rest := paired[end:].lstrip(_SPACE)):
        read = len(paired[: -len(rest)].encode(errors="replace"))
        raise PathError(report(*TRAILING_DATA, paired.encode(errors="replace"), read))
    return value


TRAILING_DATA: Final = "managedFields parsing", "unexpected trailing data after JSON object"
"""The operation and the problem that upstream reports."""


def _read_value(text: str, *, whole: bool) -> values.Key:
    start = len(text) - len(text.lstrip(_SPACE))
    if text[start : start + 1] not in _STARTS:
        raise PathError(report("Read", "unexpected value type: 0", text.encode(errors="replace"), start))
    return _key(_parsed(text, start, whole=whole), text)


def _read_keys(text: str, *, whole: bool) -> tuple[tuple[str, values.Key], ...]:
    start = len(text) - len(text.lstrip(_SPACE))
    if text[start : start + 1] not in ("{", "n"):
        raw = text.encode(errors="replace")
        found = raw[start : start + 1] or b"\0"
        raise PathError(report("ReadObjectCB", b"expect { or n, but found " + found, raw, min(start + 1, len(raw))))
    pairs = _parsed(text, start, whole=whole) or ()
    return tuple(sorted(((name, _key(value, text)) for name, value in pairs), key=_name))


_SPACE = " \t\r\n"
_STARTS = frozenset('"-0123456789tfn[{')


def report(operation: str, problem: str | bytes, read: bytes, head: int) -> str:
    """Return an error as json-iterator reports it, with its surroundings. `head` counts the bytes that are read.

    Upstream: json-iterator/go `iter.go` (ReportError).
    """
    start = max(head - 10, 0)
    around, wide = read[start : head + 10], read[max(head - 50, 0) : head + 50]
    message = b"%s: %s, error found in #%d byte of ...|%s|..., bigger context ...|%s|..." % (
        operation.encode(),
        problem.encode() if isinstance(problem, str) else problem,
        head - start,
        around,
        wide,
    )
    # The cut may split a character: Go's JSON encoder then replaces each of its bytes.
    return message.decode(errors="surrogateescape").translate(_CUT)


_CUT = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")


def _name(pair: tuple[str, values.Key]) -> str:
    return pair[0]


def _key(read: Any, text: str) -> values.Key:
    """Return `values.key` of a decoded value. Raises PathError."""
    try:
        return values.key(_plain(read))
    except RecursionError as error:
        raise PathError(report("Read", str(error), text.encode(errors="replace"), 0)) from None


def _plain(value: Any) -> Any:
    """Return the decoded value as plain JSON. The last of repeated members wins."""
    if value.__class__ is _Pairs:
        return {name: _plain(part) for name, part in value}
    return [_plain(item) for item in value] if value.__class__ is list else value
