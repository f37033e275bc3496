"""JSON text that is parsed only where it is opened. Unopened text keeps its spelling.

A node is an unopened `msgspec.Raw`, a dict or list of nodes, or None for null. Text must be valid JSON and Unicode.
Upstream: evanphx/json-patch v4 `patch.go` (lazyNode).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from apiserver.codecs.json import rawjson, surrogates
from kubetext.sorting import by_name

_whole = surrogates.kept(msgspec.json.Decoder(msgspec.Raw).decode)
_members = surrogates.kept(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)
_elements = surrogates.kept(msgspec.json.Decoder(list[msgspec.Raw]).decode)
_dump = msgspec.json.Encoder().encode
_NULL = msgspec.Raw(b"null")
_OPENING = (b"{", b"[")
_Place = TypeVar("_Place")


def node(text: bytes | str) -> Any:
    """Return the node of a text."""
    return _or_none(_whole(text))


def opened(value: Any) -> Any:
    """Return a new dict or list for a node that is one, and any other node unchanged. The last of repeated members counts."""
    return _opened(bytes(value), value) if isinstance(value, msgspec.Raw) else value


def document(text: bytes) -> Any:
    """Return the same for a whole text without blanks around it. Its nodes are slices of the text instead of copies, because it may be
    large."""
    return _opened(text, msgspec.Raw(text))


def _opened(text: bytes, otherwise: Any) -> Any:
    if text[:1] == b"{":
        members = _members(text)
        return {name: _or_none(x) for name, x in members.items()} if b"null" in text else members
    if text[:1] == b"[":
        elements = _elements(text)
        return list(map(_or_none, elements)) if b"null" in text else elements
    return otherwise


def containers(nodes: Iterable[tuple[_Place, Any]]) -> Iterator[tuple[_Place, Any]]:
    """Yield, opened, the unopened lists and objects among nodes. Other nodes may be many, and each costs little."""
    found = [(place, x) for place, x in nodes if x is not None and bytes(x)[:1] in _OPENING]
    return ((place, opened(x)) for place, x in found)


def _or_none(value: msgspec.Raw) -> Any:
    return None if value == _NULL else value


def size(value: Any) -> int:
    """Return how many bytes of text `opened` reads."""
    return len(bytes(value)) if isinstance(value, msgspec.Raw) else 0


def text(value: Any) -> bytes:
    """Return the text that Go marshals: opened objects with sorted members, unopened text compact, both with Go's escapes."""
    return rawjson.escaped(surrogates.formatted(_dump(_sorted(value))))


def through(value: Any) -> Any:
    """Return the node with every node below opened; the same object if it was opened already."""
    out = [value]
    left: list[Any] = [out]
    while left:
        here = left.pop()
        for place, x in _inside(here):
            here[place] = below = opened(x)
            if isinstance(below, dict | list):
                left.append(below)
    return out[0]


def _sorted(value: Any) -> Any:
    """Return a copy of the opened part, with its members sorted."""
    out = [value]
    left: list[Any] = [out]
    while left:
        here = left.pop()
        if _OPEN.isdisjoint(map(type, here.values() if isinstance(here, dict) else here)):
            continue
        for place, x in _inside(here):
            if isinstance(x, dict | list):
                here[place] = by_name(x) if isinstance(x, dict) else x.copy()
                left.append(here[place])
    return out[0]


_OPEN = frozenset((dict, list))


def _inside(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys or indices of a dict or list with their values. The caller may change it meanwhile."""
    return list(holder.items()) if isinstance(holder, dict) else enumerate(holder)
