"""Apply the operators and functions of the standard library. Errors are cel-go's.

A function of a trait (`+` needs an adder) fails with `no such overload` in two cases: the value has the trait, or it
has methods, as strings and times do. Otherwise the message names the function: `no such overload: _+_`.
Upstream: google/cel-go `common/stdlib/standard.go`, `common/types/{int,uint,double,string,bytes,list,…}.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kubecel.values.errors import EvaluationError
from kubecel.values.times import Clock, Duration, Timestamp, add_durations, add_time, checked, quotient, subtract_times
from kubecel.values.values import (
    ABSENT,
    NONE,
    ListView,
    MixedMap,
    Optional,
    UInt,
    Value,
    compare,
    equal,
    find_key,
    is_list,
    is_map,
    map_of,
    text,
    type_name,
)

Binary = Callable[[Value, Value], Value]
Unary = Callable[[Value], Value]

MIN_INT, MAX_INT, MAX_UINT = -(2**63), 2**63 - 1, 2**64 - 1

# Types that accept calls of any name, and refuse unknown ones themselves.
_RECEIVERS = frozenset((str, Timestamp, Duration))
_NUMBERS = frozenset((int, UInt, float))


class MutableList(list[Value]):
    """An accumulator that began as an empty list: `+` appends to it in place, as cel-go's does."""

    __slots__ = ()


class MutableMap(MixedMap):
    """An accumulator that began as an empty map: `cel.@mapInsert` inserts in place."""

    __slots__ = ()


def _refused(function: str, trait: frozenset[type], value: Value) -> EvaluationError:
    kind = type(value)
    if kind in trait or kind in _RECEIVERS or (list in trait and is_list(value)):
        return EvaluationError("no such overload")
    return EvaluationError(f"no such overload: {function}")


def add(one: Value, other: Value) -> Value:
    """Return `one + other`."""
    left, right = type(one), type(other)
    if left is right:
        if left is int:
            return checked(one + other)
        if left is str or left is float or left is bytes or left is list:
            return one + other
        if left is UInt:
            return _unsigned(one + other)
        if left is Duration:
            return add_durations(one.nanoseconds, other.nanoseconds)
    if left is Timestamp and right is Duration:
        return add_time(one, other.nanoseconds)
    if left is Duration and right is Timestamp:
        return add_time(other, one.nanoseconds)
    if is_list(one) and is_list(other):
        return _add_lists(one, other)
    raise _refused("_+_", _ADDERS, one)


_ADDERS = frozenset((int, UInt, float, str, bytes, list, Timestamp, Duration))


def _add_lists(one: Value, other: Value) -> Value:
    if type(one) is MutableList:
        one += other
        return one
    if isinstance(one, ListView):
        return one.plus(other)
    return [*one, *other]


def subtract(one: Value, other: Value) -> Value:
    """Return `one - other`."""
    left, right = type(one), type(other)
    if left is right:
        if left is int:
            return checked(one - other)
        if left is float:
            return one - other
        if left is UInt:
            return _unsigned(one - other)
        if left is Duration:
            return add_durations(one.nanoseconds, -other.nanoseconds)
        if left is Timestamp:
            return subtract_times(one, other)
    if left is Timestamp and right is Duration:
        return add_time(one, checked(-other.nanoseconds))
    raise _refused("_-_", _SUBTRACTORS, one)


_SUBTRACTORS = frozenset((int, UInt, float, Timestamp, Duration))


def multiply(one: Value, other: Value) -> Value:
    """Return `one * other`."""
    kind = type(one)
    if kind is type(other) and kind in _NUMBERS:
        if kind is int:
            return checked(one * other)
        return one * other if kind is float else _unsigned(one * other)
    raise _refused("_*_", _NUMBERS, one)


def divide(one: Value, other: Value) -> Value:
    """Return `one / other`. Integers round towards zero."""
    kind = type(one)
    if kind is type(other) and kind in _NUMBERS:
        if kind is float:
            return _divide_doubles(one, other)
        if not other:
            raise EvaluationError("division by zero")
        return checked(quotient(one, other)) if kind is int else UInt(one // other)
    raise _refused("_/_", _NUMBERS, one)


def _divide_doubles(one: float, other: float) -> float:
    if other:
        return one / other
    if not one or math.isnan(one) or math.isnan(other):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


def modulo(one: Value, other: Value) -> Value:
    """Return `one % other`. The remainder has the sign of the dividend."""
    kind = type(one)
    if kind is type(other) and kind in _INTEGERS:
        if not other:
            raise EvaluationError("modulus by zero")
        if one == MIN_INT and other == -1:
            raise EvaluationError("integer overflow")
        return kind(one - other * quotient(one, other))
    raise _refused("_%_", _INTEGERS, one)


_INTEGERS = frozenset((int, UInt))


def _unsigned(value: int) -> UInt:
    if not 0 <= value <= MAX_UINT:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def negate(value: Value) -> Value:
    """Return `-value`, also of durations."""
    kind = type(value)
    if kind is int:
        return checked(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration(checked(-value.nanoseconds))
    raise _refused("-_", _NEGATORS, value)


_NEGATORS = frozenset((int, float, bool, Duration))


def logical_not(value: Value) -> Value:
    """Return `!value`."""
    if value is True:
        return False
    if value is False:
        return True
    raise EvaluationError("no such overload")


_COMPARERS = frozenset((bool, int, UInt, float, str, bytes, Timestamp, Duration))


def _order(function: str, one: Value, other: Value) -> int:
    if type(one) in _COMPARERS:
        return compare(one, other)
    raise EvaluationError(f"no such overload: {function}")


def less(one: Value, other: Value) -> Value:
    """Return `one < other`."""
    return _order("_<_", one, other) < 0


def less_equals(one: Value, other: Value) -> Value:
    """Return `one <= other`."""
    return _order("_<=_", one, other) <= 0


def greater(one: Value, other: Value) -> Value:
    """Return `one > other`."""
    return _order("_>_", one, other) > 0


def greater_equals(one: Value, other: Value) -> Value:
    """Return `one >= other`."""
    return _order("_>=_", one, other) >= 0


def contained(one: Value, other: Value) -> Value:
    """Return `one in other`: an element of a list or a key of a map."""
    if isinstance(other, ListView):
        return other.contains(one)
    if is_list(other):
        return any(_equals(one, element) for element in other)
    if is_map(other):
        return find_key(other, one) is not ABSENT
    raise EvaluationError("no such overload")


def _equals(one: Value, other: Value) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def size(value: Value) -> Value:
    """Return the number of code points, bytes, elements or entries."""
    if isinstance(value, (str, bytes)) or is_list(value) or is_map(value):
        return len(value)
    raise _refused("size", frozenset(), value)


def insert(*arguments: Value) -> Value:
    """Return a map with one more entry, or with all entries of another map. No key may exist already."""
    target, *more = arguments
    entries = [(more[0], more[1])] if len(more) == 2 else [(key, find_key(more[0], key)) for key in more[0]]
    grown = target if type(target) is MutableMap else MutableMap((key, find_key(target, key)) for key in target)
    for key, value in entries:
        if grown.find(key) is not ABSENT:
            raise EvaluationError(f"insert failed: key {text(key)} already exists")
        grown.insert(key, value)
    return grown if grown is target else map_of((key, grown.find(key)) for key in grown)


# Strings


def _strings(one: Value, other: Value) -> None:
    if type(one) is not str or type(other) is not str:
        raise EvaluationError("no such overload")


def contains(one: Value, other: Value) -> Value:
    """Return whether a string contains another."""
    _strings(one, other)
    return other in one


def starts_with(one: Value, other: Value) -> Value:
    """Return whether a string begins with another."""
    _strings(one, other)
    return one.startswith(other)


def ends_with(one: Value, other: Value) -> Value:
    """Return whether a string ends with another."""
    _strings(one, other)
    return one.endswith(other)


# Optionals


def optional_of_non_zero(value: Value) -> Value:
    """Return an optional of the value; an empty one for the zero of its type."""
    if isinstance(value, (str, bytes, dict)) or is_list(value) or is_map(value):
        return Optional(value) if len(value) else NONE
    kind = type(value)
    if kind is Duration:
        return Optional(value) if value.nanoseconds else NONE
    if kind is Timestamp:
        return NONE if (value.seconds, value.nanos) == (-62135596800, 0) else Optional(value)
    zero = value is None or (kind in _ZEROABLE and not value) or getattr(value, "cel_is_zero", False)
    return NONE if zero else Optional(value)


_ZEROABLE = frozenset((bool, int, UInt, float))


def optional_value(of: Optional) -> Value:
    """Return the value of an optional."""
    if not of.has_value:
        raise EvaluationError("optional.none() dereference")
    return of.value


def unwrap(values: Value) -> Value:
    """Return the values of those optionals of a list that are not empty."""
    for value in values:
        if type(value) is not Optional:
            raise EvaluationError(f"value {text(value)} is not optional")
    return [value.value for value in values if value.has_value]


def first(values: Value) -> Value:
    """Return the first element of a list."""
    return Optional(values[0]) if len(values) else NONE


def last(values: Value) -> Value:
    """Return the last element of a list."""
    return Optional(values[len(values) - 1]) if len(values) else NONE


BINARY: dict[str, Binary] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "_<_": less,
    "_<=_": less_equals,
    "_>_": greater,
    "_>=_": greater_equals,
    "@in": contained,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
}
UNARY: dict[str, Unary] = {
    "-_": negate,
    "!_": logical_not,
    "size": size,
    "dyn": lambda value: value,
    "optional.of": Optional,
    "optional.ofNonZeroValue": optional_of_non_zero,
}

# Functions whose argument types cel-go checks: the implementation for each type, by function name.
_PARTS: dict[str, Callable[[Clock], int]] = {
    "getFullYear": lambda clock: clock.year,
    "getMonth": lambda clock: clock.month,
    "getDayOfYear": lambda clock: clock.day_of_year,
    "getDayOfMonth": lambda clock: clock.day - 1,
    "getDate": lambda clock: clock.day,
    "getDayOfWeek": lambda clock: clock.day_of_week,
    "getHours": lambda clock: clock.seconds // 3600,
    "getMinutes": lambda clock: clock.seconds // 60 % 60,
    "getSeconds": lambda clock: clock.seconds % 60,
    "getMilliseconds": lambda clock: clock.nanos // 1_000_000,
}
_SPANS: dict[str, Callable[[Duration], int]] = {
    "getHours": Duration.hours,
    "getMinutes": Duration.minutes,
    "getSeconds": Duration.seconds,
    "getMilliseconds": Duration.milliseconds,
}


def no_such_overload(function: str, arguments: tuple[Value, ...]) -> EvaluationError:
    """Return cel-go's error for a call whose overload the values decide: `no such overload: int(list)`."""
    return EvaluationError(f"no such overload: {function}({', '.join(map(type_name, arguments))})")


def _guarded(function: str, table: dict[type, Unary]) -> Callable[..., Value]:
    def call(*arguments: Value) -> Value:
        found = table.get(type(arguments[0]))
        if found is None:
            raise no_such_overload(function, arguments)
        return found(*arguments)

    return call


def _part_of_time(function: str) -> Callable[..., Value]:
    part, span = _PARTS[function], _SPANS.get(function)

    def call(*arguments: Value) -> Value:
        moment, *zone = arguments
        if type(moment) is Timestamp and all(type(name) is str for name in zone):
            return part(Clock(moment, zone[0] if zone else "UTC"))
        if type(moment) is Duration and span is not None and not zone:
            return span(moment)
        raise no_such_overload(function, arguments)

    return call


def _of_list(function: str, call: Unary) -> Unary:
    def guarded(value: Value) -> Value:
        if not is_list(value):
            raise no_such_overload(function, (value,))
        return call(value)

    return guarded


GUARDED: dict[str, Callable[..., Value]] = {
    **{name: _part_of_time(name) for name in _PARTS},
    "value": _guarded("value", {Optional: optional_value}),
    "hasValue": _guarded("hasValue", {Optional: lambda value: value.has_value}),
    "optional.unwrap": _of_list("optional.unwrap", unwrap),
    "unwrapOpt": _of_list("unwrapOpt", unwrap),
    "first": _of_list("first", first),
    "last": _of_list("last", last),
    "optional.none": lambda: NONE,
    "cel.@mapInsert": insert,
}
