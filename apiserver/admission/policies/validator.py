"""Evaluate one ValidatingAdmissionPolicy on a change: a decision for each of its validations, and audit annotations.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/validating/{plugin,validator,policy_decision,errors}.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.admission.core.conditions import ConditionErrors, MatchConditions
from apiserver.admission.core.expressions import POLICY_BUDGET, Expression, Expressions, Result, Scope, Unevaluated
from apiserver.admission.core.variables import Variables
from apiserver.admission.policies.definitions import IGNORE
from kubecel.kubernetes.environments import COST_LIMIT
from kubecel.libraries.strings import SPACE
from kubecel.values.types import BOOL, NULL, STRING

INVALID = "Invalid"
MESSAGE_BYTES = 5 << 10
"""A longer result of a messageExpression is not used."""


class Decision(NamedTuple):
    """The result of a validation. Without `admits`, `message` and `reason` are those of the answer.

    `failed`: the expression could not be evaluated, and the failurePolicy decided.
    """

    admits: bool
    message: str = ""
    reason: str = ""
    failed: bool = False
    seconds: float = 0.0

    @property
    def error_type(self) -> str:
        """The error's label value in metrics."""
        if self.admits and not self.failed:
            return "no_error"
        if self.message.startswith("compilation"):
            return "compile_error"
        if self.message.startswith("validation failed due to running out of cost budget"):
            return "out_of_budget"
        return "invalid_error"


class Note(NamedTuple):
    """An audit annotation of a policy: a `value`, or an `error` that denies."""

    key: str
    value: str = ""
    error: str = ""
    seconds: float = 0.0


class Verdict(NamedTuple):
    """The results for one parameter. Decisions have the order of the validations; empty annotations are left out."""

    decisions: Sequence[Decision] = ()
    notes: Sequence[Note] = ()


_ADMITTED = Decision(admits=True)
_NOTHING = Verdict()


class _Validation(NamedTuple):
    condition: Expression
    message: str
    reason: str
    message_expression: Expression | None


class Validator:
    """One policy, compiled on first use."""

    def __init__(self, name: str, spec: Mapping[str, Any], expressions: Expressions) -> None:
        self._expressions = expressions
        self._ignores = spec.get("failurePolicy") == IGNORE
        variables = [(variable["name"], variable["expression"]) for variable in spec.get("variables") or ()]
        self.scope = scope = expressions.scope(params=bool(spec.get("paramKind")), variables=variables)
        self._validations = [
            _validation(scope, given, at=f"spec.validations[{i}]")
            for i, given in enumerate(spec.get("validations") or ())
        ]
        self._conditions = [validation.condition for validation in self._validations]
        self._messages = [validation.message_expression for validation in self._validations]
        notes = spec.get("auditAnnotations") or ()
        self._keys = [note["key"] for note in notes]
        self._values = [
            scope.expression(note["valueExpression"], STRING, NULL, at=f"spec.auditAnnotations[{i}].valueExpression")
            for i, note in enumerate(notes)
        ]
        self._matching = MatchConditions.of(
            spec.get("matchConditions"), expressions, name=name, kind="policy", step="validate", scope=scope
        )
        said = sum(message is not None for message in self._messages)
        self._most_for_messages = COST_LIMIT * (said + len(variables)) if said else 0
        """The cost limit of all messages, and of the variables that they use."""
        self._compiled = False

    async def compile(self) -> list[tuple[str, str]]:
        """Compile the expressions. The first call returns those that do not compile, with their errors; later ones return nothing."""
        if self._compiled:
            return []
        await self.scope.ready()
        self._compiled = True
        return self.scope.problems()

    async def judge(self, variables: Variables) -> Verdict:
        """Judge the change. The verdict is empty if the match conditions are false."""
        if self._matching is not None:
            try:
                if not await self._matching.judge(variables):
                    return _NOTHING
            except ConditionErrors as e:
                return self._failure(str(e))
        try:
            results, left = await self._expressions.evaluate(
                self.scope, self._conditions, variables, budget=POLICY_BUDGET
            )
        except Unevaluated as e:
            return self._failure(str(e))
        decisions = await self._decisions(results, variables, left)
        if not self._values:
            return Verdict(decisions)
        try:
            values, _ = await self._expressions.evaluate(
                self.scope, self._values, variables.without_authorizer(), budget=POLICY_BUDGET
            )
        except Unevaluated as e:
            return self._failure(str(e))
        return Verdict(decisions, [note for pair in zip(self._keys, values, strict=True) for note in self._note(*pair)])

    def _failure(self, why: str) -> Verdict:
        return Verdict([Decision(admits=self._ignores, message=why, failed=True)])

    async def _decisions(self, results: Sequence[Result], variables: Variables, left: int) -> list[Decision]:
        messages: Sequence[Result] | None = ()
        exceeded = ""
        if self._most_for_messages > left or not all(result.value is True for result in results):
            try:
                messages, _ = await self._expressions.evaluate(
                    self.scope, self._messages, variables.without_authorizer(), budget=left
                )
            except Unevaluated as e:
                exceeded = f"failed messageExpression: {e}"
        decisions = []
        for at, (validation, result) in enumerate(zip(self._validations, results, strict=True)):
            if result.problem or exceeded:
                decisions.append(
                    Decision(
                        admits=self._ignores, message=result.problem or exceeded, failed=True, seconds=result.seconds
                    )
                )
            elif result.value is True:
                decisions.append(_ADMITTED)
            else:
                said = messages[at] if messages else Result()
                decisions.append(
                    Decision(
                        admits=False,
                        message=_message(validation, said),
                        reason=validation.reason,
                        seconds=result.seconds,
                    )
                )
        return decisions

    def _note(self, key: str, result: Result) -> list[Note]:
        if result.problem:
            return [] if self._ignores else [Note(key, error=result.problem, seconds=result.seconds)]
        value = (result.value or "").strip(SPACE)
        return [Note(key, value)] if value else []


def _validation(scope: Scope, given: Mapping[str, Any], *, at: str) -> _Validation:
    said = given.get("messageExpression")
    return _Validation(
        condition=scope.expression(given["expression"], BOOL, at=f"{at}.expression"),
        message=(given.get("message") or "").strip(SPACE),
        reason=given.get("reason") or INVALID,
        message_expression=(
            scope.expression(said, STRING, authorizes=False, at=f"{at}.messageExpression") if said else None
        ),
    )


def _message(validation: _Validation, said: Result) -> str:
    """Return the expression's message if it is one line and short enough, else the fixed message, else the failed expression."""
    text = "" if said.problem or said.value is None else str(said.value).strip(SPACE)
    if "\n" in text or len(text.encode(errors="replace")) > MESSAGE_BYTES:
        text = ""
    return text or validation.message or f"failed expression: {validation.condition.text.strip(SPACE)}"
