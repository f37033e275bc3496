"""Format values: `"%d of %s".format([1, x])`.

Numbers have the American format: `%f` groups thousands, `%e` prints `1.500000×10⁰³`. The precision of `%e` is a width,
and both wrap.
Upstream: google/cel-go `ext/formatting.go`, golang.org/x/text `message`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

from kubecel.values.conversions import CONVERSIONS
from kubecel.values.errors import CostExceeded, EvaluationError
from kubecel.values.quoting import quoted, whole
from kubecel.values.templates import Clause, TemplateError, cannot_write, fill
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import Type
from kubecel.values.values import UInt, Value, find_key, is_list, is_map, require, type_name

# The precision of a clause without one.
_PRECISION = 6
# Limit of the values that a clause prints. A list may contain one list many times, so its text can grow beyond all
# limits.
_VALUES = 1 << 20
# A double has no more digits after the point.
_DIGITS = 1100
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_NUMBERS_IN_WORDS = frozenset(("NaN", "Infinity", "-Infinity"))


def formatted(template: str, arguments: Sequence[Value]) -> str:
    """Return a template with its clauses filled in. Raises EvaluationError."""
    length = len(template)

    def argument(index: int) -> Value:
        if index >= len(arguments):
            raise TemplateError(f"index {index} out of range")
        return arguments[index]

    def write(clause: Clause, value: Value) -> str:
        nonlocal length
        text = _PRINTERS[clause.verb](value, _PRECISION if clause.precision is None else clause.precision)
        if text is None:
            raise cannot_write(clause, type_name(value))
        length += len(text)
        require(length)
        return text

    try:
        return fill(template, size=len(arguments), argument=argument, write=write)
    except TemplateError as error:
        raise EvaluationError(error.message) from None


def _string(value: Value, _: int) -> str | None:
    if is_list(value) or is_map(value):
        return _written(value)
    return _plain(value)


def _plain(value: Value) -> str | None:
    """Return the text of a scalar, unquoted; None for a list or map."""
    if value is None:
        return "null"
    if isinstance(value, Type):
        return value.name
    if not isinstance(value, (str, bool, int, float, bytes, Timestamp, Duration)):
        return None
    try:
        return str(CONVERSIONS["string"](value))
    except EvaluationError as error:
        raise TemplateError(f"could not convert argument {quoted(str(error))} to string") from None


class _Verbatim(str):
    """Text between values that are not printed yet."""

    __slots__ = ()


def _written(value: Value) -> str:
    """Return a list or a map as a CEL literal."""
    parts: list[str] = []
    todo = [value]
    length = 0
    while todo:
        at = todo.pop()
        if type(at) is _Verbatim:
            part = str(at)
        elif is_list(at):
            part = "["
            elements: list[Value] = [piece for element in at for piece in (_Verbatim(", "), element)]
            todo += reversed([*elements[1:], _Verbatim("]")])
        elif is_map(at):
            part = "{"
            entries = sorted(((_key(key), key) for key in at), key=lambda entry: entry[0])
            elements = [piece for name, key in entries for piece in (_Verbatim(f", {name}:"), find_key(at, key))]
            if elements:
                elements[0] = _Verbatim(elements[0][2:])
            todo += reversed([*elements, _Verbatim("}")])
        else:
            part = _element(at)
        parts.append(part)
        length += len(part)
        require(length)
        if len(parts) + len(todo) > _VALUES:
            raise CostExceeded
    return "".join(parts)


def _element(value: Value) -> str:
    """Return the text of a scalar inside a list or map."""
    if type(value) is float:
        if math.isfinite(value):
            return f"{value:.6f}"
        return '"NaN"' if math.isnan(value) else '"+Inf"' if value > 0 else '"-Inf"'
    text = _plain(value)
    if text is None:
        raise TemplateError(f"no formatting function for {type_name(value)}")
    if type(value) is str:
        return whole(text)
    if type(value) is bytes:
        return f"b{whole(text)}"
    if isinstance(value, Timestamp):
        return f"timestamp({whole(text)})"
    return f"duration({whole(text)})" if isinstance(value, Duration) else text


def _key(value: Value) -> str:
    if type(value) not in (str, bool, int, UInt):
        raise TemplateError(f"no formatting function for map key of type {type_name(value)}")
    return _element(value)


def _integer(value: Value) -> bool:
    return type(value) in (int, UInt)


def _decimal(value: Value, _: int) -> str | None:
    return str(int(value)) if _integer(value) else None


def _number(value: Value) -> float | None:
    """Return the double that `%f` and `%e` print."""
    if type(value) is float:
        return value
    return float(value) if type(value) is str and value in _NUMBERS_IN_WORDS else None


def _unparsed_by_go(precision: int) -> bool:
    """Return whether Go stops reading a number because it is too long."""
    return precision // 10 > 1_000_000


def _fixed(value: Value, precision: int) -> str | None:
    number = _number(value)
    if number is None:
        return None
    if _unparsed_by_go(precision):
        return "%!(NOVERB)"
    if not math.isfinite(number):
        return _infinite(number)
    # The greatest number of digits, which a negative number can exceed, and then the least.
    most, least = (precision + (1 << 15)) % (1 << 16) - (1 << 15), precision % (1 << 8)
    digits = f"{abs(number):.{min(most, _DIGITS)}f}" if most >= 0 else f"{Decimal(repr(abs(number))):f}"
    units, _, fraction = digits.partition(".")
    fraction = fraction.rstrip("0").ljust(least, "0")
    return f"{'-' * (number < 0)}{int(units):,}{'.' * bool(fraction)}{fraction}"


def _scientific(value: Value, precision: int) -> str | None:
    number = _number(value)
    if number is None:
        return None
    if _unparsed_by_go(precision):
        return "%!(NOVERB)"
    if math.isfinite(number):
        digits, _, exponent = f"{abs(number):.6e}".partition("e")
        power = ("-" * exponent.startswith("-") + exponent[1:]).translate(_SUPERSCRIPT)
        text = f"{'-' * (number < 0)}{digits}×10{power}"
    else:
        text = _infinite(number)
    return text.rjust(precision % (1 << 16))


def _infinite(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _binary(value: Value, _: int) -> str | None:
    return f"{value:b}" if _integer(value) or type(value) is bool else None


def _hex(value: Value, _: int) -> str | None:
    if type(value) is str:
        return value.encode(errors="surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    return f"{value:x}" if _integer(value) else None


def _upper_hex(value: Value, precision: int) -> str | None:
    text = _hex(value, precision)
    return None if text is None else text.upper()


def _octal(value: Value, _: int) -> str | None:
    return f"{value:o}" if _integer(value) else None


_PRINTERS: dict[str, Callable[[Value, int], str | None]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex,
    "X": _upper_hex,
    "o": _octal,
}
