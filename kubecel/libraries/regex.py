"""`find` and `findAll`: return the matches of a pattern. `matches` belongs to the standard library.

Upstream: kubernetes/apiserver `pkg/cel/library/regex.go`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node, Range
from kubecel.libraries.costs import REGEX, TRAVERSAL, Cost, member
from kubecel.values.errors import EvaluationError
from kubecel.values.regexes import InvalidPattern, Pattern, compiled
from kubecel.values.types import INT, STRING, list_of
from kubecel.values.values import Value, size


def _compiled(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except InvalidPattern as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return _compiled(pattern).first(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _compiled(pattern).every(text, limit)


def _estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    text = estimator.size(target)
    # One more than the length of the text, because an empty text costs as well.
    reading = text.plus(Range(1, 1)).scaled(TRAVERSAL)
    return CallEstimate(reading.times(estimator.size(arguments[0]).scaled(REGEX)), Range(0, text.most))


def _charge(values: Sequence[Value], _result: Value) -> int:
    return math.ceil((1.0 + size(values[0])) * TRAVERSAL) * math.ceil(size(values[1]) * REGEX)


_MATCHING = Cost(_estimate, _charge)

LIBRARY = Library(
    name="kubernetes.regex",
    functions=(
        Function("find", (member("string_find_string", (STRING, STRING), STRING, _find, cost=_MATCHING),)),
        Function(
            "findAll",
            (
                member("string_find_all_string", (STRING, STRING), list_of(STRING), _find_all, cost=_MATCHING),
                member("string_find_all_string_int", (STRING, STRING, INT), list_of(STRING), _find_all, cost=_MATCHING),
            ),
        ),
    ),
)
