"""Compile a checked tree into closures.

It precomputes what upstream's program options of Kubernetes precompute: lists and maps of constants, conversions of
constants, membership in constant lists, constant regular expressions.
Upstream: google/cel-go `interpreter/{planner,decorators,optimizations}.go`, `common/decls/decls.go`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubecel.check.checker import Checked, Reference
from kubecel.check.declarations import Charge, Overload
from kubecel.check.environment import Environment
from kubecel.parse.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from kubecel.plan import attributes, calls, folds
from kubecel.plan.attributes import KEYS, Qualifier, Root
from kubecel.plan.calls import COSTS, PRIMITIVES, Cost
from kubecel.plan.frames import FIRST, Frame, Node, Run, charged, constant, in_turn
from kubecel.values.conversions import CONVERSIONS
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.operators import BINARY, GUARDED, UNARY, no_such_overload
from kubecel.values.regexes import InvalidPattern, Pattern, compiled
from kubecel.values.types import Kind, Type
from kubecel.values.values import Optional, Value, go_type, is_list, is_map, map_of, text, type_of

# The base costs of making lists, maps and structures.
_LIST, _MAP, _STRUCT = 10, 30, 40

_INDEX = frozenset(("_[_]", "_[?_]", "_?._"))
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
# Functions whose second argument is a pattern that is compiled in advance if it is constant.
_PATTERNS = frozenset(("matches", "find", "findAll"))
# Overloads of two arguments that upstream binds as functions of any number.
_VARIADIC = frozenset(("string_format",))
_DYNAMIC = frozenset((Kind.DYN, Kind.ANY, Kind.PARAMETER))

# Built-in functions with an implementation for each overload, which checks the types of the values.
_GUARDED = (CONVERSIONS.keys() | GUARDED.keys()) - {"dyn", "type"}

_NOTHING = Reference()


class _Variable(NamedTuple):
    """The slot of a comprehension's variable, and the closure that reads it."""

    slot: int
    run: Run


class Planner:
    """Plans one expression. Afterwards `names` has the variables that the caller must provide, in the order of their
    slots.
    """

    def __init__(self, checked: Checked, environment: Environment) -> None:
        self._types = checked.types
        self._references = checked.references
        self._environment = environment
        self._scopes: dict[str, _Variable] = {}
        self._globals: dict[str, _Variable] = {}
        self._slots = FIRST

    @property
    def names(self) -> dict[str, int]:
        """Return the variables that the expression reads, with their slots."""
        return {name: variable.slot for name, variable in self._globals.items()}

    @property
    def slots(self) -> int:
        """Return the size of a frame."""
        return self._slots

    def plan(self, expr: Expr) -> Node:
        """Return the closure of an expression. Raises ProgramError."""
        match expr:
            case Literal():
                return constant(expr.value)
            case Ident():
                return self._ident(expr)
            case Select():
                return self._attribute(expr)
            case Call():
                return self._call(expr)
            case ListExpr():
                return self._list(expr)
            case MapExpr():
                return self._map(expr)
            case StructExpr():
                return self._struct(expr)
            case Comprehension():
                return self._comprehension(expr)

    # Variables and selections

    def _ident(self, expr: Ident) -> Node:
        value = self._references.get(expr.id, _NOTHING).value
        if value is not None:
            return constant(value)
        if self._types[expr.id].kind is Kind.TYPE:
            # cel-go takes every name whose type is a type for the name of a type, even a variable of a macro.
            named = self._environment.identifier(expr.name.removeprefix("."))
            if named is None or named.reference.value is None:
                raise ProgramError(f"reference to undefined type: {expr.name}")
            return constant(named.reference.value)
        return Node(self._flattened(expr, self._variable(expr.name).run), 1)

    def _flattened(self, expr: Expr, run: Run) -> Run:
        if self._environment.strict_optionals or self._types[expr.id].name != "optional_type":
            return run
        return attributes.flattened(run)

    def _variable(self, name: str) -> _Variable:
        # A dot in front marks a declared name that the variable of a macro hides.
        variable = self._scopes.get(name) or self._globals.get(name := name.removeprefix("."))
        if variable is None:
            slot = self._slot()
            variable = self._globals[name] = _Variable(slot, attributes.global_variable(name, slot))
        return variable

    def _slot(self) -> int:
        self._slots += 1
        return self._slots - 1

    def _attribute(self, expr: Expr) -> Node:
        """Plan a variable, a selection, an index or a conditional. Further selections of these join one chain."""
        run, cost, conditional = self._resolved(expr, ())
        own = 0 if conditional else 1
        if isinstance(expr, Select) and expr.test_only:
            return Node(attributes.presence(run), cost + own - int(self._environment.free_presence_tests))
        return Node(run, cost + own)

    def _resolved(self, expr: Expr, following: tuple[Qualifier, ...]) -> tuple[Run, int, bool]:
        """Plan a chain with further selections.

        Return its closure, its cost without its own 1, and whether its root is a conditional.
        """
        links: list[Select | Call] = []
        while True:
            if isinstance(expr, Select):
                links.append(expr)
                expr = expr.operand
            elif isinstance(expr, Call) and expr.function in _INDEX:
                links.append(expr)
                expr = expr.arguments[0]
            else:
                break
        if isinstance(expr, Call) and expr.function == "_?_:_":
            return (*self._conditional(expr, (*self._qualifiers(links), *following)), True)
        root = self._root(expr)
        return (*attributes.selected(root, (*self._qualifiers(links), *following)), False)

    def _root(self, expr: Expr) -> Root:
        if isinstance(expr, Ident) and self._references.get(expr.id, _NOTHING).value is None:
            variable = self._variable(expr.name)
            return Root(variable.run, slot=variable.slot)
        node = self.plan(expr)
        return Root(node.run, node.cost)

    def _qualifiers(self, links: Sequence[Select | Call]) -> list[Qualifier]:
        """Return the selections of a chain, whose links come from its end to its root."""
        return [
            Qualifier(link.field, test=link.test_only) if isinstance(link, Select) else self._index(link)
            for link in reversed(links)
        ]

    def _index(self, expr: Call) -> Qualifier:
        index = expr.arguments[1]
        optional = expr.function != "_[_]"
        if self._is_attribute(index):
            run, cost, _ = self._resolved(index, ())
            return Qualifier(None, run, cost, optional, given=self._is_given(index))
        node = self.plan(index)
        if not node.is_constant:
            return Qualifier(None, node.run, node.cost, optional)
        if type(node.constant) not in KEYS:
            raise ProgramError(f"invalid qualifier type: {go_type(node.constant)}")
        return Qualifier(node.constant, optional=optional)

    def _is_attribute(self, expr: Expr) -> bool:
        if isinstance(expr, Ident):
            return self._references.get(expr.id, _NOTHING).value is None
        return isinstance(expr, Select) or (
            isinstance(expr, Call) and (expr.function in _INDEX or expr.function == "_?_:_")
        )

    def _is_given(self, expr: Expr) -> bool:
        """Return whether a chain reads the caller's input. It then finds values with Go's types, not CEL's."""
        while isinstance(expr, Select) or (isinstance(expr, Call) and expr.function in _INDEX):
            expr = expr.operand if isinstance(expr, Select) else expr.arguments[0]
        if isinstance(expr, Call) and expr.function == "_?_:_":
            return all(map(self._is_given, expr.arguments[1:]))
        return isinstance(expr, Ident) and expr.name not in self._scopes

    def _conditional(self, expr: Call, chain: tuple[Qualifier, ...]) -> tuple[Run, int]:
        """Plan a conditional with selections of either branch.

        A branch that is a chain costs its selections, but not its own 1.
        """
        condition, *branches = expr.arguments
        test = self.plan(condition)
        runs = [charged(Node(*self._resolved(branch, chain)[:2])) for branch in branches]
        if not chain:
            runs = [self._flattened(branch, run) for branch, run in zip(branches, runs, strict=True)]
        return attributes.conditional(test.run, runs[0], runs[1]), test.cost

    # Calls

    def _call(self, expr: Call) -> Node:
        function = expr.function
        if function in _INDEX or function == "_?_:_":
            return self._attribute(expr)
        if function in {"_&&_", "_||_"}:
            return calls.logical([self.plan(term) for term in self._terms(expr)], until=function == "_||_")
        arguments = [
            self.plan(argument) for argument in ([] if expr.target is None else [expr.target]) + expr.arguments
        ]
        overloads = self._references.get(expr.id, _NOTHING).overloads
        chosen = overloads[0] if len(overloads) == 1 else ""
        if function in {"_==_", "_!=_"}:
            return _equality(arguments, same=function == "_==_")
        if function == "@not_strictly_false":
            return _not_strictly_false(arguments[0])
        if function == "or" and chosen in {"", "optional_or_optional"}:
            return calls.optional_or(*arguments, unwrapped=False, strict=self._environment.strict_optionals)
        if function == "orValue" and chosen in {"", "optional_orValue_value"}:
            return calls.optional_or(*arguments, unwrapped=True, strict=self._environment.strict_optionals)
        if chosen == "in_list" and arguments[1].is_constant and _is_primitive(arguments[1].constant):
            members = arguments[1].constant
            return calls.member_of(arguments[0], members) if len(members) else constant(value=False)
        return self._function(function, chosen, overloads, arguments)

    def _terms(self, expr: Call) -> list[Expr]:
        """Return the terms of nested `&&` or `||`, in order."""
        terms: list[Expr] = []
        todo: list[Expr] = [expr]
        while todo:
            at = todo.pop()
            if isinstance(at, Call) and at.function == expr.function:
                todo.extend(reversed(at.arguments))
            else:
                terms.append(at)
        return terms

    def _function(self, function: str, chosen: str, overloads: Sequence[str], arguments: list[Node]) -> Node:
        cost = self._cost(function, chosen)
        if function in _PATTERNS and len(arguments) > 1 and type(arguments[1].constant) is str:
            pattern = _pattern(arguments[1].constant)
            search = pattern.found if function == "matches" else self._implementation(function, chosen, len(arguments))
            return calls.variadic(_searching(search, function), arguments, cost)
        call = self._implementation(function, chosen, len(arguments))
        if function in CONVERSIONS and arguments[0].is_constant:
            try:
                return constant(call(arguments[0].constant))
            except EvaluationError as error:
                raise ProgramError(str(error)) from None
        declared = self._environment.overloads.get(chosen)
        if declared is not None and not declared.strict and declared.call is not None:
            return calls.lenient(call, arguments, cost)
        if (
            len(arguments) > 2
            or not arguments
            or chosen in _VARIADIC
            or (len(arguments) == 2 and self._dispatched(function, chosen))
        ):
            return calls.variadic(call, arguments, cost)
        if function == "_+_":
            return calls.added(call, arguments[0], arguments[1], cost)
        if cost is not None:
            return calls.costing(call, arguments, cost)
        if len(arguments) == 1:
            return calls.unary(call, arguments[0])
        compare = _COMPARISONS.get(function)
        if compare is not None and type(arguments[1].constant) is int:
            return calls.compared(call, compare, arguments[0], arguments[1].constant)
        return calls.binary(call, arguments[0], arguments[1])

    def _cost(self, function: str, chosen: str) -> Cost | None:
        """Return the cost of a call that is not always 1: that of the declaring library, else that of the overload."""
        known = COSTS.get(chosen)
        declared = (self._environment.overloads if chosen else self._environment.functions).get(chosen or function)
        return known if declared is None or declared.charge is None else _charging(declared.charge, known)

    def _dispatched(self, function: str, chosen: str) -> bool:
        """Return whether the types of the values choose the overload. cel-go does this in functions of any number of
        arguments.
        """
        return not chosen and function not in BINARY and function in self._environment.functions

    def _implementation(self, function: str, chosen: str, count: int) -> Callable[..., Value]:
        """Return the implementation. A built-in function has the overloads that libraries add for other types."""
        built_in = _built_in(function)
        declared = self._environment.overloads.get(chosen)
        if declared is not None:
            call = declared.call or built_in or self._unbound(function)
            return _guarded(function, declared, call) if declared.call or function in _GUARDED else call
        candidates = [
            overload
            for overload in (
                self._environment.functions[function].overloads if function in self._environment.functions else ()
            )
            if overload.call is not None and len(overload.arguments) == count
        ]
        if not candidates:
            return built_in or self._unbound(function)
        return _dispatching(function, candidates, built_in)

    def _unbound(self, function: str) -> Callable[..., Value]:
        def call(*arguments: Value) -> Value:
            raise EvaluationError(f"no such overload: {function}")

        return call

    # Lists, maps, structures

    def _list(self, expr: ListExpr) -> Node:
        nodes = [self.plan(element) for element in expr.elements]
        if not expr.optional and all(node.is_constant for node in nodes):
            return constant([node.constant for node in nodes])
        runs, least = in_turn(nodes)
        elements = [(run, index in expr.optional) for index, run in enumerate(runs)]

        def run(f: Frame) -> Value:
            made: list[Value] = []
            for element, optional in elements:
                value = element(f)
                if optional:
                    if type(value) is not Optional:
                        raise EvaluationError(
                            f"cannot initialize optional list element from non-optional value {text(value)}"
                        )
                    if not value.has_value:
                        continue
                    value = value.value
                made.append(value)
            return made

        return Node(run, _LIST + least)

    def _map(self, expr: MapExpr) -> Node:
        nodes = [self.plan(part) for entry in expr.entries for part in (entry.key, entry.value)]
        if not any(entry.optional for entry in expr.entries) and all(node.is_constant for node in nodes):
            constants = [node.constant for node in nodes]
            return constant(map_of(zip(constants[::2], constants[1::2], strict=True)))
        runs, least = in_turn(nodes)
        entries = [
            (key, value, entry.optional) for key, value, entry in zip(runs[::2], runs[1::2], expr.entries, strict=True)
        ]

        def run(f: Frame) -> Value:
            made: list[tuple[Value, Value]] = []
            for key_run, value_run, optional in entries:
                key = key_run(f)
                value = value_run(f)
                if not optional:
                    made.append((key, value))
                else:
                    _enter_optional(made, key, value)
            return _mapped(made)

        return Node(run, _MAP + least)

    def _struct(self, expr: StructExpr) -> Node:
        name = expr.type_name
        if not self._environment.has_struct(name):
            raise ProgramError(f"unknown type: {name}")
        make = self._environment.make
        runs, least = in_turn([self.plan(field.value) for field in expr.fields])
        fields = [(field.name, run, field.optional) for field, run in zip(expr.fields, runs, strict=True)]

        def run(f: Frame) -> Value:
            made: list[tuple[Value, Value]] = []
            for field, value_run, optional in fields:
                value = value_run(f)
                if not optional:
                    made.append((field, value))
                else:
                    _enter_optional(made, field, value)
            return make(name, dict(made))

        return Node(run, _STRUCT + least)

    # Comprehensions

    def _comprehension(self, expr: Comprehension) -> Node:
        if _is_empty_list(expr.range) and _is_literal(expr.condition, value=False):
            return self._binding(expr)
        over = self.plan(expr.range)
        return self._recognised(expr, over) or self._general(expr, over)

    def _binding(self, expr: Comprehension) -> Node:
        slot = self._slot()
        init = folds.growing(charged(self.plan(expr.init)))
        with _Scope(self._scopes, {expr.accumulator: _Variable(slot, attributes.accumulator(slot, init))}):
            self.plan(expr.step)  # it never runs, but it can raise ProgramError
            return folds.binding(slot, self.plan(expr.result))

    def _recognised(self, expr: Comprehension, over: Node) -> Node | None:
        """Return the loop of a macro with one variable, None for any other comprehension."""
        shape = None if expr.variable2 else _shape(expr)
        if shape is None:
            return None
        slot = self._slot()
        with _Scope(self._scopes, {expr.variable: _Variable(slot, attributes.loop_variable(slot))}):
            predicate = None if shape.predicate is None else self.plan(shape.predicate)
            element = None if shape.element is None else self.plan(shape.element)
        if element is not None:
            return folds.transformer(over, slot, predicate, element, creation=0 if element.is_constant else _LIST)
        assert predicate is not None
        if shape.until is None:
            return folds.counter(over, slot, predicate)
        return folds.quantifier(over, slot, predicate, until=shape.until)

    def _general(self, expr: Comprehension, over: Node) -> Node:
        first, accumulator = self._slot(), self._slot()
        second = self._slot() if expr.variable2 else None
        init = charged(self.plan(expr.init))
        result = {expr.accumulator: _Variable(accumulator, attributes.accumulator(accumulator, None))}
        inner = {expr.variable: _Variable(first, attributes.loop_variable(first))}
        if second is not None:
            inner[expr.variable2] = _Variable(second, attributes.loop_variable(second))
        with _Scope(self._scopes, {**inner, **result}):
            condition, step = charged(self.plan(expr.condition)), charged(self.plan(expr.step))
        with _Scope(self._scopes, result):
            return folds.general(
                folds.Fold(over, first, second, accumulator, init, condition, step, charged(self.plan(expr.result)))
            )


class _Scope:
    """Names that hide outer ones while the context lasts."""

    def __init__(self, scopes: dict[str, _Variable], names: dict[str, _Variable]) -> None:
        self._scopes = scopes
        self._names = names
        self._hidden = {name: scopes[name] for name in names if name in scopes}

    def __enter__(self) -> None:
        self._scopes.update(self._names)

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            del self._scopes[name]
        self._scopes.update(self._hidden)


def _enter_optional(made: list[tuple[Value, Value]], key: Value, value: Value) -> None:
    if type(value) is not Optional:
        raise EvaluationError(f"cannot initialize optional entry '{text(key)}' from non-optional value {text(value)}")
    if value.has_value:
        made.append((key, value.value))
    else:
        # An absent value removes the key that an earlier entry has set.
        made[:] = [entry for entry in made if not (type(entry[0]) is type(key) and entry[0] == key)]


def _mapped(made: list[tuple[Value, Value]]) -> Value:
    if all(type(key) is str for key, _ in made):
        return dict(made)
    return map_of(made)


def _equality(arguments: Sequence[Node], *, same: bool) -> Node:
    one, other = arguments
    if type(other.constant) is str and other.constant:
        return calls.equals_string(one, other.constant, same=same)
    return calls.equals(one, other, same=same)


def _not_strictly_false(argument: Node) -> Node:
    run = argument.run

    def apply(f: Frame) -> Value:
        try:
            return run(f) is not False
        except EvaluationError:
            return True

    return Node(apply, argument.cost + 1)


def _is_primitive(value: Value) -> bool:
    return is_list(value) and all(type(element) in PRIMITIVES for element in value)


def _pattern(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except InvalidPattern as error:
        raise ProgramError(str(error)) from None


def _searching(search: Callable[..., Value], function: str) -> Callable[..., Value]:
    """Return a search for a compiled pattern. It also searches the string in an optional, and the name of a type."""

    def call(searched: Value, *others: Value) -> Value:
        if type(searched) is Optional and searched.has_value:
            searched = searched.value
        if type(searched) is Type:
            searched = searched.name
        if type(searched) is not str:
            raise EvaluationError("no such overload")
        return search(searched) if function == "matches" else search(searched, *others)

    return call


def _matches(searched: Value, pattern: Value) -> Value:
    if type(searched) is not str:
        raise _unmatched(searched)
    if type(pattern) is not str:
        raise EvaluationError("no such overload")
    try:
        return compiled(pattern).found(searched)
    except InvalidPattern as error:
        raise EvaluationError(str(error)) from None


def _unmatched(value: Value) -> EvaluationError:
    receiver = type_of(value).kind in {Kind.TIMESTAMP, Kind.DURATION}
    return EvaluationError("no such overload" if receiver else "no such overload: matches")


def _built_in(function: str) -> Callable[..., Value] | None:
    if function == "matches":
        return _matches
    return BINARY.get(function) or UNARY.get(function) or GUARDED.get(function) or CONVERSIONS.get(function)


def _charging(charge: Charge, otherwise: Cost | None) -> Cost:
    def cost(values: Sequence[Value], result: Value) -> int:
        charged = charge(values, result)
        if charged is not None:
            return charged
        return otherwise(values, result) if otherwise is not None else 1

    return cost


# Choosing overloads by values

_Matcher = Callable[[Value], bool]


def _matcher(of: Type) -> _Matcher | None:
    """Return a test whether a value fits a type; None if every value does.

    Only the first element of a list or map is tested.
    """
    if of.kind in _DYNAMIC:
        return None
    name, parameters = of.name, [_matcher(parameter) for parameter in of.parameters]
    if of.kind is Kind.LIST and parameters[0] is not None:
        return _first_matches(is_list, [parameters[0]], lambda value: [next(iter(value))])
    if of.kind is Kind.MAP and any(parameters):
        return _first_matches(is_map, parameters, lambda value: [key := next(iter(value)), value[key]])

    def matches(value: Value) -> bool:
        return type_of(value).name == name

    return matches


def _first_matches(
    container: _Matcher, matchers: Sequence[_Matcher | None], first: Callable[[Value], list[Value]]
) -> _Matcher:
    def matches(value: Value) -> bool:
        if not container(value):
            return False
        return not len(value) or all(
            matcher is None or matcher(part) for matcher, part in zip(matchers, first(value), strict=True)
        )

    return matches


def _accepts(overload: Overload) -> Callable[[tuple[Value, ...]], bool]:
    arguments = overload.arguments if overload.guarded else ()
    checks = [(index, matcher) for index, of in enumerate(arguments) if (matcher := _matcher(of)) is not None]

    def accepts(values: tuple[Value, ...]) -> bool:
        return all(matcher(values[index]) for index, matcher in checks)

    return accepts


def _guarded(function: str, overload: Overload, call: Callable[..., Value]) -> Callable[..., Value]:
    accepts = _accepts(overload)

    def guarded(*values: Value) -> Value:
        if not accepts(values):
            raise no_such_overload(function, values)
        return call(*values)

    return guarded


def _dispatching(
    function: str, overloads: Sequence[Overload], built_in: Callable[..., Value] | None
) -> Callable[..., Value]:
    choices = [(_accepts(overload), overload.call) for overload in overloads if overload.call is not None]

    def dispatch(*values: Value) -> Value:
        for accepts, call in choices:
            if accepts(values):
                return call(*values)
        if built_in is not None:
            return built_in(*values)
        raise no_such_overload(function, values)

    return dispatch


# The shapes of macros


class _Shape(NamedTuple):
    """The work of a macro for each item.

    `until` is the result that ends `all` and `exists`; `element` is the item that `map` and `filter` collect.
    """

    predicate: Expr | None
    element: Expr | None = None
    until: bool | None = None


def _shape(expr: Comprehension) -> _Shape | None:
    name, step = expr.accumulator, expr.step
    if not isinstance(step, Call):
        return None
    if step.function in {"_&&_", "_||_"}:
        until = step.function == "_||_"
        fits = (
            _is_literal(expr.init, value=not until)
            and _is_name(expr.result, name)
            and _is_guard(expr.condition, name, negated=until)
            and _is_name(step.arguments[0], name)
        )
        return _Shape(step.arguments[1], until=until) if fits else None
    if not _is_literal(expr.condition, value=True):
        return None
    predicate, grown = None, step
    if step.function == "_?_:_":
        predicate, then, otherwise = step.arguments
        if not isinstance(then, Call) or not _is_name(otherwise, name):
            return None
        grown = then
    if grown.function != "_+_" or not _is_name(grown.arguments[0], name):
        return None
    added = grown.arguments[1]
    if _is_empty_list(expr.init) and _is_name(expr.result, name) and isinstance(added, ListExpr):
        return _Shape(predicate, added.elements[0]) if len(added.elements) == 1 and not added.optional else None
    counts = predicate is not None and _is_literal(expr.init, value=0) and _is_literal(added, value=1)
    return _Shape(predicate) if counts and _is_one(expr.result, name) else None


def _is_literal(expr: Expr, *, value: Value) -> bool:
    return isinstance(expr, Literal) and type(expr.value) is type(value) and bool(expr.value == value)


def _is_name(expr: Expr, name: str) -> bool:
    return isinstance(expr, Ident) and expr.name == name


def _is_empty_list(expr: Expr) -> bool:
    return isinstance(expr, ListExpr) and not expr.elements


def _is_guard(expr: Expr, name: str, *, negated: bool) -> bool:
    if not isinstance(expr, Call) or expr.function != "@not_strictly_false":
        return False
    inner = expr.arguments[0]
    if negated:
        return isinstance(inner, Call) and inner.function == "!_" and _is_name(inner.arguments[0], name)
    return _is_name(inner, name)


def _is_one(expr: Expr, name: str) -> bool:
    if not isinstance(expr, Call) or expr.function != "_==_":
        return False
    return _is_name(expr.arguments[0], name) and _is_literal(expr.arguments[1], value=1)
