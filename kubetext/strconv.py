"""Go's reading of numbers and of truth values, with Go's error texts, which clients see; and how it writes floats.

Upstream: golang/go `src/strconv/atoi.go`, `atof.go`, `atob.go`, `src/encoding/json/encode.go` (floatEncoder).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from kubetext.quoting import go_quote

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
MAX_UINT64 = (1 << 64) - 1

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_DIGITS = re.compile(r"[0-9]*")


def parse_int(text: str) -> int:
    """`strconv.ParseInt(text, 10, 64)`; raises ValueError with Go's text."""
    negative = text.startswith("-")
    magnitude = _magnitude(text[1:] if text[:1] in ("+", "-") else text)
    if magnitude is None:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    value = -magnitude if negative else magnitude
    if not MIN_INT64 <= value <= MAX_INT64:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return value


def parse_uint(text: str) -> int:
    """`strconv.ParseUint(text, 10, 64)`; raises ValueError with Go's text."""
    value = _magnitude(text)
    if value is None:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax")
    if value > MAX_UINT64:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return value


def parse_bool(text: str) -> bool:
    """`strconv.ParseBool(text)`; raises ValueError with Go's text."""
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
    return text in _TRUE


def parse_float(text: str) -> float:
    """A JSON number that is no integer; raises ValueError when it is beyond every float.

    This is for `float_hook` of decoders: theirs takes microseconds for each number near the ends of the range, and nobody gets a turn
    before all are read.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: value out of range")
    return value


_LEAST_PLAIN, _EXPONENT_FROM = 1e-6, 1e21
"""Between these JSON has no exponent."""


def json_float(number: float) -> str:
    """A finite float, or an integer, as Go's encoder writes it."""
    shortest = repr(number)
    if number and not _LEAST_PLAIN <= abs(number) < _EXPONENT_FROM:
        return shortest.replace("e-0", "e-")
    return (f"{Decimal(shortest):f}" if "e" in shortest else shortest).removesuffix(".0")


def _magnitude(text: str) -> int | None:
    """The number in front, None when there is none or more follows; too big a number is reported as 2**64, as Go stops reading there."""
    match = _DIGITS.match(text)
    digits = match.group() if match else ""
    significant = digits.lstrip("0")
    too_big = len(significant) > 20 or (len(significant) == 20 and int(significant) > MAX_UINT64)
    if too_big:
        return MAX_UINT64 + 1
    return int(digits) if digits and len(digits) == len(text) else None
