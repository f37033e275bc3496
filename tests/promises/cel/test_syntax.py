"""The table of syntax trees and syntax errors of expressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubecel.parse import macros, parser, syntax
from kubecel.parse.ast import Ast
from kubecel.parse.macros import Macros
from kubecel.parse.source import CompileError, Source
from tests.fixtures.cases import each_case
from tests.unit.kubecel.trees import written

ROWS = yaml.load((Path(__file__).parent / "syntax.yaml").read_text(), yaml.CSafeLoader)
TREES = [row for row in ROWS if "tree" in row]
REFUSED = [row for row in ROWS if "said" in row]

ALL = Macros((*macros.STANDARD, *macros.OPTIONAL, *macros.BINDINGS, *macros.COMPREHENSIONS))
STANDARD = Macros(macros.STANDARD)


def _parsed(row: dict[str, Any], parse: Any = parser.parse) -> Ast:
    plain = row.get("plain", False)
    tree: Ast = parse(Source(row["expr"]), macros=STANDARD if plain else ALL, optional_syntax=not plain)
    return tree


def _compared(row: dict[str, Any], ast: Ast) -> None:
    assert written(ast.expr) == row["tree"]
    assert " ".join(f"{node}:{at}" for node, at in sorted(ast.positions.items())) == row["at"]


@each_case("row", TREES, ids=lambda row: repr(row["expr"]))
def test_an_expression_has_the_tree_of_cel_go(row: dict[str, Any]) -> None:
    _compared(row, _parsed(row))


@each_case("row", TREES, ids=lambda row: repr(row["expr"]))
def test_an_expression_that_is_read_as_if_it_were_wrong_has_the_same_tree(row: dict[str, Any]) -> None:
    _compared(row, _parsed(row, syntax.parse))


@each_case("row", REFUSED, ids=lambda row: repr(row["expr"]))
def test_syntax_errors_have_the_words_of_cel_go(row: dict[str, Any]) -> None:
    with pytest.raises(CompileError) as refused:
        _parsed(row)
    assert str(refused.value) == row["said"]
