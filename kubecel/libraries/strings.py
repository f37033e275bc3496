"""Functions of strings: `charAt`, `indexOf`, `lowerAscii`, `replace`, `split`, `substring`, `trim`, `join`, `format`, `strings.quote`.

Indices count code points. Upstream: google/cel-go `ext/strings.go`, kubernetes/apiserver `pkg/cel/library/cost.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kubecel.check.declarations import UNLIMITED, CallEstimate, Estimator, Function, Library, Node, Range
from kubecel.check.validators import STRING_FORMAT
from kubecel.libraries.costs import DEFAULT, SEARCHING, TRAVERSAL, Cost, ceiling_quotient, function, member, traversal
from kubecel.plan.formatting import formatted
from kubecel.values.errors import EvaluationError
from kubecel.values.types import DYN, INT, STRING, list_of
from kubecel.values.values import Value, require, size, text

_STRINGS = list_of(STRING)

# White space according to Go.
SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SURROGATE = re.compile("[\ud800-\udfff]")
# The backslash comes first, because the other escapes contain it.
_ESCAPES = (
    ("\\", "\\\\"),
    ("\a", "\\a"),
    ("\b", "\\b"),
    ("\f", "\\f"),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\v", "\\v"),
    ('"', '\\"'),
)


def _outside(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(string: str, index: int) -> str:
    if not 0 <= index <= len(string):
        raise _outside(index)
    return string[index : index + 1]


def _index_of(string: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _outside(start)
    return string.find(part, start) if part else min(start, len(string))


def _index_of_0_26(string: str, part: str, start: int = 0) -> int:
    return _index_of(string, part, start) if part else start


def _last_index_of(string: str, part: str) -> int:
    return string.rfind(part)


def _last_index_from(string: str, part: str, start: int) -> int:
    if start < 0:
        raise _outside(start)
    if not part:
        return min(start, len(string))
    # A start beyond the end finds nothing, although the whole string lies before it.
    return string.rfind(part, 0, start + len(part)) if start < len(string) else -1


def _last_index_from_0_26(string: str, part: str, start: int) -> int:
    return _last_index_from(string, part, start) if part else start


def _replace(string: str, old: str, new: str, limit: int = -1) -> str:
    times = min(string.count(old), limit) if limit >= 0 else string.count(old)
    require(len(string) + times * (len(new) - len(old)))
    return string.replace(old, new, limit if limit >= 0 else -1)


def _split(string: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return string.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(string):
        return list(string)
    return [*string[: limit - 1], string[limit - 1 :]]


def _substring(string: str, start: int) -> str:
    if not 0 <= start <= len(string):
        raise _outside(start)
    return string[start:]


def _substring_range(string: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(string):
            raise _outside(index)
    return string[start:end]


def _join(strings: Sequence[Value], separator: str = "") -> str:
    for string in strings:
        if type(string) is not str:
            raise EvaluationError(f"join: invalid input: {text(string)}")
    require(sum(map(len, strings)) + len(separator) * max(len(strings) - 1, 0))
    return separator.join(strings)


def _quote(string: str) -> str:
    for character, escape in _ESCAPES:
        string = string.replace(character, escape)
    valid = _SURROGATE.sub("\ufffd", string)
    return f'"{valid}"'


def _lower_ascii(string: str) -> str:
    # UTF-8 of letters outside ASCII contains no ASCII bytes.
    return string.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def _upper_ascii(string: str) -> str:
    return string.encode(errors="surrogatepass").upper().decode(errors="surrogatepass")


# Costs


def _same_size_estimate(estimator: Estimator, target: Node | None, _arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    length = estimator.size(target)
    return CallEstimate(length.scaled(TRAVERSAL), length)


def _reading_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]))


def _replacing_estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    length, old, new = map(estimator.size, (target, *arguments[:2]))
    if old.least == 0:
        # An empty text is replaced around every code point.
        most, kept_most = min(length.most + 1, UNLIMITED), length.most
    elif new.most <= old.least:
        most, kept_most = 0, length.most
    else:
        most, kept_most = ceiling_quotient(length.most, old.least), 0
    if old.most == 0:
        least, kept_least = length.least + 1, length.least
    elif old.most <= new.least:
        least, kept_least = 0, length.least
    else:
        least, kept_least = ceiling_quotient(length.least, old.most), 0
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return CallEstimate(length.scaled(2 * TRAVERSAL), result)


def _splitting_estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    length = estimator.size(target)
    limit = getattr(arguments[1].expr, "value", None) if len(arguments) > 1 else None
    most = limit % (1 << 64) if type(limit) is int else length.most
    return CallEstimate(length.scaled(2 * TRAVERSAL), Range(0, most))


def _twice_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]), 2 * TRAVERSAL)


def _joining_estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    count, total = estimator.size(target), Range(0, 0)
    element = estimator.element(target)
    if element is not None:
        total = count.times(estimator.size(element))
    if arguments:
        separators = Range(max(count.least - 1, 0), max(count.most - 1, 0))
        total = total.plus(estimator.size(arguments[0]).times(separators))
    return CallEstimate(total.scaled(TRAVERSAL), total)


def _joining_charge(_values: Sequence[Value], result: Value) -> int:
    return traversal(size(result), 2 * TRAVERSAL)


_READING = Cost(_same_size_estimate, _reading_charge)
_REPLACING = Cost(_replacing_estimate, _twice_charge)
_SPLITTING = Cost(_splitting_estimate, _twice_charge)
_JOINING = Cost(_joining_estimate, _joining_charge)


def _searches(index_of: Callable[..., Value], last_index_from: Callable[..., Value]) -> tuple[Function, Function]:
    return (
        Function(
            "indexOf",
            (
                member("string_index_of_string", (STRING, STRING), INT, index_of, cost=SEARCHING),
                member("string_index_of_string_int", (STRING, STRING, INT), INT, index_of, cost=SEARCHING),
            ),
            charge=SEARCHING.charge,
        ),
        Function(
            "lastIndexOf",
            (
                member("string_last_index_of_string", (STRING, STRING), INT, _last_index_of, cost=SEARCHING),
                member("string_last_index_of_string_int", (STRING, STRING, INT), INT, last_index_from, cost=SEARCHING),
            ),
            charge=SEARCHING.charge,
        ),
    )


_SEARCHES = _searches(_index_of, _last_index_from)
_SEARCHES_0_26 = _searches(_index_of_0_26, _last_index_from_0_26)
_CHAR_AT = Function("charAt", (member("string_char_at_int", (STRING, INT), STRING, _char_at, cost=DEFAULT),))
_FUNCTIONS_V0 = (
    Function(
        "lowerAscii",
        (member("string_lower_ascii", (STRING,), STRING, _lower_ascii, cost=_READING),),
    ),
    Function(
        "replace",
        (
            member("string_replace_string_string", (STRING,) * 3, STRING, _replace, cost=_REPLACING),
            member("string_replace_string_string_int", (*(STRING,) * 3, INT), STRING, _replace, cost=_REPLACING),
        ),
    ),
    Function(
        "split",
        (
            member("string_split_string", (STRING, STRING), _STRINGS, _split, cost=_SPLITTING),
            member("string_split_string_int", (STRING, STRING, INT), _STRINGS, _split, cost=_SPLITTING),
        ),
    ),
    Function(
        "substring",
        (
            member("string_substring_int", (STRING, INT), STRING, _substring, cost=_READING),
            member("string_substring_int_int", (STRING, INT, INT), STRING, _substring_range, cost=_READING),
        ),
    ),
    Function("trim", (member("string_trim", (STRING,), STRING, lambda s: s.strip(SPACE), cost=_READING),)),
    Function(
        "upperAscii",
        (member("string_upper_ascii", (STRING,), STRING, _upper_ascii, cost=_READING),),
    ),
)
_JOIN = Function(
    "join",
    (
        member("list_join", (_STRINGS,), STRING, _join, cost=_JOINING),
        member("list_join_string", (_STRINGS, STRING), STRING, _join, cost=_JOINING),
    ),
)
# From version 1 on: google/cel-go's own costs.
_FUNCTIONS_V1 = (
    Function("format", (member("string_format", (STRING, list_of(DYN)), STRING, formatted, cost=DEFAULT),)),
    Function("strings.quote", (function("strings_quote", (STRING,), STRING, _quote, cost=DEFAULT),)),
)

_NAME = "cel.lib.ext.strings"

LIBRARY_V0 = Library(name=_NAME, functions=(_CHAR_AT, *_SEARCHES_0_26, *_FUNCTIONS_V0, _JOIN))
LIBRARY_V2 = Library(
    name=_NAME, functions=(_CHAR_AT, *_SEARCHES, *_FUNCTIONS_V0, *_FUNCTIONS_V1, _JOIN), validators=(STRING_FORMAT,)
)
LIBRARY_V2_0_26 = Library(
    name=_NAME,
    functions=(_CHAR_AT, *_SEARCHES_0_26, *_FUNCTIONS_V0, *_FUNCTIONS_V1, _JOIN),
    validators=(STRING_FORMAT,),
)
"""The library as cel-go 0.26 has it: an empty part is found at any index."""
