"""Functions of lists: Kubernetes' (`isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`) and cel-go's (`slice`, `flatten`, `sort`, …).

Upstream: kubernetes/apiserver `pkg/cel/library/{lists,cost}.go`; google/cel-go `ext/lists.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubecel.check.declarations import (
    UNLIMITED,
    CallEstimate,
    Charge,
    Estimate,
    Estimator,
    Function,
    Library,
    Node,
    Overload,
    Range,
)
from kubecel.libraries.costs import LIST, SEARCHING, TRAVERSAL, Cost, function, member, to_uint64
from kubecel.parse.ast import Expr, Literal
from kubecel.parse.macros import SORT_BY
from kubecel.values.errors import CostExceeded, EvaluationError, Panic
from kubecel.values.operators import add
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    parameter,
)
from kubecel.values.values import ABSENT, UInt, Value, compare, equal, go_type, is_list, require, size, type_name

_ADDABLE = frozenset((int, UInt, float, str, bytes, Timestamp, Duration))
_COMPARABLE = frozenset((bool, int, UInt, float, str, bytes, Timestamp, Duration))

# Kubernetes' functions


def _order(one: Value, other: Value) -> int | None:
    """Return -1, 0 or 1; None for values without order, such as 1 and "a", or NaN and any number."""
    try:
        return compare(one, other)
    except EvaluationError:
        return None


def _comparable(value: Value) -> Value:
    if type(value) not in _COMPARABLE:
        raise EvaluationError("no such overload")
    return value


def _is_sorted(values: Sequence[Value]) -> bool:
    if not values:
        return True
    previous = _comparable(values[0])
    for index in range(1, len(values)):
        value = _comparable(values[index])
        if _order(previous, value) == 1:
            return False
        previous = value
    return True


def _extreme(name: str, replaced: int) -> Callable[[Sequence[Value]], Value]:
    """Return the least (`replaced` 1) or greatest (-1) element; the first of equal ones."""

    def extreme(values: Sequence[Value]) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = _comparable(values[0])
        for index in range(1, len(values)):
            value = _comparable(values[index])
            if _order(best, value) == replaced:
                best = value
        return best

    return extreme


def _sum(zero: Value) -> Callable[[Sequence[Value]], Value]:
    def total(values: Sequence[Value]) -> Value:
        result = zero
        for value in values:
            result = add(result, value)
        return result

    return total


def _same(one: Value, other: Value) -> bool:
    """Return equality; values that cannot be compared are not equal."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def _includes(target: Value, sought: Value) -> bool:
    """Return whether a list has the value, or another target equals it."""
    return any(_same(value, sought) for value in target) if is_list(target) else _same(target, sought)


def _includes_estimate(estimator: Estimator, target: Node | None, _arguments: Sequence[Node]) -> CallEstimate | None:
    """Estimate `includes`. A target of unknown type may be a list, in which each comparison costs 1."""
    if target is None:
        return None
    found = SEARCHING.estimate(estimator, target, ()) if SEARCHING.estimate and estimator.element(target) else None
    return found or CallEstimate(estimator.size(target))


def _index_of(values: Sequence[Value], sought: Value) -> int:
    return next((index for index, value in enumerate(values) if _same(value, sought)), -1)


def _last_index_of(values: Sequence[Value], sought: Value) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if _same(values[index], sought)), -1)


_SUMMABLE = (("int", INT, 0), ("uint", UINT, UInt(0)), ("double", DOUBLE, 0.0), ("duration", DURATION, Duration(0)))
_ORDERED = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)


def _of_ordered(name: str, overload: str, call: Callable[[Sequence[Value]], Value], result: Type | None) -> Function:
    """Return a function of lists of each ordered type. Without a result type it returns an element."""
    overloads = (
        member(overload.format(kind), (list_of(of),), result or of, call, cost=SEARCHING) for kind, of in _ORDERED
    )
    return Function(name, tuple(overloads), charge=SEARCHING.charge)


_A = parameter("A")

INCLUDES = Function(
    "includes",
    (
        member(
            "list_includes_dyn_dyn",
            (DYN, DYN),
            BOOL,
            _includes,
            cost=Cost(_includes_estimate, SEARCHING.charge),
            guarded=False,
        ),
    ),
    charge=SEARCHING.charge,
)

_FUNCTIONS_V0 = (
    _of_ordered("isSorted", "list_{0}_is_sorted_bool", _is_sorted, BOOL),
    Function(
        "sum",
        tuple(
            member(f"list_{kind}_sum_{kind}", (list_of(of),), of, _sum(zero), cost=SEARCHING)
            for kind, of, zero in _SUMMABLE
        ),
        charge=SEARCHING.charge,
    ),
    _of_ordered("max", "list_{0}_max_{0}", _extreme("max", -1), None),
    _of_ordered("min", "list_{0}_min_{0}", _extreme("min", 1), None),
    Function(
        "indexOf",
        (member("list_a_index_of_int", (list_of(_A), _A), INT, _index_of, cost=SEARCHING),),
        charge=SEARCHING.charge,
    ),
    Function(
        "lastIndexOf",
        (member("list_a_last_index_of_int", (list_of(_A), _A), INT, _last_index_of, cost=SEARCHING),),
        charge=SEARCHING.charge,
    ),
)

LIBRARY = Library(name="kubernetes.lists", functions=_FUNCTIONS_V0)
LIBRARY_V1 = Library(name="kubernetes.lists", functions=(*_FUNCTIONS_V0, INCLUDES))

# cel-go's functions


def _slice(values: Sequence[Value], start: int, end: int) -> list[Value]:
    asked = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise EvaluationError(asked + "negative indexes not supported")
    if start > end:
        raise EvaluationError(asked + "start index must be less than or equal to end index")
    if len(values) < end:
        raise EvaluationError(f"{asked}list is length {len(values)}")
    return [values[index] for index in range(start, end)]


def _flatten(values: Value, *depth: Value) -> list[Value]:
    if not is_list(values):
        given = ", ".join(map(type_name, depth))
        raise EvaluationError(f"no such overload: {type_name(values)}.flatten({given})")
    levels = depth[0] if depth else 1
    if type(levels) is not int:
        raise EvaluationError(f"no such overload: {type_name(values)}.flatten({type_name(levels)})")
    if levels < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Value] = []
    todo = [(iter(values), levels)]
    while todo:
        elements, deeper = todo[-1]
        for element in elements:
            if deeper and is_list(element):
                todo.append((iter(element), deeper - 1))
                break
            flat.append(element)
        else:
            todo.pop()
        if len(flat) > _FLATTENED:
            raise CostExceeded
    return flat


def _sort(values: Value) -> Sequence[Value]:
    if not is_list(values):
        raise EvaluationError("no such overload: sort")
    return _sorted(values, values)


def _sort_by(values: Value, keys: Value) -> Sequence[Value]:
    if not is_list(values):
        raise EvaluationError("no such overload: @sortByAssociatedKeys")
    return _sorted(values, keys)


def _sorted(values: Sequence[Value], keys: Sequence[Value]) -> Sequence[Value]:
    """Sort values by their keys. Values with equal keys keep their order; Go's sort moves them in lists of more than 12."""
    if len(values) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if not values:
        return values
    kind = type(keys[0])
    if kind not in _COMPARABLE:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not kind for key in keys):
        raise EvaluationError("list elements must have the same type")
    return [values[index] for index in _indices_by(keys)]


def _indices_by(keys: Sequence[Value]) -> list[int]:
    """Return the indices of keys in the order of these. Go sorts short lists by insertion, which decides where NaN ends up."""
    if len(keys) > _SORTED_BY_INSERTION:
        return sorted(range(len(keys)), key=keys.__getitem__)
    found: list[int] = []
    for index, key in enumerate(keys):
        at = index
        while at and key < keys[found[at - 1]]:
            at -= 1
        found.insert(at, index)
    return found


def _range(count: int) -> list[int]:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _LONGEST_RANGE:
        raise EvaluationError(f"lists.range: size {count} exceeds maximum allowed ({_LONGEST_RANGE})")
    return list(range(count))


def _range_0_26(count: int) -> list[int]:
    require(count * 8)
    return list(range(count))


def _reverse(values: Sequence[Value]) -> list[Value]:
    return [values[index] for index in range(len(values) - 1, -1, -1)]


def _distinct(values: Sequence[Value]) -> Sequence[Value]:
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= _HASHABLE:
        return list(dict.fromkeys(values))
    unique: list[Value] = []
    for value in values:
        if not any(_same(value, other) for other in unique):
            unique.append(value)
    return unique


# Go's limit for insertion sort (golang/go `src/sort/zsortfunc.go`, pdqsort_func).
_SORTED_BY_INSERTION = 12
# Elements of the longest list that lists.range makes (cel-go's defaultMaxRangeSize).
_LONGEST_RANGE = 1_000_000
# Limit of the elements of a flattened list: lists may contain one list many times.
_FLATTENED = 1 << 20
# Types whose values are equal when Python says so.
_HASHABLE = frozenset((str, int, UInt, bool, bytes))

# Costs


def _made_estimate(factor: float, length: Range) -> CallEstimate:
    """Estimate the construction of a list, at a price for each element."""
    return CallEstimate(length.scaled(factor).plus(Range(1, 1)).plus(Range(LIST, LIST)), length)


def _made_charge(factor: float, length: int) -> int:
    return (to_uint64(float(length) * factor) + 1 + LIST) % (1 << 64)


def _literal(expr: Expr | None, otherwise: int) -> int:
    """Return the literal of an argument, 0 for a negative one."""
    if isinstance(expr, Literal) and type(expr.value) is int:
        return max(expr.value, 0)
    return otherwise


def _slice_estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    if target is None:
        return None
    end = _literal(arguments[1].expr, estimator.size(target).most)
    length = (end - _literal(arguments[0].expr, 0)) % (1 << 64)
    return _made_estimate(1, Range(length, length))


def _range_estimate(_estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    length = _literal(arguments[0].expr, UNLIMITED)
    return _made_estimate(1, Range(length, length))


def _reverse_estimate(estimator: Estimator, target: Node | None, _arguments: Sequence[Node]) -> CallEstimate | None:
    return None if target is None else _made_estimate(1, estimator.size(target))


def _flatten_estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
    depth = _literal(arguments[0].expr, UNLIMITED) if arguments else 1
    return None if target is None else _made_estimate(float(depth), estimator.size(target))


def _compared_estimate(factor: float) -> Estimate:
    """Estimate comparing every element with every other: elements of the argument, or without one of the target."""

    def estimate(estimator: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate | None:
        compared = arguments[0] if arguments else target
        if compared is None:
            return None
        length = estimator.size(compared)
        return _made_estimate(factor, length.times(length))

    return estimate


# Go's message when a cost is needed and there is no value.
_NO_LIST = "interface conversion: {} is not traits.Lister: missing method {}"
_NO_INT = "interface conversion: ref.Val is *types.Err, not types.Int"


def _result_charge(_values: Sequence[Value], result: Value) -> int:
    return _made_charge(1, size(result))


def _flatten_charge(values: Sequence[Value], _result: Value) -> int:
    if len(values) > 1 and type(values[1]) is not int:
        raise Panic(_NO_INT)
    return _made_charge(float(values[1]) if len(values) > 1 else 1, size(values[0]))


def _compared_charge(index: int) -> Charge:
    def charge(values: Sequence[Value], _result: Value) -> int:
        compared = values[index]
        if not is_list(compared):
            # Go names the first method that the value lacks; values that can be added lack a different one.
            missing = "Contains" if type(compared) in _ADDABLE else "Add"
            raise Panic(_NO_LIST.format("*types.Err" if compared is ABSENT else go_type(compared), missing))
        length = size(compared)
        text = length > 0 and isinstance(compared[0], (str, bytes))
        return _made_charge(2.0 + TRAVERSAL if text else 2.0, length * length)

    return charge


_SLICE = Cost(_slice_estimate, _result_charge)
_FLATTEN = Cost(_flatten_estimate, _flatten_charge)
_RANGE = Cost(_range_estimate, _result_charge)
_REVERSE = Cost(_reverse_estimate, _result_charge)
_DISTINCT = Cost(_compared_estimate(2.0), _compared_charge(0))

_T = list_of(parameter("T"))


def _sorting(
    name: str, overload: str, call: Callable[..., Value], arguments: Callable[[Type], tuple[Type, ...]]
) -> Function:
    """Return a function that sorts by elements or keys of each ordered type."""
    overloads: list[Overload] = []
    for _, of in _ORDERED:
        types = arguments(of)
        factor = 2.0 + TRAVERSAL if of in (STRING, BYTES) else 2.0
        cost = Cost(_compared_estimate(factor), _compared_charge(len(types) - 1))
        overloads.append(
            member(overload.format(of.name), types, types[0], call, cost=cost, guarded=False),
        )
    return Function(name, tuple(overloads))


_RANGES = Function("lists.range", (function("lists_range", (INT,), list_of(INT), _range, cost=_RANGE),))
_RANGES_0_26 = Function("lists.range", (function("lists_range", (INT,), list_of(INT), _range_0_26, cost=_RANGE),))


def _extension(ranges: Function) -> Library:
    return Library(
        name="cel.lib.ext.lists",
        macros=(SORT_BY,),
        functions=(
            Function("slice", (member("list_slice", (_T, INT, INT), _T, _slice, cost=_SLICE),)),
            Function(
                "flatten",
                (
                    member("list_flatten", (list_of(_T),), _T, _flatten, cost=_FLATTEN, guarded=False),
                    member(
                        "list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten, cost=_FLATTEN, guarded=False
                    ),
                ),
            ),
            _sorting("sort", "list_{0}_sort", _sort, lambda of: (list_of(of),)),
            _sorting("@sortByAssociatedKeys", "list_{0}_sortByAssociatedKeys", _sort_by, lambda of: (_T, list_of(of))),
            ranges,
            Function("reverse", (member("list_reverse", (_T,), _T, _reverse, cost=_REVERSE),)),
            Function("distinct", (member("list_distinct", (_T,), _T, _distinct, cost=_DISTINCT),)),
        ),
    )


EXTENSION_V3 = _extension(_RANGES)
EXTENSION_V3_0_26 = _extension(_RANGES_0_26)
"""The library as cel-go 0.26 has it: a range has any size."""
