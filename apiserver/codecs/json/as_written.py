"""Read JSON by the shape of its document, and keep what fast decoders lose: repeated members, how numbers were spelled, the text of raw
JSON.

Used only for unusual documents, because time and memory grow with the text. Recursion goes as deep as the shape. Members that the shape
does not have are skipped, at any depth and with any numbers.
Upstream: kubernetes-sigs/json `internal/golang/encoding/json/decode.go`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from apiserver.codecs.json import json_strings
from apiserver.schema import types
from apiserver.schema.types import ListOf, MapOf, Quantity, RawJSON, Struct, Type
from kubetext import utf8


class Literal(float):
    """A number that keeps its spelling. Its value is infinite when it is beyond every float."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Literal:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text


class _Repeated(dict[str, Any]):
    """An object with repeated members: the dictionary has the last ones, `written` has all in their order."""

    __slots__ = ("written",)
    written: list[tuple[str, Any]]


def members(value: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the members of an object as they were written, repeated ones each time."""
    return value.written if isinstance(value, _Repeated) else value.items()


def without(value: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the object without the members of these names."""
    return _object([(name, x) for name, x in members(value) if name not in names])


def _object(written: list[tuple[str, Any]]) -> dict[str, Any]:
    last = dict(written)
    if len(last) == len(written):
        return last
    found = _Repeated(last)
    found.written = written
    return found


def read(shape: Struct, text: str) -> Any:
    """Return the value of a document of that shape. `text` is valid JSON.

    Long numbers and numbers that are not integers are `Literal`. Raw JSON is `msgspec.Raw`, as it was sent. Amounts keep their escapes,
    which Go does not read. A list or object where the shape has none is returned empty.
    """
    return _value(shape, utf8.paired(text), _after(text, 0), sent=text)[0]


_SPACES = r"[ \t\r\n]*"
_SPACE = re.compile(_SPACES)
_BEFORE_NAME = re.compile(rf'{_SPACES}(?:,{_SPACES})?(?=")')
_BEFORE_VALUE = re.compile(rf"{_SPACES}:{_SPACES}")
_WORD = re.compile(r"[-+.\w]+", re.ASCII)
"""A number, `true`, `false` or `null`."""
_NESTING = re.compile(r'[^"\[\]{}]*(?:(?P<string>")|(?P<opening>[\[{])|[\]}])')
_WORDS = {"t": True, "f": False, "n": None}
_LONG = 20
"""Longer digit strings are no 64-bit integers."""


def _value(type_: Type | None, text: str, at: int, *, sent: str) -> tuple[Any, int]:
    """Return the value at offset `at` and the offset behind it. `sent` is the text with its lone surrogates, at the same offsets."""
    first = text[at]
    if isinstance(type_, RawJSON) and first != "n":
        end = _behind(text, at)
        return msgspec.Raw(sent[at:end].encode()), end
    if first == "{":
        known = _known(type_)
        return ({}, _behind(text, at)) if known is None else _members(known, text, at + 1, sent=sent)
    if first == "[":
        return _elements(type_.item, text, at + 1, sent=sent) if isinstance(type_, ListOf) else ([], _behind(text, at))
    if first == '"':
        end = json_strings.end(text, at)
        return text[at + 1 : end - 1] if isinstance(type_, Quantity) else _string(text, at, end), end
    end = _end(_WORD, text, at)
    return _WORDS[first] if first in _WORDS else _number(text[at:end]), end


def _members(known: Callable[[str], Type | None], text: str, at: int, *, sent: str) -> tuple[dict[str, Any], int]:
    """Return the object whose brace opens before `at`, and the offset behind it."""
    written = []
    while found := _BEFORE_NAME.match(text, at):
        end = json_strings.end(text, found.end())
        name = _string(text, found.end(), end)
        value, at = _value(known(name), text, _end(_BEFORE_VALUE, text, end), sent=sent)
        written.append((name, value))
    return _object(written), _after(text, at) + 1


def _elements(type_: Type, text: str, at: int, *, sent: str) -> tuple[list[Any], int]:
    """Return the list whose bracket opens before `at`, and the offset behind it."""
    found: list[Any] = []
    at = _after(text, at)
    while text[at] != "]":
        value, at = _value(type_, text, at, sent=sent)
        found.append(value)
        at = _after(text, at)
        if text[at] == ",":
            at = _after(text, at + 1)
    return found, at + 1


@functools.cache
def _known(type_: Type | None) -> Callable[[str], Type | None] | None:
    """Return a function from member name to type; None if the type is not an object."""
    match type_:
        case Struct():
            return {field.name: field.type for field in types.members(type_)}.get
        case MapOf(value=value):
            return lambda _: value
    return None


def _string(text: str, at: int, end: int) -> str:
    """Return the string between these offsets, which include its quotation marks."""
    quoted = text[at:end]
    return _unquoted(quoted) if "\\" in quoted else quoted[1:-1]


_unquoted = msgspec.json.Decoder(str).decode


def _number(literal: str) -> int | Literal:
    whole = len(literal) <= _LONG and literal.removeprefix("-").isdecimal()
    return int(literal) if whole else Literal(literal)


def _behind(text: str, at: int) -> int:
    """Return the offset behind the value that begins at `at`."""
    if text[at] not in "{[":
        return json_strings.end(text, at) if text[at] == '"' else _end(_WORD, text, at)
    depth = 0
    while True:
        found = _NESTING.match(text, at)
        if found is None:
            return len(text)
        at = found.end()
        if found["string"]:
            at = json_strings.end(text, at - 1)
        elif found["opening"]:
            depth += 1
        else:
            depth -= 1
            if not depth:
                return at


def _after(text: str, at: int) -> int:
    """Return the offset of the next character that is not white space."""
    return _end(_SPACE, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
