"""`sets.contains`, `sets.equivalent`, `sets.intersects`: lists as sets.

Upstream: google/cel-go `ext/sets.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecel.check.declarations import CallEstimate, Charge, Estimate, Estimator, Function, Library, Node, Range
from kubecel.libraries.costs import Cost, function
from kubecel.values.operators import contained
from kubecel.values.types import BOOL, list_of, parameter
from kubecel.values.values import UInt, Value, size

# Types whose values are equal when Python says so.
_HASHABLE = frozenset((str, int, UInt, bool, bytes))


def _hashed(one: Sequence[Value], other: Sequence[Value]) -> bool:
    """Return whether both lists are of one type whose values can be looked up."""
    kinds = {*map(type, one), *map(type, other)}
    return len(kinds) == 1 and kinds <= _HASHABLE


def _intersects(one: Sequence[Value], other: Sequence[Value]) -> bool:
    if _hashed(one, other):
        return not set(one).isdisjoint(other)
    return any(contained(element, other) for element in one)


def _contains(all_of: Sequence[Value], some: Sequence[Value]) -> bool:
    if _hashed(all_of, some):
        return set(all_of).issuperset(some)
    return all(contained(element, all_of) for element in some)


def _equivalent(one: Sequence[Value], other: Sequence[Value]) -> bool:
    return _contains(one, other) and _contains(other, one)


def _estimate(factor: int) -> Estimate:
    def estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
        pairs = estimator.size(arguments[0]).times(estimator.size(arguments[1]))
        return CallEstimate(pairs.scaled(factor).plus(Range(1, 1)))

    return estimate


def _charge(factor: int) -> Charge:
    def charge(values: Sequence[Value], _result: Value) -> int:
        return 1 + int(float(size(values[0]) * size(values[1])) * factor)

    return charge


_ONCE, _TWICE = Cost(_estimate(1), _charge(1)), Cost(_estimate(2), _charge(2))
_LISTS = (list_of(parameter("T")),) * 2

LIBRARY = Library(
    name="cel.lib.ext.sets",
    functions=(
        Function("sets.contains", (function("list_sets_contains_list", _LISTS, BOOL, _contains, cost=_ONCE),)),
        Function("sets.equivalent", (function("list_sets_equivalent_list", _LISTS, BOOL, _equivalent, cost=_TWICE),)),
        Function("sets.intersects", (function("list_sets_intersects_list", _LISTS, BOOL, _intersects, cost=_ONCE),)),
    ),
)
