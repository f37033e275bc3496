"""What calls of the libraries cost: estimates and charges that several of them share, and declarations made of them.

Upstream: kubernetes/apiserver `pkg/cel/library/cost.go`, google/cel-go `common/cost.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubecel.check.declarations import CallEstimate, Charge, Estimate, Estimator, Node, Overload, Range
from kubecel.values.errors import CostExceeded
from kubecel.values.types import Kind, Type
from kubecel.values.values import Value, find_key, is_list, is_map, size

# More values than this are not counted, which is beyond any budget: lists may hold one list many times.
_VISITED = 1 << 22

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


def member(
    name: str,
    arguments: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    *,
    cost: Cost,
    guarded: bool = True,
) -> Overload:
    """An overload of a member function, whose receiver is the first of `arguments`."""
    return Overload(
        id=name,
        arguments=arguments,
        result=result,
        member=True,
        call=call,
        guarded=guarded,
        estimate=cost.estimate,
        charge=cost.charge,
    )


def traversal(length: int, factor: float = TRAVERSAL) -> int:
    """The charge for reading so many code points."""
    return math.ceil(length * factor)


def to_uint64(number: float) -> int:
    """Go's conversion, on the processors that matter: a negative number wraps, what is too large is 2⁶³."""
    return int(number) % (1 << 64) if number < 1 << 64 else 1 << 63


def ceiling_quotient(one: int, other: int) -> int:
    """A quotient rounded up in double precision."""
    quotient = float(one) / float(other)
    return math.ceil(quotient) if quotient < 1 << 64 else to_uint64(quotient)


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


def _searching_estimate(estimator: Estimator, target: Node | None, _arguments: Sequence[Node]) -> CallEstimate | None:
    """Every element is compared, strings and bytes from end to end; of a string its code points."""
    if target is None:
        return None
    count, element = estimator.size(target), estimator.element(target)
    if element is None:
        return CallEstimate(count.scaled(TRAVERSAL))
    comparison = Range(1, 1)
    if element.type.kind in (Kind.STRING, Kind.BYTES):
        comparison = comparison.plus(estimator.size(element).scaled(TRAVERSAL))
    return CallEstimate(count.times(comparison))


def _searching_charge(values: Sequence[Value], _result: Value) -> int:
    """All that is in a value, down to its leaves: 1 for each, of strings and bytes a tenth of their bytes, rounded down."""
    cost = visited = 0
    todo = [values[0]]
    while todo:
        value = todo.pop()
        visited += 1
        if isinstance(value, str):
            cost += int((len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))) * TRAVERSAL)
        elif isinstance(value, bytes):
            cost += int(len(value) * TRAVERSAL)
        elif is_list(value):
            todo += value
        elif is_map(value):
            todo += [part for key in value for part in (key, find_key(value, key))]
        else:
            cost += 1
        if visited > _VISITED:
            raise CostExceeded
    return cost


# A list or a string is looked through.
SEARCHING = Cost(_searching_estimate, _searching_charge)
