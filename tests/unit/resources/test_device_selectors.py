"""Conditions on devices: what is refused, with which error, and what is looked at once only."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.fieldpath import ROOT, FieldError
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release, at
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.validation import report

KINDS = {resource.kind: resource for resource in at(NEWEST, resources.RESOURCES)}
GATES = [gate for resource in at(NEWEST, resources.RESOURCES) for gate in resource.gates]
MODEL = 'device.attributes["dra.example.com"].model'
ANY_LENGTH = 10_240


def selectors(**switched: bool) -> resources.DeviceSelectors:
    return resources.DeviceSelectors(Gates(GATES, switched))


DEFAULT = selectors()


def problems(expression: str, *, stored: bool = False, judge: resources.DeviceSelectors = DEFAULT) -> list[FieldError]:
    return list(judge.problems(expression, ROOT.child("expression"), stored=stored))


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        'device.driver == "dra.example.com"',
        f'{MODEL} == "x"',
        MODEL,
        "device.allowMultipleAllocations",
        'cel.bind(a, device.attributes["a"], a.b && a.c == 4)',
        'device.capacity["a"].memory.isGreaterThan(quantity("1Gi"))',
        'device.driver == "' + "q" * (ANY_LENGTH - 20) + '"',
    ],
    ids=lambda expression: expression[:40],
)
def test_cheap_boolean_expression_that_compiles_is_accepted(expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize(
    ("expression", "reason", "text"),
    [
        (
            "",
            "FieldValueInvalid",
            'Invalid value: "": compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input',
        ),
        (
            "device.pool",
            "FieldValueInvalid",
            "Invalid value: \"device.pool\": compilation failed: ERROR: <input>:1:7: undefined field 'pool'\n | device.pool\n | ......^",
        ),
        (
            "1 + 1",
            "FieldValueInvalid",
            'Invalid value: "1 + 1": must evaluate to bool or the unknown type, not int',
        ),
        (
            "device.attributes",
            "FieldValueInvalid",
            "must evaluate to bool or the unknown type, not map(string, map(string, google.protobuf.Any))",
        ),
        (f"dyn({MODEL})", "FieldValueInvalid", "must evaluate to bool or the unknown type, not dyn"),
        ("type(1) == int", "FieldValueForbidden", "Forbidden: too complex, exceeds cost limit"),
    ],
)
def test_refused_expression_gets_kubernetes_message(expression: str, reason: str, text: str) -> None:
    (problem,) = problems(expression)

    assert (problem.field, problem.reason) == ("expression", reason)
    assert text in problem.body


def test_a_program_that_cannot_be_made_is_an_internal_error() -> None:
    """cel-go takes the variable for the name of a type."""
    (problem,) = problems("[int].all(x, type(x) == x)")

    assert problem.reason == "InternalError"
    assert problem.body == "Internal error: program instantiation failed: reference to undefined type: x"


def test_expression_that_makes_kubernetes_panic_is_an_internal_error() -> None:
    (problem,) = problems("{b'a': 1}.size() == 1")

    assert problem.reason == "InternalError"
    assert "runtime error: hash of unhashable type types.Bytes" in problem.body


def test_lists_and_includes_are_there_with_their_gate() -> None:
    lists = selectors(DRAListTypeAttributes=True)
    expressions = [f'{MODEL}.includes("x")', f'{MODEL}.exists(x, x == "y")', f"dyn({MODEL})"]

    assert [problems(expression, judge=lists) for expression in expressions] == [[], [], []]
    assert all(problems(expression) for expression in expressions)


def test_a_stored_expression_may_use_what_new_ones_may_not() -> None:
    assert problems(f'{MODEL}.includes("x")')
    assert problems(f'{MODEL}.includes("x")', stored=True) == []


def test_member_for_shared_devices_is_known_only_with_its_gate() -> None:
    alone = selectors(DRAConsumableCapacity=False)

    assert "undefined field" in problems("device.allowMultipleAllocations", judge=alone)[0].body
    assert problems("device.allowMultipleAllocations", judge=alone, stored=True) == []


def test_only_what_is_unknown_takes_time() -> None:
    judge = selectors()
    long = 'device.driver == "' + "x" * 600 + '"'

    assert judge.is_quick(["device.driver == 'x'"])
    assert not judge.is_quick([long])
    assert not judge.is_quick(["optional.of(1)" + ".optMap(x, x)" * 5 + ".hasValue()"])
    assert not judge.is_quick([f"device.driver == '{i}'" for i in range(100)])
    assert problems(long, judge=judge) == []
    assert judge.is_quick([long] * 100)


def device_class(*expressions: str) -> dict[str, Any]:
    chosen = [{"cel": {"expression": expression}} for expression in expressions]
    return {"metadata": {"name": "gpu"}, "spec": {"selectors": chosen}}


def complaints(new: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
    gates = Gates(GATES)
    context = Context(gates=gates, cel=resources.DeviceSelectors(gates))
    return [str(error) for error in report.validate(context, KINDS["DeviceClass"].shape, new, old)]


def test_selectors_of_a_class_count_as_stored_while_unchanged() -> None:
    stored = f'{MODEL}.includes("x")'

    assert len(complaints(device_class(stored), None)) == 1
    assert complaints(device_class("true", stored), device_class("true", stored)) == []
    for changed in (device_class(stored, "true"), device_class(stored), device_class("true", stored, "true")):
        (complaint,) = complaints(changed, device_class("true", stored))
        assert "undeclared reference to 'includes'" in complaint


def test_an_expression_that_is_too_long_is_not_compiled() -> None:
    (complaint,) = complaints(device_class("(" * (ANY_LENGTH + 1)), None)

    assert complaint == "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_kind_says_which_expressions_it_has(kind: str) -> None:
    exactly = {"selectors": [{"cel": {"expression": "a"}}, {}]}
    alternatives = [{"selectors": [{"cel": {"expression": "b"}}]}, {}]
    spec = {"devices": {"requests": [{"exactly": exactly}, {"firstAvailable": alternatives}]}}
    obj = {"spec": spec if kind == "ResourceClaim" else {"spec": spec}}

    assert list(KINDS[kind].expressions(obj)) == ["a", "", "b"]


SCALARS = "a primitive scalar (string, integer, boolean, semver)"


@pytest.mark.parametrize(
    ("expression", "lists", "expected"),
    [
        (MODEL, False, []),
        ('device.driver + "x"', False, []),
        ("1 + 1", False, []),
        ('semver("1.2.3")', False, []),
        ("[1, 2]", True, []),
        ("[1, 2]", False, [f'Invalid value: "[1, 2]": must evaluate to {SCALARS}, not list(int)']),
        ("1.5", True, [f'Invalid value: "1.5": must evaluate to {SCALARS} or a list of these scalars, not double']),
        ("device.attributes.exists(a, a == 'b')", False, []),
    ],
)
def test_a_derived_attribute_is_something_that_constraints_can_compare(
    expression: str, lists: bool, expected: list[str]
) -> None:
    found, cost = selectors(DRAListTypeAttributes=lists).value_problems(expression, ROOT)
    assert [error.body for error in found] == expected
    assert (cost > 0) is not bool(expected) or expression == "1 + 1"


@pytest.mark.parametrize(("release", "refused"), [(V1_36, True), (V1_37, False)], ids=str)
def test_stored_selectors_are_compiled_again_until_1_37(release: Release, refused: bool) -> None:
    judge = resources.DeviceSelectors(Gates(GATES, release=release))
    assert bool(problems("device.pool", stored=True, judge=judge)) is refused
    assert problems("device.pool", judge=judge)
