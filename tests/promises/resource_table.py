"""Reads the table of cases for the four kinds: its bases, patches and text macros (the format stands in the table's header).

Knows nothing of how a case is run.
"""

from __future__ import annotations

import copy
import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from apiserver.apimachinery.releases import V1_36, V1_37, Release

TABLE = "resource-validation.yaml"
TWINS: Mapping[Release, str] = {V1_37: "resource-validation-1.37.yaml"}
"""Tables of what later releases answer otherwise."""
CASES = pathlib.Path(__file__).resolve().parent.parent / "cases"
NAMESPACE = "team-a"
REASONS = {
    "Required": "FieldValueRequired",
    "Invalid": "FieldValueInvalid",
    "TooMany": "FieldValueTooMany",
    "TooLong": "FieldValueTooLong",
    "Duplicate": "FieldValueDuplicate",
    "NotSupported": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "NotFound": "FieldValueNotFound",
    "InternalError": "InternalError",
}

_MACRO = re.compile(r"\$\{(.+?)\*([0-9]+)\}")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One error: where, what kind, and a part of its text."""

    field: str
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row. `object` and `old` are complete; `errors` is empty when the write succeeds."""

    name: str
    kind: str
    operation: str
    object: dict[str, Any]
    old: dict[str, Any] | None
    errors: tuple[Expected, ...]
    then: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]
    gates: Mapping[str, bool]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


def read(folder: pathlib.Path, release: Release = V1_36) -> list[Case]:
    """Return the cases as they hold in a release. The table in `folder` is that of 1.36; the project has those of later releases."""
    table = yaml.load((folder / TABLE).read_text(), Loader=yaml.CSafeLoader)
    rows = {row["name"]: row for row in table["cases"]}
    if name := TWINS.get(release):
        twins = yaml.load((CASES / name).read_text(), Loader=yaml.CSafeLoader)
        rows = {name: row for name, row in rows.items() if name not in twins["dropped"]}
        rows |= {twin["name"]: rows.get(twin["name"], {}) | twin for twin in twins["cases"]}
    return [_case(row, table["bases"]) for row in rows.values()]


def _case(row: Mapping[str, Any], bases: Mapping[str, Any]) -> Case:
    expect = row["expect"]
    errors = () if expect == "ok" else tuple(_expected(e) for e in expect)
    return Case(
        name=row["name"],
        kind=row["kind"],
        operation=row["operation"],
        object=_object(row["object"], bases),
        old=_object(row["old"], bases) if "old" in row else None,
        errors=errors,
        then=tuple(row.get("then", ())),
        warnings=tuple(row.get("warnings", ())),
        gates=row.get("gates", {}),
        namespace_labels=row.get("namespace-labels", {}),
    )


def _expected(row: Mapping[str, str]) -> Expected:
    return Expected(field=row["field"], reason=REASONS[row["type"]], detail=row["detail-contains"])


def _object(source: Mapping[str, Any], bases: Mapping[str, Any]) -> dict[str, Any]:
    built = copy.deepcopy(bases[source["base"]])
    for operation in source.get("patch", ()):
        _OPERATIONS[operation["op"]](built, operation)
    expanded: dict[str, Any] = _expand(built)
    return expanded


def _expand(value: Any) -> Any:
    if isinstance(value, dict):
        return {_expand(k): _expand(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v) for v in value]
    if isinstance(value, str):
        return _MACRO.sub(lambda m: m[1] * int(m[2]), value)
    return value


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _go(parent: Any, step: str) -> Any:
    return parent[int(step)] if isinstance(parent, list) else parent[step]


def look(document: Any, pointer: str) -> Any:
    """Resolve a JSON pointer. Raises KeyError or IndexError when nothing is there."""
    return functools.reduce(_go, _steps(pointer), document)


def _parent(document: Any, pointer: str) -> tuple[Any, str]:
    *way, last = _steps(pointer)
    return functools.reduce(_go, way, document), last


def _put(document: Any, pointer: str, value: Any, *, insert: bool) -> None:
    parent, last = _parent(document, pointer)
    if isinstance(parent, dict):
        parent[last] = value
    elif insert:
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        parent[int(last)] = value


def _add(document: Any, operation: Mapping[str, Any]) -> None:
    _put(document, operation["path"], copy.deepcopy(operation["value"]), insert=True)


def _replace(document: Any, operation: Mapping[str, Any]) -> None:
    _put(document, operation["path"], copy.deepcopy(operation["value"]), insert=False)


def _remove(document: Any, operation: Mapping[str, Any]) -> None:
    parent, last = _parent(document, operation["path"])
    del parent[int(last) if isinstance(parent, list) else last]


def _clone(document: Any, operation: Mapping[str, Any]) -> None:
    model = look(document, operation["from"])
    names = (_numbered(operation["name"], i) for i in range(operation["count"]))
    copies = [copy.deepcopy(model) | {"name": name} for name in names]
    _put(document, operation["to"], copies, insert=False)


def _fill_map(document: Any, operation: Mapping[str, Any]) -> None:
    target = look(document, operation["path"])
    for i in range(operation["count"]):
        target[_numbered(operation["key"], i)] = copy.deepcopy(operation["value"])


def _fill_list(document: Any, operation: Mapping[str, Any]) -> None:
    items = [_number_leaves(operation["value"], i) for i in range(operation["count"])]
    parent, last = _parent(document, operation["path"])
    parent[last] = items


def _number_leaves(value: Any, i: int) -> Any:
    if isinstance(value, dict):
        return {k: _number_leaves(v, i) for k, v in value.items()}
    if isinstance(value, list):
        return [_number_leaves(v, i) for v in value]
    return _numbered(value, i) if isinstance(value, str) else value


def _numbered(text: str, i: int) -> str:
    return text.replace("%d", str(i))


_OPERATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "add": _add,
    "replace": _replace,
    "remove": _remove,
    "clone": _clone,
    "fill-map": _fill_map,
    "fill-list": _fill_list,
}
