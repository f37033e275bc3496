"""Trees written down in one line, for tests to compare: every node with its id."""

from __future__ import annotations

from collections.abc import Sequence

from kubecel.parse.ast import (
    Call,
    Comprehension,
    Entry,
    Expr,
    FieldEntry,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)
from kubecel.values.values import UInt

_Part = Expr | Entry | FieldEntry | str


def written(expr: Expr) -> str:
    """A tree as one line, without recursion: trees may be deep."""
    words: list[str] = []
    pending: list[_Part] = [expr]
    while pending:
        node = pending.pop()
        parts = [node] if isinstance(node, str) else _parts(node)
        words.append(str(parts[0]))
        pending += reversed(parts[1:])
    return "".join(words)


def _parts(node: Expr | Entry | FieldEntry) -> list[_Part]:
    match node:
        case Literal(id, value):
            return [f"{f'{int(value)}u' if isinstance(value, UInt) else repr(value)}#{id}"]
        case Ident(id, name):
            return [f"{name}#{id}"]
        case Select(id, operand, field, test_only):
            return ["", operand, f".{field}#{id}{'?' if test_only else ''}"]
        case Call(id, function, target, arguments):
            start = [] if target is None else [target, "."]
            return ["", *start, f"{function}#{id}(", *_separated(arguments), ")"]
        case ListExpr(id, elements, optional):
            marked = [part for at, e in enumerate(elements) for part in (", " * (at > 0), "?" * (at in optional), e)]
            return [f"#{id}[", *marked, "]"]
        case MapExpr(id, entries):
            return [f"#{id}{{", *_separated(entries), "}"]
        case StructExpr(id, type_name, fields):
            return [f"{type_name}#{id}{{", *_separated(fields), "}"]
        case Entry(id, key, value, optional):
            return ["?" * optional, key, f" :#{id} ", value]
        case FieldEntry(id, name, value, optional):
            return ["?" * optional, f"{name} :#{id} ", value]
        case Comprehension():
            names = ", ".join(name for name in (node.variable, node.variable2) if name)
            parts = [node.range, node.init, node.condition, node.step, node.result]
            return [f"fold#{node.id}({names} -> {node.accumulator}: ", *_separated(parts), ")"]


def _separated(nodes: Sequence[_Part]) -> list[_Part]:
    return [part for at, node in enumerate(nodes) for part in (", " * (at > 0), node)]
