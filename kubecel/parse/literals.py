"""Compute the values of literals. Upstream: google/cel-go `parser/{parser,unescape}.go`."""

from __future__ import annotations

import re

from kubecel.values.values import UInt

MAX_UINT = 2**64 - 1
MAX_INT, MIN_INT = 2**63 - 1, -(2**63)
# A number of more digits always overflows. Python's conversion takes quadratic time.
_MAX_DIGITS = 20

_ESCAPE = re.compile(r"\\(?:([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NEWLINE = re.compile(r"\r\n?")


class LiteralError(Exception):
    """A literal is well-formed but has no value."""


def integer(text: str) -> int:
    """Return the value of a NUM_INT, with its sign if there is one."""
    value = _number(text)
    if value is None or not MIN_INT <= value <= MAX_INT:
        raise LiteralError("invalid int literal")
    return value


def unsigned(text: str) -> UInt:
    """Return the value of a NUM_UINT."""
    value = _number(text[:-1])
    if value is None or value > MAX_UINT:
        raise LiteralError("invalid uint literal")
    return UInt(value)


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    base = 16 if digits.startswith("0x") else 10
    digits = digits.removeprefix("0x").lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:
        return None
    value = int(digits, base)
    return -value if text.startswith("-") else value


def double(text: str) -> float:
    """Return the value of a NUM_FLOAT, with its sign if there is one."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return value


def string(text: str) -> str:
    """Return the value of a STRING."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    return _ESCAPE.sub(_character, body)


def byte_string(text: str) -> bytes:
    """Return the value of a BYTES literal. Its text is encoded as UTF-8; `\\x` and octal escapes are bytes."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    for escape in _ESCAPE.finditer(body):
        parts += (body[at : escape.start()].encode(), _byte(escape))
        at = escape.end()
    parts.append(body[at:].encode())
    return b"".join(parts)


def _body(text: str) -> tuple[str, bool]:
    """Return the text between the quotes, and whether it is raw."""
    if "\r" in text:
        text = _NEWLINE.sub("\n", text)
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    # A string with single quotes cannot begin and end with two more of them.
    quotes = 3 if len(text) >= 6 and text.startswith(text[0] * 3) else 1
    return text[quotes:-quotes], raw


def _character(escape: re.Match[str]) -> str:
    digits, octal, plain = escape.groups()
    if plain is not None:
        return _PLAIN.get(plain, plain)
    code = int(octal, 8) if octal else int(digits[1:], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("invalid unicode code point")
    return chr(code)


def _byte(escape: re.Match[str]) -> bytes:
    digits, octal, plain = escape.groups()
    if plain is not None:
        return _PLAIN.get(plain, plain).encode()
    if digits and digits[0] in "uU":
        raise LiteralError("unable to unescape string")
    return bytes((int(octal, 8) if octal else int(digits[1:], 16),))
