"""Hold values of raw JSON members (`types.RawJSON`) in decoded objects: their text and their meaning.

Such a value is a `msgspec.Raw` that holds the client's text byte by byte. Only this module looks inside. Two values are equal when their
bytes are.

JSON answers contain its `compact` form. Numbers, the order of members and repeated members stay as they are, blanks are removed, and the
characters that are special in HTML are escaped.
Upstream: kubernetes/apimachinery `pkg/runtime/extension.go`, `pkg/apis/meta/v1/types.go` (FieldsV1), golang/go
`src/encoding/json/indent.go`, kubernetes-sigs/json `internal/golang/encoding/json/decode.go` (numbers).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import orjson

from apiserver.codecs.json import json_strings, surrogates
from kubetext import strconv, utf8
from kubetext.sorting import LONG, by_name

LEVELS = 750
"""Levels of nesting in one text. Readers and writers of whole objects take a stack frame for each level, and Python has a thousand."""

WRITTEN_LEVELS = 255
"""Encoders take many times as long for values with more levels than for others of their size."""

_decode = surrogates.replaced(msgspec.json.Decoder(float_hook=strconv.parse_float).decode)
_encode = msgspec.json.Encoder(order="deterministic").encode
_NUMBER = re.compile(json_strings.STRING + rb"|(-?[0-9][0-9.eE+-]*)")
_GO_SPELLS = json_strings.linear(rb"[:\[,]-?[0-9]+(?:\.0|(?:\.[0-9]+)?e[-+]?[0-9]+)[,}\]]")
"""Finds a number that Go spells in another way than Python, and sometimes text that looks like it. The value is no scalar."""
_NULL = msgspec.Raw(b"null")
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 19
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_DEEPER = {ord(c): 1 for c in "{["} | {ord(c): -1 for c in "]}"}
_AT_ONCE = 32 << 10
"""Bytes that one call reads: no other thread runs meanwhile."""
_LINE_SEPARATOR, _PARAGRAPH_SEPARATOR = "\u2028".encode(), "\u2029".encode()


class TooDeep(ValueError):
    """The text nests deeper than this server supports."""

    def __init__(self) -> None:
        super().__init__("exceeded max depth")


def of(text: bytes) -> Any:
    """Return the value of a member from its JSON text, which stays as it is; None for null. Raises ValueError, or its subclass TooDeep."""
    if not text.isascii():
        text = _whole(text)
    try:
        without_blanks = surrogates.formatted(text)
    except RecursionError:
        raise TooDeep from None
    if without_blanks == b"null":
        return None
    if without_blanks.count(b"{") + without_blanks.count(b"[") > LEVELS and _levels(without_blanks) > LEVELS:
        raise TooDeep
    return msgspec.Raw(text)


def compact(value: Any) -> Any:
    """Return the value in the spelling that Go gives raw JSON in JSON: no blanks, and Go's escapes.

    Returns `value` itself if it has that spelling already or is not raw JSON.
    """
    if not isinstance(value, msgspec.Raw):
        return value
    source = bytes(value)
    found = escaped(surrogates.formatted(source))
    return value if found == source else msgspec.Raw(found)


def made(value: Any) -> Any:
    """Return the value of a member that came in another format than JSON: compact, members sorted, numbers as Go writes them. None stays
    None.

    Raises ValueError.
    """
    if value is None or isinstance(value, msgspec.Raw):
        return value
    try:
        text = _encode(_spelled(value))
    except UnicodeEncodeError:
        text = _encode(_spelled(value, clean=True))
    except RecursionError:
        raise TooDeep from None
    return of(escaped(text))


def normalized(value: Any) -> Any:
    """Return the value of a member of a decoded object, from JSON or any other format. Raises ValueError."""
    return of(bytes(value)) if isinstance(value, msgspec.Raw) else made(value)


def normalized_compact(value: Any) -> Any:
    """Return the same for a member that is not kept verbatim."""
    return plain(normalized(value))


def plain(value: Any) -> Any:
    """Return the value of such a member: compact, without lone surrogates."""
    found = compact(value)
    source = bytes(found) if isinstance(found, msgspec.Raw) else b""
    return msgspec.Raw(utf8.paired(source.decode()).encode()) if b"\\u" in source else found


def unless_null(value: Any) -> Any:
    """Return the value of a member, or None if its JSON is null."""
    return None if value == _NULL else value


def text(value: Any) -> bytes:
    """Return the JSON of a member's value, as it was sent."""
    return bytes(value)


def parsed(value: Any) -> Any:
    """Return what the JSON of a member's value means to Go: dicts, lists, text, numbers, booleans, None. Integers beyond 64 bits are
    floats. The last of repeated members counts.

    Raises ValueError with Go's text for a number beyond every float.
    """
    source = bytes(value)
    try:
        found = _decode(source)
    except ValueError:
        if literal := beyond_floats(source):
            raise ValueError(f"json: cannot unmarshal number {literal} into Go value of type float64") from None
        raise
    return as_go(found, source) if may_exceed_int64(source) else found


members: Callable[[bytes], dict[str, msgspec.Raw]] = surrogates.kept(
    msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
)
"""Return the members of a JSON object, undecoded. Raises msgspec.DecodeError."""


def may_exceed_int64(source: bytes) -> bool:
    """Return whether JSON has nineteen digits in a row. This takes a tenth of the time of a regular expression."""
    return _LONG in source.translate(_AS_ZEROS)


def dumps(value: Any) -> bytes:
    """Return the JSON of a decoded object or a part of one, without Go's escapes. Members keep their order and raw JSON its text. Raises
    TypeError."""
    return orjson.dumps(value, default=_fragment)


def shown(value: Any) -> bytes:
    """Return the same with raw JSON in its compact form. Raises TypeError."""
    return orjson.dumps(value, default=_compact_fragment)


def light(value: Any, most: int) -> bytes:
    """Return the same for an object whose raw JSON has at most `most` bytes in all and is not deeply nested.

    Raises TypeError for any other object, after work that grows with `most` and not with the raw JSON.
    """
    left = most

    def light_fragment(value: Any) -> orjson.Fragment:
        nonlocal left
        found = _fragment(value)
        source = bytes(value)
        left -= len(source)
        if left < 0:
            raise TypeError("raw JSON is long")
        if source.count(b"{") + source.count(b"[") > WRITTEN_LEVELS and _levels(source) > WRITTEN_LEVELS:
            raise TypeError("raw JSON nests deep")
        return found

    return orjson.dumps(value, default=light_fragment)


def sorted_json(value: Any) -> bytes:
    """Return the JSON of an unstructured value as Go writes it, without Go's escapes: members sorted at every level, numbers as Go spells
    them. Zero has no sign: Go reads `-0`, which it writes, as the integer. Raises TooDeep."""
    try:
        found = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # lone surrogates, integers beyond 64 bits, many levels
        found = b""
    if found and _GO_SPELLS.search(found) is None:
        return found
    try:
        return _encode(_spelled(value, unsigned=True))
    except UnicodeEncodeError:
        return _encode(_spelled(value, clean=True, unsigned=True))
    except RecursionError:
        raise TooDeep from None


def sorted_text(source: bytes) -> bytes:
    """Return JSON with the members sorted at every level, without blanks. Scalars keep their text. Raises ValueError and TooDeep."""
    try:
        return _sorted_text(source.strip(_BLANKS))
    except RecursionError:
        raise TooDeep from None


def _sorted_text(source: bytes) -> bytes:
    if source[:1] == b"{":
        found = sorted((name.encode(errors="surrogatepass"), bytes(value)) for name, value in members(source).items())
        return b"{%b}" % b",".join(
            b"%b:%b" % (orjson.dumps(name.decode()), _sorted_text(value)) for name, value in found
        )
    if source[:1] == b"[":
        return b"[%b]" % b",".join(_sorted_text(bytes(value)) for value in _elements(source))
    return source


_BLANKS = b" \t\r\n"
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _fragment(value: Any) -> orjson.Fragment:
    """Encode raw JSON for orjson, as its `default`."""
    if isinstance(value, msgspec.Raw):
        return orjson.Fragment(bytes(value))
    raise TypeError(f"{type(value).__name__} is no JSON")


def _compact_fragment(value: Any) -> orjson.Fragment:
    return _fragment(compact(value))


def escaped(data: bytes) -> bytes:
    """Escape the characters that are special in HTML, as Go does. They can stand in strings only."""
    data = data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    # A search for one byte is many times faster than a search for three.
    if _LINE_SEPARATOR[:1] in data:
        data = data.replace(_LINE_SEPARATOR, b"\\u2028").replace(_PARAGRAPH_SEPARATOR, b"\\u2029")
    return data


def beyond_floats(source: bytes) -> str:
    """Return the first number in JSON that is beyond every float; "" if it has none."""
    for match in _NUMBER.finditer(json_strings.without_escaped_quotes(source)):
        if match.group(1) and math.isinf(float(match.group(1))):
            return match.group(1).decode()
    return ""


def _whole(source: bytes) -> bytes:
    try:
        source.decode()
    except UnicodeDecodeError:
        return utf8.decoded(source).encode()
    return source


def _levels(source: bytes) -> int:
    """Return the levels of nesting of a text that is JSON."""
    if b"\\" in source:
        source = source.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = most = quoted = 0
    for at in range(0, len(source), _AT_ONCE):
        between_quotes = source[at : at + _AT_ONCE].split(b'"')
        brackets = b"".join(between_quotes[quoted::2]).translate(None, _NO_BRACKETS)
        depths = list(itertools.accumulate(map(_DEEPER.__getitem__, brackets), initial=depth))
        depth, most = depths[-1], max(most, *depths)
        quoted ^= (len(between_quotes) - 1) & 1
    return most


def _inside(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Return the keys or indices of a dict or list with their values. Callers may replace values meanwhile."""
    return iter(holder.items() if isinstance(holder, dict) else enumerate(holder))


def as_go(value: Any, source: bytes) -> Any:
    """Replace integers beyond 64 bits by floats, in place, and return the value. `source` is its JSON. Raises ValueError with Go's text."""
    out = [value]
    left: list[Any] = [out]
    while left:
        here = left.pop()
        for place, x in _inside(here):
            if isinstance(x, dict | list):
                left.append(x)
            elif type(x) is int and not strconv.MIN_INT64 <= x <= strconv.MAX_INT64:
                try:
                    here[place] = float(x)
                except OverflowError:
                    literal = beyond_floats(source)
                    why = f"json: cannot unmarshal number {literal} into Go value of type float64"
                    raise ValueError(why) from None
    return out[0]


def _spelled(value: Any, *, clean: bool = False, unsigned: bool = False) -> Any:
    """Return a copy with numbers as Go's encoder spells them and long maps sorted. With `clean`, lone surrogates are replaced. With
    `unsigned`, zero has no sign."""
    out = [value]
    left: list[Any] = [out]
    while left:
        here = left.pop()
        for place, x in _inside(here):
            if not x and isinstance(x, dict | list):
                continue
            if isinstance(x, dict):
                below = {utf8.whole(name): inner for name, inner in x.items()} if clean else x.copy()
                here[place] = below if len(below) <= LONG else by_name(below)
                left.append(here[place])
            elif isinstance(x, list):
                here[place] = x.copy()
                left.append(here[place])
            elif isinstance(x, float):
                here[place] = msgspec.Raw(strconv.json_float(x or 0.0 if unsigned else x).encode())
            elif clean and isinstance(x, str):
                here[place] = utf8.whole(x)
            elif type(x) is int and not strconv.MIN_INT64 <= x <= strconv.MAX_UINT64:
                here[place] = msgspec.Raw(strconv.json_float(float(x)).encode())
    return out[0]
