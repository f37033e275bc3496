"""Run comprehensions: loops over lists and maps.

The expansion of a macro is recognised by its shape and runs as a specialised loop. An error in one step becomes the
value of the accumulator, and the loop continues, since a later step may decide without it. An iteration costs the sum
of its condition and its step: reading the accumulator 1, `@not_strictly_false` 1, and so on.
Upstream: google/cel-go `interpreter/interpretable.go` evalFold, `parser/macro.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kubecel.plan.frames import COST, PAUSE, Failure, Frame, Node, Run, counted, pause
from kubecel.values.errors import EvaluationError
from kubecel.values.operators import MutableList, MutableMap
from kubecel.values.values import ABSENT, Value, find_key, go_type, is_list, is_map


def elements(value: Value) -> Iterator[Value]:
    """Yield the items of a loop with one variable: elements of a list, keys of a map."""
    if not is_list(value) and not is_map(value):
        raise EvaluationError(f"got '{go_type(value)}', expected iterable type")
    return iter(value)


def entries(value: Value) -> Iterator[tuple[Value, Value]]:
    """Yield the items of a loop with two variables: indices and elements of a list, keys and values of a map."""
    if is_list(value):
        return iter(enumerate(value))
    if is_map(value):
        return ((key, find_key(value, key)) for key in value)
    raise EvaluationError(f"unsupported comprehension range type: {go_type(value)}")


def quantifier(over: Node, slot: int, predicate: Node, *, until: bool) -> Node:
    """Return `all` (until False) or `exists` (until True). Errors of the predicate are dropped when an element decides."""
    source, test = over.run, predicate.run
    # The condition reads the accumulator, negates it for `exists`, and tests whether it is not strictly false. The step
    # reads it again.
    condition = 3 if until else 2
    iteration = condition + 1 + predicate.cost

    def run(f: Frame) -> Value:
        failures: list[EvaluationError] = []
        items = elements(source(f))
        for item in items:
            f[slot] = item
            f[COST] += iteration
            try:
                value = test(f)
                if value is until:
                    f[COST] += 1 if next(items, ABSENT) is ABSENT else condition + 1
                    return until
                if type(value) is not bool:
                    raise EvaluationError("no such overload")
            except EvaluationError as error:
                _keep_first(failures, error)
            if f[COST] > f[PAUSE]:
                pause(f)
        f[COST] += 1
        if failures:
            raise failures.pop()
        return not until

    return Node(run, over.cost)


def _keep_first(failures: list[EvaluationError], error: EvaluationError) -> None:
    if not failures:
        failures.append(error)


def transformer(over: Node, slot: int, predicate: Node | None, element: Node, *, creation: int) -> Node:
    """Return `map` or `filter`: a list of `element` for each item that satisfies the predicate.

    `creation` is the cost of a list with one element.
    """
    source, test, make = over.run, None if predicate is None else predicate.run, element.run
    iteration = 0 if predicate is None else predicate.cost
    # The step reads the accumulator, makes a list and adds the two.
    growth = 2 + creation + element.cost

    def run(f: Frame) -> Value:
        failures: list[EvaluationError] = []
        made: list[Value] = []
        for item in elements(source(f)):
            f[slot] = item
            f[COST] += iteration
            if f[COST] > f[PAUSE]:
                pause(f)
            try:
                if test is not None and not _holds(test(f)):
                    continue
            except EvaluationError as error:
                # The error of the predicate replaces the accumulator, whatever its value.
                failures[:] = [error]
                continue
            f[COST] += growth
            try:
                made.append(make(f))
            except EvaluationError as error:
                _keep_first(failures, error)
            if f[COST] > f[PAUSE]:
                pause(f)
        f[COST] += 1
        if failures:
            raise failures.pop()
        return counted(f, made)

    return Node(run, over.cost)


def _holds(value: Value) -> bool:
    if type(value) is bool:
        return value
    raise EvaluationError("no such overload")


def counter(over: Node, slot: int, predicate: Node) -> Node:
    """Return `exists_one`: whether exactly one element satisfies the predicate. Any error is the result."""
    source, test = over.run, predicate.run
    iteration = predicate.cost

    def run(f: Frame) -> Value:
        failures: list[EvaluationError] = []
        count = 0
        for item in elements(source(f)):
            f[slot] = item
            f[COST] += iteration
            try:
                if _holds(test(f)):
                    count += 1
                    f[COST] += 2
            except EvaluationError as error:
                failures[:] = [error]
            if f[COST] > f[PAUSE]:
                pause(f)
        f[COST] += 2
        if failures:
            raise failures.pop()
        return count == 1

    return Node(run, over.cost)


def binding(slot: int, result: Node) -> Node:
    """Return `cel.bind` or `optMap`: a variable for `result`, computed at its first read (attributes.accumulator)."""
    run = result.run

    def bind(f: Frame) -> Value:
        f[slot] = ABSENT
        return run(f)

    return Node(bind, result.cost)


def growing(init: Run) -> Run:
    """Return the initial accumulator. An empty list or map becomes one that grows in place."""

    def run(f: Frame) -> Value:
        value = init(f)
        if is_list(value) and not len(value):
            return MutableList()
        if is_map(value) and not len(value):
            return MutableMap()
        return value

    return run


class Fold(NamedTuple):
    """The parts of a comprehension of any shape, with the slots of its variables.

    `second` is None with one variable.
    """

    over: Node
    first: int
    second: int | None
    accumulator: int
    init: Run
    condition: Run
    step: Run
    result: Run


def general(fold: Fold) -> Node:
    """Return a comprehension of any shape."""
    source, first, second, accumulator = fold.over.run, fold.first, fold.second, fold.accumulator
    init, condition, step, result = growing(fold.init), fold.condition, fold.step, fold.result
    pairs: Callable[[Value], Iterator[Value]] = elements if second is None else entries

    def run(f: Frame) -> Value:
        items = pairs(source(f))
        f[accumulator] = init(f)
        for item in items:
            if second is None:
                f[first] = item
            else:
                f[first], f[second] = item
            try:
                if condition(f) is False:
                    break
            except EvaluationError:
                pass
            try:
                f[accumulator] = step(f)
            except EvaluationError as error:
                f[accumulator] = Failure(error.with_traceback(None))
            if f[COST] > f[PAUSE]:
                pause(f)
        return _frozen(result(f))

    return Node(run, fold.over.cost)


def _frozen(value: Value) -> Value:
    """Return an immutable result."""
    if type(value) is MutableList:
        return list(value)
    return value.plain() if type(value) is MutableMap else value
