"""Check Kubernetes' rules about literals: elements of one type, and valid durations, times and patterns.

Upstream: google/cel-go `cel/validator.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kubecel.check.declarations import Validator
from kubecel.parse.ast import Ast, Call, Comprehension, Expr, ListExpr, Literal, MapExpr, children
from kubecel.parse.source import Issue
from kubecel.values.conversions import CONVERSIONS
from kubecel.values.errors import EvaluationError
from kubecel.values.regexes import InvalidPattern, compiled
from kubecel.values.templates import Clause, TemplateError, cannot_write, fill
from kubecel.values.types import Kind, Type, format_type
from kubecel.values.values import Value

if TYPE_CHECKING:
    from kubecel.check.checker import Checked


def _issue(ast: Ast, expression: int, message: str) -> Issue:
    return Issue(ast.positions.get(expression), message, expression)


def _of_literal(function: str, judge: Callable[[Value], object]) -> Validator:
    """Return a validator: the first argument of a function, if it is a literal, must not make `judge` raise."""

    def check(checked: Checked, nodes: Sequence[Expr], _: frozenset[str]) -> Iterator[Issue]:
        for node in nodes:
            if not (isinstance(node, Call) and node.function == function and node.arguments):
                continue
            literal = node.arguments[0]
            if isinstance(literal, Literal):
                try:
                    judge(literal.value)
                except (EvaluationError, InvalidPattern):
                    yield _issue(checked.ast, literal.id, f"invalid {function} argument")

    return Validator(f"cel.validator.{function}", check)


DURATION_LITERALS = _of_literal("duration", CONVERSIONS["duration"])
TIMESTAMP_LITERALS = _of_literal("timestamp", CONVERSIONS["timestamp"])
REGEX_LITERALS = _of_literal("matches", compiled)


def _homogeneous(checked: Checked, nodes: Sequence[Expr], exempt: frozenset[str]) -> Iterable[Issue]:
    mixed: list[tuple[Expr, tuple[Expr, Type, Type]]] = [
        (node, at) for node in nodes if isinstance(node, ListExpr) for at in _mixed_elements(checked, node)
    ]
    mixed += [(node, at) for node in nodes if isinstance(node, MapExpr) for at in _mixed_entries(checked, node)]
    if not mixed:
        return ()
    free = _inside(checked.ast.expr, exempt)
    return (
        _issue(checked.ast, part.id, f"expected type '{format_type(expected)}' but found '{format_type(found)}'")
        for node, (part, expected, found) in mixed
        if node.id not in free
    )


def _mixed_elements(checked: Checked, node: ListExpr) -> Iterator[tuple[Expr, Type, Type]]:
    """Yield the first element whose type differs from that of the first."""
    first: Type | None = None
    for index, element in enumerate(node.elements):
        of = _element(checked.types[element.id], optional=index in node.optional)
        first = first or of
        if of.bare != first.bare:
            yield element, first, of
            return


def _mixed_entries(checked: Checked, node: MapExpr) -> Iterator[tuple[Expr, Type, Type]]:
    """Yield the keys and values whose types differ from those of the first entry."""
    firsts: tuple[Type, Type] | None = None
    for entry in node.entries:
        found = checked.types[entry.key.id], _element(checked.types[entry.value.id], optional=entry.optional)
        firsts = firsts or found
        for part, expected, of in zip((entry.key, entry.value), firsts, found, strict=True):
            if of.bare != expected.bare:
                yield part, expected, of


def _element(of: Type, *, optional: bool) -> Type:
    """Return the type that an element with a question mark adds; dyn stays dyn."""
    return of.parameters[0] if optional and of.parameters else of


def _inside(expr: Expr, functions: frozenset[str]) -> set[int]:
    """Return the nodes inside the calls of some functions."""
    found: set[int] = set()
    todo = [(expr, False)]
    while todo:
        node, inside = todo.pop()
        if inside:
            found.add(node.id)
        inside = inside or (isinstance(node, Call) and node.function in functions)
        todo.extend((child, inside) for child in children(node))
    return found


HOMOGENEOUS_LITERALS = Validator("cel.validator.homogeneous_literals", _homogeneous)


def comprehension_nesting(limit: int) -> Validator:
    """Return a validator of the nesting of comprehensions. Those over an empty list (`cel.bind`) do not count."""

    def check(checked: Checked, nodes: Sequence[Expr], _: frozenset[str]) -> Iterator[Issue]:
        deep: set[int] = set()
        todo: list[tuple[Expr, int]] = [(checked.ast.expr, 0)]
        while todo:
            node, depth = todo.pop()
            if isinstance(node, Comprehension):
                depth += not (isinstance(node.range, ListExpr) and not node.range.elements)
                if depth > limit:
                    deep.add(node.id)
            todo.extend((child, depth) for child in children(node))
        for node in nodes:
            if node.id in deep:
                yield _issue(checked.ast, node.id, "comprehension exceeds nesting limit")

    return Validator("cel.validator.comprehension_nesting_limit", check)


# The validators of every expression since Kubernetes 1.29.
KUBERNETES = (DURATION_LITERALS, TIMESTAMP_LITERALS, REGEX_LITERALS, HOMOGENEOUS_LITERALS)


# --- format -----------------------------------------------------------------------------------------------------------

# The types that a clause accepts, and the error message for all others.
_NUMBERS = frozenset((Kind.INT, Kind.UINT))
_FLOATS = frozenset((Kind.DOUBLE, Kind.STRING))
_PRINTABLE = _NUMBERS | frozenset(
    (
        Kind.LIST,
        Kind.MAP,
        Kind.DOUBLE,
        Kind.BOOL,
        Kind.STRING,
        Kind.TIMESTAMP,
        Kind.BYTES,
        Kind.DURATION,
        Kind.TYPE,
        Kind.NULL,
    )
)
_WRITABLE = {
    "s": _PRINTABLE,
    "d": _NUMBERS,
    "f": _FLOATS,
    "e": _FLOATS,
    "b": _NUMBERS | {Kind.BOOL},
    "x": _NUMBERS | {Kind.STRING, Kind.BYTES},
    "X": _NUMBERS | {Kind.STRING, Kind.BYTES},
    "o": _NUMBERS,
}


def _formats(checked: Checked, nodes: Sequence[Expr], _: frozenset[str]) -> Iterator[Issue]:
    """Check literal templates that `format` fills from a literal list.

    Every clause needs an argument that it accepts, and every argument a clause.
    """
    for node in nodes:
        if not (isinstance(node, Call) and node.function == "format" and isinstance(node.target, Literal)):
            continue
        if (
            not isinstance(node.target.value, str)
            or len(node.arguments) != 1
            or not isinstance(node.arguments[0], ListExpr)
        ):
            continue
        if "string_format" in checked.references[node.id].overloads:
            yield from _template(checked, node, node.target.value, node.arguments[0].elements)


def _template(checked: Checked, node: Call, text: str, arguments: Sequence[Expr]) -> Iterator[Issue]:
    requested = 0

    def request(index: int) -> int:
        nonlocal requested
        requested += 1
        return index

    def write(clause: Clause, index: int) -> str:
        _require(checked, clause, arguments[index])
        return ""

    try:
        fill(text, size=len(arguments), argument=request, write=write)
    except TemplateError as error:
        yield _issue(checked.ast, error.expression or node.id, error.message)
    else:
        if len(arguments) > requested:
            message = f"too many arguments supplied to string.format (expected {requested}, got {len(arguments)})"
            yield _issue(checked.ast, node.id, message)


def _require(checked: Checked, clause: Clause, argument: Expr) -> None:
    """Raise TemplateError when a clause does not accept an argument. `%s` checks the parts of literal lists and maps
    too.
    """
    todo = [argument]
    while todo:
        at = todo.pop()
        of = checked.types[at.id]
        if of.kind is not Kind.DYN and of.kind not in _WRITABLE[clause.verb]:
            raise cannot_write(clause, of.name, at.id)
        if clause.verb == "s" and isinstance(at, ListExpr | MapExpr):
            todo.extend(reversed(children(at)))


STRING_FORMAT = Validator("cel.validator.string_format", _formats, frozenset(("format",)))
