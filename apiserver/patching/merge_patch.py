"""Merge patch (RFC 7386), as evanphx/json-patch v4 `merge.go` reads it: null deletes, objects merge, everything else replaces.

Neither the document nor the patch is changed. Objects that the patch touches come out with sorted members, as they do upstream.
Works level by level instead of calling itself, so that no depth is too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver.patching.members import in_order

_Step = tuple[Any, Any, Any, Any]
"""A container of the result, a place in it, the patch for that place, and the object that stands there in the document, None without."""


def apply(patch: Any, document: Any) -> Any:
    """The patched document. A patch that is no object takes the document's place."""
    result = [None]
    present = document if isinstance(document, dict) else None
    open_: list[Iterator[_Step]] = [iter([(result, 0, patch, present)])]
    while open_:
        step = next(open_[-1], None)
        if step is None:
            open_.pop()
            continue
        into, place, patch, present = step
        if isinstance(patch, dict):
            into[place] = merged = _merged(patch, present or {})
            open_.append(_below(merged, patch, present or {}))
        elif isinstance(patch, list):
            into[place] = elements = list(patch)
            open_.append(_inside(elements, patch))
        else:
            into[place] = patch
    return result[0]


def _merged(patch: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """One level: members that are null go, and what lies below is as in the patch for the moment."""
    out = dict(document)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = value
    return in_order(out)


def _below(out: dict[str, Any], patch: dict[str, Any], document: dict[str, Any]) -> Iterator[_Step]:
    """A list that takes the place of an object stays as it is, with its nulls; nulls in every other new value go."""
    for name, value in patch.items():
        if not isinstance(value, dict | list):
            continue
        present = document.get(name)
        if not isinstance(present, dict):
            yield out, name, value, None
        elif isinstance(value, dict):
            yield out, name, value, present


def _inside(out: list[Any], patch: list[Any]) -> Iterator[_Step]:
    for i, value in enumerate(patch):
        if isinstance(value, dict | list):
            yield out, i, value, None
