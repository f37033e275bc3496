"""Make the columns of a custom resource's Table from its printer columns.

Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`,
`pkg/apiserver/customresource_handler.go` (getColumnsForVersion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

from apiserver.apiextensions.definition import DefinedVersion, PrinterColumn
from apiserver.apimachinery import meta
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import times
from apiserver.schema.columns import AGE, NAME
from apiserver.schema.resource import Column, Object
from kubetext import jsonpath, printing, strconv
from kubetext.jsonpath import EvaluationError, JSONPathError, Template

_AGE = PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp", description=AGE.description)
_DESCRIPTION = "Custom resource definition column (in JSONPath format): {}"
_UNKNOWN, _INVALID = "<unknown>", "<invalid>"
_NULL_TIME = "null"
_LONG_AGO = -1e12
"""Stands for a time before the year 1, in seconds since the epoch: ages end at 292 years."""
MISSING: Final = object()
"""The result of a path that finds nothing. A null that it finds is None."""
STEPS = 20_000
"""Steps of one cell: about 5 ms. A cell that needs more is null."""


def columns(version: DefinedVersion, api_version: str, kind: str) -> Sequence[Column]:
    """Return the columns: Name, and those of the version; Age if it has none. A path that does not parse drops its column and those after
    it."""
    found: list[Column] = [NAME]
    head = {"apiVersion": api_version, "kind": kind}
    for column in version.columns or (_AGE,):
        try:
            found.append(_column(column, head))
        except JSONPathError:
            break
    return tuple(found)


def _column(column: PrinterColumn, head: Mapping[str, str]) -> Column:
    """Return one column. `head` are the members that decoded objects lack. Raises JSONPathError."""
    path = jsonpath.parse(f"{{{column.json_path}}}")
    first = _first(path, head)
    made = Column(
        name=column.name,
        cell=_shows(column.type, first),
        reads=tuple(_reads(path)) or None,
        type=cast(Literal["string", "integer", "number", "boolean", "date"], column.type),
        format=column.format,
        description=column.description or _DESCRIPTION.format(column.json_path),
        priority=column.priority,
    )
    return replace(made, since=_moments(first), ageless=None) if column.type == "date" else made


def _reads(path: Template) -> Iterator[str]:
    """Yield the member that the path reads; nothing if it may read anything, or if the name has a dot."""
    names = []
    for name in path.leading:
        if "." in name:
            break
        names.append(name)
    if names:
        yield ".".join(names)


def _first(path: Template, head: Mapping[str, str]) -> Callable[[Object], Any]:
    """Return a function that finds the first result, MISSING without one."""
    whole = not path.leading or path.leading[0] in head

    def first(obj: Object) -> Any:
        try:
            return path.first({**head, **obj} if whole else obj, MISSING, steps=STEPS)
        except EvaluationError:
            return MISSING

    return first


def _shows(type_: str, first: Callable[[Object], Any]) -> Callable[[Object, float], Any]:
    shown = _CELLS.get(type_)
    if shown is None:
        return lambda obj, now: None
    return lambda obj, now: shown(first(obj))


def _moments(first: Callable[[Object], Any]) -> Callable[[Object], float | str | None]:
    return lambda obj: _moment(first(obj))


def _moment(value: Any) -> float | str | None:
    """Return the time from which an age counts, or the text that stands in its place."""
    if not isinstance(value, str):
        return None
    if value in ("", _NULL_TIME):
        return _UNKNOWN
    try:
        canonical = times.canonical(value)
    except ValueError:
        return _INVALID
    if canonical == times.ZERO:
        return _UNKNOWN
    try:
        return meta.instant(canonical)
    except ValueError:  # Python's years begin at 1 and end at 9999.
        return _INVALID if canonical.startswith("1") else _LONG_AGO


def _text(value: Any) -> str | None:
    if value is MISSING:
        return None
    if value is None:
        return "<no value>"
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list):
        return printing.plain(value)
    try:
        return rawjson.escaped(rawjson.sorted_json(value)).decode()
    except rawjson.TooDeep:
        return None


def _integer(value: Any) -> int | None:
    if type(value) is float:
        # Go's conversion of a float that is too large, on amd64.
        return int(value) if strconv.MIN_INT64 <= value < strconv.MAX_INT64 else strconv.MIN_INT64
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_CELLS: dict[str, Callable[[Any], Any]] = {"string": _text, "integer": _integer, "number": _number, "boolean": _boolean}
