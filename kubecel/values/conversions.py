"""Convert values between types: `int("5")`, `string(1.5)`, `type(x)`.

Upstream: google/cel-go `common/types` ConvertToType, Go `strconv`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from kubecel.values.errors import EvaluationError
from kubecel.values.operators import MAX_INT, MAX_UINT, MIN_INT, no_such_overload
from kubecel.values.times import Duration, Timestamp, in_range, parse_duration, parse_timestamp
from kubecel.values.types import BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT, Type
from kubecel.values.values import UInt, Value, double_text, type_of

# A lookahead after each repetition keeps `re` from trying shorter ones: 0.9 s for 3 MB of zeros otherwise.
_INTEGER = re.compile(r"([+-]?)0*(?!0)([0-9]{0,20})", re.ASCII)
# Digits with underscores in between. `_DANGLING` matches an underscore without a following digit.
_DIGITS = r"[0-9][0-9_]*(?![0-9_])"
_HEX_DIGITS = r"[0-9a-fA-F][0-9a-fA-F_]*(?![0-9a-fA-F_])"
_DANGLING, _DANGLING_IN_HEX = re.compile("_(?![0-9])"), re.compile("_(?![0-9a-fA-F])")
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII)
_HEXADECIMAL = re.compile(
    rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}", re.ASCII
)
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.ASCII | re.IGNORECASE)
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def _failed(value: Value, to: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_of(value)}' to '{to}'")


def _parsed_integer(text: str, *, signed: bool) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None or text[-1] in "+-" or (match[1] and not signed):
        return None
    value = int(match[2] or "0") * (-1 if match[1] == "-" else 1)
    least, most = (MIN_INT, MAX_INT) if signed else (0, MAX_UINT)
    return value if least <= value <= most else None


def _int_of_string(text: str) -> int:
    value = _parsed_integer(text, signed=True) if text else None
    if value is None:
        raise _failed(text, INT)
    return value


def _uint_of_string(text: str) -> UInt:
    value = _parsed_integer(text, signed=False) if text else None
    if value is None:
        raise _failed(text, UINT)
    return UInt(value)


def _double_of_string(text: str) -> float:
    value = math.inf
    if _DECIMAL.fullmatch(text) and not _DANGLING.search(text):
        value = float(text)
    elif _HEXADECIMAL.fullmatch(text) and not _DANGLING_IN_HEX.search(text):
        try:
            value = float.fromhex(text.replace("_", ""))
        except OverflowError:
            pass
    elif _SPECIAL.fullmatch(text):
        return float(text)
    if math.isinf(value):
        raise _failed(text, DOUBLE)
    return value


def _int_of_double(value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


def _int_of_uint(value: UInt) -> int:
    if value > MAX_INT:
        raise EvaluationError("integer overflow")
    return int(value)


def _uint_of_int(value: int) -> UInt:
    if value < 0:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _bool_of_string(text: str) -> bool:
    value = _BOOLEANS.get(text)
    if value is None:
        raise _failed(text, BOOL)
    return value


def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _timestamp_of_string(text: str) -> Timestamp:
    moment = parse_timestamp(text)
    if moment is None:
        raise _failed(text, TIMESTAMP)
    return in_range(moment)


def _duration_of_string(text: str) -> Duration:
    span = parse_duration(text)
    if span is None:
        raise _failed(text, DURATION)
    return span


def _duration_of_int(value: int) -> Duration:
    raise _failed(value, DURATION)


def _same(value: Value) -> Value:
    return value


Conversion = Callable[[Any], Value]

_CONVERSIONS: dict[str, dict[type, Conversion]] = {
    "bool": {bool: _same, str: _bool_of_string},
    "bytes": {bytes: _same, str: str.encode},
    "double": {float: _same, int: float, str: _double_of_string, UInt: float},
    "duration": {Duration: _same, int: _duration_of_int, str: _duration_of_string},
    "int": {
        int: _same,
        float: _int_of_double,
        Duration: lambda span: span.nanoseconds,
        str: _int_of_string,
        Timestamp: lambda moment: moment.seconds,
        UInt: _int_of_uint,
    },
    "string": {
        str: _same,
        bool: lambda value: "true" if value else "false",
        bytes: _string_of_bytes,
        float: double_text,
        Duration: str,
        int: str,
        Timestamp: str,
        UInt: str,
    },
    "timestamp": {
        Timestamp: _same,
        int: lambda seconds: in_range(Timestamp(seconds)),
        str: _timestamp_of_string,
    },
    "uint": {UInt: _same, float: _uint_of_double, int: _uint_of_int, str: _uint_of_string},
}


def _conversion(function: str, table: dict[type, Conversion]) -> Conversion:
    def convert(value: Value) -> Value:
        conversion = table.get(type(value))
        if conversion is None:
            raise no_such_overload(function, (value,))
        return conversion(value)

    return convert


# Conversions by function name. The conversion of a constant runs once, with the program.
CONVERSIONS: dict[str, Conversion] = {
    **{name: _conversion(name, table) for name, table in _CONVERSIONS.items()},
    "dyn": _same,
    "type": type_of,
}
