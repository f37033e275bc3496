"""JSON as Kubernetes reads and writes it: Go's verdicts and texts on the way in, Go's escapes on the way out.

One fast decoder does the work; what it refuses goes to `json_syntax`, which finds out what Go would have said.
Upstream: golang/go `src/encoding/json`, kubernetes-sigs/json.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from apiserver.apimachinery import utf8
from apiserver.wire import json_syntax
from apiserver.wire.json_syntax import SyntaxProblem

__all__ = [
    "Reading",
    "SyntaxProblem",
    "TooDeep",
    "deeper_than",
    "dumps",
    "escape",
    "indent",
    "loads",
    "plain",
    "pretty",
    "read",
]

_DECODER = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Reading:
    """A decoded document. `suspicious`: some object may name a member twice; False is certain."""

    value: Any
    suspicious: bool = False


class TooDeep(SyntaxProblem):
    """Go would take the nesting, but nothing here can handle it; the text is that of what Go refuses."""


def plain(raw: bytes) -> Reading | None:
    """The value of a document in which nothing is strange, which is quick to find out; None otherwise.

    Every member has one colon of its own, and what a dropped member held can only have had more; so as many colons after decoding as
    before mean that nothing was dropped. Only a colon written as an escape could spoil the count.
    """
    try:
        value = _DECODER.decode(raw)
        again = orjson.dumps(value)
    except (msgspec.DecodeError, ValueError, RecursionError, TypeError):
        return None
    if b"\\u003a" in raw or b"\\u003A" in raw or raw.count(b":") != again.count(b":"):
        return None
    return Reading(value)


def read(raw: bytes) -> Reading:
    """The value and whether members may have been dropped."""
    return plain(raw) or Reading(loads(raw), suspicious=True)


def loads(raw: bytes) -> Any:
    """The value, whole numbers exact, of repeated members the last. Raises SyntaxProblem with Go's text, and TooDeep."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(raw)
    text = json_syntax.mended(raw)
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, ValueError) as e:
        raise json_syntax.too_big(raw) or e from None
    except RecursionError:
        return _deep(raw, text)


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
    """One line without a newline, members as they stand."""
    return escape(_dump(value))


def pretty(value: Any) -> bytes:
    """Two blanks a level, no newline at the end, as upstream's pretty serializer writes."""
    try:
        return escape(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    except TypeError:
        return indent(dumps(value))


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Deep nesting, integers beyond 64 bits, and half characters, which Go replaces.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return utf8.whole(text).encode()


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}\[\],:]|[^\s"{}\[\],:]++')
_OPEN, _CLOSE = (b"{", b"["), (b"}", b"]")


def indent(compact: bytes) -> bytes:
    """JSON text, indented as Go's `json.Indent` does: for what the quick encoder does not take."""
    out: list[bytes] = []
    depth, before = 0, b""
    for match in _TOKEN.finditer(compact):
        token = match.group()
        if token in _CLOSE:
            depth -= 1
        starts_line = before not in _OPEN if token in _CLOSE else before in (*_OPEN, b",")
        if starts_line:
            out.append(b"\n" + b"  " * depth)
        out.append(b": " if token == b":" else token)
        if token in _OPEN:
            depth += 1
        before = token
    return b"".join(out)


def escape(text: bytes) -> bytes:
    """Go's escapes of what HTML treats specially. These characters stand in JSON only inside strings."""
    if b"&" in text:
        text = text.replace(b"&", b"\\u0026")
    if b"<" in text:
        text = text.replace(b"<", b"\\u003c")
    if b">" in text:
        text = text.replace(b">", b"\\u003e")
    if not text.isascii():
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text
