"""Repair a refused object along the causes of the refusal."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.e2e.crds.drawing import Drawer, Object, Schema

Path = tuple[str | int, ...]
_JUNCTOR = re.compile(r'"([^"]*)" must (?:not )?validate')
_INDEX = re.compile(r"\[(\d+)\]")
_BRACKET = re.compile(r"\[([^\]]*)\]")


def repaired(obj: Object, causes: Iterable[Mapping[str, str]], schema: Schema, drawer: Drawer, attempt: int) -> Object:
    """Return the object with other values where the causes point to. The later the attempt, the fewer optional members it has."""
    obj = copy.deepcopy(obj)
    likely = (0.3, 0.15, 0.05, 0.0)[min(attempt, 3)]
    paths: dict[Path, str] = {}
    for cause in causes:
        field, message = cause.get("field", ""), cause.get("message", "")
        if field == "<nil>":
            junctor = _JUNCTOR.search(message)
            if junctor is None and "some validation rules were not checked" in message:
                continue
            field = junctor[1] if junctor else ""
        paths[parsed(field, obj, schema)] = cause.get("reason", "")
    for path, reason in sorted(paths.items(), key=lambda item: len(item[0]), reverse=True):
        if reason != "FieldValueRequired" and len(path) > 1 and (attempt % 2 or reason == "FieldValueForbidden"):
            above = path[:-1]
            within = at(obj, above)
            if (
                isinstance(within, dict)
                and path[-1] in within
                and path[-1] not in node(schema, above).get("required", ())
            ):
                del within[path[-1]]
                continue
            if attempt > 2:
                path = above
        _put(obj, path, drawer.value(node(schema, path), likely, depth=len(path)))
    return obj


def parsed(field: str, obj: Any, schema: Schema) -> Path:
    """Return the path that an error names. Names in it are not quoted, so the object and its schema decide where they end."""
    path: list[str | int] = []
    rest = field
    while rest:
        rest = rest.removeprefix(".")
        names = {*(obj if isinstance(obj, dict) else ()), *schema.get("properties", {})}
        if isinstance(obj, list) and (index := _INDEX.match(rest)):
            step: str | int = int(index[1])
            rest = rest[index.end() :]
        elif bracket := _BRACKET.match(rest):
            step, rest = bracket[1], rest[bracket.end() :]
        else:
            fitting = [name for name in names if name and re.match(re.escape(name) + r"(?:[.\[]|$)", rest)]
            step = max(fitting, key=len) if fitting else re.split(r"[.\[]", rest, maxsplit=1)[0]
            if not step:
                break
            rest = rest[len(step) :]
        path.append(step)
        schema = below(schema, step)
        obj = at(obj, (step,))
    return tuple(path)


def below(schema: Schema, step: str | int) -> Schema:
    """The schema of a member or an item, {} without one."""
    if isinstance(step, int):
        found: Any = schema.get("items")
    else:
        found = schema.get("properties", {}).get(step) or schema.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def node(schema: Schema, path: Path) -> Schema:
    for step in path:
        schema = below(schema, step)
    return schema


def at(obj: Any, path: Path) -> Any:
    """The value at a path, None without one."""
    for step in path:
        if isinstance(obj, dict) and isinstance(step, str):
            obj = obj.get(step)
        elif isinstance(obj, list) and isinstance(step, int) and step < len(obj):
            obj = obj[step]
        else:
            return None
    return obj


def _put(obj: Object, path: Path, value: Any) -> None:
    if not path:
        kept = {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
        obj.clear()
        obj |= (value if isinstance(value, dict) else {}) | kept
        return
    if path[0] in ("apiVersion", "kind", "metadata"):
        return
    target: Any = obj
    for step in path[:-1]:
        found = at(target, (step,))
        if found is None and isinstance(target, dict) and isinstance(step, str):
            found = target[step] = {}
        target = found
    last = path[-1]
    named = isinstance(target, dict) and isinstance(last, str)
    if named or (isinstance(target, list) and isinstance(last, int) and last < len(target)):
        target[last] = value
