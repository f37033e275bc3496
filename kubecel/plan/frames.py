"""The state of one evaluation: its cost so far, its limits, and its variables in numbered slots.

A planned node is a closure over a frame. The closure does not count the cost that a node always has. That is the `cost`
of the node, and the parent adds it to its own. So the fixed cost is added in few places, mostly once. A closure counts
only the cost that depends on the evaluation. It is enough to check the limit in loops and at the end. (A chain of
selections subtracts the cost of steps that it did not reach, some units at most.)
Upstream: google/cel-go `interpreter/{interpreter,runtimecost}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubecel.values.errors import Cancelled, CostExceeded, EvaluationError
from kubecel.values.values import ABSENT, MAX_PRODUCED, Value

Frame = list[Any]
Run = Callable[[Frame], Value]

# The first slots of a frame: the cost so far, the cost of the next pause, the cost limit, the `cancelled` callback, and
# the size of the results so far.
COST, PAUSE, LIMIT, CANCELLED, PRODUCED, FIRST = range(6)

# The cost between two calls of `cancelled`. An iteration of a loop costs at least 3, and upstream checks after 100 of
# them.
_INTERVAL = 300


class Node:
    """A planned node: its closure, the cost that it always has, and its value if it is constant."""

    __slots__ = ("constant", "cost", "run")

    def __init__(self, run: Run, cost: int = 0, constant: Value = ABSENT) -> None:
        self.run = run
        self.cost = cost
        self.constant = constant

    @property
    def is_constant(self) -> bool:
        """Return whether the value is known before any evaluation."""
        return self.constant is not ABSENT


class Failure:
    """The content of a slot whose value could not be computed. Reading it raises the error."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


def constant(value: Value) -> Node:
    """Return a node that costs nothing."""
    return Node(lambda _: value, 0, value)


def charged(node: Node) -> Run:
    """Return a closure that counts the whole cost of a node, for nodes that are evaluated conditionally."""
    run, cost = node.run, node.cost
    if not cost:
        return run

    def charging(f: Frame) -> Value:
        f[COST] += cost
        return run(f)

    return charging


def in_turn(nodes: Sequence[Node]) -> tuple[list[Run], int]:
    """Return closures of nodes that are evaluated until one fails, and the cost of the first.

    Each other closure counts its own cost.
    """
    return [node.run if index == 0 else charged(node) for index, node in enumerate(nodes)], nodes[
        0
    ].cost if nodes else 0


def pause(f: Frame) -> None:
    """End the evaluation if its budget is used up or its caller cancelled it; else set the next pause."""
    if f[COST] > f[LIMIT]:
        raise CostExceeded
    cancelled = f[CANCELLED]
    if cancelled is not None:
        if cancelled():
            raise Cancelled
        f[PAUSE] = min(f[LIMIT], f[COST] + _INTERVAL)


# Smaller results, in characters, bytes or elements, are not counted.
_SMALL = 4096


def counted(f: Frame, value: Value) -> Value:
    """Count a result by its size if it is large. The evaluation ends when all results together reach their limit."""
    if isinstance(value, (str, bytes, list)) and len(value) > _SMALL:
        f[PRODUCED] += len(value) * _width(value)
        if f[PRODUCED] > MAX_PRODUCED or f[COST] > f[LIMIT]:
            raise CostExceeded
    return value


def _width(value: str | bytes | list[Value]) -> int:
    """Return the greatest size of a character or element in bytes."""
    if isinstance(value, list):
        return 8
    return 4 if isinstance(value, str) and not value.isascii() else 1
