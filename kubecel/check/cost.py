"""Estimate the cost of an expression: the sizes that declarations allow, times the work of each node.

The estimate decides whether an expression is refused, so it must equal upstream's number. The walk has a stack of steps
instead of recursion, because a chain of operators is as deep as it is long. Upstream: google/cel-go `checker/cost.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubecel.check.checker import Checked
from kubecel.check.declarations import UNLIMITED, CallEstimate, Node, Overload, Range, Shape
from kubecel.check.environment import Environment
from kubecel.parse.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from kubecel.values.types import DYN, Kind, Type

_UNKNOWN = Range(0, UNLIMITED)
_NOTHING = Range(0, 0)
_ONE = Range(1, 1)
_LIST, _MAP, _STRUCT = Range(10, 10), Range(30, 30), Range(40, 40)

# The cost of traversing one character of a string, and of using one of a regular expression (cel-go `common/cost.go`).
TRAVERSAL = 0.1
REGEX = 0.25

# Names of accumulators of macros. A path never begins with one.
_ACCUMULATORS = frozenset({"__result__", "@result"})
_SCALARS = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})


def estimate(checked: Checked, environment: Environment, shapes: Mapping[str, Shape]) -> Range:
    """Return the least and the greatest cost of an evaluation. `shapes` of variables limit their sizes."""
    return _Walk(checked, environment, shapes).run()


class _Path:
    """The path from a variable to a node, and its shape.

    A path stores only its last step; chains share the steps before.
    """

    __slots__ = ("above", "name", "root", "shape")

    def __init__(self, above: _Path | None, name: str, shape: Shape | None) -> None:
        self.above = above
        self.name = name
        self.shape = shape
        self.root: str = name if above is None else above.root

    def names(self) -> tuple[str, ...]:
        names = []
        step: _Path | None = self
        while step is not None:
            names.append(step.name)
            step = step.above
        return tuple(reversed(names))


def _inner(shape: Shape, name: str) -> Shape | None:
    if name in ("@items", "@values"):
        return shape.items
    if name == "@keys":
        return shape.keys
    return (shape.fields or {}).get(name, shape.others)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as estimates of overloads see it."""

    type: Type
    expr: Expr | None
    computed_size: Range | None
    way: _Path | None

    @property
    def path(self) -> tuple[str, ...] | None:
        return None if self.way is None else self.way.names()


class _Entries(NamedTuple):
    """The sizes of the keys (or indices) and values of a list or a map."""

    container: Kind
    key: Range
    value: Range

    def union(self, other: _Entries) -> _Entries:
        return _Entries(self.container, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    """The known sizes of a variable that a macro declares."""

    path: _Path | None
    size: Range | None
    entries: _Entries | None


_Step = Callable[["_Walk", Any], None]


class _Walk:
    """One estimate.

    `_todo` holds the steps to take, `_costs` the costs of nodes whose parents are not finished. Steps are functions: a walk that held
    methods of its own would be freed by the garbage collector only, and with it the tree.
    """

    def __init__(self, checked: Checked, environment: Environment, shapes: Mapping[str, Shape]) -> None:
        self._checked = checked
        self._types = checked.types
        self._overloads = environment.overloads
        self._equality = environment.equality
        self._presence = _NOTHING if environment.free_presence_tests else _ONE
        self._shapes = shapes
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}
        self._todo: list[tuple[_Step, Expr]] = []
        self._costs: list[Range] = []

    def run(self) -> Range:
        self._visit(self._checked.ast.expr)
        while self._todo:
            step, expr = self._todo.pop()
            step(self, expr)
        return self._costs.pop()

    def _visit(self, *exprs: Expr) -> None:
        """Visit these next, in their order."""
        self._todo.extend((_VISITS[type(expr)], expr) for expr in reversed(exprs))

    def _then(self, step: _Step, expr: Expr) -> None:
        """Take a step after all visits that are added from here on."""
        self._todo.append((step, expr))

    def _take(self, count: int) -> list[Range]:
        """Return the costs of the last nodes, in the order of their visits."""
        if count == 0:
            return []
        taken = self._costs[-count:]
        del self._costs[-count:]
        return taken

    # Nodes

    def _literal(self, _: Literal) -> None:
        self._costs.append(_NOTHING)

    def _ident(self, expr: Ident) -> None:
        local = self._local(expr.name)
        path = self._step(None, expr.name) if local is None else local.path
        if path is not None:
            self._paths[expr.id] = path
        self._costs.append(_ONE)

    def _select(self, expr: Select) -> None:
        self._then(_Walk._selected, expr)
        self._visit(expr.operand)

    def _selected(self, expr: Select) -> None:
        cost = self._costs.pop()
        if expr.test_only:
            self._costs.append(cost.plus(self._presence))
            return
        if self._type(expr.operand).kind in (Kind.MAP, Kind.STRUCT, Kind.PARAMETER):
            cost = cost.plus(_ONE)
        self._paths[expr.id] = self._step(self._path(expr.operand), expr.field)
        self._costs.append(cost)

    def _list(self, expr: ListExpr) -> None:
        self._then(_Walk._listed, expr)
        self._visit(*expr.elements)

    def _listed(self, expr: ListExpr) -> None:
        self._entries[expr.id] = _Entries(Kind.LIST, _ONE, self._sizes_of(expr.elements))
        self._costs.append(_total(self._take(len(expr.elements))).plus(_LIST))

    def _map(self, expr: MapExpr) -> None:
        self._then(_Walk._mapped, expr)
        self._visit(*(part for entry in expr.entries for part in (entry.key, entry.value)))

    def _mapped(self, expr: MapExpr) -> None:
        keys = self._sizes_of([entry.key for entry in expr.entries])
        values = self._sizes_of([entry.value for entry in expr.entries])
        self._entries[expr.id] = _Entries(Kind.MAP, keys, values)
        self._costs.append(_total(self._take(2 * len(expr.entries))).plus(_MAP))

    def _sizes_of(self, exprs: Sequence[Expr]) -> Range:
        """Return the range from the smallest to the largest of these sizes."""
        if not exprs:
            return _NOTHING
        sizes = [self._size_or_unknown(expr) for expr in exprs]
        return Range(min(size.least for size in sizes), max(size.most for size in sizes))

    def _struct(self, expr: StructExpr) -> None:
        self._then(_Walk._structured, expr)
        self._visit(*(entry.value for entry in expr.fields))

    def _structured(self, expr: StructExpr) -> None:
        self._costs.append(_total(self._take(len(expr.fields))).plus(_STRUCT))

    # Calls

    def _call(self, expr: Call) -> None:
        if expr.function == "dyn":
            self._then(_Walk._undeclared, expr)
            self._visit(expr.arguments[0])
            return
        self._then(_Walk._called, expr)
        self._visit(*expr.arguments)
        if expr.target is not None:
            self._visit(expr.target)

    def _undeclared(self, expr: Call) -> None:
        """Estimate `dyn(x)`, which hides only the type of x. Its size stays known."""
        self._same_size(expr, expr.arguments[0])
        self._costs.append(self._costs.pop().plus(_ONE))

    def _called(self, expr: Call) -> None:
        costs = self._take(len(expr.arguments))
        target_cost = _NOTHING if expr.target is None else self._costs.pop()
        reference = self._checked.references.get(expr.id)
        if reference is None or not reference.overloads:
            self._costs.append(_NOTHING)
            return
        target = None if expr.target is None else self._node(expr.target)
        call = _Invocation(expr, target, [self._node(argument) for argument in expr.arguments], costs)
        cost, size = Range(UNLIMITED, 0), None
        for overload in reference.overloads:
            estimated = self._overload(overload, call)
            cost = cost.union(estimated.cost)
            if estimated.size is not None:
                size = estimated.size if size is None else size.union(estimated.size)
            if overload in _INDICES and expr.arguments:
                size = self._indexed(expr, _INDICES[overload])
            if size is None:
                size = self._size(expr)
        if size is not None:
            self._sizes[expr.id] = size
        self._costs.append(target_cost.plus(cost))

    def _indexed(self, expr: Call, step: str) -> Range | None:
        container = expr.arguments[0]
        self._paths[expr.id] = self._step(self._path(container), step)
        entries = self._entries_of(container)
        return None if entries is None else entries.value

    def _overload(self, overload: str, call: _Invocation) -> CallEstimate:
        """Return the estimate of an overload: its own, else that of the standard function, else one."""
        declared = self._declared(self._overloads.get(overload), call)
        if declared is not None:
            return CallEstimate(declared.cost.plus(call.argument_cost), declared.size)
        rule = _STANDARD.get(overload)
        standard = None if rule is None else rule(self, call)
        return CallEstimate(_ONE.plus(call.argument_cost)) if standard is None else standard

    def _declared(self, overload: Overload | None, call: _Invocation) -> CallEstimate | None:
        if overload is not None and overload.estimate is not None:
            return overload.estimate(self, call.target, call.arguments)
        if call.expr.function != "_==_":
            return None
        left, right = call.arguments
        rule = self._equality.get(left.type) if left.type == right.type else None
        return None if rule is None else rule(self, call.target, call.arguments)

    # Macros

    def _comprehension(self, expr: Comprehension) -> None:
        self._then(_Walk._bound if _is_bind(expr) else _Walk._folding, expr)
        self._visit(expr.range, expr.init)

    def _bound(self, expr: Comprehension) -> None:
        """Estimate `cel.bind`: a loop without rounds, whose result sees the variable."""
        self._declare_initial(expr)
        self._then(_Walk._unbound, expr)
        self._visit(expr.result)

    def _unbound(self, expr: Comprehension) -> None:
        self._locals[expr.accumulator].pop()
        self._same_size(expr, expr.result)
        self._costs.append(_total(self._take(3)))

    def _folding(self, expr: Comprehension) -> None:
        self._declare_initial(expr)
        entries = self._entries_of(expr.range)
        container = self._type(expr.range).kind if entries is None else entries.container
        is_list = container is Kind.LIST
        key = None if entries is None else entries.key
        value = None if entries is None else entries.value
        path = self._path(expr.range)
        key_path = self._step(path, "@indices" if is_list else "@keys")
        if expr.variable2:
            self._declare(expr.variable, _Local(key_path, key, None))
            self._declare(expr.variable2, _Local(self._step(path, "@items" if is_list else "@values"), value, None))
        elif is_list:
            self._declare(expr.variable, _Local(self._step(path, "@items"), value, None))
        else:
            self._declare(expr.variable, _Local(key_path, key, None))
        self._then(_Walk._folded, expr)
        self._visit(expr.condition, expr.step)

    def _folded(self, expr: Comprehension) -> None:
        self._locals[expr.variable].pop()
        if expr.variable2:
            self._locals[expr.variable2].pop()
        self._then(_Walk._finished, expr)
        self._visit(expr.result)

    def _finished(self, expr: Comprehension) -> None:
        self._locals[expr.accumulator].pop()
        container, init, condition, step, result = self._take(5)
        count = self._size_or_unknown(expr.range)
        self._costs.append(container.plus(init).plus(result).plus(count.times(step.plus(condition))))
        if isinstance(expr.init, Literal):
            size = self._size(expr.init)
            if size is not None:
                self._sizes[expr.id] = size
        elif isinstance(expr.init, ListExpr | MapExpr):
            self._sizes[expr.id] = count
            entries = self._entries_of(expr.step)
            if entries is not None:
                self._entries[expr.id] = entries

    def _declare_initial(self, expr: Comprehension) -> None:
        init = expr.init
        self._declare(expr.accumulator, _Local(self._path(init), self._size(init), self._entries_of(init)))

    def _declare(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _local(self, name: str) -> _Local | None:
        scopes = self._locals.get(name)
        return scopes[-1] if scopes else None

    # Sizes and paths of nodes

    def _type(self, expr: Expr) -> Type:
        return self._types.get(expr.id, DYN)

    def _step(self, path: _Path | None, name: str) -> _Path:
        if path is None:
            return _Path(None, name, self._shapes.get(name))
        return _Path(path, name, None if path.shape is None else _inner(path.shape, name))

    def _path(self, expr: Expr) -> _Path | None:
        if type(expr) is Ident:
            local = self._local(expr.name)
            if local is not None:
                return local.path
        return self._paths.get(expr.id)

    def _node(self, expr: Expr) -> _Node:
        path = self._path(expr)
        size = self._size(expr)
        return _Node(self._type(expr), expr, size, None if path is not None and path.root in _ACCUMULATORS else path)

    def _size(self, expr: Expr) -> Range | None:
        known = self._sizes.get(expr.id)
        if known is not None:
            return known
        written = _written_size(expr)
        if written is not None:
            return written
        path = self._path(expr)
        if path is not None and path.shape is not None:
            size = self._sizes[expr.id] = Range(0, path.shape.max_elements)
            return size
        if _is_scalar(self._type(expr)):
            return _ONE
        local = self._local(expr.name) if type(expr) is Ident else None
        return None if local is None else local.size

    def _size_or_unknown(self, expr: Expr) -> Range:
        return self._size(expr) or _UNKNOWN

    def _entries_of(self, expr: Expr) -> _Entries | None:
        known = self._entries.get(expr.id)
        if known is None and type(expr) is Ident:
            local = self._local(expr.name)
            return None if local is None else local.entries
        return known

    def _same_size(self, to: Expr, of: Expr) -> None:
        size, entries = self._size(of), self._entries_of(of)
        if size is not None:
            self._sizes[to.id] = size
        if entries is not None:
            self._entries[to.id] = entries

    # declarations.Estimator, for the estimates of overloads

    def size(self, node: Node) -> Range:
        if node.computed_size is not None:
            return node.computed_size
        shape = node.way.shape if isinstance(node, _Node) and node.way is not None else None
        return _UNKNOWN if shape is None else Range(0, shape.max_elements)

    def element(self, node: Node) -> Node | None:
        if not node.type.parameters:
            return None
        way = node.way if isinstance(node, _Node) else None
        return _Node(node.type.parameters[0], None, None, None if way is None else self._step(way, "@items"))

    # Standard functions

    def choose(self, call: _Invocation) -> CallEstimate:
        """Estimate `a ? b : c`."""
        condition, yes, no = call.costs
        if_true, if_false = call.expr.arguments[1:]
        entries, other = self._entries_of(if_true), self._entries_of(if_false)
        if entries is not None and other is not None:
            self._entries[call.expr.id] = entries.union(other)
        return CallEstimate(condition.plus(yes.union(no)), call.size(1).union(call.size(2)))

    def concatenate(self, call: _Invocation, factor: float | None) -> CallEstimate:
        """Estimate `a + b`: joining lists does not copy them (`factor` None), strings and bytes are copied."""
        size = call.size(0).plus(call.size(1))
        entries, other = (self._entries_of(argument) for argument in call.expr.arguments)
        if entries is not None and other is not None:
            self._entries[call.expr.id] = entries.union(other)
        cost = _ONE if factor is None else size.scaled(factor)
        return CallEstimate(cost.plus(call.argument_cost), size)


_VISITS: Mapping[type[Any], _Step] = {
    Literal: _Walk._literal,
    Ident: _Walk._ident,
    Select: _Walk._select,
    Call: _Walk._call,
    ListExpr: _Walk._list,
    MapExpr: _Walk._map,
    StructExpr: _Walk._struct,
    Comprehension: _Walk._comprehension,
}


class _Invocation:
    """A call with the known sizes and costs of its parts."""

    __slots__ = ("argument_cost", "arguments", "costs", "expr", "target")

    def __init__(self, expr: Call, target: _Node | None, arguments: list[_Node], costs: list[Range]) -> None:
        self.expr = expr
        self.target = target
        self.arguments = arguments
        self.costs = costs
        self.argument_cost = _total(costs)

    def size(self, argument: int) -> Range:
        return self.arguments[argument].computed_size or _UNKNOWN

    def target_size(self) -> Range:
        return _UNKNOWN if self.target is None else self.target.computed_size or _UNKNOWN


def _total(costs: Sequence[Range]) -> Range:
    if not costs:
        return _NOTHING
    return Range(min(sum(cost.least for cost in costs), UNLIMITED), min(sum(cost.most for cost in costs), UNLIMITED))


def _is_bind(expr: Comprehension) -> bool:
    return (
        isinstance(expr.range, ListExpr)
        and not expr.range.elements
        and isinstance(expr.condition, Literal)
        and expr.condition.value is False
        and expr.accumulator != "__result__"
    )


def _written_size(expr: Expr) -> Range | None:
    if isinstance(expr, Literal):
        return Range.exactly(len(expr.value)) if isinstance(expr.value, str | bytes) else _ONE
    if isinstance(expr, ListExpr):
        return Range.exactly(len(expr.elements))
    return Range.exactly(len(expr.entries)) if isinstance(expr, MapExpr) else None


def _is_scalar(of: Type) -> bool:
    while of.kind is Kind.OPAQUE and of.name == "optional_type":
        of = of.parameters[0]
    return of.kind in _SCALARS


# Estimates of the standard functions: google/cel-go `checker/cost.go` functionCost.
_Rule = Callable[[_Walk, _Invocation], CallEstimate | None]

_INDICES: Mapping[str, str] = {"index_list": "@items", "index_map": "@values"}


def _traverse_target(_: _Walk, call: _Invocation) -> CallEstimate | None:
    if call.target is None:
        return None
    return CallEstimate(call.target_size().scaled(TRAVERSAL).plus(call.argument_cost))


def _traverse_argument(_: _Walk, call: _Invocation) -> CallEstimate:
    return CallEstimate(call.size(0).scaled(TRAVERSAL).plus(call.argument_cost))


def _to_bytes(_: _Walk, call: _Invocation) -> CallEstimate:
    size = call.size(0)
    # Each character becomes at most four bytes. The product wraps around as cel-go's does.
    return CallEstimate(size.scaled(TRAVERSAL).plus(call.argument_cost), Range(size.least, size.most * 4 & UNLIMITED))


def _to_string(_: _Walk, call: _Invocation) -> CallEstimate:
    size = call.size(0)
    return CallEstimate(size.scaled(TRAVERSAL).plus(call.argument_cost), Range(size.least // 4, size.most))


def _quote(_: _Walk, call: _Invocation) -> CallEstimate:
    size = call.size(0)
    quoted = Range(size.least + 2 & UNLIMITED, size.most * 2 + 2 & UNLIMITED)
    return CallEstimate(size.scaled(TRAVERSAL).plus(call.argument_cost), quoted)


def _is_in_list(_: _Walk, call: _Invocation) -> CallEstimate:
    return CallEstimate(call.size(1).scaled(1.0).plus(call.argument_cost))


def _matches(_: _Walk, call: _Invocation) -> CallEstimate | None:
    # Only the method has this estimate in cel-go, not the function matches(text, pattern).
    if call.target is None:
        return None
    text = call.target_size().plus(_ONE).scaled(TRAVERSAL)
    return CallEstimate(text.times(call.size(0).scaled(REGEX)).plus(call.argument_cost))


def _contains(_: _Walk, call: _Invocation) -> CallEstimate:
    text = call.target_size().scaled(TRAVERSAL)
    return CallEstimate(text.times(call.size(0).scaled(TRAVERSAL)).plus(call.argument_cost))


def _either(_: _Walk, call: _Invocation) -> CallEstimate:
    """Estimate `&&` and `||`, which may stop after the left side."""
    left, right = call.costs
    return CallEstimate(Range(left.least, left.plus(right).most))


def _compare(_: _Walk, call: _Invocation) -> CallEstimate:
    most = min(call.size(0).most, call.size(1).most)
    return CallEstimate(Range(min(most, 1), most).scaled(TRAVERSAL).plus(call.argument_cost))


def _join_lists(walk: _Walk, call: _Invocation) -> CallEstimate:
    return walk.concatenate(call, None)


def _join_texts(walk: _Walk, call: _Invocation) -> CallEstimate:
    return walk.concatenate(call, TRAVERSAL)


_STANDARD: Mapping[str, _Rule] = {
    "string_format": _traverse_target,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _traverse_argument,
    "ends_with_string": _traverse_argument,
    "in_list": _is_in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    "logical_or": _either,
    "logical_and": _either,
    "conditional": _Walk.choose,
    "add_list": _join_lists,
    "add_string": _join_texts,
    "add_bytes": _join_texts,
    "equals": _compare,
    "not_equals": _compare,
    **{
        f"{order}_{kind}": _compare
        for order in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
}
