"""The syntax tree of an expression.

Every node has an id that is unique in its tree. Positions and types are kept by id. Macros are expanded while parsing:
`[1].all(x, x > 0)` becomes a Comprehension. Upstream: google/cel-go `common/ast/{ast,expr}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubecel.parse.source import Source
from kubecel.values.values import Value


@dataclass(slots=True)
class Literal:
    """A constant: null, bool, int, UInt, float, str or bytes."""

    id: int
    value: Value


@dataclass(slots=True)
class Ident:
    """A name. A leading dot (an absolute name) is kept."""

    id: int
    name: str


@dataclass(slots=True)
class Select:
    """`operand.field`, or `has(operand.field)` with `test_only`."""

    id: int
    operand: Expr
    field: str
    test_only: bool = False


@dataclass(slots=True)
class Call:
    """`function(arguments)`, or `target.function(arguments)`. Operators have the names of cel-go: `_&&_`, `_[_]`, `_?._`, `@in`."""

    id: int
    function: str
    target: Expr | None
    arguments: list[Expr]


@dataclass(slots=True)
class ListExpr:
    """`[a, ?b]`: `optional` holds the indices of elements with a question mark."""

    id: int
    elements: list[Expr]
    optional: frozenset[int] = frozenset()


class Entry(NamedTuple):
    """One `key: value` of a map; `optional` with a question mark."""

    id: int
    key: Expr
    value: Expr
    optional: bool


@dataclass(slots=True)
class MapExpr:
    """`{key: value}`."""

    id: int
    entries: list[Entry]


class FieldEntry(NamedTuple):
    """One `name: value` of a structure; `optional` with a question mark."""

    id: int
    name: str
    value: Expr
    optional: bool


@dataclass(slots=True)
class StructExpr:
    """`Type.Name{field: value}`."""

    id: int
    type_name: str
    fields: list[FieldEntry]


@dataclass(slots=True)
class Comprehension:
    """A fold, the expansion of every macro over lists and maps. `variable2` is "" when there is one variable."""

    id: int
    range: Expr
    variable: str
    variable2: str
    accumulator: str
    init: Expr
    condition: Expr
    step: Expr
    result: Expr


Expr = Literal | Ident | Select | Call | ListExpr | MapExpr | StructExpr | Comprehension


@dataclass(slots=True)
class Ast:
    """A parsed expression.

    `positions` maps the ids of nodes and entries to offsets.
    """

    expr: Expr
    source: Source
    positions: dict[int, int] = field(default_factory=dict)


def descendants(expr: Expr) -> list[Expr]:
    """Return a node with all its descendants, each after its own: the order of cel-go's MatchDescendants."""
    found: list[Expr] = []
    todo = [expr]
    while todo:
        node = todo.pop()
        found.append(node)
        todo.extend(children(node))
    found.reverse()
    return found


def children(node: Expr) -> Sequence[Expr]:
    """Return the direct children of a node, in the order of evaluation."""
    if isinstance(node, Call):
        return node.arguments if node.target is None else (node.target, *node.arguments)
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, ListExpr):
        return node.elements
    if isinstance(node, MapExpr):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if isinstance(node, StructExpr):
        return [field.value for field in node.fields]
    if isinstance(node, Comprehension):
        return node.range, node.init, node.condition, node.step, node.result
    return ()
