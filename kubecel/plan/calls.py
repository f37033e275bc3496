"""Call functions and operators: closures that evaluate the arguments, call, and count the cost.

cel-go's errors are values. So after an argument fails, the others are evaluated and counted as well. Functions with
three or more or any number of arguments are the exception. Hence the `except` clauses below, which cost nothing when
nothing fails.
Upstream: google/cel-go `interpreter/{interpretable,runtimecost}.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from kubecel.plan.frames import COST, Frame, Node, Run, charged, counted, in_turn
from kubecel.values.errors import EvaluationError, Panic
from kubecel.values.values import ABSENT, Optional, UInt, Value, equal, size

# (values of a call, result) → cost. ABSENT stands for a value that could not be computed; its size is 1.
Cost = Callable[[Sequence[Value], Value], int]


def part(count: int) -> int:
    """Return the cost of reading so many characters or bytes (StringTraversalCostFactor), rounded up in double
    precision.
    """
    return math.ceil(count * 0.1)


# The same for short strings.
_PARTS = tuple(part(count) for count in range(512))


def _traversal(values: Sequence[Value], _: Value) -> int:
    return part(size(values[0]))


def _shorter(values: Sequence[Value], _: Value) -> int:
    return part(min(size(values[0]), size(values[1])))


def _both(values: Sequence[Value], _: Value) -> int:
    return part(size(values[0]) + size(values[1]))


def _product(values: Sequence[Value], _: Value) -> int:
    return part(size(values[0])) * part(size(values[1]))


def _matching(values: Sequence[Value], _: Value) -> int:
    return math.ceil((1.0 + size(values[0])) * 0.1) * math.ceil(size(values[1]) * 0.25)


def _elements(values: Sequence[Value], _: Value) -> int:
    return size(values[1])


# Costs by the id of the overload; all others cost 1 (runtimecost.go costCall).
COSTS: dict[str, Cost] = {
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "strings_quote",
            "string_format",
        ),
        _traversal,
    ),
    **dict.fromkeys(
        (
            f"{relation}_{kind}"
            for relation in ("less", "greater", "less_equals", "greater_equals")
            for kind in ("string", "bytes")
        ),
        _shorter,
    ),
    "in_list": _elements,
    "add_string": _both,
    "add_bytes": _both,
    "matches_string": _matching,
    "contains_string": _product,
}


def _evaluated(run: Run, f: Frame) -> Value:
    """Evaluate only for the cost and the size: return ABSENT on failure."""
    try:
        return run(f)
    except EvaluationError:
        return ABSENT


def unary(call: Callable[[Value], Value], argument: Node) -> Node:
    """Return a call that costs 1."""
    run = argument.run

    def apply(f: Frame) -> Value:
        return call(run(f))

    return Node(apply, argument.cost + 1)


def binary(call: Callable[[Value, Value], Value], one: Node, other: Node) -> Node:
    """Return a call that costs 1."""
    left, right = one.run, other.run
    cost = one.cost + other.cost + 1
    if other.is_constant:
        fixed = other.constant

        def with_constant(f: Frame) -> Value:
            return call(left(f), fixed)

        return Node(with_constant, cost)

    def apply(f: Frame) -> Value:
        try:
            value = left(f)
        except EvaluationError:
            _evaluated(right, f)
            raise
        return call(value, right(f))

    return Node(apply, cost)


def compared(
    call: Callable[[Value, Value], Value], integers: Callable[[int, int], bool], one: Node, limit: int
) -> Node:
    """Return a comparison with a constant integer. It is fast for integers; `call` compares all other values."""
    left = one.run

    def apply(f: Frame) -> Value:
        value = left(f)
        return integers(value, limit) if type(value) is int else call(value, limit)

    return Node(apply, one.cost + 1)


def added(call: Callable[[Value, Value], Value], one: Node, other: Node, cost: Cost | None) -> Node:
    """Return a call of `+` whose result may become large and is counted."""
    node = costing(call, (one, other), cost) if cost is not None else binary(call, one, other)
    run = node.run

    def apply(f: Frame) -> Value:
        return counted(f, run(f))

    return Node(apply, node.cost)


def costing(call: Callable[..., Value], arguments: Sequence[Node], cost: Cost) -> Node:
    """Return a call of one or two arguments whose cost depends on the values."""
    runs = [argument.run for argument in arguments]

    def apply(f: Frame) -> Value:
        values: list[Value] = []
        try:
            for run in runs:
                values.append(run(f))  # noqa: PERF401 - those before a failure count
        except EvaluationError:
            values.append(ABSENT)
            values += [_evaluated(run, f) for run in runs[len(values) :]]
            f[COST] += cost(values, ABSENT)
            raise
        return _called(f, call, values, cost)

    return Node(apply, sum(argument.cost for argument in arguments))


def variadic(call: Callable[..., Value], arguments: Sequence[Node], cost: Cost | None) -> Node:
    """Return a call of any number of arguments.

    It ends with the first argument that fails. It costs nothing then, unless that is the last argument.
    """
    runs, least = in_turn(arguments)
    last = len(runs) - 1

    def apply(f: Frame) -> Value:
        values: list[Value] = []
        try:
            for run in runs:
                values.append(run(f))  # noqa: PERF401
        except EvaluationError:
            if len(values) == last:
                f[COST] += cost([*values, ABSENT], ABSENT) if cost is not None else 1
            raise
        return _called(f, call, values, cost)

    return Node(apply, least)


def _called(f: Frame, call: Callable[..., Value], values: list[Value], cost: Cost | None) -> Value:
    try:
        result = call(*values)
    except EvaluationError:
        f[COST] += cost(values, ABSENT) if cost is not None else 1
        raise
    f[COST] += cost(values, result) if cost is not None else 1
    return counted(f, result)


def lenient(call: Callable[..., Value], arguments: Sequence[Node], cost: Cost | None) -> Node:
    """Return a call that receives errors as values."""
    runs = [argument.run for argument in arguments]

    def apply(f: Frame) -> Value:
        values: list[Value] = []
        for run in runs:
            try:
                values.append(run(f))
            except EvaluationError as error:
                values.append(error.with_traceback(None))
        return _called(f, call, values, cost)

    return Node(apply, sum(argument.cost for argument in arguments))


# Equality


def _equality_cost(one: Value, other: Value) -> int:
    return part(min(_measured(one), _measured(other)))


def _measured(value: Value) -> int:
    return len(value) if isinstance(value, (str, bytes, list, dict)) else size(value)


def equals(one: Node, other: Node, *, same: bool) -> Node:
    """Return `==` or `!=`.

    Values that a library cannot compare fail with `==` and are different with `!=`. Comparing the values of libraries
    with `==` costs 1, whatever their size (kubernetes/apiserver `pkg/cel/library/cost.go`).
    """
    left, right = one.run, other.run

    def apply(f: Frame) -> Value:
        try:
            value = left(f)
        except EvaluationError:
            against = _evaluated(right, f)
            f[COST] += _equality_cost(ABSENT, against)
            raise
        try:
            against = right(f)
        except EvaluationError:
            f[COST] += 1 if same and _of_library(value) else _equality_cost(value, ABSENT)
            raise
        f[COST] += 1 if same and _of_library(value) else _equality_cost(value, against)
        return equal(value, against) is same if same else not _known_equal(value, against)

    return Node(apply, one.cost + other.cost)


def _of_library(value: Value) -> bool:
    return hasattr(value, "cel_type") and type(value) is not Optional


def _known_equal(one: Value, other: Value) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def equals_string(one: Node, text: str, *, same: bool) -> Node:
    """Return the equality with a constant string that is not empty."""
    left, length = one.run, len(text)
    most = part(length)

    def apply(f: Frame) -> Value:
        try:
            value = left(f)
        except EvaluationError:
            f[COST] += 1
            raise
        if type(value) is str:
            count = len(value)
            f[COST] += most if count >= length else _PARTS[count] if count < 512 else part(count)
            return (value == text) is same
        f[COST] += 1 if same and _of_library(value) else _equality_cost(value, text)
        return equal(value, text) is same if same else not _known_equal(value, text)

    return Node(apply, one.cost)


# Logic


def logical(terms: Sequence[Node], *, until: bool) -> Node:
    """Return `&&` (until False) or `||` (until True) of any number of terms.

    The first error is the result unless a later term decides.
    """
    runs = [terms[0].run, *map(charged, terms[1:])]
    if len(runs) == 2:
        return Node(_pair(runs[0], runs[1], until=until), terms[0].cost)

    def apply(f: Frame) -> Value:
        failures: list[EvaluationError] = []
        for run in runs:
            try:
                value = run(f)
                if value is until:
                    return until
                if type(value) is not bool:
                    raise EvaluationError("no such overload")
            except EvaluationError as error:
                if not failures:
                    failures.append(error)
        if failures:
            # No local name may keep the error, whose traceback refers to this call.
            raise failures.pop()
        return not until

    return Node(apply, terms[0].cost)


def _pair(left: Run, right: Run, *, until: bool) -> Run:
    """Return two terms, the commonest case."""

    def apply(f: Frame) -> Value:
        try:
            value = left(f)
        except EvaluationError:
            if _evaluated(right, f) is until:
                return until
            raise
        if value is until:
            return until
        if type(value) is bool:
            value = right(f)
            if type(value) is bool:
                return value
        elif _evaluated(right, f) is until:
            return until
        raise EvaluationError("no such overload")

    return apply


def optional_or(one: Node, other: Node, *, unwrapped: bool, strict: bool) -> Node:
    """Return `or` or `orValue`, which cost nothing themselves. Unless `strict`, a value that is not optional is its own alternative."""
    left, right = one.run, charged(other)

    def apply(f: Frame) -> Value:
        value = left(f)
        if type(value) is not Optional:
            if strict:
                raise EvaluationError("no such overload")
            return value
        if value.has_value:
            return value.value if unwrapped else value
        return right(f)

    return Node(apply, one.cost)


def member_of(one: Node, elements: Sequence[Value]) -> Node:
    """Return `in` for a constant list of simple values. It costs no more than its operand (evalSetMembership)."""
    left = one.run
    if all(type(element) is str for element in elements):
        strings = frozenset(elements)

        def among_strings(f: Frame) -> Value:
            value = left(f)
            if type(value) is str:
                return value in strings
            _refuse_bytes(value)
            return False

        return Node(among_strings, one.cost)
    known = frozenset(pair for element in elements for pair in _found_by(element))

    def among(f: Frame) -> Value:
        value = left(f)
        _refuse_bytes(value)
        kind = type(value)
        return kind in PRIMITIVES and (kind, value) in known

    return Node(among, one.cost)


def _refuse_bytes(value: Value) -> None:
    if type(value) is bytes:
        raise Panic("runtime error: hash of unhashable type types.Bytes")


# Types of elements that can be looked up in a dict. Bytes are not: they cannot be keys in Go.
PRIMITIVES = frozenset((str, bool, int, UInt, float))


def _found_by(element: Value) -> Iterator[tuple[type, Value]]:
    """Yield the values that an element is equal to: itself, and the same number of other types."""
    kind = type(element)
    yield kind, element
    if kind is float and element.is_integer():
        if -(2**63) < element < 2**63:
            yield int, int(element)
        if 0 <= element < 2**64:
            yield UInt, int(element)
    elif kind is int:
        yield float, float(element)
        if element >= 0:
            yield UInt, element
    elif kind is UInt:
        yield float, float(element)
        if element < 2**63:
            yield int, int(element)
