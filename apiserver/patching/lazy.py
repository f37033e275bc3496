"""JSON text that is taken apart only where somebody looks inside: what is not opened keeps its spelling.

A node is a `msgspec.Raw` that nobody has opened, a dict or a list of nodes, or None for null. Text is valid JSON and Unicode here.
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
    """The value that a text says."""
    return _or_none(_whole(text))


def opened(value: Any) -> Any:
    """A dict or list in place of a node that is one, each time another; any other node is itself. Of repeated members the last counts."""
    return _opened(bytes(value), value) if isinstance(value, msgspec.Raw) else value


def document(text: bytes) -> Any:
    """The same of a whole text without blanks around it. Its nodes are parts of the text, not of a copy: it may be large."""
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
    """Yield, opened, the lists and objects among nodes that nobody has opened. There may be very many others: each costs little."""
    found = [(place, x) for place, x in nodes if x is not None and bytes(x)[:1] in _OPENING]
    return ((place, opened(x)) for place, x in found)


def _or_none(value: msgspec.Raw) -> Any:
    return None if value == _NULL else value


def size(value: Any) -> int:
    """How many bytes of text `opened` reads."""
    return len(bytes(value)) if isinstance(value, msgspec.Raw) else 0


def text(value: Any) -> bytes:
    """As Go marshals it: members of what was opened sorted, what was not opened compact, both with Go's escapes."""
    return rawjson.escaped(surrogates.formatted(_dump(_sorted(value))))


def through(value: Any) -> Any:
    """The node with every one below it opened, which is this one where it was already."""
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
    """A copy of what is open, with its members in order."""
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
    """The places in a dict or list that is about to be changed, and what stands there."""
    return list(holder.items()) if isinstance(holder, dict) else enumerate(holder)
