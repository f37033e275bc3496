"""Conditions on devices in CEL: what a class or a claim may say, and in which words the rest is refused."""

from __future__ import annotations

import itertools

import pytest

from apiserver.apimachinery.releases import Release
from tests.fuzz import selectors
from tests.fuzz.expressions import DEVICE, Expressions
from tests.promises.api.client import Client, Object, claim, device_class

SEED = 36
DRAWN = {"upstream": 3_072, "aggregated": 96, "dev": 192}
"""Expressions by target: the oracle judges most of them, the others show that an answer is the same through HTTP."""

ATTRIBUTE = 'device.attributes["dra.example.com"]'


def with_selectors(name: str, *expressions: str) -> Object:
    spec = {"selectors": [{"cel": {"expression": expression}} for expression in expressions]}
    return {**device_class(name), "spec": spec}


def uncompiled(expression: str, *complaints: tuple[int, str]) -> str:
    """The message about an expression of one line, by columns and texts."""
    told = (f"ERROR: <input>:1:{at}: {text}\n | {expression}\n | {'.' * (at - 1)}^" for at, text in complaints)
    return f'Invalid value: "{expression}": compilation failed: ' + "\n".join(told)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "dra.example.com"',
        f'{ATTRIBUTE}.model == "x" && !device.allowMultipleAllocations',
        f"{ATTRIBUTE}.ok",
        'device.capacity["dra.example.com"].memory.isGreaterThan(quantity("1Gi"))',
        f'cel.bind(a, {ATTRIBUTE}, a.?firmware.orValue(semver("1.0.0")).isLessThan(semver("2.0.0")))',
        'device.driver.split(".").all(part, part.size() < 64)',
        "[1, 2].all(i, v, v > i) && sets.contains([1, 2], [1])",
        'ip("10.0.0.1").family() == 4 && url("https://a.example/b").getHost() == "a.example"',
    ],
)
def test_class_may_ask_for_any_device_that_an_expression_can_select(api: Client, mine: str, expression: str) -> None:
    created = api.create(f"{api.v1}/deviceclasses", with_selectors(mine, expression), dryRun="All")

    assert created["spec"]["selectors"] == [{"cel": {"expression": expression}}]


@pytest.mark.parametrize(
    ("expression", "reason", "message"),
    [
        (
            "device.pool == 1",
            "FieldValueInvalid",
            uncompiled("device.pool == 1", (7, "undefined field 'pool'")),
        ),
        (
            "device.driver = 1 +",
            "FieldValueInvalid",
            uncompiled(
                "device.driver = 1 +",
                (15, "Syntax error: token recognition error at: '= '"),
                (17, "Syntax error: mismatched input '1' expecting <EOF>"),
            ),
        ),
        (
            "device.driver",
            "FieldValueInvalid",
            'Invalid value: "device.driver": must evaluate to bool or the unknown type, not string',
        ),
        (
            'device.driver.find("(") == ""',
            "InternalError",
            "Internal error: program instantiation failed: error parsing regexp: missing closing ): `(`",
        ),
        ("type(device.driver) == string", "FieldValueForbidden", "Forbidden: too complex, exceeds cost limit"),
    ],
    ids=["undefined", "syntax", "result", "program", "cost"],
)
def test_expression_that_is_no_condition_is_reported_with_its_place(
    api: Client, mine: str, expression: str, reason: str, message: str
) -> None:
    refused = api.refusal("POST", f"{api.v1}/deviceclasses", with_selectors(mine, "true", expression))

    field = "spec.selectors[1].cel.expression"
    assert refused.code == 422
    assert refused.details["causes"] == [{"reason": reason, "message": message, "field": field}]


def test_a_change_of_a_class_is_judged_as_its_creation(api: Client, mine: str) -> None:
    path = f"{api.v1}/deviceclasses"
    created = api.create(path, with_selectors(mine, "true"))

    created["spec"]["selectors"][0]["cel"]["expression"] = "device.nothing"
    refused = api.refusal("PUT", f"{path}/{mine}", created)

    assert "undefined field 'nothing'" in refused.message
    api.delete(f"{path}/{mine}")


def test_random_conditions_are_judged_as_kubernetes_judges_them(api: Client, release: Release, mine: str) -> None:
    drawn = list(itertools.islice(Expressions(SEED, DEVICE), DRAWN[api.target.name]))

    requests = selectors.SELECTORS if api.target.name == "upstream" else 1
    found = selectors.differences(api, api.claims(mine), drawn, judge=selectors.selectors(release), requests=requests)

    assert [str(difference) for difference in found] == []


def test_a_claim_of_a_thousand_expressions_is_judged(api: Client, mine: str) -> None:
    many = claim("many")
    wish = {
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": f"device.driver != '{i}'"}} for i in range(32)],
    }
    many["spec"]["devices"]["requests"] = [{"name": f"r{i}", "exactly": wish} for i in range(32)]

    assert api.create(api.claims(mine), many, dryRun="All")["metadata"]["name"] == "many"
