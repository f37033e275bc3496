"""Encode and decode FieldsV1: field sets as JSON text.

A node is an object. A member with children contains the key `.`; a member without children is `{}`.
Upstream: kubernetes-sigs/structured-merge-diff `fieldpath/serialize.go`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubetext import utf8
from kubetext.sorting import in_order
from structuredmerge.paths import FIELD, TRAILING_DATA, Element, PathError, quoted, read, report, wire
from structuredmerge.sets import EMPTY, Set

__all__ = ["FieldsError", "decode", "encode"]

MAX_DEPTH: Final = 100  # levels; no kind is as deep


class FieldsError(ValueError):
    """The text is not FieldsV1. The message is upstream's."""


def encode(set_: Set) -> bytes:
    """Encode a set as compact JSON: in each node `.` first, then its elements in order. Law: `decode(encode(s)) == s`."""
    parts: list[str] = []
    _emit(set_, "{", parts)
    return "".join(parts).encode()


def _emit(set_: Set, start: str, parts: list[str]) -> None:
    """Append one node with its braces; `start` opens it."""
    members, children = set_.members, set_.children
    if not children:
        names = [f"{_name(element)}:{{}}" for element in in_order(members)]
        parts.append(f"{start}{','.join(names)}}}")
        return
    for element in in_order({*children, *members}):
        below = children.get(element)
        if below is None:
            parts.append(f"{start}{_name(element)}:{{}}")
        elif element in members:
            _emit(below, f'{start}{_name(element)}:{{".":{{}},', parts)
        else:
            _emit(below, f"{start}{_name(element)}:{{", parts)
        start = ","
    parts.append("}")


def _name(element: Element) -> str:
    return quoted(f"f:{element[1]}" if element[0] == FIELD else wire(element))


def decode(text: bytes, *, whole: bool = False) -> Set:
    """Decode FieldsV1; null is the empty set.

    Elements may come in any order. Unknown kinds of elements are dropped with everything below them. `whole`: data after the text, or
    after the JSON value of a key, is an error, as since v6.4.2 of structured-merge-diff. Earlier versions ignore it. Raises
    FieldsError, also for a text deeper than MAX_DEPTH.
    """
    try:
        decoded = utf8.paired(text.decode())
        root, end = _DECODER.raw_decode(decoded, len(decoded) - len(decoded.lstrip(_SPACE)))
    except (ValueError, RecursionError) as error:
        raise FieldsError(str(error)) from None
    try:
        found = _node(root, 0, whole=whole)[0]
    except _Malformed:
        # Latin-1 has one character for each byte, so offsets are upstream's.
        _walk(text, text.decode("latin-1"), 0, whole=whole)
        raise
    if whole and (rest := decoded[end:].lstrip(_SPACE)):
        raise FieldsError(_reported(*TRAILING_DATA, text, len(text) - len(rest.encode(errors="surrogatepass"))))
    return found


# Objects become tuples of pairs, because a member may be repeated.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple)


_SPACE = " \t\r\n"


class _Malformed(FieldsError):
    """The text is malformed. A second pass finds the place."""


def _node(pairs: Any, depth: int, *, whole: bool) -> tuple[Set, bool]:
    """Return the set below a node, and whether the node itself is a member.

    A node with the key `.` or without children is a member.
    """
    if pairs.__class__ is not tuple:
        if pairs is not None:
            raise _Malformed
        pairs = ()
    if depth > MAX_DEPTH:
        raise FieldsError(f"exceeded max depth of {MAX_DEPTH}")
    is_member = False
    members: list[Element] = []
    children: dict[Element, Set] = {}
    for key, value in pairs:
        if key == ".":
            is_member = True
            continue
        element = (FIELD, key[2:]) if key[:2] == "f:" else _element(key, whole=whole)
        if element is None:
            continue
        if value == ():
            members.append(element)
            continue
        below, element_is_member = _node(value, depth + 1, whole=whole)
        if element_is_member:
            members.append(element)
        if below:
            children[element] = below
    if not members and not children:
        return EMPTY, True
    return Set(frozenset(members), children), is_member


def _element(key: str, *, whole: bool) -> Element | None:
    try:
        return read(key, whole=whole)
    except PathError:
        raise _Malformed from None


def _walk(text: bytes, flat: str, at: int, *, whole: bool) -> int:
    """Read one node from an offset up to its end. Raises FieldsError with the first error and its surroundings."""
    at = _token(flat, at)
    if flat[at] != "{":
        if flat[at] == "n":
            return at + len("null")
        raise FieldsError(_reported("ReadMapCB", f"expect {{ or n, but found {flat[at]}", text, at + 1))
    at = _token(flat, at + 1)
    while flat[at] != "}":
        at = _token(flat, at + 1 if flat[at] == "," else at)
        _, end = _VALUE.raw_decode(flat, at)
        key = json.loads(utf8.paired(text[at:end].decode()))
        at = _token(flat, end) + 1
        try:
            understood = key != "." and read(key, whole=whole) is not None
        except PathError as error:
            raise FieldsError(_reported("parsing key as path element", str(error), text, at)) from None
        at = _walk(text, flat, at, whole=whole) if understood else _VALUE.raw_decode(flat, _token(flat, at))[1]
        at = _token(flat, at)
    return at + 1


_VALUE = json.JSONDecoder()


def _token(flat: str, at: int) -> int:
    """Return the offset of the next character that is not whitespace."""
    while flat[at] in _SPACE:
        at += 1
    return at


def _reported(operation: str, problem: str, text: bytes, head: int) -> str:
    """Report an error as upstream does, which reads in chunks and shows only the surroundings within the chunk."""
    start = (head - 1) // _PIECE * _PIECE
    return report(operation, problem, text[start : start + _PIECE], head - start)


_PIECE = 4096
