"""How making a program and evaluating it fail. The texts are cel-go's."""

from __future__ import annotations


class ProgramError(Exception):
    """An expression that is right in its types and that can nevertheless not be run: a constant that cannot be converted, a regex."""


class EvaluationError(Exception):
    """An error inside the language: `||`, `&&`, `?:` and the macros may absorb it. `cost` is what the evaluation cost until its end."""

    cost = 0


class CostExceeded(Exception):
    """The evaluation used up its budget. Nothing absorbs it. `cost` is what it cost until its end."""

    def __init__(self, cost: int = 0) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
        self.cost = cost


class Overspent(Exception):
    """The variables that an evaluation has asked for cost more than all may together. Nothing absorbs it, not even what asked."""


class Cancelled(Exception):
    """The caller stopped the evaluation. Nothing absorbs it."""

    def __init__(self) -> None:
        super().__init__("operation interrupted")


class Panic(Exception):
    """Upstream's program panics: no operator absorbs it, and it is the error of the whole evaluation (`internal error: …`)."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"internal error: {problem}")
