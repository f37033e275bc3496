"""How an evaluation fails."""

from __future__ import annotations


class EvaluationError(Exception):
    """An error inside the language: `||`, `&&`, `?:` and the macros may absorb it. Its text is cel-go's."""


class CostExceeded(Exception):
    """The evaluation used up its budget: `operation cancelled: actual cost limit exceeded`. Nothing absorbs it."""


class Cancelled(Exception):
    """The caller stopped the evaluation: `operation interrupted`. Nothing absorbs it."""
