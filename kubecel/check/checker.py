"""Find the types of an expression, and the targets of its names and calls. Errors are cel-go's, in its order.

The walk has a list of steps instead of recursion, so the depth of an expression does not matter. Types that a literal
or function leaves open are variables (`_var0`), which unification binds. Macros can double a type at every level. So
results are cached, and a check stops after LIMIT steps, where cel-go would run for hours.
Upstream: google/cel-go `checker/{checker,env,types,mapping,scopes,errors,format}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kubecel.check.declarations import Function, Overload
from kubecel.parse.ast import (
    Ast,
    Call,
    Comprehension,
    Expr,
    FieldEntry,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)
from kubecel.parse.source import CompileError, Issue
from kubecel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    PRINTED,
    STRING,
    TYPE,
    UINT,
    WELL_KNOWN,
    Kind,
    Type,
    format_type,
    optional_of,
)
from kubecel.values.values import UInt, Value

if TYPE_CHECKING:
    from kubecel.check.environment import Environment

# Limit of the steps of one check, which compares and copies types. It is a hundred times what a long, sensible
# expression takes.
LIMIT = 400_000

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    bytes: BYTES,
    float: DOUBLE,
    int: INT,
    type(None): NULL,
    str: STRING,
    UInt: UINT,
}
_LOGICAL = frozenset(("_&&_", "_||_"))
_DYNAMIC = frozenset((Kind.DYN, Kind.ANY))
_DYNAMIC_OR_ERROR = _DYNAMIC | {Kind.ERROR}
# Kinds that are assignable to other kinds.
_LOOSE = _DYNAMIC_OR_ERROR | {Kind.NULL, Kind.PARAMETER}
_STRUCTURED = frozenset((Kind.LIST, Kind.MAP, Kind.OPAQUE))
# Kinds that accept null without declaring it (cel-go isLegacyNullable). Null accepts itself.
_NULLABLE = frozenset((Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP, Kind.NULL))
# Protobuf messages whose values are values of the language, by kind.
_MESSAGES = {
    Kind.ANY: "google.protobuf.Any",
    Kind.BOOL: "google.protobuf.BoolValue",
    Kind.BYTES: "google.protobuf.BytesValue",
    Kind.DOUBLE: "google.protobuf.DoubleValue",
    Kind.DURATION: "google.protobuf.Duration",
    Kind.DYN: "google.protobuf.Value",
    Kind.INT: "google.protobuf.Int64Value",
    Kind.LIST: "google.protobuf.ListValue",
    Kind.MAP: "google.protobuf.Struct",
    Kind.NULL: "google.protobuf.NullValue",
    Kind.STRING: "google.protobuf.StringValue",
    Kind.TIMESTAMP: "google.protobuf.Timestamp",
    Kind.UINT: "google.protobuf.UInt64Value",
}
_ALWAYS_MESSAGES = frozenset((Kind.ANY, Kind.DURATION, Kind.DYN, Kind.NULL, Kind.TIMESTAMP))
_DYNAMIC_CONTAINERS = (WELL_KNOWN["google.protobuf.ListValue"], WELL_KNOWN["google.protobuf.Struct"])


class Reference(NamedTuple):
    """The target of a node: a variable, a constant or the overloads of a function.

    `name` is a variable's. A constant has a `value`, which is the type for the name of a type. If there are several
    overloads, the types of the values choose one at run time.
    """

    name: str = ""
    value: Value | None = None
    overloads: tuple[str, ...] = ()


NOTHING = Reference()


class Identifier(NamedTuple):
    """The meaning of a name."""

    type: Type
    reference: Reference


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression without type errors.

    `types` maps the ids of nodes to their types, `references` those of names, calls and structures. Every name in the
    tree is complete: `a.b` is one Ident if it is a variable; the call of a function with a namespace has no target.
    """

    ast: Ast
    types: dict[int, Type]
    references: dict[int, Reference]
    output: Type


class Signature(NamedTuple):
    """An overload with the names of its type parameters, in alphabetical order."""

    id: str
    arguments: tuple[Type, ...]
    result: Type
    parameters: tuple[str, ...]


class Resolution(NamedTuple):
    """The resolution of a call.

    It has the overloads (NOTHING if none fits), the type, and the number of type variables that it took.
    """

    reference: Reference
    type: Type
    variables: int


class Candidates:
    """The overloads of one function, with a bounded cache of resolutions by argument types."""

    REMEMBERED = 256

    __slots__ = ("globals", "members", "name", "remembered", "unhidden")

    def __init__(self, function: Function, hidden: frozenset[str]) -> None:
        self.name = function.name
        visible = [overload for overload in function.overloads if overload.id not in hidden]
        self.globals = tuple(_signature(overload) for overload in visible if not overload.member)
        self.members = tuple(_signature(overload) for overload in visible if overload.member)
        self.unhidden = Candidates(function, frozenset()) if len(visible) < len(function.overloads) else self
        self.remembered: dict[tuple[object, ...], Resolution] = {}

    def remember(self, key: tuple[object, ...], found: Resolution) -> None:
        """Cache the resolution of a call with these types."""
        if len(key) > 6 or any(isinstance(of, Type) and of.weight > 8 for of in key):
            return
        if len(self.remembered) >= self.REMEMBERED:
            self.remembered.clear()
        self.remembered[key] = found


def _signature(overload: Overload) -> Signature:
    names = overload.result.variables.union(*(of.variables for of in overload.arguments))
    return Signature(overload.id, overload.arguments, overload.result, tuple(sorted(names)))


class _TooComplexError(Exception):
    """The check took more than LIMIT steps."""


def check(ast: Ast, environment: Environment) -> Checked:
    """Find the types of an expression. The tree is modified: its names become complete.

    Raises CompileError with all errors.
    """
    return _Checker(ast, environment).run()


class _Checker:
    """One check."""

    def __init__(self, ast: Ast, environment: Environment) -> None:
        self._ast = ast
        self._environment = environment
        self._types: dict[int, Type] = {}
        self._references: dict[int, Reference] = {}
        self._issues: list[Issue] = []
        self._remaining = PRINTED * 4
        # Variables of comprehensions by name, the innermost last.
        self._locals: dict[str, list[Identifier]] = {}
        # After it enters a comprehension, upstream forgets which overloads are hidden.
        self._unhidden = False
        # The bindings of type variables, and the changes to undo when a comparison fails.
        self._variables = 0
        self._bound: dict[str, Type] = {}
        self._undo: list[tuple[str, Type | None]] = []
        self._made: dict[tuple[Kind, str, tuple[Type, ...]], Type] = {}
        self._steps = 0
        self._names: dict[int, Ident] = {}
        self._todo: list[tuple[Callable[[_Checker, Any], None], Any]] = []

    def run(self) -> Checked:
        ast, types = self._ast, self._types
        todo = self._todo
        self._visit(ast.expr)
        try:
            while todo:
                step, node = todo.pop()
                step(self, node)
            self._resolve_types()
        except _TooComplexError:
            self._complain(ast.expr.id, "expression is too complex to check")
        if self._issues:
            raise CompileError(ast.source, self._issues)
        if self._names:
            _rename(ast, self._names)
        return Checked(ast, types, self._references, types[ast.expr.id])

    def _visit(self, node: Expr) -> None:
        self._todo.append((_VISITS[type(node)], node))

    def _then(self, step: Callable[[_Checker, Any], None], node: Any) -> None:
        self._todo.append((step, node))

    def _resolve_types(self) -> None:
        """Substitute the bindings of variables into all types; unbound ones become dyn."""
        done: dict[Type, Type] = {}
        for expression, of in self._types.items():
            if of.open:
                self._types[expression] = self._substituted(of, dynamic=True, done=done)

    # Nodes by kind.

    def _literal(self, node: Literal) -> None:
        self._types[node.id] = _LITERALS[type(node.value)]

    def _ident(self, node: Ident) -> None:
        found = self._identifier(node.name)
        if found is None:
            self._undeclared(node.id, node.name)
            return
        node.name = found.reference.name
        self._types[node.id], self._references[node.id] = found

    def _select(self, node: Select) -> None:
        if (name := self._qualified(node)) is not None and (found := self._identifier(name)) is not None:
            self._names[node.id] = Ident(node.id, found.reference.name)
            self._types[node.id], self._references[node.id] = found
            return
        self._then(_Checker._selected, node)
        self._visit(node.operand)

    def _selected(self, node: Select) -> None:
        of = self._field(node.id, self._types[node.operand.id], node.field)
        self._types[node.id] = BOOL if node.test_only else self._substituted(of)

    def _field(self, expression: int, operand: Type, name: str, *, optional: bool = False) -> Type:
        """Return the type of a field of an operand. The field of an optional operand is optional."""
        of = self._substituted(operand)
        if _is_optional(of):
            of, optional = of.parameters[0], True
        result = ERROR
        if of.kind is Kind.MAP:
            result = of.parameters[1]
        elif of.kind is Kind.STRUCT:
            result = self._declared_field(expression, of.name, name) or ERROR
        else:
            if of.kind is Kind.PARAMETER:
                # No narrower type may be assigned to it later.
                self._assignable(DYN, of)
            elif of.kind not in _DYNAMIC_OR_ERROR:
                self._complain(expression, f"type '{self._print(of)}' does not support field selection")
            result = DYN
        return self._make(Kind.OPAQUE, "optional_type", result) if optional else result

    def _declared_field(self, expression: int, struct: str, field: str) -> Type | None:
        if not self._environment.has_struct(struct):
            self._complain(expression, f"unexpected failed resolution of '{struct}'")
            return None
        found = self._environment.field(struct, field)
        if found is None:
            self._complain(expression, f"undefined field '{field}'")
        return found

    def _call(self, node: Call) -> None:
        if node.function == "_?._":
            # Only the parser generates such a call, with an operand and a field name.
            self._then(_Checker._optional_selected, node)
            self._visit(node.arguments[0])
            return
        self._then(_Checker._arguments_done, node)
        for argument in reversed(node.arguments):
            self._visit(argument)

    def _optional_selected(self, node: Call) -> None:
        operand, field = node.arguments
        assert isinstance(field, Literal)
        of = self._field(node.id, self._types[operand.id], field.value, optional=True)
        self._types[node.id] = self._substituted(of)
        self._references[node.id] = Reference(overloads=("select_optional_field",))

    def _arguments_done(self, node: Call) -> None:
        target = node.target
        if target is None:
            candidates = self._function(node.function)
            if candidates is None:
                self._undeclared(node.id, node.function)
                return
            node.function = candidates.name
            self._resolve(node, candidates)
            return
        if (name := self._qualified(target)) is not None and (
            candidates := self._function(f"{name}.{node.function}")
        ) is not None:
            # The target is in fact the namespace of the function.
            node.target, node.function = None, candidates.name
            self._resolve(node, candidates)
            return
        self._then(_Checker._target_done, node)
        self._visit(target)

    def _target_done(self, node: Call) -> None:
        candidates = self._function(node.function)
        if candidates is None:
            self._undeclared(node.id, node.function)
        else:
            self._resolve(node, candidates)

    def _list(self, node: ListExpr) -> None:
        self._then(_Checker._elements_done, (node, 0, None))

    def _elements_done(self, state: tuple[ListExpr, int, Type | None]) -> None:
        """Join the type of each element as soon as it is known, so that errors come in the order of the elements."""
        node, index, joined = state
        if index:
            element = node.elements[index - 1]
            of = self._types[element.id]
            if index - 1 in node.optional:
                of = self._unwrapped(element, of)
            joined = self._join(joined, of)
        if index < len(node.elements):
            self._then(_Checker._elements_done, (node, index + 1, joined))
            self._visit(node.elements[index])
            return
        self._types[node.id] = self._make(Kind.LIST, "list", joined or self._variable())

    def _map(self, node: MapExpr) -> None:
        self._then(_Checker._entries_done, (node, 0, None, None))

    def _entries_done(self, state: tuple[MapExpr, int, Type | None, Type | None]) -> None:
        """Join the types of keys and values. `index` counts both."""
        node, index, keys, values = state
        if index:
            entry = node.entries[(index - 1) // 2]
            if index % 2:
                keys = self._join(keys, self._types[entry.key.id])
            else:
                of = self._types[entry.value.id]
                values = self._join(values, self._unwrapped(entry.value, of) if entry.optional else of)
        if index < 2 * len(node.entries):
            entry = node.entries[index // 2]
            self._then(_Checker._entries_done, (node, index + 1, keys, values))
            self._visit(entry.value if index % 2 else entry.key)
            return
        if keys is None or values is None:
            keys, values = self._variable(), self._variable()
        self._types[node.id] = self._make(Kind.MAP, "map", keys, values)

    def _struct(self, node: StructExpr) -> None:
        found = self._identifier(node.type_name)
        if found is None:
            self._undeclared(node.id, node.type_name)
            return
        name = node.type_name = found.reference.name
        self._references[node.id] = Reference(name)
        of = ERROR
        if found.type.kind is Kind.TYPE:
            of = found.type.parameters[0] if found.type.parameters else TYPE
            if _is_message(of):
                name = _MESSAGES[of.kind]
            elif of.kind is Kind.STRUCT:
                name = of.name
            else:
                self._complain(node.id, f"'{of.declared_name}' is not a message type")
                of = ERROR
        elif found.type.kind is not Kind.ERROR:
            self._complain(node.id, f"'{found.type.declared_name}' is not a type")
        self._types[node.id] = of
        for field in reversed(node.fields):
            self._then(_Checker._field_done, (name, field))
            self._visit(field.value)

    def _field_done(self, state: tuple[str, FieldEntry]) -> None:
        name, field = state
        declared = self._declared_field(field.id, name, field.name) or ERROR
        of = self._types[field.value.id]
        if field.optional:
            of = self._unwrapped(field.value, of)
        if not self._assignable(declared, of):
            self._complain(
                field.id,
                f"expected type of field '{field.name}' is '{self._print(declared)}' but provided type is '{self._print(of)}'",
            )

    def _comprehension(self, node: Comprehension) -> None:
        self._then(_Checker._range_done, node)
        self._visit(node.init)
        self._visit(node.range)

    def _range_done(self, node: Comprehension) -> None:
        """Declare the variables, each in its scope.

        Then come condition and step, and last the result, without the loop's variables.
        """
        first, second = self._looped(node)
        self._unhidden = True
        self._enter(node.accumulator, self._types[node.init.id])
        self._enter(node.variable, first)
        if node.variable2 and node.variable2 != node.variable:
            self._enter(node.variable2, second)
        self._then(_Checker._result_done, node)
        self._visit(node.result)
        self._then(_Checker._step_done, node)
        self._visit(node.step)
        self._then(_Checker._condition_done, node)
        self._visit(node.condition)

    def _looped(self, node: Comprehension) -> tuple[Type, Type]:
        """Return the types of the variables of a loop. With one variable the first counts."""
        of = self._substituted(self._types[node.range.id])
        two = node.variable2 != ""
        if of.kind is Kind.LIST:
            return (INT, of.parameters[0]) if two else (of.parameters[0], ERROR)
        if of.kind is Kind.MAP:
            return of.parameters[0], of.parameters[1]
        if of.kind is Kind.PARAMETER or of.kind in (Kind.DYN, Kind.ERROR):
            self._assignable(DYN, of)
            return DYN, DYN
        self._complain(
            node.range.id,
            f"expression of type '{self._print(of)}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return ERROR, ERROR

    def _condition_done(self, node: Comprehension) -> None:
        self._expect(node.condition, BOOL)

    def _step_done(self, node: Comprehension) -> None:
        self._expect(node.step, self._types[node.init.id])
        self._leave(node.variable)
        if node.variable2 and node.variable2 != node.variable:
            self._leave(node.variable2)

    def _result_done(self, node: Comprehension) -> None:
        self._leave(node.accumulator)
        self._types[node.id] = self._substituted(self._types[node.result.id])

    def _enter(self, name: str, of: Type) -> None:
        self._locals.setdefault(name, []).append(Identifier(of, Reference(name)))

    def _leave(self, name: str) -> None:
        self._locals[name].pop()

    # Names.

    def _identifier(self, name: str) -> Identifier | None:
        if self._environment.global_names:
            return self._local_or_global(name)
        for candidate in self._environment.names(name):
            if scopes := self._locals.get(candidate):
                return scopes[-1]
            if (found := self._environment.identifier(candidate)) is not None:
                return found
        return None

    def _local_or_global(self, name: str) -> Identifier | None:
        """Return the variable of a macro if a name without a dot in front begins with one, and otherwise a declared name.

        The reference to a declared name that the variable of a macro hides has a dot in front.
        """
        first, _, rest = name.removeprefix(".").partition(".")
        scopes = self._locals.get(first)
        if scopes and not name.startswith("."):
            return None if rest else scopes[-1]
        for candidate in self._environment.names(name):
            if (found := self._environment.identifier(candidate)) is not None:
                hidden = Reference(f".{found.reference.name}", found.reference.value)
                return Identifier(found.type, hidden) if scopes else found
        return None

    def _function(self, name: str) -> Candidates | None:
        for candidate in self._environment.names(name):
            if (found := self._environment.candidates(candidate)) is not None:
                return found.unhidden if self._unhidden else found
        return None

    def _qualified(self, node: Expr) -> str | None:
        """Return the name with dots that a node spells; None if it cannot be a declared name."""
        at, parts = node, []
        while isinstance(at, Select) and not at.test_only:
            parts.append(at.field)
            at = at.operand
        if not isinstance(at, Ident) or not self._environment.may_qualify(at.name):
            return None
        parts.append(at.name)
        parts.reverse()
        return ".".join(parts)

    # Calls.

    def _resolve(self, node: Call, candidates: Candidates) -> None:
        """Find the overloads that a call may mean."""
        arguments = [self._types[argument.id] for argument in node.arguments]
        if candidates.name in _LOGICAL:
            self._resolve_logical(node, candidates, arguments)
            return
        if node.target is not None:
            arguments.insert(0, self._types[node.target.id])
        key = (node.target is not None, *arguments)
        found = candidates.remembered.get(key)
        if found is None:
            before = self._variables
            reference, of = self._resolved(
                candidates.members if node.target is not None else candidates.globals, arguments
            )
            found = Resolution(reference, of, self._variables - before)
            if not (of.open or any(argument.open for argument in arguments)):
                candidates.remember(key, found)
        else:
            self._variables += found.variables
        self._types[node.id] = found.type
        if found.reference is not NOTHING:
            self._references[node.id] = found.reference
        else:
            shown = self._print_signature(
                [self._substituted(of, dynamic=True) for of in arguments], member=node.target is not None
            )
            self._complain(node.id, f"found no matching overload for '{candidates.name}' applied to '{shown}'")

    def _resolve_logical(self, node: Call, candidates: Candidates, arguments: list[Type]) -> None:
        fits = True
        for argument, of in zip(node.arguments, arguments, strict=True):
            if not self._assignable(of, BOOL):
                self._mismatch(argument, BOOL, of)
                fits = False
        self._types[node.id] = BOOL if fits else ERROR
        if fits:
            self._references[node.id] = Reference(overloads=(candidates.globals[0].id,))

    def _resolved(self, signatures: Sequence[Signature], arguments: list[Type]) -> tuple[Reference, Type]:
        """Return all overloads that fit. The type is that of the first, or dyn if they differ."""
        overloads: list[str] = []
        result: Type | None = None
        for signature in signatures:
            fresh = {name: self._variable() for name in signature.parameters}
            if len(signature.arguments) != len(arguments) or any(map(_differ, arguments, signature.arguments)):
                continue
            if not self._assignable_all(arguments, [self._instance(of, fresh) for of in signature.arguments]):
                continue
            overloads.append(signature.id)
            of = self._substituted(self._instance(signature.result, fresh))
            if result is None:
                result = of
            elif result.kind not in _DYNAMIC and of.bare != result.bare:
                result = DYN
        if result is None:
            return NOTHING, ERROR
        return Reference(overloads=tuple(overloads)), result

    # Types.

    def _variable(self) -> Type:
        """Return a new type variable."""
        made = Type(Kind.PARAMETER, f"_var{self._variables}")
        self._variables += 1
        return made

    def _make(self, kind: Kind, name: str, *parameters: Type) -> Type:
        """Return a type with parameters. Equal types are one object, so comparing deep types is quick."""
        key = (kind, name, parameters)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Type(kind, name, parameters)
        return made

    def _instance(self, of: Type, fresh: dict[str, Type]) -> Type:
        """Return a declared type with variables for its parameters."""
        if not of.open:
            return of
        if of.kind is Kind.PARAMETER:
            return fresh[of.name]
        return self._make(of.kind, of.name, *(self._instance(inner, fresh) for inner in of.parameters))

    def _unwrapped(self, node: Expr, of: Type) -> Type:
        """Return the type inside an optional one, if the expression has a question mark."""
        if _is_optional(of):
            return of.parameters[0]
        if of.kind not in _DYNAMIC:
            self._mismatch(node, optional_of(of), of)
        return of

    def _join(self, joined: Type | None, of: Type) -> Type:
        """Return the common type of elements."""
        if joined is None:
            return of
        if self._assignable(joined, of):
            return self._most_general(joined, of)
        return DYN

    def _expect(self, node: Expr, of: Type) -> None:
        found = self._types[node.id]
        if not self._assignable(of, found):
            self._mismatch(node, of, found)

    def _assignable(self, one: Type, other: Type) -> bool:
        """Return whether the one may be assigned to the other; if so, bind variables."""
        return one is other or self._assignable_all((one,), (other,))

    def _assignable_all(self, ones: Sequence[Type], others: Sequence[Type]) -> bool:
        self._undo.clear()
        if all(self._unify(one, other) for one, other in zip(ones, others, strict=True)):
            return True
        for name, bound in reversed(self._undo):
            if bound is None:
                del self._bound[name]
            else:
                self._bound[name] = bound
        return False

    def _bind(self, name: str, to: Type) -> None:
        self._undo.append((name, self._bound.get(name)))
        self._bound[name] = to

    def _unify(self, one: Type, other: Type) -> bool:
        """Return whether the one is assignable to the other (cel-go internalIsAssignable)."""
        todo: list[tuple[Type, Type, Type | None]] = [(one, other, None)]
        seen: set[tuple[Type, Type]] = set()
        while todo:
            self._step()
            one, other, variable = todo.pop()
            if variable is not None:
                self._generalize(variable, one, other)
            elif one is other or (other.kind is Kind.PARAMETER and self._stand_in(one, other, todo)):
                continue
            elif one.kind is Kind.PARAMETER:
                if not self._stand_in(other, one, todo):
                    return False
            elif one.kind not in _STRUCTURED or other.kind not in _STRUCTURED:
                if not _simply_assignable(one, other):
                    return False
            elif one.kind is not other.kind or one.name != other.name or len(one.parameters) != len(other.parameters):
                return False
            # Once two types are assignable they stay so, because variables are only bound to wider types.
            elif (one, other) not in seen:
                seen.add((one, other))
                todo.extend(
                    (*pair, None) for pair in zip(reversed(one.parameters), reversed(other.parameters), strict=True)
                )
        return True

    def _stand_in(self, one: Type, variable: Type, todo: list[tuple[Type, Type, Type | None]]) -> bool:
        """Let a variable stand for a type; return False if it cannot (cel-go isValidTypeSubstitution).

        If it is bound already, both types must be assignable. That is left to do, and then to bind the variable to the
        wider one.
        """
        if one == variable:
            return True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if one.bare != bound.bare:
                todo.append((one, bound, variable))
                todo.append((one, bound, None))
            return True
        if self._occurs(variable, one):
            return False
        self._bind(variable.name, one)
        return True

    def _generalize(self, variable: Type, one: Type, bound: Type) -> None:
        """Bind a variable to the wider of two types."""
        general = self._most_general(one, bound)
        if general is not bound and not self._occurs(variable, general):
            self._bind(variable.name, general)

    def _occurs(self, variable: Type, inside: Type) -> bool:
        """Return whether a type contains the variable, also through bindings of its own variables."""
        todo = [inside.variables]
        seen: set[str] = set()
        while todo:
            names = todo.pop()
            if variable.name in names:
                return True
            if self._bound.keys().isdisjoint(names):
                continue
            for name in names - seen:
                self._step()
                seen.add(name)
                if (bound := self._bound.get(name)) is not None:
                    todo.append(bound.variables)
        return False

    def _most_general(self, one: Type, other: Type) -> Type:
        """Return the wider of two assignable types (cel-go mostGeneral)."""
        if one is other:
            return one
        todo = [(one, other)]
        seen: set[tuple[Type, Type]] = set()
        while todo:
            self._step()
            left, right = todo.pop()
            if left.kind in _DYNAMIC or left.kind is Kind.PARAMETER:
                continue
            if right.kind in _DYNAMIC or right.kind is Kind.PARAMETER or left.kind is not right.kind:
                return other
            if left.kind is Kind.TYPE:
                continue
            if left.kind not in _STRUCTURED:
                if left.bare != right.bare:
                    return other
                continue
            if left.name != right.name or len(left.parameters) != len(right.parameters):
                return other
            if (left, right) not in seen:
                seen.add((left, right))
                todo.extend(zip(left.parameters, right.parameters, strict=True))
        return one

    def _substituted(self, of: Type, *, dynamic: bool = False, done: dict[Type, Type] | None = None) -> Type:
        """Return a type with its variables substituted. With `dynamic`, unbound ones become dyn."""
        if not (of.open and dynamic) and self._bound.keys().isdisjoint(of.variables):
            return of
        done = {} if done is None else done
        todo = [of]
        while todo:
            self._step()
            at = todo[-1]
            if at in done:
                todo.pop()
            elif at.kind is Kind.PARAMETER:
                bound = self._bound.get(at.name)
                if bound is None:
                    done[at] = DYN if dynamic else at
                elif not bound.open:
                    done[at] = bound
                elif bound in done:
                    done[at] = done[bound]
                else:
                    todo.append(bound)
            elif not dynamic and self._bound.keys().isdisjoint(at.variables):
                done[at] = at
            elif missing := [inner for inner in at.parameters if inner.open and inner not in done]:
                todo.extend(missing)
            else:
                done[at] = self._make(at.kind, at.name, *(done.get(inner, inner) for inner in at.parameters))
        return done[of]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > LIMIT:
            raise _TooComplexError

    # Issues.

    def _complain(self, expression: int, message: str) -> None:
        self._issues.append(Issue(self._ast.positions.get(expression), message, expression))

    def _mismatch(self, node: Expr, expected: Type, found: Type) -> None:
        self._complain(node.id, f"expected type '{self._print(expected)}' but found '{self._print(found)}'")

    def _undeclared(self, expression: int, name: str) -> None:
        self._types[expression] = ERROR
        self._complain(expression, f"undeclared reference to '{name}' (in container '{self._environment.container}')")

    def _print(self, of: Type) -> str:
        """Print a type in full until all printed types together reach their limit."""
        text = format_type(of, max(self._remaining, 0))
        self._remaining -= len(text)
        return text

    def _print_signature(self, arguments: list[Type], *, member: bool) -> str:
        target = f"{self._print(arguments.pop(0))}." if member else ""
        return f"{target}({', '.join(map(self._print, arguments))})"


_VISITS: dict[type, Callable[[_Checker, Any], None]] = {
    Literal: _Checker._literal,
    Ident: _Checker._ident,
    Select: _Checker._select,
    Call: _Checker._call,
    ListExpr: _Checker._list,
    MapExpr: _Checker._map,
    StructExpr: _Checker._struct,
    Comprehension: _Checker._comprehension,
}


def _is_optional(of: Type) -> bool:
    return of.kind is Kind.OPAQUE and of.name == "optional_type" and len(of.parameters) == 1


def _is_message(of: Type) -> bool:
    """Return whether values of the type come from a protobuf message (cel-go isWellKnownType)."""
    return of.kind in _ALWAYS_MESSAGES or of.nullable or of in _DYNAMIC_CONTAINERS


def _differ(one: Type, other: Type) -> bool:
    """Return whether two types can never be assignable, whatever their parameters. This check is quick."""
    return one.kind is not other.kind and one.kind not in _LOOSE and other.kind not in _LOOSE


def _simply_assignable(one: Type, other: Type) -> bool:
    """Return whether the one type may be assigned to the other, when at least one of them has no parameters."""
    if one.kind in _DYNAMIC_OR_ERROR or other.kind in _DYNAMIC_OR_ERROR:
        return True
    if one.kind is Kind.NULL:
        return other.nullable or other.kind in _NULLABLE
    if other.kind is Kind.NULL:
        return one.nullable or one.kind in _NULLABLE
    return one.kind is other.kind and (one.kind is Kind.TYPE or one.name == other.name)


def _rename(ast: Ast, names: dict[int, Ident]) -> None:
    """Replace selections that turned out to be names."""

    def renamed(node: Expr) -> Expr:
        return names.get(node.id, node)

    ast.expr = renamed(ast.expr)
    todo: list[Expr] = [ast.expr]
    while todo:
        node = todo.pop()
        if isinstance(node, Select):
            node.operand = renamed(node.operand)
            todo.append(node.operand)
        elif isinstance(node, Call):
            node.arguments = [renamed(argument) for argument in node.arguments]
            todo.extend(node.arguments)
            if node.target is not None:
                node.target = renamed(node.target)
                todo.append(node.target)
        elif isinstance(node, ListExpr):
            node.elements = [renamed(element) for element in node.elements]
            todo.extend(node.elements)
        elif isinstance(node, MapExpr):
            node.entries = [
                entry._replace(key=renamed(entry.key), value=renamed(entry.value)) for entry in node.entries
            ]
            todo.extend(part for entry in node.entries for part in (entry.key, entry.value))
        elif isinstance(node, StructExpr):
            node.fields = [field._replace(value=renamed(field.value)) for field in node.fields]
            todo.extend(field.value for field in node.fields)
        elif isinstance(node, Comprehension):
            node.range, node.init, node.condition = renamed(node.range), renamed(node.init), renamed(node.condition)
            node.step, node.result = renamed(node.step), renamed(node.result)
            todo.extend((node.range, node.init, node.condition, node.step, node.result))
