"""Apply merge patches (RFC 7386) as evanphx/json-patch v4 `merge.go` does: null deletes, objects merge, everything else replaces.

Objects that the patch touches come out with sorted members, as upstream. Other text keeps its spelling. Works level by level without
recursion, so any depth is fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from apiserver.patching import lazy

_Step = tuple[Any, Any, Any, Any]
"""A container of the result, a key in it, the patch for that key, and the document's object there, or None."""


def apply(patch: bytes, document: bytes) -> bytes:
    """Return the patched document. A patch that is not an object replaces the document. Both must be valid JSON."""
    whole = lazy.opened(lazy.node(document))
    result = [None]
    present = whole if isinstance(whole, dict) else None
    open_: list[Iterator[_Step]] = [iter([(result, 0, lazy.opened(lazy.node(patch)), present)])]
    while open_:
        step = next(open_[-1], None)
        if step is None:
            open_.pop()
            continue
        into, place, patched, present = step
        if isinstance(patched, dict):
            into[place] = merged = _merged(patched, present or {})
            open_.append(_below(merged, patched, present or {}))
        elif isinstance(patched, list):
            into[place] = elements = list(patched)
            open_.append(_inside(elements, patched))
        else:
            into[place] = patched
    return lazy.text(result[0])


def touches(patch: bytes) -> Set[str] | None:
    """Return the members of an object that the patch may change; None for a patch that replaces it."""
    found = lazy.opened(lazy.node(patch))
    return found.keys() if isinstance(found, dict) else None


def _merged(patch: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Merge one level: null members are removed, and deeper values are those of the patch for now."""
    out = dict(document)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = value
    return out


def _below(out: dict[str, Any], patch: dict[str, Any], document: dict[str, Any]) -> Iterator[_Step]:
    """Yield the steps below an object. A list that replaces an object keeps its nulls; nulls in every other new value are removed."""
    for name, value in lazy.containers(patch.items()):
        present = lazy.opened(document.get(name))
        if not isinstance(present, dict):
            yield out, name, value, None
        elif isinstance(value, dict):
            yield out, name, value, present


def _inside(out: list[Any], patch: list[Any]) -> Iterator[_Step]:
    for i, value in lazy.containers(enumerate(patch)):
        yield out, i, value, None
