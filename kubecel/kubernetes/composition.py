"""Evaluate `variables.x`: expressions that use the results of others. Each is evaluated at its first read, once.

Upstream: kubernetes/apiserver `pkg/admission/plugin/cel/composition.go`, `pkg/cel/lazy/lazy.go`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping

from kubecel.check.declarations import Shape
from kubecel.kubernetes.schemas import unescape
from kubecel.plan.frames import Failure
from kubecel.plan.program import Program
from kubecel.values.errors import Cancelled, CostExceeded, EvaluationError, Overspent
from kubecel.values.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Kind,
    Type,
    list_of,
    map_of,
)
from kubecel.values.values import ABSENT, MapView, Value

_UNBOUNDED = 2**64 - 1
_KEPT = frozenset((ANY, BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT))


def shape_of(of: Type | None) -> Shape:
    """Return the shape of a variable whose expression has this type; None if the expression does not compile.

    Objects and the types of libraries have no fields here (convertCelTypeToDeclType).
    """
    if of is not None and of in _KEPT:
        return Shape(type=of)
    if of is not None and of.kind is Kind.LIST:
        items = shape_of(of.parameters[0])
        return Shape(type=list_of(items.type), items=items, max_elements=_UNBOUNDED)
    if of is not None and of.kind is Kind.MAP:
        keys, items = map(shape_of, of.parameters)
        return Shape(type=map_of(keys.type, items.type), keys=keys, items=items, max_elements=_UNBOUNDED)
    return Shape(type=DYN)


class Composed(MapView):
    """The value of `variables`: the results of named programs, which may read each other.

    A program that does not compile is replaced by its error. `bindings` is the mapping with which the programs are
    evaluated; it contains this object as `variables`. `cost` is the cost of the programs so far, which is not part of
    the reader's cost. A cost above `budget` raises Overspent. An evaluation that `cancelled` ends with an exception of
    its own has no effect, and is repeated at the next read.

    This object does not keep `bindings`, because `bindings` keeps it: a cycle would hold large objects until the
    garbage collector finds it.
    """

    __slots__ = ("_programs", "_results", "_variables", "budget", "cancelled", "cost")

    def __init__(
        self,
        programs: Mapping[str, Program | str],
        variables: Mapping[str, Value],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._programs = programs
        self._variables = variables
        self._results: dict[str, Value] = {}
        self.cancelled = cancelled
        self.cost = 0
        self.budget: float = math.inf

    @property
    def bindings(self) -> Mapping[str, Value]:
        """Return a new mapping with the variables of an expression that may read these."""
        return {**self._variables, "variables": self}

    def take_cost(self) -> int:
        """Return the cost since the last call."""
        cost, self.cost = self.cost, 0
        return cost

    def find(self, key: Value) -> Value:
        if type(key) is not str:
            raise EvaluationError("no such overload")
        name = unescape(key)
        if name is None or name not in self._programs:
            return ABSENT
        if name not in self._results:
            self._results[name] = self._evaluated(name, self._programs[name])
        result = self._results[name]
        if type(result) is Failure:
            result = None
            raise self._results[name].error
        return result

    def _evaluated(self, name: str, program: Program | str) -> Value:
        if isinstance(program, str):
            return _failure(name, f"fails to compile: {program}")
        problem = ""
        value: Value = None
        try:
            value, cost = program.evaluate(self.bindings, cancelled=self.cancelled)
        except (EvaluationError, CostExceeded) as error:
            problem, cost = str(error), error.cost
        except Cancelled as error:
            problem, cost = str(error), 0
        self.cost += cost
        if self.cost > self.budget:
            raise Overspent
        return _failure(name, f"fails to evaluate: {problem}") if problem else value

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._programs)

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Composed):
            raise EvaluationError("no such overload")
        return self is other


def _failure(name: str, problem: str) -> Failure:
    return Failure(EvaluationError(f"composited variable {json.dumps(name)} {problem}"))
