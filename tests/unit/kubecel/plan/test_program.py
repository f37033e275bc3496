from __future__ import annotations

import contextlib
import gc
import sys
from typing import Any

import pytest

from kubecel.check.declarations import Variable
from kubecel.check.environment import Environment
from kubecel.libraries import optionals, standard
from kubecel.parse import macros
from kubecel.plan.program import Outcome, Program
from kubecel.values import types
from kubecel.values.errors import Cancelled, CostExceeded, EvaluationError, ProgramError
from kubecel.values.values import Lazy

ENVIRONMENT = Environment().extend(
    libraries=[standard.LIBRARY, optionals.LIBRARY],
    macros=(*macros.STANDARD, *macros.OPTIONAL, *macros.BINDINGS, *macros.COMPREHENSIONS),
    variables=[Variable("object", types.DYN), Variable("other", types.DYN)],
    cross_type_numeric_comparisons=True,
    free_presence_tests=True,
)


def program(text: str, *, cost_limit: int | None = None) -> Program:
    return Program(ENVIRONMENT.compile(text), ENVIRONMENT, cost_limit=cost_limit)


def evaluate(text: str, **variables: Any) -> Outcome:
    return program(text).evaluate(variables)


def test_an_expression_has_a_value_and_a_cost() -> None:
    assert evaluate("object.a.b + 1", object={"a": {"b": 2}}) == (3, 4)


def test_an_error_says_what_it_cost() -> None:
    with pytest.raises(EvaluationError, match=r"^no such key: b$") as failed:
        evaluate("object.a.b.c == 1", object={"a": {}})
    assert failed.value.cost == 4


def test_a_program_may_be_wrong_in_its_constants() -> None:
    with pytest.raises(ProgramError, match=r"^type conversion error from 'string' to 'int'$"):
        program("int('x')")


def test_a_missing_variable_is_an_error_only_when_it_is_needed() -> None:
    assert evaluate("true || other.x").value is True
    with pytest.raises(EvaluationError, match=r"^no such attribute\(s\): other$"):
        evaluate("other.x")


def test_a_lazy_variable_is_computed_once_and_only_when_it_is_read() -> None:
    asked = []

    def answer() -> Any:
        asked.append(1)
        return {"x": 1}

    lazy = Lazy(answer)
    assert evaluate("true || other.x == 1", other=lazy).value is True
    assert asked == []
    assert evaluate("other.x + other.x", other=lazy).value == 2
    assert asked == [1]


def test_the_budget_stops_an_evaluation_inside_a_loop() -> None:
    loop = program("object.all(a, object.all(b, a + b >= 0))", cost_limit=1000)
    with pytest.raises(CostExceeded, match=r"^operation cancelled: actual cost limit exceeded$"):
        loop.evaluate({"object": list(range(100_000))})


def test_the_budget_may_be_used_up_to_its_end() -> None:
    assert program("1 + object", cost_limit=2).evaluate({"object": 1}) == (2, 2)
    with pytest.raises(CostExceeded):
        program("1 + object", cost_limit=1).evaluate({"object": 1})


def test_a_caller_that_has_lost_interest_stops_an_evaluation() -> None:
    answers = iter([False, False, True])
    loop = program("object.all(a, a >= 0)")
    with pytest.raises(Cancelled, match=r"^operation interrupted$"):
        loop.evaluate({"object": list(range(100_000))}, cancelled=lambda: next(answers))


def nested(inner: str, wrap: str, levels: int) -> str:
    """An expression inside `levels` others; `#` in `wrap` is the number of the level, `…` what is inside."""
    for level in range(levels):
        inner = wrap.replace("#", str(level)).replace("…", inner)
    return inner


@pytest.mark.parametrize(
    ("inner", "wrap", "levels"),
    [
        ("1", "[…]", 200),
        ("1", "(1 + …)", 110),
        ("1", "cel.bind(v#, object, …)", 110),
        ("1", "[1].map(v#, …)", 110),
        ("true", "[1].all(v#, …)", 110),
        ("1", "[1].transformList(k#, v#, …)", 110),
        ("1", "optional.of(1).optMap(v#, …)", 110),
        ("1", "[…][0]", 110),
    ],
)
def test_parsed_expression_is_evaluated_at_any_depth(inner: str, wrap: str, levels: int) -> None:
    limit = sys.getrecursionlimit()
    evaluate(nested(inner, wrap, levels), object=1)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("start", ["'ab'", "dyn('ab')", "b'ab'", "[1, 2]", "dyn([1, 2])"])
def test_repeated_doubling_ends_before_the_value_is_large(start: str) -> None:
    doubled = "0"
    for level in range(60, 0, -1):
        doubled = f"cel.bind(v{level}, v{level - 1} + v{level - 1}, {doubled} + size(v{level}))"
    with pytest.raises(CostExceeded):
        evaluate(f"cel.bind(v0, {start}, {doubled})")


def test_an_error_that_is_kept_for_later_keeps_nothing_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        for text in (
            "object.transformList(k, v, 1 / v)",
            "object.map(v, 1 / v)",
            "object.filter(v, 1 / v > 0)",
            "object.all(v, 1 / v > 0) || object.exists(v, 1 / v > 0) || 1 / 0 == 1",
            "cel.bind(x, 1 / 0, x + x)",
        ):
            with contextlib.suppress(EvaluationError):
                evaluate(text, object=[0] * 10)
        kept = [found for found in gc.get_objects() if isinstance(found, EvaluationError)]
    finally:
        gc.enable()
    assert kept == []
