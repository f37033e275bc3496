"""The table of what expressions evaluate to: values, errors word for word, and costs."""

from __future__ import annotations

import base64
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from apiserver.cel import macros, types, validators
from apiserver.cel.declarations import Function, Overload, Variable
from apiserver.cel.environment import Environment
from apiserver.cel.errors import EvaluationError, ProgramError
from apiserver.cel.libraries import optionals, standard
from apiserver.cel.program import Program
from apiserver.cel.times import Duration, Timestamp, parse_duration, parse_timestamp
from apiserver.cel.values import NONE, Optional, UInt, Value, is_list, is_map, map_of

TABLE = yaml.safe_load((pathlib.Path(__file__).parent / "evaluation.yaml").read_text())
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


def _given(value: Any) -> Value:
    """A value out of the table."""
    if isinstance(value, list):
        return [_given(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not (name := next(iter(value))).startswith("$"):
        return {key: _given(element) for key, element in value.items()}
    inner = value[name]
    if name == "$optional":
        return NONE if inner is None else Optional(_given(inner))
    if name == "$map":
        return map_of((_given(key), _given(element)) for key, element in inner)
    read: dict[str, Callable[[Any], Value]] = {
        "$uint": lambda text: UInt(int(text)),
        "$double": float,
        "$bytes": base64.b64decode,
        "$timestamp": parse_timestamp,
        "$duration": parse_duration,
    }
    return read[name](inner)


def _text(value: Value) -> str:
    """A value as the table writes it."""
    if is_list(value):
        return f"[{', '.join(map(_text, value))}]"
    if is_map(value):
        entries = value.items() if isinstance(value, dict) else ((key, value.find(key)) for key in value)
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(element)}' for key, element in entries))}}}"
    if isinstance(value, Optional):
        return f"optional.of({_text(value.value)})" if value.has_value else "optional.none()"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return f"double({value!r})"
    written: dict[type, Callable[[Any], str]] = {
        type(None): lambda _: "null",
        bool: lambda truth: "true" if truth else "false",
        int: str,
        UInt: lambda number: f"{number}u",
        float: repr,
        str: functools.partial(json.dumps, ensure_ascii=False),
        bytes: repr,
        Timestamp: lambda moment: f"timestamp({Timestamp(moment.seconds, moment.nanos)})",
        Duration: lambda span: f"duration({span.nanoseconds})",
        types.Type: lambda of: f"type({of.name})",
    }
    return written[type(value)](value)


@functools.cache
def _environment() -> Environment:
    key, value = types.parameter("K"), types.parameter("V")
    grown = types.map_of(key, value)
    insert = (
        Overload(id="@mapInsert_map_key_value", arguments=(grown, key, value), result=grown),
        Overload(id="@mapInsert_map_map", arguments=(grown, grown), result=grown),
    )
    return Environment().extend(
        libraries=(standard.LIBRARY, optionals.LIBRARY),
        functions=(Function("cel.@mapInsert", insert),),
        macros=macros.COMPREHENSIONS + macros.BINDINGS,
        variables=[Variable(name, _type(text)) for name, text in TABLE["types"].items()],
        validators=(validators.HOMOGENEOUS_LITERALS, *validators.KUBERNETES),
        cross_type_numeric_comparisons=True,
        homogeneous_literals=True,
        free_presence_tests=True,
    )


def _program(row: dict[str, Any]) -> Program:
    return Program(_environment().compile(row["expression"]), _environment())


def _variables(row: dict[str, Any]) -> dict[str, Value]:
    return {name: _given(value) for name, value in (TABLE["variables"] | row.get("given", {})).items()}


def _rows(kind: str) -> pytest.MarkDecorator:
    rows = [row for row in ROWS if kind in row]
    return pytest.mark.parametrize("row", rows, ids=[row["expression"] for row in rows])


@_rows("value")
def test_an_expression_has_the_value_and_the_cost_that_kubernetes_finds(row: dict[str, Any]) -> None:
    outcome = _program(row).evaluate(_variables(row))
    assert (_text(outcome.value), outcome.cost) == (row["value"], row["cost"])


@_rows("error")
def test_an_expression_fails_in_the_words_of_kubernetes_and_at_the_same_cost(row: dict[str, Any]) -> None:
    with pytest.raises(EvaluationError) as failed:
        _program(row).evaluate(_variables(row))
    assert (str(failed.value), failed.value.cost) == (row["error"], row["cost"])


@_rows("refused")
def test_no_program_is_made_of_an_expression_whose_constants_are_wrong(row: dict[str, Any]) -> None:
    with pytest.raises(ProgramError) as refused:
        _program(row)
    assert str(refused.value) == row["refused"]
