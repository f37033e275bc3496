"""The cases of cel-spec: each gives what it should, or something else for a reason that is written down."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path
from typing import Any

import yaml

from kubecel.check.declarations import Variable
from kubecel.check.environment import Environment
from kubecel.libraries import bindings, cidr, comprehensions, ip, optionals, standard, strings
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values import types, values
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import Type
from kubecel.values.values import UInt, Value
from tests.fixtures.cases import each_case

FOLDER = Path(__file__).parent / "conformance"
DIFFERENCES = {
    (file, name)
    for difference in yaml.safe_load((FOLDER / "differences.yaml").read_text())
    for file, names in difference["cases"].items()
    for name in names
}
DOCUMENT = Path(__file__).parents[3] / "docs" / "cel.md"
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "differences")
ROWS = {name: yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader) for name in FILES}
CASES = [(name, row) for name in FILES for row in ROWS[name]]

_SIMPLE = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "dyn": types.DYN,
    "int": types.INT,
    "null_type": types.NULL,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "uint": types.UINT,
}


def _type(told: Any) -> Type:
    if isinstance(told, str):
        return _SIMPLE[told]
    ((kind, of),) = told.items()
    match kind:
        case "list":
            return types.list_of(_type(of))
        case "map":
            return types.map_of(*map(_type, of))
        case "type":
            return types.type_of(_type(of))
        case "param":
            # Undetermined parameters are dyn.
            return types.DYN
        case _:
            return types.opaque(of[0], *map(_type, of[1]))


def _value(told: dict[str, Any]) -> Value:
    ((kind, value),) = told.items()
    match kind:
        case "uint":
            return UInt(value)
        case "list":
            return [_value(one) for one in value]
        case "map":
            return values.map_of((_value(key), _value(one)) for key, one in value)
        case "timestamp":
            return Timestamp(*value)
        case "duration":
            return Duration(value[0] * 10**9 + value[1])
        case _:
            return value


@functools.cache
def _environment() -> Environment:
    libraries = (standard, optionals, bindings, comprehensions, ip, cidr)
    return Environment().extend(
        libraries=(*(module.LIBRARY for module in libraries), strings.LIBRARY_V2), cross_type_numeric_comparisons=True
    )


def _same(value: Value, told: dict[str, Any]) -> bool:
    if "type" in told:
        return isinstance(value, Type) and value.name == told["type"]
    expected = _value(told)
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(value, float) and math.isnan(value)
    return values.type_of(value).name == values.type_of(expected).name and values.equal(value, expected)


def _complaint(row: dict[str, Any]) -> str:
    """Differences from the case; "" when it passes."""
    variables = [Variable(name, _type(told)) for name, told in row.get("variables", {}).items()]
    environment = _environment().extend(variables=variables, container=row.get("container"))
    try:
        checked = environment.compile(row["expr"])
    except CompileError as refused:
        return "" if "error" in row else str(refused)
    if "type" in row and checked.output != _type(row["type"]):
        return f"its type is {checked.output}"
    if row.get("checked_only"):
        return ""
    bound = {name: _value(told) for name, told in row.get("bindings", {}).items()}
    try:
        value = Program(checked, environment).evaluate(bound).value
    except (ProgramError, EvaluationError) as failed:
        return "" if "error" in row else f"it fails: {failed}"
    if "error" in row:
        return f"it is {value!r}"
    return "" if _same(value, row.get("value", {"bool": True})) else f"it is {value!r}"


@each_case(("file", "row"), CASES, ids=lambda one: one if isinstance(one, str) else one["name"])
def test_a_case_of_cel_spec_gives_what_it_says(file: str, row: dict[str, Any]) -> None:
    complaint = _complaint(row)
    if (file, row["name"]) in DIFFERENCES:
        assert complaint, "there is no difference any more"
    else:
        assert not complaint


def test_the_document_counts_the_cases_that_pass() -> None:
    counts = {
        file: (len(ROWS[file]), sum((file, row["name"]) not in DIFFERENCES for row in ROWS[file])) for file in FILES
    }
    table = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {file: (int(carried), int(passed)) for file, _, carried, passed in table} == counts
