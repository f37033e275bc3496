"""Match conditions: decide whether a webhook or policy runs at all.

Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/matchconditions/matcher.go`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.expressions import CONDITIONS_BUDGET, Expressions, Scope, Unevaluated
from apiserver.admission.core.matching import Match
from apiserver.admission.core.variables import Variables
from kubecel.values.types import BOOL


class ConditionErrors(Exception):
    """Some conditions could not be evaluated, and no other one is false. The text is upstream's of all errors."""

    def __init__(self, texts: Sequence[str]) -> None:
        different = list(dict.fromkeys(texts))
        super().__init__(different[0] if len(different) == 1 else f"[{', '.join(different)}]")
        self.texts = tuple(texts)


class MatchConditions:
    """The conditions of one webhook or policy.

    `labels` are its name, kind ("webhook", "policy") and step ("admit", "validating", "validate") in metrics. `at` is the conditions'
    path.
    """

    def __init__(
        self, conditions: Iterable[Mapping[str, Any]], expressions: Expressions, scope: Scope, *labels: str, at: str
    ) -> None:
        self._expressions = expressions
        self._scope = scope
        self._conditions = [
            scope.expression(condition["expression"], BOOL, at=f"{at}[{i}].expression")
            for i, condition in enumerate(conditions)
        ]
        self._labels = labels

    @classmethod
    def of(
        cls,
        conditions: Iterable[Mapping[str, Any]] | None,
        expressions: Expressions,
        *,
        name: str,
        kind: str,
        step: str,
        scope: Scope | None = None,
        at: str = "spec.matchConditions",
    ) -> MatchConditions | None:
        """Make the conditions of the member `matchConditions`; None without any. `scope` is that of a policy."""
        found = list(conditions or ())
        return cls(found, expressions, scope or expressions.scope(), name, kind, step, at=at) if found else None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(condition.text for condition in self._conditions)

    async def problems(self) -> list[tuple[str, str]]:
        """Return the conditions that do not compile, with their errors."""
        await self._scope.ready()
        return self._scope.problems()

    async def matches(self, attributes: Attributes, match: Match) -> bool:
        """Return whether no condition is false. Raises ConditionErrors if none is false but some cannot be evaluated."""
        return await self.judge(Variables(attributes, match))

    async def judge(self, variables: Variables) -> bool:
        """Evaluate the conditions with existing variables, like `matches`."""
        labels, started = (*self._labels, variables.attributes.operation), time.perf_counter()
        try:
            return await self._judged(variables.for_conditions(), labels)
        finally:
            metrics.MATCH_CONDITION_SECONDS.labels(*labels).observe(time.perf_counter() - started)

    async def _judged(self, variables: Variables, labels: Sequence[str]) -> bool:
        try:
            results, _ = await self._expressions.evaluate(
                self._scope, self._conditions, variables, budget=CONDITIONS_BUDGET
            )
        except Unevaluated as e:
            raise ConditionErrors([str(e)]) from None
        problems = []
        for result in results:
            if result.problem:
                problems.append(result.problem)
                metrics.MATCH_CONDITION_ERRORS.labels(*labels).inc()
            elif result.value is False:
                return False
        if problems:
            raise ConditionErrors(problems)
        return True
