"""Merge patch (RFC 7386), as evanphx/json-patch v4 `merge.go` reads it: null deletes, objects merge, everything else replaces.

Neither the document nor the patch is changed. Objects that the patch touches come out with sorted members, as they do upstream.
"""

from __future__ import annotations

from typing import Any


def apply(patch: Any, document: Any) -> Any:
    """The patched document. A patch that is no object takes the document's place."""
    if isinstance(patch, dict) and isinstance(document, dict):
        return _merged(patch, document)
    return _without_nulls(patch)


def _merged(patch: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    out = dict(document)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
            continue
        current = out.get(name)
        if isinstance(value, dict) and isinstance(current, dict):
            out[name] = _merged(value, current)
        elif current is None or not isinstance(current, dict):
            out[name] = _without_nulls(value)
        else:
            out[name] = value
    return dict(sorted(out.items()))


def _without_nulls(value: Any) -> Any:
    """Members that are null go; elements of lists stay."""
    if isinstance(value, dict):
        return dict(sorted((name, _without_nulls(x)) for name, x in value.items() if x is not None))
    if isinstance(value, list):
        return [_without_nulls(x) for x in value]
    return value
