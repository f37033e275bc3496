"""What calls of the libraries cost: estimates and charges that several of them share, and declarations made of them.

Upstream: kubernetes/apiserver `pkg/cel/library/cost.go`, google/cel-go `common/cost.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from apiserver.cel.declarations import CallEstimate, Charge, Estimate, Estimator, Node, Overload, Range
from apiserver.cel.types import Type
from apiserver.cel.values import Value

# Per code point of a string that is read; per code point of a pattern; of a list that is made.
TRAVERSAL = 0.1
REGEX = 0.25
LIST = 10


class Cost(NamedTuple):
    """What a call is estimated to cost and what it is charged; None for cel-go's default."""

    estimate: Estimate | None = None
    charge: Charge | None = None


def function(
    name: str, arguments: tuple[Type, ...], result: Type, call: Callable[..., Value], *, cost: Cost
) -> Overload:
    """An overload of a function."""
    return Overload(id=name, arguments=arguments, result=result, call=call, estimate=cost.estimate, charge=cost.charge)


def member(name: str, arguments: tuple[Type, ...], result: Type, call: Callable[..., Value], *, cost: Cost) -> Overload:
    """An overload of a member function, whose receiver is the first of `arguments`."""
    return Overload(
        id=name,
        arguments=arguments,
        result=result,
        member=True,
        call=call,
        estimate=cost.estimate,
        charge=cost.charge,
    )


def size(value: Value) -> int:
    """What a value counts for: code points, bytes, elements, entries; 1 for all others."""
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1


def traversal(length: int, factor: float = TRAVERSAL) -> int:
    """The charge for reading so many code points."""
    return math.ceil(length * factor)


def nominal_estimate(_estimator: Estimator, _target: Node | None, _arguments: Sequence[Node]) -> CallEstimate:
    """Exactly 1."""
    return CallEstimate(Range(1, 1))


def _reading_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    return CallEstimate(estimator.size(arguments[0]).scaled(TRAVERSAL)) if arguments else None


def _reading_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]))


DEFAULT = Cost()
# An accessor, a comparison of fixed size.
NOMINAL = Cost(nominal_estimate, lambda _values, _result: 1)
# The only argument is a string that is read from end to end.
READING = Cost(_reading_estimate, _reading_charge)
