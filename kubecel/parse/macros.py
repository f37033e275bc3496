"""Expand macros: calls that the parser replaces, mostly by comprehensions.

Upstream: google/cel-go `parser/{macro,helper}.go`, `cel/library.go` (optMap, optFlatMap), `ext/{bindings,comprehensions}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

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
from kubecel.values.stackless import Task, run
from kubecel.values.values import Value

# The accumulator of a comprehension. No expression can write this name; the previous name is reserved as well.
ACCUMULATOR, _OLD_ACCUMULATOR = "@result", "__result__"
# The loop variable of a comprehension over an empty list.
UNUSED = "#unused"
# Limit of the nodes of an expression, and the further nodes that each code point allows. Expressions without macros
# stay far below. But `optMap` copies its target, so each link of a chain doubles the expression. Upstream has no limit.
MAX_NODES, MAX_NODES_BY_SIZE = 10_000, 4


class MacroError(Exception):
    """A macro is called wrongly. `expression` is the id of the node at fault."""

    def __init__(self, expression: int, message: str) -> None:
        super().__init__(message)
        self.expression = expression
        self.message = message


class TooManyNodes(Exception):
    """Macros make an expression too large."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"expression expands to more than {limit} nodes")


class Ids:
    """The ids and offsets of the nodes of one expression. Ids are in cel-go's order."""

    __slots__ = ("_limit", "following", "positions")

    def __init__(self, size: int) -> None:
        """Start with the size of the text in code points, which decides the limit."""
        self._limit = MAX_NODES + MAX_NODES_BY_SIZE * size
        self.following = 1
        self.positions: dict[int, int] = {}

    def new(self, offset: int) -> int:
        """Return an id for a node at `offset`."""
        expression = self.following
        if expression > self._limit:
            raise TooManyNodes(self._limit)
        self.following = expression + 1
        self.positions[expression] = offset
        return expression

    def drop(self, expression: int) -> None:
        """Forget an id. If it was the last one, it is used again."""
        del self.positions[expression]
        if expression == self.following - 1:
            self.following = expression


class Expansion:
    """Builds the replacement of a macro. All nodes have the position of the call."""

    __slots__ = ("_ids", "_offset")

    def __init__(self, ids: Ids, offset: int) -> None:
        self._ids = ids
        self._offset = offset

    def literal(self, value: Value) -> Expr:
        """Return a constant."""
        return Literal(self._ids.new(self._offset), value)

    def true(self) -> Expr:
        """Return `true`."""
        return self.literal(value=True)

    def false(self) -> Expr:
        """Return `false`."""
        return self.literal(value=False)

    def ident(self, name: str) -> Expr:
        """Return a name."""
        return Ident(self._ids.new(self._offset), name)

    def accumulator(self) -> Expr:
        """Return the name of the accumulator."""
        return self.ident(ACCUMULATOR)

    def list(self, *elements: Expr) -> Expr:
        """Return a list."""
        return ListExpr(self._ids.new(self._offset), [*elements])

    def map(self) -> Expr:
        """Return an empty map."""
        return MapExpr(self._ids.new(self._offset), [])

    def call(self, function: str, *arguments: Expr) -> Expr:
        """Return a call of a function."""
        return Call(self._ids.new(self._offset), function, None, [*arguments])

    def member_call(self, function: str, target: Expr, *arguments: Expr) -> Expr:
        """Return a call of a member function."""
        return Call(self._ids.new(self._offset), function, target, [*arguments])

    def presence(self, operand: Expr, field: str) -> Expr:
        """Return a presence test, `has(operand.field)`."""
        return Select(self._ids.new(self._offset), operand, field, test_only=True)

    def fold(
        self,
        over: Expr,
        variables: tuple[str, str],
        *,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
        accumulator: str = ACCUMULATOR,
    ) -> Expr:
        """Return a comprehension."""
        first, second = variables
        return Comprehension(
            self._ids.new(self._offset), over, first, second, accumulator, init, condition, step, result
        )

    def copy(self, expr: Expr) -> Expr:
        """Return a copy with ids of its own. Each node keeps the position of its original."""
        copied: Expr = run(self._copy(expr))
        return copied

    def _copy(self, expr: Expr) -> Task:
        ids = self._ids
        expression = ids.new(ids.positions[expr.id])
        if isinstance(expr, Literal):
            return Literal(expression, expr.value)
        if isinstance(expr, Ident):
            return Ident(expression, expr.name)
        if isinstance(expr, Select):
            return Select(expression, (yield self._copy(expr.operand)), expr.field, expr.test_only)
        if isinstance(expr, Call):
            arguments = yield self._copies(expr.arguments)
            target = None if expr.target is None else (yield self._copy(expr.target))
            return Call(expression, expr.function, target, arguments)
        if isinstance(expr, ListExpr):
            return ListExpr(expression, (yield self._copies(expr.elements)), expr.optional)
        if isinstance(expr, MapExpr):
            entries = []
            for entry in expr.entries:
                made = ids.new(self._offset)
                key = yield self._copy(entry.key)
                entries.append(Entry(made, key, (yield self._copy(entry.value)), entry.optional))
            return MapExpr(expression, entries)
        if isinstance(expr, StructExpr):
            fields = []
            for field in expr.fields:
                made = ids.new(self._offset)
                fields.append(FieldEntry(made, field.name, (yield self._copy(field.value)), field.optional))
            return StructExpr(expression, expr.type_name, fields)
        parts = yield self._copies([expr.range, expr.init, expr.condition, expr.step, expr.result])
        over, *rest = parts
        return Comprehension(expression, over, expr.variable, expr.variable2, expr.accumulator, *rest)

    def _copies(self, exprs: Sequence[Expr]) -> Task:
        copies: list[Expr] = []
        for expr in exprs:
            copy = yield self._copy(expr)
            copies.append(copy)
        return copies


# (builder, target of a member call, arguments) → the replacement; None when the call is not a macro after all.
Expand = Callable[[Expansion, Expr | None, list[Expr]], Expr | None]


class Macro(NamedTuple):
    """A macro: `receiver` when it has a target, `arity` the number of its arguments, None for any."""

    name: str
    receiver: bool
    arity: int | None
    expand: Expand


class Macros:
    """Macros by signature. The later of two equal ones wins."""

    def __init__(self, macros: Iterable[Macro] = ()) -> None:
        self._macros = {(macro.name, macro.receiver, macro.arity): macro for macro in macros}
        self.names = frozenset(name for name, _, _ in self._macros)

    def find(self, name: str, *, receiver: bool, arity: int) -> Macro | None:
        """Return the macro that a call matches, or None."""
        macros = self._macros
        return macros.get((name, receiver, arity)) or macros.get((name, receiver, None))

    def expand(self, ids: Ids, call: Call) -> Expr | None:
        """Return the replacement of a call, None if it is not a macro. Drops the id of a replaced or wrong call."""
        macro = self.find(call.function, receiver=call.target is not None, arity=len(call.arguments))
        if macro is None:
            return None
        try:
            expr = macro.expand(Expansion(ids, ids.positions[call.id]), call.target, call.arguments)
        except MacroError:
            ids.drop(call.id)
            raise
        if expr is not None:
            ids.drop(call.id)
        return expr


def _has(make: Expansion, _: Expr | None, arguments: list[Expr]) -> Expr:
    (selection,) = arguments
    if not isinstance(selection, Select):
        raise MacroError(selection.id, "invalid argument to has() macro")
    return make.presence(selection.operand, selection.field)


def _variable(variable: Expr, otherwise: str = "argument must be a simple name") -> str:
    if not isinstance(variable, Ident):
        raise MacroError(variable.id, otherwise)
    return variable.name


def _free(variable: Expr, name: str) -> None:
    if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(variable.id, "iteration variable overwrites accumulator variable")


def _one_variable(arguments: list[Expr], otherwise: str = "argument must be a simple name") -> tuple[str, str]:
    name = _variable(arguments[0], otherwise)
    _free(arguments[0], name)
    return name, ""


def _two_variables(arguments: list[Expr]) -> tuple[str, str]:
    first, second = _variable(arguments[0]), _variable(arguments[1])
    if first == second:
        raise MacroError(arguments[1].id, f"duplicate variable name: {first}")
    _free(arguments[0], first)
    _free(arguments[1], second)
    return first, second


# The number of variables of a macro, and the function that finds them.
_Variables = Callable[[list[Expr]], tuple[str, str]]


def _all(variables: _Variables) -> Expand:
    def expand(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
        names = variables(arguments)
        init = make.true()
        condition = make.call("@not_strictly_false", make.accumulator())
        step = make.call("_&&_", make.accumulator(), arguments[-1])
        return make.fold(_over(target), names, init=init, condition=condition, step=step, result=make.accumulator())

    return expand


def _exists(variables: _Variables) -> Expand:
    def expand(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
        names = variables(arguments)
        init = make.false()
        condition = make.call("@not_strictly_false", make.call("!_", make.accumulator()))
        step = make.call("_||_", make.accumulator(), arguments[-1])
        return make.fold(_over(target), names, init=init, condition=condition, step=step, result=make.accumulator())

    return expand


def _exists_one(variables: _Variables) -> Expand:
    def expand(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
        names = variables(arguments)
        init = make.literal(0)
        condition = make.true()
        counted = make.call("_+_", make.accumulator(), make.literal(1))
        step = make.call("_?_:_", arguments[-1], counted, make.accumulator())
        one = make.call("_==_", make.accumulator(), make.literal(1))
        return make.fold(_over(target), names, init=init, condition=condition, step=step, result=one)

    return expand


def _map(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
    names = _one_variable(arguments, "argument is not an identifier")
    init = make.list()
    condition = make.true()
    step = make.call("_+_", make.accumulator(), make.list(arguments[-1]))
    if len(arguments) == 3:
        step = make.call("_?_:_", arguments[1], step, make.accumulator())
    return make.fold(_over(target), names, init=init, condition=condition, step=step, result=make.accumulator())


def _filter(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
    names = _one_variable(arguments, "argument is not an identifier")
    init = make.list()
    condition = make.true()
    step = make.call("_+_", make.accumulator(), make.list(arguments[0]))
    step = make.call("_?_:_", arguments[1], step, make.accumulator())
    return make.fold(_over(target), names, init=init, condition=condition, step=step, result=make.accumulator())


def _optional(name: str, *, wrap: bool) -> Expand:
    def expand(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
        variable = _variable(arguments[0], f"{name}() variable name must be a simple identifier")
        held = _over(target)
        there = make.member_call("hasValue", held)
        nothing = make.list()
        inner = _bound(make, nothing, (variable, make.member_call("value", make.copy(held))), arguments[1])
        if wrap:
            inner = make.call("optional.of", inner)
        return make.call("_?_:_", there, inner, make.call("optional.none"))

    return expand


def _bind(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr | None:
    if not (isinstance(target, Ident) and target.name == "cel"):
        return None
    variable = _variable(arguments[0], "cel.bind() variable names must be simple identifiers")
    return _bound(make, make.list(), (variable, arguments[1]), arguments[2])


def _bound(make: Expansion, nothing: Expr, variable: tuple[str, Expr], result: Expr) -> Expr:
    """Return `result` with one variable: a comprehension over an empty list whose accumulator is the variable."""
    name, value = variable
    condition = make.false()
    step = make.ident(name)
    return make.fold(nothing, (UNUSED, ""), init=value, condition=condition, step=step, result=result, accumulator=name)


def _sort_by(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
    """Expand `list.sortBy(x, key)`: `cel.bind` of the list, sorted by the list of its keys."""
    held = make.ident("@__sortBy_input__")
    over = _over(target)
    if isinstance(over, (Literal, MapExpr, StructExpr)):
        raise MacroError(
            over.id, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = _map(make, make.copy(held), arguments)
    result = make.member_call("@sortByAssociatedKeys", make.copy(held), keys)
    nothing = make.list()
    condition = make.false()
    return make.fold(
        nothing,
        (UNUSED, ""),
        init=over,
        condition=condition,
        step=held,
        result=result,
        accumulator="@__sortBy_input__",
    )


def _transform(start: Callable[[Expansion], Expr], add: Callable[[Expansion, str, Expr], Expr]) -> Expand:
    """Return the expansion of a fold with two variables that adds transformed entries.

    With four arguments it adds only entries for which the third is true.
    """

    def expand(make: Expansion, target: Expr | None, arguments: list[Expr]) -> Expr:
        names = _two_variables(arguments)
        step = add(make, names[0], arguments[-1])
        if len(arguments) == 4:
            step = make.call("_?_:_", arguments[2], step, make.accumulator())
        init = start(make)
        condition = make.true()
        return make.fold(_over(target), names, init=init, condition=condition, step=step, result=make.accumulator())

    return expand


def _over(target: Expr | None) -> Expr:
    """Return the target of a receiver macro, which always has one."""
    if target is None:
        raise TypeError("a macro of a receiver is called without one")
    return target


_transform_list = _transform(
    Expansion.list, lambda make, _, added: make.call("_+_", make.accumulator(), make.list(added))
)
_transform_map = _transform(
    Expansion.map, lambda make, key, added: make.call("cel.@mapInsert", make.accumulator(), make.ident(key), added)
)
_transform_map_entry = _transform(
    Expansion.map, lambda make, _, added: make.call("cel.@mapInsert", make.accumulator(), added)
)


def _member(name: str, arity: int, expand: Expand) -> Macro:
    return Macro(name, receiver=True, arity=arity, expand=expand)


STANDARD = (
    Macro("has", receiver=False, arity=1, expand=_has),
    _member("all", 2, _all(_one_variable)),
    _member("exists", 2, _exists(_one_variable)),
    _member("exists_one", 2, _exists_one(_one_variable)),
    _member("map", 2, _map),
    _member("map", 3, _map),
    _member("filter", 2, _filter),
)
OPTIONAL = (
    _member("optMap", 2, _optional("optMap", wrap=True)),
    _member("optFlatMap", 2, _optional("optFlatMap", wrap=False)),
)
BINDINGS = (_member("bind", 3, _bind),)
SORT_BY = _member("sortBy", 2, _sort_by)
COMPREHENSIONS = (
    _member("all", 3, _all(_two_variables)),
    _member("exists", 3, _exists(_two_variables)),
    _member("existsOne", 3, _exists_one(_two_variables)),
    _member("exists_one", 3, _exists_one(_two_variables)),
    _member("transformList", 3, _transform_list),
    _member("transformList", 4, _transform_list),
    _member("transformMap", 3, _transform_map),
    _member("transformMap", 4, _transform_map),
    _member("transformMapEntry", 3, _transform_map_entry),
    _member("transformMapEntry", 4, _transform_map_entry),
)
