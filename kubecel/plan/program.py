"""Compiled expressions.

Upstream: google/cel-go `cel/program.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kubecel.check.checker import Checked
from kubecel.check.environment import Environment
from kubecel.parse.recursion import SHALLOW, deep_stack, height
from kubecel.plan.frames import CANCELLED, COST, LIMIT, PAUSE, PRODUCED, Frame, pause
from kubecel.plan.planner import Planner
from kubecel.values.errors import CostExceeded, EvaluationError, Panic
from kubecel.values.values import ABSENT, Value


class Outcome(NamedTuple):
    """The result of an evaluation, and its cost."""

    value: Value
    cost: int


class Program:
    """A compiled expression. Any number of threads can evaluate it any number of times.

    `cost_limit` limits one evaluation. `asks` has the names of the variables that it may read. Raises ProgramError when
    a constant of the expression is wrong.
    """

    def __init__(self, checked: Checked, environment: Environment, *, cost_limit: int | None = None) -> None:
        expr = checked.ast.expr
        self._levels = height(expr)
        planner = Planner(checked, environment)
        if self._levels > SHALLOW:
            with deep_stack(self._levels):
                node = planner.plan(expr)
        else:
            node = planner.plan(expr)
        limit = float("inf") if cost_limit is None else cost_limit
        self._run = node.run
        self.asks = frozenset(planner.names)
        self._variables = tuple(planner.names.items())
        self._frame: Frame = [ABSENT] * planner.slots
        self._frame[COST] = node.cost
        self._frame[LIMIT] = self._frame[PAUSE] = limit
        self._frame[CANCELLED] = None
        self._frame[PRODUCED] = 0

    def evaluate(self, variables: Mapping[str, Value], *, cancelled: Callable[[], bool] | None = None) -> Outcome:
        """Return the value of the expression. A variable may be Lazy. `cancelled` is called now and then.

        Raises EvaluationError or CostExceeded, each with its `cost`, and Cancelled when `cancelled` returns True.
        """
        if self._levels > SHALLOW:
            with deep_stack(self._levels):
                return self._evaluate(variables, cancelled)
        return self._evaluate(variables, cancelled)

    def _evaluate(self, variables: Mapping[str, Value], cancelled: Callable[[], bool] | None) -> Outcome:
        frame = self._frame.copy()
        for name, slot in self._variables:
            frame[slot] = variables.get(name, ABSENT)
        if cancelled is not None:
            frame[CANCELLED] = cancelled
            frame[PAUSE] = 0
        try:
            value = self._run(frame)
            if frame[COST] > frame[LIMIT]:
                pause(frame)
            return Outcome(value, frame[COST])
        except EvaluationError as error:
            error.cost = frame[COST]
            if frame[COST] > frame[LIMIT]:
                raise CostExceeded(frame[COST]) from None
            raise
        except CostExceeded as error:
            error.cost = frame[COST]
            raise
        except Panic as panic:
            failure = EvaluationError(str(panic))
            failure.cost = frame[COST]
            raise failure from None
        finally:
            # A failure in a slot refers to the frame by its traceback.
            frame.clear()
