"""Print JSON values as Go prints them in errors of custom resources: objects with sorted members, floats as Go writes them."""

from __future__ import annotations

import json
from typing import Any

from apiserver.apimachinery.fieldpath import Shown
from kubetext import printing, strconv
from kubetext.quoting import JSON_ESCAPES, SHOWN_CHARACTERS


def shown(value: Any) -> Any:
    """Return a bad value as errors take it. Long ones are cut."""
    if isinstance(value, float):
        return Shown(printing.plain(value))
    if isinstance(value, dict | list):
        return Shown(go_json(value, SHOWN_CHARACTERS))
    return value


class _Written(str):
    """Text that is written already."""

    __slots__ = ()


_COMMA, _END_LIST, _END_OBJECT = _Written(","), _Written("]"), _Written("}")


def go_json(value: Any, limit: int | None = None) -> str:
    """Return a value as Go's `json.Marshal` writes it: members sorted, `<`, `>` and `&` escaped. Depth does not matter.

    Text beyond about `limit` characters is left out.
    """
    parts: list[str] = []
    size = 0
    left: list[Any] = [value]
    while left:
        if limit is not None and size > limit:
            parts.append("… more")
            break
        at = left.pop()
        if isinstance(at, dict):
            pieces = [p for name in sorted(at) for p in (_COMMA, _Written(f"{_text(name, limit)}:"), at[name])]
            left += [_END_OBJECT, *reversed(pieces[1:])]
            part = "{"
        elif isinstance(at, list):
            left += [_END_LIST, *reversed([p for item in at for p in (_COMMA, item)][1:])]
            part = "["
        else:
            part = at if isinstance(at, _Written) else _scalar(at, limit)
        parts.append(part)
        size += len(part)
    return "".join(parts)


def _scalar(value: Any, limit: int | None) -> str:
    if isinstance(value, str):
        return _text(value, limit)
    if isinstance(value, float):
        return strconv.json_float(value)
    return json.dumps(value)


def _text(text: str, limit: int | None) -> str:
    return json.dumps(text if limit is None else text[: limit + 1], ensure_ascii=False).translate(JSON_ESCAPES)
