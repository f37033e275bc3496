"""The table of what the libraries of Kubernetes compute: values, errors word for word, costs and their estimates."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import yaml

from kubecel.check import cost
from kubecel.check.declarations import Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes.environments import base
from kubecel.libraries.authorizer import AUTHORIZER, Answer, Attributes, AuthorizerValue
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values import types
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.values import Value
from tests.fixtures.cases import each_case
from tests.promises.cel.notation import text

TABLE = yaml.load((pathlib.Path(__file__).parent / "libraries.yaml").read_text(), yaml.CSafeLoader)
ROWS = [row for promise in TABLE["promises"] for row in promise["rows"]]


class Authorizer:
    """Allows `get`, denies `list`, has no opinion on all else, and cannot find out about what is broken."""

    def authorize(self, attributes: Attributes) -> Answer:
        if "broken" in (attributes.name, (attributes.path or "").removeprefix("/")):
            return Answer(allowed=False, error="authorizer is broken")
        reasons = {"get": "reading is allowed", "list": "listing is denied"}
        return Answer(allowed=attributes.verb == "get", reason=reasons.get(attributes.verb, ""))


def _type(text: str) -> types.Type:
    if text.startswith("list("):
        return types.list_of(_type(text[5:-1]))
    return {"dyn": types.DYN, "int": types.INT, "string": types.STRING}[text]


@functools.cache
def _environment() -> Environment:
    declared = [Variable(name, _type(of["type"])) for name, of in TABLE["variables"].items()]
    return base((1, 36)).new.extend(variables=[Variable("authorizer", AUTHORIZER), *declared])


def _variables() -> dict[str, Value]:
    given = {name: of["value"] for name, of in TABLE["variables"].items()}
    return {"authorizer": AuthorizerValue(Authorizer()), **given}


def _outcome(row: dict[str, Any]) -> dict[str, Any]:
    try:
        checked = _environment().compile(row["expression"])
    except CompileError as error:
        return {"refused": str(error)}
    static = list(cost.estimate(checked, _environment(), {}))
    try:
        outcome = Program(checked, _environment()).evaluate(_variables())
    except ProgramError as error:
        return {"refused": str(error), "static": static}
    except EvaluationError as error:
        return {"error": str(error), "cost": error.cost, "static": static}
    return {"value": text(outcome.value), "cost": outcome.cost, "static": static}


@each_case("row", ROWS, ids=[row["expression"] for row in ROWS])
def test_a_library_computes_and_costs_what_it_does_in_kubernetes(row: dict[str, Any]) -> None:
    assert _outcome(row) == {key: row[key] for key in row if key != "expression"}
