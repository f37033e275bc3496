"""Resolve YAML scalars as go-yaml does (YAML 1.1 words and numbers), and print values as its messages do.

Upstream: yaml/go-yaml v2 `resolve.go`; kubernetes-sigs/yaml `convertToJSONableObject`.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import re
import struct
from decimal import Decimal
from typing import Any

from apiserver.apimachinery import fieldpath
from kubetext import utf8

_PREFIX = "tag:yaml.org,2002:"
MERGE = f"{_PREFIX}merge"
_STR, _BOOL, _INT, _FLOAT = f"{_PREFIX}str", f"{_PREFIX}bool", f"{_PREFIX}int", f"{_PREFIX}float"
_NULL, _BINARY, _TIMESTAMP = f"{_PREFIX}null", f"{_PREFIX}binary", f"{_PREFIX}timestamp"
_RESOLVABLE = frozenset({"", _STR, _BOOL, _INT, _FLOAT, _NULL, _TIMESTAMP})

_WORDS: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), (_BOOL, True)),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), (_BOOL, False)),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (_NULL, None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), (_FLOAT, math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), (_FLOAT, math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), (_FLOAT, -math.inf)),
}
_HINTS = frozenset("+-0123456789yYnNtTfFoO~.")
_POINT = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DATE = re.compile(
    r"[0-9]{4}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12][0-9]|3[01])"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)?"
)
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_EXPONENT_FROM = 1e21
"""Go writes floats from here on with an exponent, and smaller whole ones without a point."""
_MOST_SHOWN = 1_000
"""Elements and members of one value that a message shows."""
_LONGEST_DIGITS = 4_000
"""Longer digit strings are no whole numbers in go-yaml either."""


def value(tag: str | None, text: str, *, plain: bool) -> Any:
    """Return the scalar's value. Raises ValueError, which names a text that does not fit its tag."""
    if not tag and (not plain or (text and text[0] not in _HINTS)):
        return text
    found, resolved = _resolve(tag or "", text)
    if found == _BINARY:
        return _binary(text)
    return text if found == _TIMESTAMP else resolved


def reads_as_text(text: str) -> bool:
    """Return whether `text` without quotes would be read as text again."""
    return _resolve("", text)[0] == _STR and not (text[:1] in _SIGNED and _BASE_60.fullmatch(text))


_SIGNED = frozenset("+-0123456789")


def _resolve(tag: str, text: str) -> tuple[str, Any]:
    if tag not in _RESOLVABLE:
        return tag, text
    found, resolved = (_STR, text) if tag == _STR else _guess(tag, text)
    if tag == _FLOAT and found == _INT:
        return _FLOAT, float(resolved)
    if tag not in ("", found, _STR):
        raise ValueError(f"cannot decode {_short(found)} `{text}` as a {_short(tag)}")
    return found, resolved


def _guess(tag: str, text: str) -> tuple[str, Any]:
    hint = text[:1]
    if hint and hint not in _HINTS:
        return _STR, text
    if text in _WORDS:
        return _WORDS[text]
    if hint == ".":
        return (_FLOAT, float(text)) if _POINT.fullmatch(text) and math.isfinite(float(text)) else (_STR, text)
    if hint in _SIGNED:
        if tag in ("", _TIMESTAMP) and _DATE.fullmatch(text):
            return _TIMESTAMP, text
        return _number(text)
    return _STR, text


def _number(text: str) -> tuple[str, Any]:
    digits = text.replace("_", "")
    if len(digits) <= _LONGEST_DIGITS and _WHOLE.fullmatch(digits):
        whole = _whole(digits)
        if -(1 << 63) <= whole < 1 << 63 or (whole < 1 << 64 and digits[0] not in "+-"):
            return _INT, whole
    if _FRACTION.fullmatch(digits) and math.isfinite(float(digits)):
        return _FLOAT, float(digits)
    return _STR, text


def _whole(digits: str) -> int:
    unsigned = digits.lstrip("+-")
    octal = len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit()
    found = int(unsigned, 8) if octal else int(unsigned, 0)
    return -found if digits[0] == "-" else found


def _short(tag: str) -> str:
    return f"!!{tag[len(_PREFIX) :]}" if tag.startswith(_PREFIX) else tag


def _binary(text: str) -> str:
    packed = text.replace("\n", "").replace("\r", "")
    try:
        data = base64.b64decode(packed, validate=True)
    except binascii.Error as e:
        raise ValueError("!!binary value contains invalid base64 data") from e
    return utf8.decoded(data)


def key_text(key: Any) -> str | None:
    """Return a mapping's key as a member name; None for null and for numbers beyond 63 bits."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key < 1 << 63 else None
    return _float_key(key) if isinstance(key, float) else None


def _float_key(key: float) -> str:
    """Print a float key with the precision of 32 bits, as upstream does."""
    if not math.isfinite(key):
        return shortest(str(key))
    try:
        single = struct.pack("f", key)
    except OverflowError:
        return shortest(str(math.copysign(math.inf, key)))
    wide = struct.unpack("f", single)[0]
    return shortest(next(t for t in (f"{wide:.{n}g}" for n in range(1, 18)) if struct.pack("f", float(t)) == single))


def shortest(literal: str) -> str:
    """Return `strconv.FormatFloat(x, 'g', -1, …)` of the float with these shortest digits, and go-yaml's names for NaN and infinity."""
    exact = Decimal(literal)
    if not exact.is_finite():
        return ".nan" if exact.is_nan() else "-.inf" if exact < 0 else ".inf"
    sign, digits, exponent = exact.normalize().as_tuple()
    minus = "-" if sign else ""
    if not exact or not isinstance(exponent, int):
        return f"{minus}0"
    power = len(digits) + exponent - 1
    if -4 <= power < 6:
        return f"{minus}{abs(exact):f}".removesuffix(".0")
    first, *rest = map(str, digits)
    fraction = f".{''.join(rest)}" if rest else ""
    return f"{minus}{first}{fraction}e{power:+03d}"


def json_number(number: float) -> Any:
    """Return a float as it comes back from JSON text; NaN and infinity as the names that Go's encoder gives them."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    literal = f"{Decimal(repr(number)):f}".removesuffix(".0") if abs(number) < _EXPONENT_FROM else ""
    return int(literal) if literal.lstrip("-").isdigit() else number


def go_syntax(found: Any, levels: int = 64) -> str:
    """Return `%#v` of go-yaml's decoded value, down to this many levels. Long texts are cut."""
    if found is None:
        return "<nil>"
    if isinstance(found, str):
        return fieldpath.show(found)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, dict | list) and not levels:
        return "…"
    if isinstance(found, dict):
        inner = ", ".join(
            f"{_inner(k, levels)}:{_inner(v, levels)}" for k, v in itertools.islice(found.items(), _MOST_SHOWN)
        )
        return f"map[interface {{}}]interface {{}}{{{inner}}}"
    if isinstance(found, list):
        return f"[]interface {{}}{{{', '.join(_inner(x, levels) for x in found[:_MOST_SHOWN])}}}"
    return shortest(repr(found)) if isinstance(found, float) else str(found)


def _inner(found: Any, levels: int) -> str:
    return "interface {}(nil)" if found is None else go_syntax(found, levels - 1)
