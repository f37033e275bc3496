"""Parse a `shardSelector`: calls of shardRange() joined by ||, in the syntax of CEL. Nothing is evaluated.

Upstream: kubernetes/apiserver `pkg/sharding/parser.go`.
"""

from __future__ import annotations

import re

from apiserver.apimachinery import errors
from apiserver.apimachinery.shards import FIELDS, Range, ShardSelector
from apiserver.runtime.offload import SHARD_SELECTOR, run_sized
from kubecel.libraries.strings import SPACE
from kubecel.parse import ast, parser
from kubecel.parse.macros import Macros
from kubecel.parse.source import CompileError, Source
from kubecel.values.values import UInt
from kubetext import names
from kubetext.quoting import go_quote

MOST_EXPLAINED = 8192
"""Characters, a hundred ranges, up to which the error of an invalid or deeply nested text is explained. Finding it takes much time and
memory."""

_NO_MACROS = Macros()
_KINDS: dict[type[ast.Expr], int] = {
    ast.Call: 1,
    ast.Comprehension: 2,
    ast.Ident: 3,
    ast.ListExpr: 4,
    ast.Literal: 5,
    ast.MapExpr: 6,
    ast.Select: 7,
    ast.StructExpr: 8,
}
"""The numbers by which cel-go knows the nodes of a tree (google/cel-go `common/ast/expr.go` ExprKind)."""
_GO_TYPES: dict[type, str] = {
    bool: "bool",
    int: "int64",
    UInt: "uint64",
    float: "float64",
    bytes: "[]uint8",
    type(None): "structpb.NullValue",
}
_NO_DIGIT = re.compile("[^0-9a-f]")
_DIGITS = 16
_END = "0x10000000000000000"


class Malformed(Exception):
    """The text is not a shard selector. The message is upstream's."""


async def read(text: str) -> ShardSelector:
    """Return the selector. Raises StatusError 500 with upstream's text, because upstream sends such errors as they are. Long texts are
    parsed in a thread."""
    found = await run_sized(SHARD_SELECTOR, len(text), _attempt, text)
    if isinstance(found, str):
        raise errors.raw(f"invalid shard selector: {found}")
    return found


def _attempt(text: str) -> ShardSelector | str:
    """Return the selector or an error text. An exception would keep the text beyond its request: the future, its exception and the waiting
    frame refer to each other."""
    try:
        return parse(text)
    except Malformed as e:
        return str(e)


def parse(text: str) -> ShardSelector:
    """Return the selector of a text. Raises Malformed."""
    text = text.strip(SPACE)
    if not text:
        raise Malformed("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    reader = parser.parse if len(text) <= MOST_EXPLAINED else parser.well_written
    try:
        tree = reader(Source(text), macros=_NO_MACROS, optional_syntax=False)
    except CompileError as e:
        raise Malformed(f"CEL parse error: {e.issues[0].message}") from None
    if tree is None:
        raise Malformed(f"CEL parse error: more than {MOST_EXPLAINED} characters, and wrong or nested deeply")
    ranges = _ranges(tree.expr)
    for other in ranges:
        if other.field != ranges[0].field:
            fields = f"{go_quote(ranges[0].field)} and {go_quote(other.field)}"
            raise Malformed(f"all shard ranges must use the same field, got {fields}")
    return ShardSelector(ranges)


def _ranges(expr: ast.Expr) -> list[Range]:
    """Return the ranges from left to right, so that the first error is the one reported."""
    ranges: list[Range] = []
    todo = [expr]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.Call):
            raise Malformed(
                f"unexpected expression kind {_KINDS[type(node)]}; expected shardRange() call or || operator"
            )
        if node.function == "_||_":
            todo += reversed(node.arguments)
        elif node.function == "shardRange":
            ranges.append(_range(node.arguments))
        else:
            raise Malformed(f"unsupported function {go_quote(node.function)}; only shardRange() and || are allowed")
    return ranges


def _range(arguments: list[ast.Expr]) -> Range:
    """Return the range of a call of shardRange(). The receiver of the call is ignored, as upstream does."""
    if len(arguments) != 3:
        raise Malformed(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    field = _path(arguments[0])
    if field not in FIELDS:
        raise Malformed(f"unsupported field path {go_quote(field)}; supported: {', '.join(FIELDS)}")
    start, end = _bound(arguments[1], "hexStart"), _bound(arguments[2], "hexEnd")
    found = Range(field, int(start, 16), int(end, 16))
    if found.start >= found.end:
        raise Malformed(f"shard range start {start} must be less than end {end}")
    return found


def _path(expr: ast.Expr) -> str:
    parts: list[str] = []
    while isinstance(expr, ast.Select):
        parts.append(expr.field)
        expr = expr.operand
    if not isinstance(expr, ast.Ident):
        wanted = "expected field path (e.g. object.metadata.uid)"
        raise Malformed(f"shardRange() first argument: {wanted}, got expression kind {_KINDS[type(expr)]}")
    return ".".join((expr.name, *reversed(parts)))


def _bound(expr: ast.Expr, name: str) -> str:
    """Return a literal like '0x00000000000000ff': 16 digits, or 2^64, which is the exclusive end."""
    if not isinstance(expr, ast.Literal):
        raise Malformed(f"{name} must be a string literal (e.g. '0xff'), got expression kind {_KINDS[type(expr)]}")
    value = expr.value
    if not isinstance(value, str):
        raise Malformed(f"{name} must be a string literal, got {_GO_TYPES[type(value)]}")
    shown = go_quote(value)
    if not value.startswith("0x"):
        raise Malformed(f"{name} must have '0x' prefix, got {shown}")
    digits = value[2:]
    if not digits:
        raise Malformed(f"{name}: hex value is required after '0x'")
    size = names.byte_length(digits)
    if size > _DIGITS + 1:
        raise Malformed(f"{name}: hex value too long ({size} chars, max {_DIGITS + 1}): {go_quote(digits)}")
    if wrong := _NO_DIGIT.search(digits):
        raise Malformed(f"{name}: invalid hex character {go_quote(wrong[0])} in {shown}")
    if size > _DIGITS and value != _END:
        raise Malformed(f"{name}: 17-digit hex value must be '{_END}' (2^64), got {shown}")
    if size < _DIGITS:
        meant = go_quote(f"0x{digits:0>{_DIGITS}}")
        raise Malformed(f"{name} must be a 0x-prefixed 16-digit hex value, got {shown} (did you mean {meant}?)")
    return value
