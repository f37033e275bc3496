"""`variables.x`: expressions that use the results of others, each evaluated when it is first asked for and once.

Upstream: kubernetes/apiserver `pkg/admission/plugin/cel/composition.go`, `pkg/cel/lazy/lazy.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from apiserver.cel.errors import Cancelled, CostExceeded, EvaluationError
from apiserver.cel.frames import Failure
from apiserver.cel.program import Program
from apiserver.cel.schemas import unescape
from apiserver.cel.values import ABSENT, MapView, Value


class Composed(MapView):
    """The value of `variables` for one set of variables: the results of named programs, which may ask for each other.

    `bindings` is the mapping that the programs are evaluated with, and has this as its `variables`. `cost` is what they cost so far: that
    is not part of the cost of the expression that asks.
    """

    __slots__ = ("_bindings", "_cancelled", "_programs", "_results", "cost")

    def __init__(
        self,
        programs: Mapping[str, Program],
        variables: Mapping[str, Value],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._programs = programs
        self._bindings = {**variables, "variables": self}
        self._cancelled = cancelled
        self._results: dict[str, Value] = {}
        self.cost = 0

    @property
    def bindings(self) -> Mapping[str, Value]:
        """The variables of an expression that may ask."""
        return self._bindings

    def find(self, key: Value) -> Value:
        if type(key) is not str:
            raise EvaluationError("no such overload")
        name = unescape(key)
        if name is None or name not in self._programs:
            return ABSENT
        if name not in self._results:
            self._results[name] = self._evaluated(name)
        result = self._results[name]
        if type(result) is Failure:
            result = None
            raise self._results[name].error
        return result

    def _evaluated(self, name: str) -> Value:
        try:
            outcome = self._programs[name].evaluate(self._bindings, cancelled=self._cancelled)
        except EvaluationError as error:
            self.cost += error.cost
            problem = str(error)
        except (CostExceeded, Cancelled) as error:
            problem = str(error)
        else:
            self.cost += outcome.cost
            return outcome.value
        return Failure(EvaluationError(f"composited variable {json.dumps(name)} fails to evaluate: {problem}"))

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._programs)

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Composed):
            raise EvaluationError("no such overload")
        return self is other
