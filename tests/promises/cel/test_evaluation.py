"""The table of what expressions evaluate to: values, errors word for word, and costs."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kubecel.check import validators
from kubecel.check.declarations import Function, Overload, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import optionals, standard
from kubecel.parse import macros
from kubecel.plan.program import Program
from kubecel.values import types
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.values import Value
from tests.fixtures.cases import each_case
from tests.promises.cel.notation import given, text

TABLE = yaml.load((pathlib.Path(__file__).parent / "evaluation.yaml").read_text(), yaml.CSafeLoader)
ROWS = [row for promise in TABLE["promises"] for row in promise["rows"]]

_SIMPLE = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "dyn": types.DYN,
    "int": types.INT,
    "null": types.NULL,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "uint": types.UINT,
}


def _type(text: str) -> types.Type:
    name, _, inside = text.removesuffix(")").partition("(")
    if not inside:
        return _SIMPLE[name]
    if name == "map":
        key, _, value = inside.partition(", ")
        return types.map_of(_type(key), _type(value))
    return {"list": types.list_of, "optional": types.optional_of}[name](_type(inside))


@functools.cache
def _environment() -> Environment:
    key, value = types.parameter("K"), types.parameter("V")
    grown = types.map_of(key, value)
    insert = (
        Overload(id="@mapInsert_map_key_value", arguments=(grown, key, value), result=grown),
        Overload(id="@mapInsert_map_map", arguments=(grown, grown), result=grown),
    )
    return Environment().extend(
        libraries=(standard.LIBRARY_0_26, optionals.LIBRARY),
        functions=(Function("cel.@mapInsert", insert),),
        macros=macros.COMPREHENSIONS + macros.BINDINGS,
        variables=[Variable(name, _type(of)) for name, of in TABLE["types"].items()],
        validators=(validators.HOMOGENEOUS_LITERALS, *validators.KUBERNETES),
        cross_type_numeric_comparisons=True,
        free_presence_tests=True,
    )


def _program(row: dict[str, Any]) -> Program:
    return Program(_environment().compile(row["expression"]), _environment())


def _variables(row: dict[str, Any]) -> dict[str, Value]:
    return {name: given(value) for name, value in (TABLE["variables"] | row.get("given", {})).items()}


def _rows(kind: str) -> Callable[[Callable[..., object]], Callable[..., None]]:
    rows = [row for row in ROWS if kind in row]
    return each_case("row", rows, ids=[row["expression"] for row in rows])


@_rows("value")
def test_an_expression_has_the_value_and_the_cost_that_kubernetes_finds(row: dict[str, Any]) -> None:
    outcome = _program(row).evaluate(_variables(row))
    assert (text(outcome.value), outcome.cost) == (row["value"], row["cost"])


@_rows("error")
def test_expression_fails_with_kubernetes_message_and_cost(row: dict[str, Any]) -> None:
    with pytest.raises(EvaluationError) as failed:
        _program(row).evaluate(_variables(row))
    assert (str(failed.value), failed.value.cost) == (row["error"], row["cost"])


@_rows("refused")
def test_no_program_is_made_of_an_expression_whose_constants_are_wrong(row: dict[str, Any]) -> None:
    with pytest.raises(ProgramError) as refused:
        _program(row)
    assert str(refused.value) == row["refused"]
