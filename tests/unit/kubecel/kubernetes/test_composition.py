from __future__ import annotations

import gc
import weakref

import pytest

from kubecel.check.declarations import Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes.composition import Composed
from kubecel.libraries import standard
from kubecel.plan.program import Program
from kubecel.values import types
from kubecel.values.errors import EvaluationError

ENVIRONMENT = Environment().extend(
    libraries=(standard.LIBRARY,), variables=(Variable("object", types.DYN), Variable("variables", types.DYN))
)


def program(text: str) -> Program:
    return Program(ENVIRONMENT.compile(text), ENVIRONMENT)


def composed(**texts: str) -> Composed:
    return Composed({name: program(text) for name, text in texts.items()}, {"object": {"a": 2}})


def test_variables_are_evaluated_when_they_are_asked_for_and_once() -> None:
    variables = composed(
        double="object.a * 2", square="variables.double * variables.double", wrong="1 / (object.a - 2)"
    )
    outcome = program("variables.square + variables.square").evaluate(variables.bindings)
    # Two selections and a sum are the expression's own; `square` cost 5, `double` 3.
    assert (outcome.value, outcome.cost, variables.cost) == (32, 5, 8)


def test_failing_variable_fails_every_expression_that_uses_it() -> None:
    variables = composed(wrong="1 / (object.a - 2)", uses="variables.wrong == 1 || true")
    assert program("variables.uses").evaluate(variables.bindings).value is True
    with pytest.raises(EvaluationError, match=r'^composited variable "wrong" fails to evaluate: division by zero$'):
        program("variables.wrong").evaluate(variables.bindings)


def test_a_variable_that_there_is_not_is_missing() -> None:
    with pytest.raises(EvaluationError, match=r"^no such key: other$"):
        program("variables.other").evaluate(composed(a="1").bindings)


class _Object(dict[str, int]):
    """That can be referred to weakly."""


def test_inputs_of_expressions_are_freed_with_them_without_a_collection() -> None:
    seen = _Object(a=2)
    gone = weakref.ref(seen)
    gc.disable()
    try:
        variables = Composed({"double": program("object.a * 2")}, {"object": seen})
        assert program("variables.double").evaluate(variables.bindings).value == 4
        del variables, seen
        assert gone() is None
    finally:
        gc.enable()
