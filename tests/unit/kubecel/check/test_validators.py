"""Validators: what is asked of literals beyond their types."""

from collections.abc import Sequence

import pytest

from kubecel.check import validators
from kubecel.check.checker import Checked
from kubecel.check.declarations import Function, Overload, Validator, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import optionals, standard
from kubecel.parse.ast import Expr
from kubecel.parse.source import CompileError, Issue
from kubecel.values.templates import Clause, TemplateError, fill
from kubecel.values.types import DYN, STRING, list_of

_UNENDED = "error while parsing precision: could not find end of precision specifier"
_NO_DIGITS = 'error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
_FORMAT = Function(
    "format", (Overload(id="string_format", arguments=(STRING, list_of(DYN)), result=STRING, member=True),)
)
ENVIRONMENT = Environment().extend(
    libraries=(standard.LIBRARY, optionals.LIBRARY),
    functions=(_FORMAT,),
    variables=(Variable("o", DYN), Variable("s", STRING)),
    validators=(validators.HOMOGENEOUS_LITERALS, *validators.KUBERNETES, validators.STRING_FORMAT),
)


def _messages(text: str, environment: Environment = ENVIRONMENT) -> list[str]:
    try:
        environment.compile(text)
    except CompileError as error:
        return [issue.message for issue in error.issues]
    return []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("duration('1h') == duration('')", ["invalid duration argument"]),
        ("[timestamp('x'), timestamp(o), timestamp(253402300800)]", ["invalid timestamp argument"] * 2),
        ("s.matches('(') || matches('(', s) || s.matches(s)", ["invalid matches argument"] * 2),
        ("[1, 'a', 2.0]", ["expected type 'int' but found 'string'"]),
        ("{1: 'a', 2u: 1}", ["expected type 'int' but found 'uint'", "expected type 'string' but found 'int'"]),
        ("'%s %s'.format([1, 'a'])", []),
        ("'%s'.format([[1, ['a', o]]]) + string([1, 'a'].size())", ["expected type 'int' but found 'string'"]),
        ("[?optional.of(1), 'a']", ["expected type 'int' but found 'string'"]),
        ("[?o, o]", []),
    ],
)
def test_literals_are_judged(text: str, messages: list[str]) -> None:
    assert _messages(text) == messages


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("'%d %s %%'.format([1, [o]])", []),
        (
            "'%d'.format(['a'])",
            ["error during formatting: decimal clause can only be used on integers, was given string"],
        ),
        ("'%d'.format([1, 2])", ["too many arguments supplied to string.format (expected 1, got 2)"]),
        ("'%d %d'.format([1])", ["index 1 out of range"]),
        ("'%'.format([])", ["unexpected end of string"]),
        ("'%q'.format([1])", ['could not parse formatting clause: unrecognized formatting clause "q"']),
        ("'%.2'.format([1.0])", [f"could not parse formatting clause: {_UNENDED}"]),
        ("'%.f'.format([1.0])", [f"could not parse formatting clause: {_NO_DIGITS}"]),
        ("s.format([1, 2])", []),
        ("'%d'.format(o)", []),
    ],
)
def test_literal_templates_are_judged_with_their_arguments(text: str, messages: list[str]) -> None:
    assert _messages(text) == messages


def test_a_template_is_filled_in() -> None:
    seen: list[Clause] = []

    def write(clause: Clause, given: str) -> str:
        seen.append(clause)
        return given

    arguments = ["one", "zwei", "trois"]
    filled = fill("é%s%%%.3f%X", size=3, argument=arguments.__getitem__, write=write)
    assert filled == "éone%zweitrois"
    assert seen == [Clause("s", None), Clause("f", 3), Clause("X", None)]


def test_a_template_ends_in_the_middle_of_a_precision() -> None:
    with pytest.raises(TemplateError, match="could not find end of precision specifier"):
        fill("%.3", size=1, argument=str, write=lambda _, given: given)


def test_an_environment_has_a_validator_once() -> None:
    calls: list[str] = []

    def count(checked: Checked, nodes: Sequence[Expr], exempt: frozenset[str]) -> list[Issue]:
        calls.append(str(checked.output))
        return []

    counting = Validator("counting", count)
    environment = ENVIRONMENT.extend(validators=(counting, counting)).extend(validators=(counting,))
    environment.compile("1")
    assert calls == ["int"]


def test_issues_of_validators_come_in_the_order_of_the_text() -> None:
    first = Validator("first", lambda checked, nodes, exempt: [Issue(4, "late"), Issue(0, "early")])
    with pytest.raises(CompileError) as refused:
        ENVIRONMENT.extend(validators=(first,)).compile("1 + 1")
    assert [line for line in str(refused.value).split("\n") if line.startswith("ERROR")] == [
        "ERROR: <input>:1:1: early",
        "ERROR: <input>:1:5: late",
    ]
