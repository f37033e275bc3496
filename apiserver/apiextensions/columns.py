"""Make the columns of a custom resource's Table from its printer columns.

Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`,
`pkg/apiserver/customresource_handler.go` (getColumnsForVersion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from apiserver.apiextensions.definition import DefinedVersion, PrinterColumn
from apiserver.apimachinery import meta
from apiserver.codecs.objects import times
from apiserver.schema.columns import AGE, NAME
from apiserver.schema.resource import Column, Object
from kubetext import jsonpath, printing, quoting
from kubetext.jsonpath import EvaluationError, JSONPathError, Template

_AGE = PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp", description=AGE.description)
_DESCRIPTION = "Custom resource definition column (in JSONPath format): {}"
_UNKNOWN, _INVALID = "<unknown>", "<invalid>"
_NULL_TIME = "null"


def columns(version: DefinedVersion) -> Sequence[Column]:
    """Return the columns: Name, and those of the version; Age if it has none. A path that does not parse drops all but Name."""
    try:
        return (NAME, *map(_column, version.columns or (_AGE,)))
    except JSONPathError:
        return (NAME,)


def _column(column: PrinterColumn) -> Column:
    """Return one column. Raises JSONPathError."""
    path = jsonpath.parse(f"{{{column.json_path}}}")
    made = Column(
        name=column.name,
        cell=_shows(column.type, path),
        reads=tuple(_reads(path)) or None,
        type=cast(Literal["string", "integer", "number", "boolean", "date"], column.type),
        format=column.format,
        description=column.description or _DESCRIPTION.format(column.json_path),
        priority=column.priority,
    )
    return replace(made, since=_moments(path), ageless=None) if column.type == "date" else made


def _reads(path: Template) -> Iterator[str]:
    """Yield the member that the path reads; nothing if it may read anything, or if the name has a dot."""
    names = []
    for name in path.leading:
        if "." in name:
            break
        names.append(name)
    if names:
        yield ".".join(names)


def _first(path: Template, obj: Object) -> Any:
    """Return the first result, None without one."""
    try:
        return path.first(obj, None)
    except EvaluationError:
        return None


def _shows(type_: str, path: Template) -> Callable[[Object, float], Any]:
    shown = _CELLS.get(type_)
    if shown is None:
        return lambda obj, now: None
    return lambda obj, now: shown(_first(path, obj))


def _moments(path: Template) -> Callable[[Object], float | str | None]:
    return lambda obj: _moment(_first(path, obj))


def _moment(value: Any) -> float | str | None:
    """Return the time from which an age counts, or the text that stands in its place."""
    if not isinstance(value, str):
        return None
    if value in ("", _NULL_TIME):
        return _UNKNOWN
    try:
        return meta.instant(times.canonical(value) or "")
    except ValueError:
        return _INVALID


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return quoting.go_json(value) if isinstance(value, dict | list) else printing.plain(value)


def _integer(value: Any) -> int | None:
    return int(value) if type(value) in (int, float) else None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_CELLS: dict[str, Callable[[Any], Any]] = {"string": _text, "integer": _integer, "number": _number, "boolean": _boolean}
