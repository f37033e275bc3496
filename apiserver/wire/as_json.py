"""JSON as Kubernetes reads and writes it: Go's verdicts and texts on the way in, Go's escapes on the way out.

One fast decoder does the work; what it refuses goes to `json_syntax`, which finds out what Go would have said.
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

    `text` is that of a suspicious document, with U+FFFD in place of bytes that are no UTF-8. Decoding takes as long.
    """

    value: Any
    suspicious: bool = False
    text: str = ""


class TooDeep(SyntaxProblem):
    """Go would take the nesting, but nothing here can handle it; the text is that of what Go refuses."""


def plain(raw: bytes, shape: Struct | None = None) -> Reading | None:
    """The value of a document in which nothing is strange, which is quick to find out; None otherwise. `shape` as in `loads`.

    Every member has one colon of its own, and what a dropped member held can only have had more; so as many colons after decoding as
    before mean that nothing was dropped. Only a colon written as an escape could spoil the count.
    """
    try:
        value = _parser(shape)(raw)
        again = rawjson.dumps(value)
    except (msgspec.DecodeError, ValueError, RecursionError, TypeError):
        return None
    if b"\\u003a" in raw or b"\\u003A" in raw or raw.count(b":") != again.count(b":"):
        return None
    return Reading(value)


def read(raw: bytes, shape: Struct | None = None) -> Reading:
    """The value and whether members may have been dropped."""
    found = plain(raw, shape)
    if found is not None:
        return found
    value, text = _loads(raw, shape)
    return Reading(value, suspicious=True, text=text or utf8.decoded(raw))


def loads(raw: bytes, shape: Struct | None = None) -> Any:
    """The value, whole numbers exact, of repeated members the last.

    With the shape of the document raw JSON is `msgspec.Raw`, which may have bytes that are no UTF-8, and members that are unknown to it may
    be missing. Raises SyntaxProblem with Go's text, and TooDeep.
    """
    return _loads(raw, shape)[0]


def _loads(raw: bytes, shape: Struct | None) -> tuple[Any, str]:
    """The same, and the text with U+FFFD in place of bytes that are no UTF-8, if that had to be made."""
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
    """The value with what is repeated in it, as `as_written.read` has it. Raises SyntaxProblem with Go's text."""
    return as_written.read(shape, checked(raw))


def checked(raw: bytes) -> str:
    """The text for `as_written.read`, with U+FFFD in place of bytes that are no UTF-8. Raises SyntaxProblem with Go's text."""
    try:
        _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(raw)
    return utf8.decoded(raw)


@functools.lru_cache(maxsize=256)
def excerpt(paths: frozenset[str]) -> Callable[[bytes], Any]:
    """Reads of documents the members at these paths, `spec.pool.name`, in the objects around them, and skips the others; of one that is
    not made as the paths say, everything. Raises what `loads` raises."""
    type_ = _excerpt([path.split(".") for path in paths])
    decode = surrogates.replaced(msgspec.json.Decoder(type_, float_hook=strconv.parse_float).decode)

    def read(raw: bytes) -> Any:
        try:
            return decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return loads(raw)

    return read


def _excerpt(paths: list[list[str]]) -> Any:
    """The type of objects with these members, with all that is below where one ends."""
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
    """What is too deep for one decoder may not yet be for the other."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        bracket = "[" if raw.count(b"[") > raw.count(b"{") else "{"
        raise TooDeep(f"invalid character '{bracket}' exceeded max depth") from None


WRITTEN_LEVELS = 255
"""No value with more levels than these is written by orjson, which looks at all of one in less time than Python at its first few."""


def deeper_than(value: Any, levels: int) -> bool:
    """Whether containers nest deeper than that."""
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
    """One line without a newline, members as they stand, raw JSON compact."""
    return rawjson.escaped(_dump(value))


def pretty(value: Any) -> bytes:
    """Two blanks a level, no newline at the end, as upstream's pretty serializer writes."""
    try:
        return rawjson.escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    except TypeError:
        return indent(dumps(value))


def _dump(value: Any) -> bytes:
    try:
        return rawjson.shown(value)
    except TypeError:
        # Deep nesting, integers beyond 64 bits, and half characters, which Go replaces.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return utf8.whole(text).encode()


def indent(compact: bytes) -> bytes:
    """Compact JSON, indented as Go's `json.Indent` does. Raises RecursionError."""
    return surrogates.formatted(compact, indent=2)
