"""The table of what expressions find in documents that a schema describes."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import yaml

from kubecel.check import cost, validators
from kubecel.check.declarations import Shape, Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes import schemas
from kubecel.libraries import optionals, standard
from kubecel.parse import macros
from kubecel.plan.program import Program
from kubecel.values.errors import EvaluationError
from tests.fixtures.cases import each_case
from tests.promises.cel.notation import text

TABLE = yaml.load((pathlib.Path(__file__).parent / "documents.yaml").read_text(), yaml.CSafeLoader)
ROWS = [row for promise in TABLE["promises"] for row in promise["rows"]]


@functools.cache
def _shape() -> Shape:
    declared = schemas.declared(TABLE["schema"], "selfType")
    assert declared is not None
    return declared.shape


@functools.cache
def _environment() -> Environment:
    return Environment().extend(
        libraries=(standard.LIBRARY, optionals.LIBRARY),
        macros=macros.COMPREHENSIONS + macros.BINDINGS,
        shapes=(_shape(),),
        variables=[Variable(name, _shape().type, _shape()) for name in ("self", "oldSelf")],
        cross_type_numeric_comparisons=True,
        validators=(validators.HOMOGENEOUS_LITERALS,),
        free_presence_tests=True,
    )


def _evaluated(row: dict[str, Any]) -> tuple[str, int, list[int]]:
    checked = _environment().compile(row["expression"])
    static = cost.estimate(checked, _environment(), {"self": _shape(), "oldSelf": _shape()})
    changed = TABLE["misfit"] if "misfit" in row else {}
    documents = {"self": TABLE["self"] | changed, "oldSelf": TABLE["oldSelf"]}
    variables = {
        name: schemas.typed(document, TABLE["schema"], release=(1, 36)) for name, document in documents.items()
    }
    try:
        outcome = Program(checked, _environment()).evaluate(variables)
    except EvaluationError as error:
        return str(error), error.cost, list(static)
    return text(outcome.value), outcome.cost, list(static)


@each_case("row", ROWS, ids=[row["expression"] for row in ROWS])
def test_an_expression_finds_in_a_document_what_kubernetes_finds(row: dict[str, Any]) -> None:
    assert _evaluated(row) == (row.get("value", row.get("error")), row["cost"], row["static"])
