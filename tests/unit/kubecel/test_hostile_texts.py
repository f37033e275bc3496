"""No text is too deep, and none takes long: what it costs grows with its length."""

from __future__ import annotations

import gc
import inspect
import sys
import tracemalloc

import pytest

from kubecel.check import cost
from kubecel.check.declarations import Variable
from kubecel.kubernetes import environments
from kubecel.libraries import bindings
from kubecel.parse import macros
from kubecel.parse.macros import Macros
from kubecel.parse.parser import parse
from kubecel.parse.source import CompileError, Source
from kubecel.plan.program import Program
from kubecel.values.types import BOOL
from tests.fixtures.cpu import Spent

ALL = Macros((*macros.STANDARD, *macros.OPTIONAL, *macros.BINDINGS, *macros.COMPREHENSIONS))
SIZE = 10_240
# CPU time on a slow machine; a tenth of a second is usual.
SECONDS = 10.0

DEEP = {
    "(": "expression recursion limit exceeded: 250",
    "[": "expression recursion limit exceeded: 250",
    "{": "expression recursion limit exceeded: 250",
    "f(": "expression recursion limit exceeded: 250",
    "a?b:": "expression recursion limit exceeded: 250",
    "a[": "expression recursion limit exceeded: 250",
    "-1[": "expression recursion limit exceeded: 250",
    "has(": "expression recursion limit exceeded: 250",
    "a.all(x,": "expression recursion limit exceeded: 250",
    "1+": "Syntax error: mismatched input '<EOF>' expecting",
    "a.": "Syntax error: no viable alternative at input '.'",
    "!": "Syntax error: extraneous input '<EOF>' expecting",
    "-": "Syntax error: no viable alternative at input '-",
    "@": "1 more errors were truncated",
    "a b ": "error recovery token lookahead limit exceeded: 256",
    "1=2 ": "1 more errors were truncated",
    '"': "Syntax error",
    "'''": "Syntax error",
    "`": "1 more errors were truncated",
    "9": "invalid int literal",
    "0x": "Syntax error",
    "\0": "1 more errors were truncated",
    "\ud800": "Syntax error: token recognition error at: '\ufffd'",
    "😀": "1 more errors were truncated",
    "[1,": "expression recursion limit exceeded: 250",
    "-1[1+": "expression recursion limit exceeded: 250",
}


@pytest.mark.parametrize("part", DEEP)
def test_endlessly_repeated_text_is_refused_for_the_reason_of_cel_go(part: str) -> None:
    with Spent() as spent, pytest.raises(CompileError) as refused:
        parse(Source(part * (SIZE // len(part))), macros=ALL)
    assert DEEP[part] in str(refused.value)
    assert spent.below(SECONDS)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("!" * (SIZE - 1) + "a", 2),
        ("[" + "1," * (SIZE // 2 - 1) + "]", SIZE // 2),
        ("a&&" * (SIZE // 3) + "a", 2 * (SIZE // 3) + 1),
        ("'" + "\\n" * (SIZE // 2 - 1) + "'", 1),
        ("(" * 249 + "a" + ")" * 249, 1),
        ("a" + ".b" * 250, 251),
        ("1" + "+1" * 250, 501),
        (" " * (SIZE - 1) + "a", 1),
    ],
    ids=repr,
)
def test_a_long_text_that_is_right_is_parsed(text: str, nodes: int) -> None:
    assert len(parse(Source(text), macros=ALL).positions) == nodes


def test_parsing_needs_little_of_the_stack() -> None:
    texts = ["(" * 200 + "a" + ")" * 200, "a?b:" * 200 + "c", "[" * 100, "a.all(x, " * 60 + "x" + ")" * 60]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 300)
    try:
        for text in texts:
            try:
                parse(Source(text), macros=ALL)
            except CompileError:
                assert text.startswith("[")
    finally:
        sys.setrecursionlimit(limit)


def test_nothing_stays_of_a_text() -> None:
    texts = ["-1[" + "(" * 900, "-1[1," * 200, "a." * 500 + "{", "(" * 900, "-1" * 500]

    def refuse() -> None:
        for text in texts:
            with pytest.raises(CompileError):
                parse(Source(text), macros=ALL)

    refuse()
    tracemalloc.start()
    try:
        refuse()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "a||b&&c||d",
        "device||true",
        "(",
        "a.b{",
        "'",
        "[1, 2].all(x, x > 1)",
        "cel.bind(a, [1, 2], a + a) == []",
        "{'k': [1]}.k",
    ],
)
def test_compiling_leaves_nothing_to_the_garbage_collector(text: str) -> None:
    """A server collects garbage seldom: cycles of long expressions would be megabytes until then."""
    environment = environments.base().new.extend(variables=[Variable("device", BOOL)], libraries=[bindings.LIBRARY])

    def result() -> str:
        try:
            checked = environment.compile(text)
        except CompileError as e:
            return str(e)
        Program(checked, environment)
        return str(cost.estimate(checked, environment, {}))

    first = result()
    gc.collect()
    gc.disable()
    try:
        assert result() == first
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_macros_that_double_their_target_are_bounded() -> None:
    with pytest.raises(CompileError, match="<input>:-1:0: expression expands to more than 11200 nodes"):
        parse(Source("a" + ".optMap(x,x)" * 24 + " " * 11), macros=ALL)


def test_text_above_a_hundred_thousand_characters_is_not_parsed() -> None:
    with pytest.raises(CompileError, match="code point size exceeds limit: size: 100001, limit 100000"):
        parse(Source("1" + " " * 100_000), macros=ALL)
