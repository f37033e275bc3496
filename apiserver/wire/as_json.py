"""Read and write JSON as Kubernetes does: with Go's errors on the way in, Go's escapes on the way out.

One fast decoder does the work. `json_syntax` finds Go's error for text that it refuses.
Upstream: golang/go `src/encoding/json`, kubernetes-sigs/json.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import msgspec
import orjson

from apiserver.codecs.json import as_written, json_syntax, rawjson, surrogates
from apiserver.codecs.json.json_syntax import SyntaxProblem
from apiserver.codecs.objects import typed
from apiserver.schema.types import Struct
from kubetext import strconv, utf8

__all__ = [
    "Reading",
    "SyntaxProblem",
    "TooDeep",
    "checked",
    "deeper_than",
    "dumps",
    "excerpt",
    "indent",
    "is_valid",
    "loads",
    "plain",
    "pretty",
    "read",
    "written",
]

_DECODER = msgspec.json.Decoder(float_hook=strconv.parse_float)
_decode = surrogates.replaced(_DECODER.decode)


class Reading(NamedTuple):
    """A decoded document. `suspicious`: some object may name a member twice; False is certain.

    `text` is the text of a suspicious document, with U+FFFD in place of bytes that are not UTF-8. Making it takes as long as decoding.
    """

    value: Any
    suspicious: bool = False
    text: str = ""


class TooDeep(SyntaxProblem):
    """Go accepts this nesting, but this server does not. The text is that of Go's own limit."""


def plain(raw: bytes, shape: Struct | None = None) -> Reading | None:
    """Return the value of a document without irregularities, which is fast; None for any other document. `shape` as in `loads`.

    Each member has one colon of its own, and a dropped member's value can only have more. So an equal number of colons before and after
    decoding proves that nothing was dropped. Only a colon written as an escape could spoil the count.
    """
    try:
        value = _parser(shape)(raw)
        again = rawjson.dumps(value)
    except (msgspec.DecodeError, ValueError, RecursionError, TypeError):
        return None
    if b"\\u003a" in raw or b"\\u003A" in raw or raw.count(b":") != again.count(b":"):
        return None
    return Reading(value)


_SKIPPER = msgspec.json.Decoder(msgspec.Raw)


def is_valid(raw: bytes) -> bool:
    """Return whether Go's scanner accepts the bytes (`json.Valid`). No value is made."""
    try:
        _SKIPPER.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            json_syntax.check(raw)
        except SyntaxProblem:
            return False
    return True


def read(raw: bytes, shape: Struct | None = None) -> Reading:
    """Return the value, and whether members may have been dropped."""
    found = plain(raw, shape)
    if found is not None:
        return found
    value, text = _loads(raw, shape)
    return Reading(value, suspicious=True, text=text or utf8.decoded(raw))


def loads(raw: bytes, shape: Struct | None = None) -> Any:
    """Return the value: whole numbers exact, the last of repeated members.

    With the shape of the document, raw JSON is `msgspec.Raw`, which may have bytes that are not UTF-8, and unknown members may be missing.
    Raises SyntaxProblem with Go's text, and TooDeep.
    """
    return _loads(raw, shape)[0]


def _loads(raw: bytes, shape: Struct | None) -> tuple[Any, str]:
    """Return the value, and the text with U+FFFD in place of bytes that are not UTF-8 if it was made."""
    decode = _parser(shape)
    try:
        return decode(raw), ""
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(raw)
    text = utf8.decoded(raw)
    try:
        return _of_any_structure(_decode if shape is None else decode, text), text
    except (msgspec.DecodeError, ValueError) as e:
        raise json_syntax.too_big(raw) or e from None
    except RecursionError:
        return _deep(raw, utf8.paired(text)), text


def written(raw: bytes, shape: Struct) -> Any:
    """Return the value with its repeated members, as `as_written.read` does. Raises SyntaxProblem with Go's text."""
    return as_written.read(shape, checked(raw))


def checked(raw: bytes) -> str:
    """Return the text for `as_written.read`, with U+FFFD in place of bytes that are not UTF-8. Raises SyntaxProblem with Go's text."""
    try:
        _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(raw)
    return utf8.decoded(raw)


@functools.lru_cache(maxsize=256)
def excerpt(paths: frozenset[str]) -> Callable[[bytes], Any]:
    """Return a reader for the members at these paths (such as `spec.pool.name`) and the objects around them. It skips other members. It
    reads all of a document with another structure, and raises the errors of `loads`."""
    type_ = _excerpt([path.split(".") for path in paths])
    decode = surrogates.replaced(msgspec.json.Decoder(type_, float_hook=strconv.parse_float).decode)

    def read(raw: bytes) -> Any:
        try:
            return decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return loads(raw)

    return read


def _excerpt(paths: list[list[str]]) -> Any:
    """Return the type of objects with these members, and with everything below the end of a path."""
    if not all(paths):
        return Any
    below: dict[str, list[list[str]]] = {}
    for name, *rest in paths:
        below.setdefault(name, []).append(rest)
    return TypedDict("Excerpt", {name: _excerpt(rest) for name, rest in below.items()}, total=False)  # type: ignore[operator]


def _parser(shape: Struct | None) -> Callable[[bytes | str], Any]:
    return _DECODER.decode if shape is None else typed.parser(shape, strconv.parse_float)


def _of_any_structure(decode: Callable[[bytes | str], Any], text: str) -> Any:
    try:
        return decode(text)
    except msgspec.ValidationError:
        return _decode(text)


def _deep(raw: bytes, text: str) -> Any:
    """Text that is too deep for one decoder may be fine for the other."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        bracket = "[" if raw.count(b"[") > raw.count(b"{") else "{"
        raise TooDeep(f"invalid character '{bracket}' exceeded max depth") from None


WRITTEN_LEVELS = 255
"""orjson writes no value with more levels. It finds that in a whole value sooner than Python finds it in the first few levels."""


def deeper_than(value: Any, levels: int) -> bool:
    """Return whether containers nest deeper than `levels`."""
    if levels >= WRITTEN_LEVELS and _writable(value):
        return False
    layer = [value]
    for _ in range(levels + 1):
        layer = [x for holder in layer if isinstance(holder, dict | list) for x in _inside(holder)]
        if not layer:
            return False
    return True


def _writable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _inside(holder: Any) -> Any:
    return holder.values() if isinstance(holder, dict) else holder


def dumps(value: Any) -> bytes:
    """Encode in one line without a newline. Members keep their order; raw JSON is compact."""
    return rawjson.escaped(_dump(value))


def pretty(value: Any) -> bytes:
    """Encode with two blanks per level and no newline at the end, as upstream's pretty serializer does."""
    try:
        return rawjson.escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    except TypeError:
        return indent(dumps(value))


def _dump(value: Any) -> bytes:
    try:
        return rawjson.shown(value)
    except TypeError:
        # Deep nesting, integers beyond 64 bits, and lone surrogates, which Go replaces.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return utf8.whole(text).encode()


def indent(compact: bytes) -> bytes:
    """Indent compact JSON as Go's `json.Indent` does. Raises RecursionError."""
    return surrogates.formatted(compact, indent=2)
