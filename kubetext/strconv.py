"""Parse numbers and booleans as Go does, with Go's error messages, and print floats.

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
    """Return `strconv.ParseInt(text, 10, 64)`. Raises ValueError with Go's text."""
    negative = text.startswith("-")
    magnitude = _magnitude(text[1:] if text[:1] in ("+", "-") else text)
    if magnitude is None:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    value = -magnitude if negative else magnitude
    if not MIN_INT64 <= value <= MAX_INT64:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return value


def parse_uint(text: str, *, bits: int = 64) -> int:
    """Return `strconv.ParseUint(text, 10, bits)`. Raises ValueError with Go's text."""
    value = _magnitude(text)
    if value is None:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax")
    if value >> bits:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return value


def parse_bool(text: str) -> bool:
    """Return `strconv.ParseBool(text)`. Raises ValueError with Go's text."""
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
    return text in _TRUE


def parse_float(text: str) -> float:
    """Parse a JSON number that is not an integer. Raises ValueError when it overflows.

    Use it as `float_hook` of decoders. Their own parser takes microseconds for each number near the ends of the range,
    and blocks other threads until all are read.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: value out of range")
    return value


_LEAST_PLAIN, _EXPONENT_FROM = 1e-6, 1e21
"""Go's JSON encoder writes no exponent between these."""


def json_float(number: float) -> str:
    """Return a finite float, or an integer, as Go's JSON encoder writes it."""
    shortest = repr(number)
    if number and not _LEAST_PLAIN <= abs(number) < _EXPONENT_FROM:
        return shortest.replace("e-0", "e-")
    return (f"{Decimal(shortest):f}" if "e" in shortest else shortest).removesuffix(".0")


def _magnitude(text: str) -> int | None:
    """Return the number, or None when the text is not all digits.

    A number above 2**64 is returned as 2**64, because Go stops reading there.
    """
    match = _DIGITS.match(text)
    digits = match.group() if match else ""
    significant = digits.lstrip("0")
    too_big = len(significant) > 20 or (len(significant) == 20 and int(significant) > MAX_UINT64)
    if too_big:
        return MAX_UINT64 + 1
    return int(digits) if digits and len(digits) == len(text) else None
