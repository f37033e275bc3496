"""Parse the templates of `format`: `"%s has %d devices".format([name, count])`. The validator and the evaluation share
this.

Upstream: google/cel-go `ext/formatting.go` parseFormatString.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

_CLAUSE = re.compile(rb"%(%|(?:\.([0-9]*))?(.)?)", re.DOTALL)
_VERBS = frozenset("sdfebxXo")
_MAX_PRECISION = 2**63 - 1

Argument = TypeVar("Argument")


class TemplateError(ValueError):
    """A clause or its argument is invalid. The message is cel-go's; `expression` is the id of a literal argument."""

    def __init__(self, message: str, expression: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.expression = expression


class Clause(NamedTuple):
    """How to print one argument: the letter of the clause, and its number of digits after the point."""

    verb: str
    precision: int | None


def fill(text: str, *, size: int, argument: Callable[[int], Argument], write: Callable[[Clause, Argument], str]) -> str:
    """Return the text with each clause replaced by `write` of its argument, in order. `size` counts the arguments.

    Both functions may raise TemplateError, as this one does.
    """
    written: list[bytes] = []
    encoded = text.encode("utf-8", "surrogatepass")
    end = index = 0
    for match in _CLAUSE.finditer(encoded):
        written.append(encoded[end : match.start()])
        end = match.end()
        if match[1] == b"%":
            written.append(b"%")
            continue
        given = argument(index)
        if not match[1]:
            raise TemplateError("unexpected end of string")
        if index >= size:
            raise TemplateError(f"index {index} out of range")
        clause = _parsed(match)
        try:
            written.append(write(clause, given).encode("utf-8", "surrogatepass"))
        except TemplateError as error:
            raise TemplateError(f"error during formatting: {error.message}", error.expression) from None
        index += 1
    written.append(encoded[end:])
    return b"".join(written).decode("utf-8", "surrogatepass")


_DEMANDS = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}


def cannot_write(clause: Clause, name: str, expression: int | None = None) -> TemplateError:
    """Return the error of a clause whose argument is of the named type."""
    return TemplateError(f"{_DEMANDS[clause.verb]}, was given {name}", expression)


def _parsed(match: re.Match[bytes]) -> Clause:
    precision = None
    if match[2] is not None:
        if match[3] is None:
            raise _unparsable("error while parsing precision: could not find end of precision specifier")
        precision = _precision(match[2].decode())
    verb = match[3].decode("latin-1")
    if verb not in _VERBS:
        raise _unparsable(f'unrecognized formatting clause "{verb}"')
    return Clause(verb, precision)


def _precision(digits: str) -> int:
    wrong = "" if digits else "invalid syntax"
    if not wrong and (len(digits.lstrip("0")) > 19 or int(digits) > _MAX_PRECISION):
        wrong = "value out of range"
    if wrong:
        raise _unparsable(
            f'error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "{digits}": {wrong}'
        )
    return int(digits)


def _unparsable(message: str) -> TemplateError:
    return TemplateError(f"could not parse formatting clause: {message}")
