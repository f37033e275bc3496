"""The static cost of expressions: each row was estimated by cel-go with Kubernetes 1.36.3's estimators."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pytest
import yaml

from apiserver.apimachinery.releases import V1_36
from apiserver.resources import _device_selectors
from kubecel.check import cost
from kubecel.check.declarations import UNLIMITED, Range, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments
from kubecel.kubernetes.environments import ALWAYS, Addition
from kubecel.libraries import authorizer, quantity
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
    list_of,
    map_of,
    optional_of,
    struct,
)
from tests.fixtures.cases import each_case

TABLE = yaml.load((pathlib.Path(__file__).parent / "costs.yaml").read_text(), yaml.CSafeLoader)

VARIABLES = {
    **dict.fromkeys(("object", "oldObject", "request", "params", "namespaceObject", "o", "x", "y"), DYN),
    **dict.fromkeys(("i", "j"), INT),
    **dict.fromkeys(("s", "t"), STRING),
    "u": UINT,
    "d": DOUBLE,
    "b": BYTES,
    "bo": BOOL,
    "l": list_of(INT),
    "ls": list_of(STRING),
    "ld": list_of(DYN),
    "lls": list_of(list_of(STRING)),
    "m": map_of(STRING, INT),
    "ms": map_of(STRING, STRING),
    "md": map_of(STRING, DYN),
    "ts": TIMESTAMP,
    "du": DURATION,
    "os": optional_of(STRING),
    "q": quantity.QUANTITY,
    "a": ANY,
    "n": NULL,
    "authorizer": authorizer.AUTHORIZER,
    "authorizer.requestResource": authorizer.RESOURCE_CHECK,
}


def text(size: int) -> Shape:
    """A string of so many bytes at most: four for each character of a schema's maxLength."""
    return Shape(type=STRING, max_elements=size)


def items(of: Shape, most: int) -> Shape:
    return Shape(type=list_of(of.type), items=of, max_elements=most)


UNBOUNDED_TEXT = 3 * 1024 * 1024 - 2
PORT = Shape(
    type=struct("selfType.ports.@idx"),
    fields={"name": text(60), "port": Shape(type=INT), "hosts": items(text(36), 2)},
)
SELF = Shape(
    type=struct("selfType"),
    fields={
        "name": text(40),
        "kind": text(3),
        "count": Shape(type=INT),
        "ratio": Shape(type=DOUBLE),
        "on": Shape(type=BOOL),
        "blob": Shape(type=BYTES, max_elements=100),
        "when": Shape(type=TIMESTAMP, max_elements=32),
        "span": Shape(type=DURATION, max_elements=32),
        "free": text(UNBOUNDED_TEXT),
        "tags": items(text(28), 5),
        "more": items(text(12), 4),
        "numbers": items(Shape(type=INT), 8),
        "labels": Shape(type=map_of(STRING, STRING), keys=text(0), items=text(80), max_elements=6),
        "ports": items(PORT, 3),
        "inner": Shape(type=struct("selfType.inner"), fields={"deep": text(16), "list": items(items(text(20), 3), 2)}),
    },
)


@dataclass(frozen=True)
class Judge:
    """An environment with what is known of sizes in it."""

    environment: Environment
    shapes: Mapping[str, Shape]

    def estimate(self, expression: str) -> Range:
        return cost.estimate(self.environment.compile(expression), self.environment, self.shapes)


@cache
def base() -> Judge:
    declared = [Variable(name, type_) for name, type_ in VARIABLES.items()]
    extended = environments.base((1, 36)).extend(
        Addition(introduced=ALWAYS, extend=lambda e: e.extend(variables=declared))
    )
    return Judge(extended.new, {})


@cache
def rules() -> Judge:
    return Judge(environments.rules(SELF, (1, 36)), environments.RuleShapes(SELF))


@cache
def devices(*, lists: bool) -> Judge:
    found = _device_selectors.environments_of(V1_36, lists=lists, consumable=True)
    return Judge(found.new, {"device": _device_selectors.device(lists=lists, consumable=True)})


JUDGES: Mapping[str, Callable[[], Judge]] = {
    "base": base,
    "rules": rules,
    "devices": lambda: devices(lists=False),
    "devices-lists": lambda: devices(lists=True),
}


@each_case(
    ("environment", "expression", "least", "most"),
    [(environment, *row) for environment, rows in TABLE.items() for row in rows],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_expression_costs_what_kubernetes_says(environment: str, expression: str, least: int, most: int) -> None:
    assert JUDGES[environment]().estimate(expression) == (least, most)


@pytest.mark.parametrize(
    "expression",
    ["+".join(["s"] * 120), "o" + ".a" * 120, "o" + "[0]" * 120, "&&".join(["bo"] * 3000), "l" + ".map(x, x)" * 40],
    ids=lambda expression: expression[:12],
)
def test_a_long_expression_is_estimated_whatever_its_shape(expression: str) -> None:
    assert 0 < base().estimate(expression).most <= UNLIMITED
