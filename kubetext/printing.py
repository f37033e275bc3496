"""Print decoded JSON as Go's `fmt` prints it in error messages: `%v` and `%s`.

Integers within 64 bits are Go's int64, all other numbers float64. Works level by level, so depth does not matter.
Upstream: golang/go `src/fmt/print.go`, `src/internal/fmtsort/sort.go`, `src/strconv/ftoa.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubetext import strconv


def plain(value: Any) -> str:
    """Return `%v`: `map[a:1 b:[x y]]`, members sorted by name."""
    return _printed(value, _plain)


def text(value: Any) -> str:
    """Return `%s`, which marks everything that is not a string: `%!s(int64=5)`."""
    return "%!s(<nil>)" if value is None else _printed(value, _text)


def go_type(value: Any) -> str:
    """Return the Go type of a value; `<nil>` for null."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int() if strconv.MIN_INT64 <= value <= strconv.MAX_INT64:
            return "int64"
        case int() | float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
    return "map[string]interface {}"


class _Verbatim(str):
    """Text between values that are not printed yet."""

    __slots__ = ()


_SPACE, _END = _Verbatim(" "), _Verbatim("]")


def _printed(value: Any, scalar: Callable[[Any], str]) -> str:
    parts: list[str] = []
    left = [value]
    while left:
        at = left.pop()
        if isinstance(at, dict):
            parts.append("map[")
            pieces = [piece for name in sorted(at) for piece in (_SPACE, _Verbatim(f"{name}:"), at[name])]
            left += reversed([*pieces[1:], _END])
        elif isinstance(at, list):
            parts.append("[")
            pieces = [piece for x in at for piece in (_SPACE, x)]
            left += reversed([*pieces[1:], _END])
        else:
            parts.append(at if isinstance(at, str) else scalar(at))
    return "".join(parts)


def _plain(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if go_type(value) == "int64":
        return str(value)
    return _float(float(value))


def _text(value: Any) -> str:
    return "<nil>" if value is None else f"%!s({go_type(value)}={_plain(value)})"


_LEAST, _LIMIT = -4, 6
"""Decimal exponents for which `%g` prints no exponent."""


def _float(number: float) -> str:
    """Return `%g`: the shortest text that denotes the number."""
    shown, _, power = repr(number).partition("e")
    sign = "-" if shown.startswith("-") else ""
    whole, _, fraction = shown.lstrip("-").partition(".")
    significant = (whole + fraction).lstrip("0")
    exponent = len(significant) - len(fraction) + int(power or 0) - 1
    digits = significant.rstrip("0")
    if not digits:
        return f"{sign}0"
    if not _LEAST <= exponent < _LIMIT:
        rest = f".{digits[1:]}" if digits[1:] else ""
        return f"{sign}{digits[0]}{rest}e{exponent:+03}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    point = exponent + 1
    return sign + digits[:point].ljust(point, "0") + (f".{digits[point:]}" if digits[point:] else "")
