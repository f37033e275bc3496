"""Errors of programs and evaluations, with cel-go's messages."""

from __future__ import annotations


class ProgramError(Exception):
    """The expression has correct types, but a constant is invalid: a failed conversion, or a malformed regular
    expression.
    """


class EvaluationError(Exception):
    """An error inside the language: `||`, `&&`, `?:` and macros may absorb it. `cost` is the cost of the evaluation."""

    cost = 0


class CostExceeded(Exception):
    """The evaluation reached its cost limit. Nothing absorbs this error. `cost` is the cost of the evaluation."""

    def __init__(self, cost: int = 0) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
        self.cost = cost


class Overspent(Exception):
    """The variables of an evaluation exceeded their common budget. Nothing absorbs this error, not even their reader."""


class Cancelled(Exception):
    """The caller stopped the evaluation. Nothing absorbs this error."""

    def __init__(self) -> None:
        super().__init__("operation interrupted")


class Panic(Exception):
    """Upstream's program panics. No operator absorbs it: the evaluation fails with `internal error: …`."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"internal error: {problem}")
