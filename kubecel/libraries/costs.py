"""Estimates and charges that several libraries share, and helpers to declare overloads with them.

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

# Limit of counted values, beyond any budget: lists may contain one list many times.
_VISITED = 1 << 22

# The cost per code point of a string, per code point of a pattern, and per list.
TRAVERSAL = 0.1
REGEX = 0.25
LIST = 10


class Cost(NamedTuple):
    """The estimate and the charge of a call; None for cel-go's default."""

    estimate: Estimate | None = None
    charge: Charge | None = None


def function(
    name: str, arguments: tuple[Type, ...], result: Type, call: Callable[..., Value], *, cost: Cost
) -> Overload:
    """Return an overload of a function."""
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
    """Return an overload of a member function, whose receiver is the first of `arguments`."""
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
    """Return the charge for reading so many code points."""
    return math.ceil(length * factor)


def to_uint64(number: float) -> int:
    """Convert as Go does on common processors: a negative number wraps, and a too large one becomes 2⁶³."""
    return int(number) % (1 << 64) if number < 1 << 64 else 1 << 63


def ceiling_quotient(one: int, other: int) -> int:
    """Return a quotient rounded up in double precision."""
    quotient = float(one) / float(other)
    return math.ceil(quotient) if quotient < 1 << 64 else to_uint64(quotient)


def nominal_estimate(_estimator: Estimator, _target: Node | None, _arguments: Sequence[Node]) -> CallEstimate:
    """Return an estimate of exactly 1."""
    return CallEstimate(Range(1, 1))


def _reading_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    return CallEstimate(estimator.size(arguments[0]).scaled(TRAVERSAL)) if arguments else None


def _reading_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]))


DEFAULT = Cost()
# An accessor, or a comparison of fixed size.
NOMINAL = Cost(nominal_estimate, lambda _values, _result: 1)
# The only argument is a string that is read completely.
READING = Cost(_reading_estimate, _reading_charge)


def _searching_estimate(estimator: Estimator, target: Node | None, _arguments: Sequence[Node]) -> CallEstimate | None:
    """Estimate a search that compares every element; it reads strings and bytes completely."""
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
    """Charge all leaves of a value: 1 each, and a tenth of the bytes of strings and bytes, rounded down."""
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


# A list or a string is searched.
SEARCHING = Cost(_searching_estimate, _searching_charge)
