"""What an expression may use: functions, variables, types, macros, and the options of the language. Immutable; grown by `extend`.

An environment remembers which overload a function has for which types, also for those that extend it. So extending one costs little,
and the second expression is checked faster than the first.
Upstream: google/cel-go `cel/env.go`, `checker/env.go`, `common/types/provider.go`, kubernetes/apiserver `pkg/cel/types.go`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import permutations
from types import MappingProxyType

from kubecel.check.checker import Candidates, Checked, Identifier, Reference, check
from kubecel.check.declarations import Estimate, Function, Library, Overload, Shape, Validator, Variable
from kubecel.parse.ast import descendants
from kubecel.parse.language import RESERVED
from kubecel.parse.macros import Macro, Macros
from kubecel.parse.parser import parse
from kubecel.parse.source import CompileError, Source
from kubecel.values import mutation, wellknown
from kubecel.values.messages import message
from kubecel.values.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    assignable,
    equivalent,
    list_of,
    map_of,
    struct,
    type_of,
)
from kubecel.values.values import Value

# In an environment with shapes the simple types are found by the names that Kubernetes gives them (findScalar).
_SIMPLE = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "int": INT,
    "null_type": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "uint": UINT,
    "list": list_of(ANY),
    "map": map_of(ANY, ANY),
}

# The comparisons of numbers of two types, which are declared always and tried only on request.
_COMPARISONS = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_CROSS_TYPE = frozenset(
    f"{relation}_{left}_{right}"
    for relation in ("less", "less_equals", "greater", "greater_equals")
    for left, right in permutations(("int64", "uint64", "double"), 2)
)


class Environment:
    """All that decides what an expression means. `Environment()` has nothing but protobuf's messages: extend it by libraries.

    `container` is the namespace in which names are looked up first. `cross_type_numeric_comparisons` lets `1 < 1.5` be,
    `optional_syntax` lets `a.?b` be, and with `reserved_fields` a declared field `__namespace__` may be written `namespace` too.
    With `free_presence_tests` asking `has(a.b)` costs what `a` does. With `mutations` the types of `mutation.py` are there.
    """

    def __init__(self) -> None:
        self.container = ""
        self.cross_type_numeric_comparisons = False
        self.optional_syntax = False
        self.reserved_fields = False
        self.free_presence_tests = False
        self.mutations = False
        self.libraries: frozenset[str] = frozenset()
        self.validators: tuple[Validator, ...] = ()
        self.exempt: frozenset[str] = frozenset()
        self.equality: Mapping[Type, Estimate] = {}
        self.macros = Macros()
        self._macros: tuple[Macro, ...] = ()
        self._variables: dict[str, Variable] = {}
        self._functions: dict[str, Function] = {}
        self._overloads: dict[str, Overload] = {}
        self._shapes: dict[str, Shape] = {}
        self._types = {name: Identifier(INT, Reference(name, value)) for name, value in wellknown.CONSTANTS.items()}
        self._types |= {name: _type_identifier(name, struct(name)) for name in wellknown.FIELDS}
        self._candidates: dict[str, Candidates] = {}
        self._index()

    def extend(
        self,
        *,
        libraries: Iterable[Library] = (),
        variables: Iterable[Variable] = (),
        functions: Iterable[Function] = (),
        shapes: Iterable[Shape] = (),
        types: Iterable[Type] = (),
        macros: Iterable[Macro] = (),
        validators: Iterable[Validator] = (),
        container: str | None = None,
        cross_type_numeric_comparisons: bool | None = None,
        optional_syntax: bool | None = None,
        reserved_fields: bool | None = None,
        free_presence_tests: bool | None = None,
        mutations: bool | None = None,
    ) -> Environment:
        """An environment with more in it; this one stays as it is.

        `shapes` are objects with all that is nested in them; one of a name that is known takes its place. A library is taken in
        once, by its name. ValueError when declarations collide.
        """
        grown = copy.copy(self)
        if container is not None:
            grown.container = container
        if (
            cross_type_numeric_comparisons is not None
            and cross_type_numeric_comparisons != self.cross_type_numeric_comparisons
        ):
            grown.cross_type_numeric_comparisons = cross_type_numeric_comparisons
            grown._offer(_COMPARISONS & grown._functions.keys())
        if optional_syntax is not None:
            grown.optional_syntax = optional_syntax
        if reserved_fields is not None:
            grown.reserved_fields = reserved_fields
        if free_presence_tests is not None:
            grown.free_presence_tests = free_presence_tests
        if mutations is not None:
            grown.mutations = mutations
        for library in libraries:
            if library.name not in grown.libraries:
                grown._take_in(library)
        grown._declare(variables)
        grown._define(functions)
        grown._shape(shapes)
        grown._register(types)
        grown._expand(macros)
        grown._validate(validators)
        grown._index()
        return grown

    def compile(self, source: Source | str) -> Checked:
        """Parse an expression, check its types, and let the validators look at it. Raises CompileError with all that is wrong."""
        source = Source(source) if isinstance(source, str) else source
        checked = check(parse(source, macros=self.macros, optional_syntax=self.optional_syntax), self)
        if self.validators:
            nodes = descendants(checked.ast.expr)
            issues = [issue for validator in self.validators for issue in validator.check(checked, nodes, self.exempt)]
            if issues:
                raise CompileError(source, issues)
        return checked

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The declared variables and constants by name; the names of types are among them."""
        return MappingProxyType(self._variables)

    @property
    def functions(self) -> Mapping[str, Function]:
        """The functions by their full names."""
        return MappingProxyType(self._functions)

    @property
    def overloads(self) -> Mapping[str, Overload]:
        """The overloads of all functions by their ids."""
        return MappingProxyType(self._overloads)

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The declared objects by the names of their types, those inside them too."""
        return MappingProxyType(self._shapes)

    # What the checker asks.

    def identifier(self, name: str) -> Identifier | None:
        """What a full name means outside any macro."""
        found = self._identifiers.get(name)
        if found is None and (constructor := self._constructor(name)) is not None:
            # cel-go's provider knows such a type and no value for its name.
            return Identifier(type_of(constructor.type), Reference(name))
        return found

    def candidates(self, name: str) -> Candidates | None:
        """The overloads of a function."""
        return self._candidates.get(name)

    def names(self, name: str) -> tuple[str, ...]:
        """The full names that a name may stand for, in the order in which they are tried: the innermost namespace first."""
        if name.startswith("."):
            return (name[1:],)
        if not self.container:
            return (name,)
        parts = self.container.split(".")
        return (*(".".join((*parts[:count], name)) for count in range(len(parts), 0, -1)), name)

    def may_qualify(self, root: str) -> bool:
        """Whether a name with dots that begins so can be declared: what is quick to ask before the name is put together."""
        return root in self._roots or self.container != "" or root.startswith(".")

    def has_struct(self, name: str) -> bool:
        """Whether a type with fields has the name."""
        if name in self._shapes or name in wellknown.FIELDS or (bool(self._shapes) and name in _SIMPLE):
            return True
        return self._constructor(name) is not None

    def field(self, name: str, field: str) -> Type | None:
        """The type of a field of a type."""
        if (constructor := self._constructor(name)) is not None:
            return constructor.field(field)
        shape = self._shapes.get(name)
        if shape is None and self._shapes and name in _SIMPLE:
            return ANY if name == "map" else None
        if shape is None:
            return wellknown.FIELDS.get(name, {}).get(field)
        fields = shape.fields or {}
        found = fields.get(field)
        if found is None and self.reserved_fields and field in RESERVED:
            found = fields.get(f"__{field}__")
        if found is None and shape.keys is not None:
            found = shape.items
        return found.type if found is not None else None

    def make(self, name: str, fields: Mapping[str, Value]) -> Value:
        """The value of a type with these fields. EvaluationError in cel-go's words when there is none."""
        constructor = self._constructor(name)
        return message(name, fields) if constructor is None else constructor.make(fields)

    def _constructor(self, name: str) -> mutation.Constructor | None:
        return mutation.constructor(name) if self.mutations else None

    # How an environment is grown: each of these replaces the table that it changes.

    def _take_in(self, library: Library) -> None:
        self.libraries |= {library.name}
        self.optional_syntax = self.optional_syntax or library.optional_syntax
        self._declare(library.variables)
        self._define(library.functions)
        self._register(library.types)
        self._expand(library.macros)
        self._validate(library.validators)
        self.equality = {**self.equality, **library.equality}

    def _declare(self, variables: Iterable[Variable]) -> None:
        table = dict(self._variables)
        for variable in variables:
            known = table.get(variable.name)
            if known is not None and not equivalent(known.type, variable.type):
                raise ValueError(f"overlapping identifier for name '{variable.name}'")
            table[variable.name] = variable
        self._variables = table

    def _define(self, functions: Iterable[Function]) -> None:
        table = dict(self._functions)
        changed = set()
        for function in functions:
            known = table.get(function.name)
            table[function.name] = _merged(known or Function(function.name, ()), function)
            changed.add(function.name)
        self._functions = table
        self._overloads = self._overloads | {
            overload.id: overload for name in changed for overload in table[name].overloads
        }
        self._offer(changed)

    def _offer(self, changed: Iterable[str]) -> None:
        """Forget what is remembered of functions that changed."""
        hidden = frozenset() if self.cross_type_numeric_comparisons else _CROSS_TYPE
        self._candidates = self._candidates | {name: Candidates(self._functions[name], hidden) for name in changed}

    def _shape(self, shapes: Iterable[Shape]) -> None:
        table = dict(self._shapes)
        types = dict(self._types)
        for shape in shapes:
            for name, nested in _nested(shape):
                table[name] = nested
                types[name] = _type_identifier(name, nested.type)
        if table:
            types.update((name, _type_identifier(name, of)) for name, of in _SIMPLE.items() if name not in table)
        self._shapes, self._types = table, types

    def _register(self, types: Iterable[Type]) -> None:
        self._types = {**{of.name: _type_identifier(of.name, of) for of in types}, **self._types}

    def _expand(self, macros: Iterable[Macro]) -> None:
        if added := tuple(macros):
            self._macros += added
            self.macros = Macros(self._macros)

    def _validate(self, validators: Iterable[Validator]) -> None:
        for validator in validators:
            if all(validator.name != known.name for known in self.validators):
                self.validators = (*self.validators, validator)
                self.exempt |= validator.exempt

    def _index(self) -> None:
        """Lay out what the checker looks up: variables hide types of the same name."""
        self._identifiers = self._types | {
            name: Identifier(variable.type, Reference(name, variable.value))
            for name, variable in self._variables.items()
        }
        dotted = (name for table in (self._identifiers, self._functions) for name in table if "." in name)
        self._roots = frozenset(name.partition(".")[0] for name in dotted) | (
            mutation.ROOTS if self.mutations else frozenset()
        )


def _type_identifier(name: str, of: Type) -> Identifier:
    return Identifier(type_of(of), Reference(name, of))


def _nested(shape: Shape) -> Iterable[tuple[str, Shape]]:
    """An object with the objects inside it by their type names, lists and maps by the ways to them (FieldTypeMap)."""
    todo = [(shape.type.name, shape)]
    while todo:
        path, at = todo.pop()
        if at.fields is not None:
            yield at.type.name, at
            todo.extend((f"{path}.{name}", field) for name, field in at.fields.items())
        elif at.items is not None:
            yield path, at
            todo.append((f"{path}.@elem" if at.keys is not None else f"{path}.@idx", at.items))


def _merged(known: Function, more: Function) -> Function:
    """A function with the overloads of both. One of a known id takes its place when it has the same signature."""
    overloads = {overload.id: overload for overload in known.overloads}
    for overload in more.overloads:
        for other in overloads.values():
            if other.id == overload.id:
                if not _same_signature(other, overload) or other.strict != overload.strict:
                    raise ValueError(
                        f"overload redefinition in function. {known.name}: {other.id} has multiple definitions"
                    )
            elif _overlaps(other, overload):
                raise ValueError(
                    f"overload signature collision in function {known.name}: {other.id} collides with {overload.id}"
                )
        overloads[overload.id] = overload
    return Function(known.name, tuple(overloads.values()), charge=known.charge or more.charge)


def _same_signature(one: Overload, other: Overload) -> bool:
    return (
        one.member == other.member
        and len(one.arguments) == len(other.arguments)
        and all(equivalent(left, right) for left, right in zip(one.arguments, other.arguments, strict=True))
        and equivalent(one.result, other.result)
    )


def _overlaps(one: Overload, other: Overload) -> bool:
    """Whether a call could be meant for either."""
    return (
        one.member == other.member
        and len(one.arguments) == len(other.arguments)
        and all(
            assignable(left, right) or assignable(right, left)
            for left, right in zip(one.arguments, other.arguments, strict=True)
        )
    )
