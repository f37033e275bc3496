"""What one evaluation works on: its cost so far, its limits, and the values of variables in numbered slots.

A planned node is a closure over a frame. Cost that a node causes whatever becomes of it is not counted by its closure: it is the `cost` of
the node, which the node around it takes into its own, so that the whole of it is added in few places, mostly once. What is known to cost
only while evaluating is added there. So it does not matter when a limit is looked at, so long as it is while loops run and at the end. (A
chain of selections takes back what it did not come to, some units at most.)
Upstream: google/cel-go `interpreter/{interpreter,runtimecost}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubecel.values.errors import Cancelled, CostExceeded, EvaluationError
from kubecel.values.values import ABSENT, MAX_PRODUCED, Value

Frame = list[Any]
Run = Callable[[Frame], Value]

# The first slots of a frame: the cost so far, the cost at which to pause next, the limit of cost, what says whether the caller has lost
# interest, and how much has been produced.
COST, PAUSE, LIMIT, CANCELLED, PRODUCED, FIRST = range(6)

# A caller is asked after so much cost: every iteration of a loop costs 3 at least, and upstream asks after 100 of them.
_INTERVAL = 300


class Node:
    """A planned node: what evaluates it, what that costs in any case, and its value when that is a constant."""

    __slots__ = ("constant", "cost", "run")

    def __init__(self, run: Run, cost: int = 0, constant: Value = ABSENT) -> None:
        self.run = run
        self.cost = cost
        self.constant = constant

    @property
    def is_constant(self) -> bool:
        """Whether the value is known before any evaluation."""
        return self.constant is not ABSENT


class Failure:
    """What a slot holds whose value could not be computed. Whoever reads it fails so, too."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


def constant(value: Value) -> Node:
    """A node that costs nothing."""
    return Node(lambda _: value, 0, value)


def charged(node: Node) -> Run:
    """A closure that counts the whole cost of a node: for those that are evaluated only sometimes."""
    run, cost = node.run, node.cost
    if not cost:
        return run

    def charging(f: Frame) -> Value:
        f[COST] += cost
        return run(f)

    return charging


def in_turn(nodes: Sequence[Node]) -> tuple[list[Run], int]:
    """Closures of nodes that are evaluated until one fails: the first counts what it costs as part of the cost given, each other itself."""
    return [node.run if index == 0 else charged(node) for index, node in enumerate(nodes)], nodes[
        0
    ].cost if nodes else 0


def pause(f: Frame) -> None:
    """End the evaluation if its budget is used up or its caller has lost interest; else go on until the next pause."""
    if f[COST] > f[LIMIT]:
        raise CostExceeded
    cancelled = f[CANCELLED]
    if cancelled is not None:
        if cancelled():
            raise Cancelled
        f[PAUSE] = min(f[LIMIT], f[COST] + _INTERVAL)


# Results up to so many characters, bytes or elements are not counted.
_SMALL = 4096


def counted(f: Frame, value: Value) -> Value:
    """A result, counted by what it occupies if it is large. All together end the evaluation when they are too much."""
    if isinstance(value, (str, bytes, list)) and len(value) > _SMALL:
        f[PRODUCED] += len(value) * _width(value)
        if f[PRODUCED] > MAX_PRODUCED or f[COST] > f[LIMIT]:
            raise CostExceeded
    return value


def _width(value: str | bytes | list[Value]) -> int:
    """Bytes of a character or element, at most."""
    if isinstance(value, list):
        return 8
    return 4 if isinstance(value, str) and not value.isascii() else 1
