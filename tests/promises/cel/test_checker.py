"""The table of what the checker makes of expressions: types, and complaints word for word."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest
import yaml

from kubecel.check import validators
from kubecel.check.declarations import Function, Overload, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import bindings, comprehensions, optionals, standard, strings
from kubecel.parse.source import CompileError
from kubecel.values.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    nullable,
    opaque,
    optional_of,
    parameter,
    struct,
    type_of,
)
from tests.fixtures.cases import each_case

TABLE = yaml.load((pathlib.Path(__file__).parent / "checker.yaml").read_text(), yaml.CSafeLoader)
_ROWS = [(promise["environment"], row) for promise in TABLE["promises"] for row in promise["rows"]]
ACCEPTED = [(name, row) for name, row in _ROWS if "type" in row]
REFUSED = [(name, row) for name, row in _ROWS if "issues" in row]

_SIMPLE = {
    "any": ANY,
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "dyn": DYN,
    "int": INT,
    "null": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "uint": UINT,
    "wrapper(int)": nullable(INT),
    "Widget": struct("Widget"),
    "test.At": opaque("test.At"),
}
_PARTS = Shape(type=list_of(struct("Part")), items=Shape(type=struct("Part"), fields={"n": Shape(type=INT)}))
_TAGS = Shape(type=map_of(STRING, STRING), keys=Shape(type=STRING), items=Shape(type=STRING))
_SPEC = Shape(type=struct("Widget.spec"), fields={"__namespace__": Shape(type=STRING), "any": Shape(type=ANY)})
_WIDGET = Shape(
    type=struct("Widget"),
    fields={
        "name": Shape(type=STRING),
        "size": Shape(type=INT),
        "spec": _SPEC,
        "tags": _TAGS,
        "parts": _PARTS,
        "dynamic": Shape(type=DYN),
        "when": Shape(type=TIMESTAMP),
    },
)


def _type(text: str) -> Type:
    if text in _SIMPLE:
        return _SIMPLE[text]
    name, _, inside = text[:-1].partition("(")
    if name == "map":
        key, _, value = inside.partition(", ")
        return map_of(_type(key), _type(value))
    return {"list": list_of, "optional": optional_of, "type": type_of}[name](_type(inside))


def _function(name: str, overload: str, *arguments: Type, result: Type) -> Function:
    return Function(name, (Overload(id=overload, arguments=arguments, result=result),))


@functools.cache
def _plain() -> Environment:
    first, second = parameter("K"), parameter("V")
    return Environment().extend(
        libraries=(
            standard.LIBRARY_0_26,
            optionals.LIBRARY,
            comprehensions.LIBRARY,
            bindings.LIBRARY,
            strings.LIBRARY_V2_0_26,
        ),
        variables=[Variable(name, _type(text)) for name, text in TABLE["variables"].items()],
        types=(opaque("test.At"),),
        functions=(
            _function("test.at", "test_at_int", INT, result=opaque("test.At")),
            _function("pair", "pair_K_V", first, second, result=map_of(first, second)),
            _function("same", "same_T_T", parameter("T"), parameter("T"), result=parameter("T")),
        ),
        shapes=(_WIDGET,),
        reserved_fields=True,
    )


@functools.cache
def _environment(name: str) -> Environment:
    if name == "plain":
        return _plain()
    if name == "standard":
        return _plain().extend(
            cross_type_numeric_comparisons=True, validators=(validators.HOMOGENEOUS_LITERALS, *validators.KUBERNETES)
        )
    names = {"a.x": INT, "a.b.x": STRING, "a.b.google.y": STRING, "z": BOOL, "a.z": INT}
    return _plain().extend(
        container="a.b",
        variables=[Variable(name, of) for name, of in names.items()],
        functions=(
            _function("a.f", "a_f_int", INT, result=INT),
            _function("a.b.g", "a_b_g_int", INT, result=INT),
            _function("g", "g_int", INT, result=STRING),
        ),
    )


def _text(expression: str, issues: list[str]) -> str:
    """Issues of an expression of one line with the line and a caret below each."""
    lines = []
    for issue in issues:
        column = int(issue.split(":")[1])
        lines += [f"ERROR: <input>:{issue}", f" | {expression}", f" | {'.' * (column - 1)}^"]
    return "\n".join(lines)


@each_case(("environment", "row"), ACCEPTED, ids=[f"{name}: {row['expression']}" for name, row in ACCEPTED])
def test_an_expression_has_the_type_that_cel_go_finds(environment: str, row: dict[str, Any]) -> None:
    assert str(_environment(environment).compile(row["expression"]).output) == row["type"]


@each_case(("environment", "row"), REFUSED, ids=[f"{name}: {row['expression']}" for name, row in REFUSED])
def test_an_expression_is_refused_in_the_words_of_cel_go(environment: str, row: dict[str, Any]) -> None:
    with pytest.raises(CompileError) as refused:
        _environment(environment).compile(row["expression"])
    assert str(refused.value) == _text(row["expression"], row["issues"])
