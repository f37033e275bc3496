"""Results of the same expressions in Kubernetes 1.36 and in 1.37, as policies of kube-apiserver 1.36.3 and 1.37.2 evaluate it."""

from __future__ import annotations

import pytest

from kubecel.kubernetes import environments
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.values import Value

RELEASES = ((1, 36), (1, 37))
OBJECT = {"metadata": {"name": "judged", "labels": {"app": "web"}}, "data": {"text": "a"}}
NO_SELECTION = "type 'string' does not support field selection"
NO_DURATION = "found no matching overload for 'duration' applied to '(int)'"
NO_BACKTICK = "unsupported syntax: '`'"


@pytest.mark.parametrize(
    ("expression", "before", "newest"),
    [
        ("duration(5) == duration('5s')", "invalid duration argument", NO_DURATION),
        ("'abc'.indexOf('', 1)", 1, 1),
        ("'abc'.indexOf('', -1)", -1, "index out of range: -1"),
        ("'abc'.indexOf('', 7)", 7, 3),
        ("'abc'.lastIndexOf('', 7)", 7, 3),
        ("'abc'.lastIndexOf('', -3)", -3, "index out of range: -3"),
        ("'abc'.lastIndexOf('')", 3, 3),
        ("lists.range(-1)", [], "lists.range: size must be non-negative, got -1"),
        ("lists.range(1000001).size()", 1000001, "lists.range: size 1000001 exceeds maximum allowed (1000000)"),
        ("dyn(1).orValue(2)", 1, "no such overload"),
        ("dyn(1).or(optional.of(2)) == optional.of(1)", False, "no such overload"),
        ("optional.none().orValue(2)", 2, 2),
        ("optional.of(1).optMap(x, optional.of(false)).value().orValue(true)", False, False),
        (
            "optional.of('x').optMap(x, optional.of(optional.of(false))).value().orValue(optional.none()).value()",
            "no such overload",
            False,
        ),
        ("object.`metadata`.name", NO_BACKTICK, "judged"),
        ("has(object.`metadata`)", NO_BACKTICK, True),
        ("{'a-b': 1}.`a-b`", NO_BACKTICK, 1),
        ("{'a-b': 1}.?`a-b`.orValue(0)", NO_BACKTICK, 1),
        ("['x'].exists(object, object == 'x')", True, True),
        ("['x'].exists(object, .object.metadata.name == 'judged')", NO_SELECTION, True),
        ("['a'].exists(object, object == .object.data.text)", NO_SELECTION, True),
        ("[{'a': 1}].exists(object, object.a == 1)", True, True),
    ],
)
def test_expression_means_what_its_release_says(expression: str, before: Value, newest: Value) -> None:
    for release, expected in zip(RELEASES, (before, newest), strict=True):
        found = _outcome(expression, release)
        if isinstance(found, str) and isinstance(expected, str):
            assert expected in found
        else:
            assert (found, type(found)) == (expected, type(expected))


def _outcome(expression: str, release: environments.Version) -> Value:
    environment = environments.admission(release, params=False, authorizes=False).new
    try:
        program = Program(environment.compile(expression), environment)
        found: Value = program.evaluate({"object": OBJECT}).value
    except (CompileError, ProgramError, EvaluationError) as error:
        return str(error)
    return found


@pytest.mark.parametrize(
    ("expression", "before", "newest"),
    [
        ("matches('aaaaaaaaaaaaaaaaaaaa', 'a+b+c+d+')", 1, 6),
        ("'aaaaaaaaaaaaaaaaaaaa'.matches('a+b+c+d+')", 6, 6),
        ("'aaaaaaaaaaaaaaaaaaaa'.startsWith('a')", 2, 1),
        ("'aaaaaaaaaaaaaaaaaaaa'.endsWith('a')", 2, 1),
    ],
)
def test_call_costs_what_its_release_says(expression: str, before: int, newest: int) -> None:
    for release, expected in zip(RELEASES, (before, newest), strict=True):
        environment = environments.base(release).new
        assert Program(environment.compile(expression), environment).evaluate({}).cost == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[1, 2].includes(2)", True),
        ("[1, 2].includes(4)", False),
        ("'a'.includes('a')", True),
        ("'a'.includes(1)", False),
        ("[[1]].includes([1])", True),
        ("[].includes(1)", False),
    ],
)
def test_includes_finds_an_element_or_the_value_itself(expression: str, expected: bool) -> None:
    environment = environments.base((1, 37)).stored
    assert Program(environment.compile(expression), environment).evaluate({}).value is expected
