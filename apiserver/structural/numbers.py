"""Bounds and multiples of numbers.

Bounds are floats in Go. A whole number is compared with the bound cut to an integer; a bound that the type cannot hold is an error of each
value.
Upstream: kubernetes/kube-openapi `pkg/validation/validate/{validator,values}.go`, go-openapi/swag `convert.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.schema.structural import Source
from kubetext import printing
from kubetext.strconv import MAX_INT64, MIN_INT64

_MAX_INT32 = (1 << 31) - 1
_MIN_INT32 = -(1 << 31)
_MAX_EXACT = float((1 << 53) - 1)
_EPSILON = 1e-9
_FLOAT32_LIMIT = (2.0**24 - 0.5) * 2.0**104
"""Half a step above the largest float32: from here on Go says out of range."""


def _is_integral(value: float) -> bool:
    if not -_MAX_EXACT <= value <= _MAX_EXACT:
        return False
    whole = float(round(value))
    return value == whole or abs(value - whole) < _EPSILON * abs(whole)


def _is_integral_1_36(value: float) -> bool:
    if not -_MAX_EXACT <= value <= _MAX_EXACT:
        return False
    if value == math.trunc(value):
        return True
    # Go cuts to an unsigned integer. A negative number wraps around, and is far away then.
    whole = float(math.trunc(value)) if value > 0 else float((math.trunc(value) + (1 << 64)) % (1 << 64))
    if whole == 0:
        return False
    return abs(value - whole) / (abs(value) + abs(whole)) < _EPSILON


IS_INTEGRAL: Callable[[float], bool] = since(
    V1_37,
    _is_integral,
    before=_is_integral_1_36,
    what="a float just below a whole number, or near a negative one, counts as an integer, and as a multiple",
)
"""Returns whether Go takes a float for an integer: nearly whole, and exactly representable (swag.IsFloat64AJSONInteger)."""


def as_int64(value: float) -> int:
    """Return Go's `int64(value)` on amd64: cut, and the least integer where it does not fit."""
    whole = math.trunc(value)
    return whole if MIN_INT64 <= whole <= MAX_INT64 else MIN_INT64


class _Bound(NamedTuple):
    """A bound or factor. `problem` is the error that each value gets where the type cannot hold it."""

    value: float
    exclusive: bool
    problem: str

    @property
    def native(self) -> int:
        return as_int64(self.value)


class Problem(NamedTuple):
    """One error: its code, the end of its message, and the value as it is compared."""

    code: str
    tail: str
    value: int | float


class Numbers:
    """The limits that a schema sets to numbers."""

    __slots__ = ("_factor", "_format", "_is_integral", "_maximum", "_minimum", "_type")

    def __init__(self, source: Source, type_: str, format_: str, release: Release) -> None:
        self._is_integral = at(release, IS_INTEGRAL)
        self._type, self._format = type_, format_
        self._factor = self._bound(source, "multipleOf", "", "MultipleOf")
        self._maximum = self._bound(source, "maximum", "exclusiveMaximum", "Maximum boundary")
        self._minimum = self._bound(source, "minimum", "exclusiveMinimum", "Minimum boundary")

    @staticmethod
    def of(source: Source, types: Sequence[str], format_: str, release: Release) -> Numbers | None:
        """Return what a schema says, None if any number passes."""
        type_ = types[0] if len(types) == 1 and types[0] in ("integer", "number") else ""
        if not type_:
            format_ = ""
        limited = any(source.get(name) is not None for name in ("multipleOf", "maximum", "minimum"))
        return Numbers(source, type_, format_, release) if type_ or limited else None

    def _bound(self, source: Source, name: str, exclusive: str, prefix: str) -> _Bound | None:
        value = source.get(name)
        if value is None:
            return None
        number = float(value)
        return _Bound(number, bool(source.get(exclusive)), self._range_problem(number, prefix))

    def _range_problem(self, value: float, prefix: str) -> str:
        """Return the error of a value that the type cannot hold (IsValueValidAgainstRange)."""
        if self._type == "integer":
            low, high = (_MIN_INT32, _MAX_INT32) if self._format == "int32" else (MIN_INT64, MAX_INT64)
            if value == math.trunc(value) and low <= int(value) <= high:
                return ""
        elif self._format != "float" or abs(value) < _FLOAT32_LIMIT:
            return ""
        form = f"with format {self._format}" if self._format else "(default format)"
        return f"{prefix} value must be of type {self._type} {form}"

    def check(self, kind: type) -> Callable[[Any], bool] | None:
        """Return whether a number of this kind passes; None if all do."""
        bounds = [bound for bound in (self._factor, self._maximum, self._minimum) if bound is not None]
        if not bounds and kind is int and self._format != "int32":
            return None
        if not bounds and kind is float and self._type == "number" and self._format != "float":
            return None
        if kind is int and self._factor is None and not any(bound.problem for bound in bounds):
            return self._integer_check()
        return lambda value: next(self.problems(value), None) is None

    def _integer_check(self) -> Callable[[Any], bool]:
        low, high = MIN_INT64, MAX_INT64
        if self._type == "integer" and self._format == "int32":
            low, high = _MIN_INT32, _MAX_INT32
        if self._minimum is not None:
            low = max(low, self._minimum.native + self._minimum.exclusive)
        if self._maximum is not None:
            high = min(high, self._maximum.native - self._maximum.exclusive)
        return lambda value: low <= value <= high

    def problems(self, value: int | float) -> Iterator[Problem]:
        """Yield what is wrong with a number."""
        if problem := self._range_problem(value, "Checked"):
            yield Problem("range", problem, value)
        if self._factor is not None:
            yield from self._factor_problems(value, self._factor)
        if self._minimum is not None:
            yield from _bound_problems(
                value, self._minimum, sign=-1, words=("greater than or equal to", "greater than")
            )
        if self._maximum is not None:
            yield from _bound_problems(value, self._maximum, sign=1, words=("less than or equal to", "less than"))

    def _factor_problems(self, value: int | float, bound: _Bound) -> Iterator[Problem]:
        if bound.problem:
            yield Problem("range", bound.problem, value)
        factor: int | float = bound.value
        if bound.problem or isinstance(value, float):
            value = float(value)
            fits = factor > 0 and self._is_integral(1 / factor * value if factor < 1 else value / factor)
        else:
            factor = bound.native
            fits = factor > 0 and value % factor == 0
        if factor <= 0:
            yield Problem("factor", printing.plain(factor), factor)
        elif not fits:
            yield Problem("", f"should be a multiple of {printing.plain(factor)}", value)


def _bound_problems(value: int | float, bound: _Bound, *, sign: int, words: tuple[str, str]) -> Iterator[Problem]:
    if bound.problem:
        yield Problem("range", bound.problem, value)
    limit: int | float = bound.value
    if bound.problem or isinstance(value, float):
        value = float(value)
    else:
        limit = bound.native
    beyond = value * sign >= limit * sign if bound.exclusive else value * sign > limit * sign
    if beyond:
        yield Problem("", f"should be {words[bound.exclusive]} {printing.plain(limit)}", value)
