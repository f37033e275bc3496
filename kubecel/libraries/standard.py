"""The standard library: operators, conversions, strings, times.

The program implements all of it, so only types are declared here, and costs that differ between versions of cel-go.
Upstream: google/cel-go `common/stdlib/standard.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node, Overload, Range, Variable
from kubecel.libraries.costs import REGEX, TRAVERSAL, traversal
from kubecel.parse import macros
from kubecel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    parameter,
    type_of,
)
from kubecel.values.values import Value, size

_A, _B = parameter("A"), parameter("B")
_LIST, _MAP = list_of(_A), map_of(_A, _B)


def _overload(overload: str, arguments: tuple[Type, ...], result: Type, *, strict: bool = True) -> Overload:
    return Overload(id=overload, arguments=arguments, result=result, strict=strict)


def _member(overload: str, arguments: tuple[Type, ...], result: Type) -> Overload:
    return Overload(id=overload, arguments=arguments, result=result, member=True)


def _comparison(name: str, relation: str) -> Function:
    """Return `_<_` or one of its siblings.

    Overloads for numbers of different types exist only when the environment compares across types.
    """
    pairs = (
        ("bool", BOOL, BOOL),
        ("int64", INT, INT),
        ("int64_double", INT, DOUBLE),
        ("int64_uint64", INT, UINT),
        ("uint64", UINT, UINT),
        ("uint64_double", UINT, DOUBLE),
        ("uint64_int64", UINT, INT),
        ("double", DOUBLE, DOUBLE),
        ("double_int64", DOUBLE, INT),
        ("double_uint64", DOUBLE, UINT),
        ("string", STRING, STRING),
        ("bytes", BYTES, BYTES),
        ("timestamp", TIMESTAMP, TIMESTAMP),
        ("duration", DURATION, DURATION),
    )
    return Function(
        name, tuple(_overload(f"{relation}_{suffix}", (left, right), BOOL) for suffix, left, right in pairs)
    )


def _part_of_time(name: str, part: str, *, zoned: str = "", duration: bool = False) -> Function:
    """Return a part of a timestamp, in UTC or in a time zone. Durations have hours and smaller parts too."""
    overloads = [
        _member(f"timestamp_to_{part}", (TIMESTAMP,), INT),
        _member(zoned or f"timestamp_to_{part}_with_tz", (TIMESTAMP, STRING), INT),
    ]
    if duration:
        overloads.append(_member(f"duration_to_{part}", (DURATION,), INT))
    return Function(name, tuple(overloads))


_FUNCTIONS = (
    Function("_?_:_", (_overload("conditional", (BOOL, _A, _A), _A, strict=False),)),
    Function("_&&_", (_overload("logical_and", (BOOL, BOOL), BOOL, strict=False),)),
    Function("_||_", (_overload("logical_or", (BOOL, BOOL), BOOL, strict=False),)),
    Function("!_", (_overload("logical_not", (BOOL,), BOOL),)),
    Function("@not_strictly_false", (_overload("not_strictly_false", (BOOL,), BOOL, strict=False),)),
    Function("_==_", (_overload("equals", (_A, _A), BOOL),)),
    Function("_!=_", (_overload("not_equals", (_A, _A), BOOL),)),
    Function(
        "_+_",
        (
            _overload("add_bytes", (BYTES, BYTES), BYTES),
            _overload("add_double", (DOUBLE, DOUBLE), DOUBLE),
            _overload("add_duration_duration", (DURATION, DURATION), DURATION),
            _overload("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP),
            _overload("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
            _overload("add_int64", (INT, INT), INT),
            _overload("add_list", (_LIST, _LIST), _LIST),
            _overload("add_string", (STRING, STRING), STRING),
            _overload("add_uint64", (UINT, UINT), UINT),
        ),
    ),
    Function(
        "_/_",
        (
            _overload("divide_double", (DOUBLE, DOUBLE), DOUBLE),
            _overload("divide_int64", (INT, INT), INT),
            _overload("divide_uint64", (UINT, UINT), UINT),
        ),
    ),
    Function(
        "_%_",
        (
            _overload("modulo_int64", (INT, INT), INT),
            _overload("modulo_uint64", (UINT, UINT), UINT),
        ),
    ),
    Function(
        "_*_",
        (
            _overload("multiply_double", (DOUBLE, DOUBLE), DOUBLE),
            _overload("multiply_int64", (INT, INT), INT),
            _overload("multiply_uint64", (UINT, UINT), UINT),
        ),
    ),
    Function(
        "-_",
        (
            _overload("negate_double", (DOUBLE,), DOUBLE),
            _overload("negate_int64", (INT,), INT),
        ),
    ),
    Function(
        "_-_",
        (
            _overload("subtract_double", (DOUBLE, DOUBLE), DOUBLE),
            _overload("subtract_duration_duration", (DURATION, DURATION), DURATION),
            _overload("subtract_int64", (INT, INT), INT),
            _overload("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
            _overload("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION),
            _overload("subtract_uint64", (UINT, UINT), UINT),
        ),
    ),
    _comparison("_<_", "less"),
    _comparison("_<=_", "less_equals"),
    _comparison("_>_", "greater"),
    _comparison("_>=_", "greater_equals"),
    Function(
        "_[_]",
        (
            _overload("index_list", (_LIST, INT), _A),
            _overload("index_map", (_MAP, _A), _B),
        ),
    ),
    Function(
        "@in",
        (
            _overload("in_list", (_A, _LIST), BOOL),
            _overload("in_map", (_A, _MAP), BOOL),
        ),
    ),
    Function(
        "size",
        (
            _overload("size_bytes", (BYTES,), INT),
            _member("bytes_size", (BYTES,), INT),
            _overload("size_list", (_LIST,), INT),
            _member("list_size", (_LIST,), INT),
            _overload("size_map", (_MAP,), INT),
            _member("map_size", (_MAP,), INT),
            _overload("size_string", (STRING,), INT),
            _member("string_size", (STRING,), INT),
        ),
    ),
    Function("type", (_overload("type", (_A,), type_of(_A)),)),
    Function(
        "bool",
        (
            _overload("bool_to_bool", (BOOL,), BOOL),
            _overload("string_to_bool", (STRING,), BOOL),
        ),
    ),
    Function(
        "bytes",
        (
            _overload("bytes_to_bytes", (BYTES,), BYTES),
            _overload("string_to_bytes", (STRING,), BYTES),
        ),
    ),
    Function(
        "double",
        (
            _overload("double_to_double", (DOUBLE,), DOUBLE),
            _overload("int64_to_double", (INT,), DOUBLE),
            _overload("string_to_double", (STRING,), DOUBLE),
            _overload("uint64_to_double", (UINT,), DOUBLE),
        ),
    ),
    Function(
        "duration",
        (
            _overload("duration_to_duration", (DURATION,), DURATION),
            _overload("int64_to_duration", (INT,), DURATION),
            _overload("string_to_duration", (STRING,), DURATION),
        ),
    ),
    Function("dyn", (_overload("to_dyn", (_A,), DYN),)),
    Function(
        "int",
        (
            _overload("int64_to_int64", (INT,), INT),
            _overload("double_to_int64", (DOUBLE,), INT),
            _overload("duration_to_int64", (DURATION,), INT),
            _overload("string_to_int64", (STRING,), INT),
            _overload("timestamp_to_int64", (TIMESTAMP,), INT),
            _overload("uint64_to_int64", (UINT,), INT),
        ),
    ),
    Function(
        "string",
        (
            _overload("string_to_string", (STRING,), STRING),
            _overload("bool_to_string", (BOOL,), STRING),
            _overload("bytes_to_string", (BYTES,), STRING),
            _overload("double_to_string", (DOUBLE,), STRING),
            _overload("duration_to_string", (DURATION,), STRING),
            _overload("int64_to_string", (INT,), STRING),
            _overload("timestamp_to_string", (TIMESTAMP,), STRING),
            _overload("uint64_to_string", (UINT,), STRING),
        ),
    ),
    Function(
        "timestamp",
        (
            _overload("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP),
            _overload("int64_to_timestamp", (INT,), TIMESTAMP),
            _overload("string_to_timestamp", (STRING,), TIMESTAMP),
        ),
    ),
    Function(
        "uint",
        (
            _overload("uint64_to_uint64", (UINT,), UINT),
            _overload("double_to_uint64", (DOUBLE,), UINT),
            _overload("int64_to_uint64", (INT,), UINT),
            _overload("string_to_uint64", (STRING,), UINT),
        ),
    ),
    Function("contains", (_member("contains_string", (STRING, STRING), BOOL),)),
    Function("endsWith", (_member("ends_with_string", (STRING, STRING), BOOL),)),
    Function("startsWith", (_member("starts_with_string", (STRING, STRING), BOOL),)),
    Function(
        "matches",
        (
            _overload("matches", (STRING, STRING), BOOL),
            _member("matches_string", (STRING, STRING), BOOL),
        ),
    ),
    _part_of_time("getFullYear", "year"),
    _part_of_time("getMonth", "month"),
    _part_of_time("getDayOfYear", "day_of_year"),
    _part_of_time("getDayOfMonth", "day_of_month"),
    _part_of_time("getDate", "day_of_month_1_based"),
    _part_of_time("getDayOfWeek", "day_of_week"),
    _part_of_time("getHours", "hours", duration=True),
    _part_of_time("getMinutes", "minutes", duration=True),
    _part_of_time("getSeconds", "seconds", zoned="timestamp_to_seconds_tz", duration=True),
    _part_of_time("getMilliseconds", "milliseconds", duration=True),
)

_TYPES = (BOOL, BYTES, DOUBLE, DURATION, INT, _LIST, _MAP, NULL, STRING, TIMESTAMP, TYPE, UINT)


def _matching_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    text = estimator.size(arguments[0]).plus(Range(1, 1)).scaled(TRAVERSAL)
    return CallEstimate(text.times(estimator.size(arguments[1]).scaled(REGEX)))


def _matching_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]) + 1) * traversal(size(values[1]), REGEX)


def _part_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[1]))


def _revised(function: Function) -> Function:
    """Return a function as cel-go 0.29 has it."""
    overloads = (overload for overload in function.overloads if overload.id != "int64_to_duration")
    return replace(function, overloads=tuple(replace(o, **_REVISIONS.get(o.id, {})) for o in overloads))


_REVISIONS: dict[str, dict[str, Any]] = {
    "matches": {"estimate": _matching_estimate, "charge": _matching_charge},
    "starts_with_string": {"charge": _part_charge},
    "ends_with_string": {"charge": _part_charge},
}


def _library(functions: Iterable[Function], types: Sequence[Type]) -> Library:
    return Library(
        name="cel.lib.std",
        functions=tuple(functions),
        variables=tuple(Variable(of.name, type_of(of), value=of) for of in types),
        macros=macros.STANDARD,
    )


_LISTS_AND_MAPS = {_LIST: list_of(DYN), _MAP: map_of(DYN, DYN)}

LIBRARY = _library(map(_revised, _FUNCTIONS), [_LISTS_AND_MAPS.get(of, of) for of in _TYPES])
LIBRARY_0_26 = _library(_FUNCTIONS, _TYPES)
"""The library as cel-go 0.26 has it: `duration(1)` exists, `matches(a, b)` costs 1, and `a.startsWith(b)` costs as much as `a` is long."""
