"""Limits, operators, literals and reserved words, which both parsers share.

Upstream: google/cel-go `parser/{parser,helper,options}.go`, `common/operators/operators.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from kubecel.parse.ast import Call, Expr
from kubecel.parse.lexer import BYTES, FLOAT, INT, STRING, UINT
from kubecel.parse.literals import byte_string, double, integer, string, unsigned
from kubecel.values.values import Value

# Limit of the code points of an expression.
MAX_SIZE = 100_000
# Limit of the nesting of selections, calls, indices, operators and conditionals.
MAX_DEPTH = 250

# Words that cannot name a variable or function. They can name fields.
RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
        *("let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while"),
    )
)

RELATION, SUM, PRODUCT = 1, 2, 3
# The precedence of an operator, and the function that it calls.
OPERATORS = {
    **{sign: (RELATION, f"_{sign}_") for sign in ("<", "<=", ">=", ">", "==", "!=")},
    "in": (RELATION, "@in"),
    **{sign: (SUM, f"_{sign}_") for sign in "+-"},
    **{sign: (PRODUCT, f"_{sign}_") for sign in "*/%"},
}

# How to read numbers that may have a sign, and all other literals.
SIGNED: dict[str, Callable[[str], Value]] = {INT: integer, FLOAT: double}
LITERALS: dict[str, Callable[[str], Value]] = {**SIGNED, UINT: unsigned, STRING: string, BYTES: byte_string}
CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}


def balanced(function: str, terms: list[Expr], signs: list[int]) -> Expr:
    """Return a chain of `&&` or `||` as a balanced tree: cel-go's logicManager. `signs` are the ids of the operators."""
    return _between(function, terms, signs, range(len(signs)))


def _between(function: str, terms: list[Expr], signs: list[int], at: range) -> Expr:
    """Return the tree of the operators `at` these places."""
    middle = (at.start + at.stop) // 2
    before, after = range(at.start, middle), range(middle + 1, at.stop)
    left = _between(function, terms, signs, before) if before else terms[middle]
    right = _between(function, terms, signs, after) if after else terms[middle + 1]
    return Call(signs[middle], function, None, [left, right])
