"""Hold everything that an expression may use: functions, variables, types, macros and language options.

An environment is immutable; `extend` returns a larger one. It caches which overload a function has for which types,
also for environments that extend it. So extending costs little, and later expressions are checked faster than the
first.
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

# Environments with shapes find the simple types by Kubernetes' names (findScalar).
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

# Comparisons of numbers of two types. They are always declared, but used only on request.
_COMPARISONS = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_CROSS_TYPE = frozenset(
    f"{relation}_{left}_{right}"
    for relation in ("less", "less_equals", "greater", "greater_equals")
    for left, right in permutations(("int64", "uint64", "double"), 2)
)


class Environment:
    """The declarations and options that decide the meaning of an expression.

    `Environment()` has only protobuf's messages: extend it by libraries. `container` is the namespace in which names
    are looked up first. `cross_type_numeric_comparisons` allows `1 < 1.5`, and `optional_syntax` allows `a.?b`. With
    `reserved_fields` an expression may write `namespace` for a declared field `__namespace__`. With
    `free_presence_tests` `has(a.b)` costs as much as `a`. `mutations` adds the types of `mutation.py`.

    `escaped_fields` allows ``a.`b-c` ``. With `global_names`, `.a` is never a variable of a macro, and `a.b` never a declared name if
    such a variable is called `a`. With `strict_optionals`, `or` and `orValue` need an optional value, which may hold another one.
    """

    def __init__(self) -> None:
        self.container = ""
        self.cross_type_numeric_comparisons = False
        self.optional_syntax = False
        self.reserved_fields = False
        self.free_presence_tests = False
        self.mutations = False
        self.escaped_fields = False
        self.global_names = False
        self.strict_optionals = False
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
        self._roots = _roots(self._types)

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
        escaped_fields: bool | None = None,
        global_names: bool | None = None,
        strict_optionals: bool | None = None,
    ) -> Environment:
        """Return an environment with further declarations. This one stays unchanged.

        `shapes` are objects with everything nested in them. A shape replaces an earlier one of the same name. A library
        is adopted once, by its name. Raises ValueError when declarations collide.
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
            grown._roots |= mutation.ROOTS if mutations else frozenset()
        if escaped_fields is not None:
            grown.escaped_fields = escaped_fields
        if global_names is not None:
            grown.global_names = global_names
        if strict_optionals is not None:
            grown.strict_optionals = strict_optionals
        for library in libraries:
            if library.name not in grown.libraries:
                grown._take_in(library)
        grown._declare(variables)
        grown._define(functions)
        grown._shape(shapes)
        grown._register(types)
        grown._expand(macros)
        grown._validate(validators)
        return grown

    def compile(self, source: Source | str) -> Checked:
        """Parse an expression, check its types, and run the validators. Raises CompileError with all errors."""
        source = Source(source) if isinstance(source, str) else source
        tree = parse(
            source, macros=self.macros, optional_syntax=self.optional_syntax, escaped_fields=self.escaped_fields
        )
        checked = check(tree, self)
        if self.validators:
            nodes = descendants(checked.ast.expr)
            issues = [issue for validator in self.validators for issue in validator.check(checked, nodes, self.exempt)]
            if issues:
                raise CompileError(source, issues)
        return checked

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Return the declared variables and constants by name, the names of types included."""
        return MappingProxyType(self._variables)

    @property
    def functions(self) -> Mapping[str, Function]:
        """Return the functions by their full names."""
        return MappingProxyType(self._functions)

    @property
    def overloads(self) -> Mapping[str, Overload]:
        """Return the overloads of all functions by their ids."""
        return MappingProxyType(self._overloads)

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Return the declared objects by the names of their types, nested ones included."""
        return MappingProxyType(self._shapes)

    # Look-ups of the checker.

    def identifier(self, name: str) -> Identifier | None:
        """Return the meaning of a full name outside of macros. Variables hide types of the same name."""
        if (variable := self._variables.get(name)) is not None:
            return Identifier(variable.type, Reference(name, variable.value))
        if self._shapes:
            shape = self._shapes.get(name)
            if (of := _SIMPLE.get(name) if shape is None else shape.type) is not None:
                return _type_identifier(name, of)
        found = self._types.get(name)
        if found is None and (constructor := self._constructor(name)) is not None:
            # cel-go's provider knows such a type, but no value for its name.
            return Identifier(type_of(constructor.type), Reference(name))
        return found

    def candidates(self, name: str) -> Candidates | None:
        """Return the overloads of a function."""
        return self._candidates.get(name)

    def names(self, name: str) -> tuple[str, ...]:
        """Return the full names that a name may stand for, in the order of look-up: the innermost namespace first."""
        if name.startswith("."):
            return (name[1:],)
        if not self.container:
            return (name,)
        parts = self.container.split(".")
        return (*(".".join((*parts[:count], name)) for count in range(len(parts), 0, -1)), name)

    def may_qualify(self, root: str) -> bool:
        """Return whether a name with this first part can be declared. It is a quick test before the whole name is
        built.
        """
        return root in self._roots or self.container != "" or root.startswith(".")

    def has_struct(self, name: str) -> bool:
        """Return whether the name is that of a type with fields."""
        if name in self._shapes or name in wellknown.FIELDS or (bool(self._shapes) and name in _SIMPLE):
            return True
        return self._constructor(name) is not None

    def field(self, name: str, field: str) -> Type | None:
        """Return the type of a field of a type."""
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
        """Return the value of a type with these fields. Raises EvaluationError with cel-go's message."""
        constructor = self._constructor(name)
        return message(name, fields) if constructor is None else constructor.make(fields)

    def _constructor(self, name: str) -> mutation.Constructor | None:
        return mutation.constructor(name) if self.mutations else None

    # Steps of `extend`: each replaces the table that it changes.

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
            self._roots |= _roots((variable.name,))
        self._variables = table

    def _define(self, functions: Iterable[Function]) -> None:
        changed: dict[str, Function] = {}
        for function in functions:
            known = changed.get(function.name) or self._functions.get(function.name) or Function(function.name, ())
            changed[function.name] = _merged(known, function)
        if changed:
            self._functions = self._functions | changed
            self._overloads = self._overloads | {
                overload.id: overload for function in changed.values() for overload in function.overloads
            }
            self._roots |= _roots(changed)
            self._offer(changed)

    def _offer(self, changed: Iterable[str]) -> None:
        """Discard the caches of changed functions."""
        hidden = frozenset() if self.cross_type_numeric_comparisons else _CROSS_TYPE
        self._candidates = self._candidates | {name: Candidates(self._functions[name], hidden) for name in changed}

    def _shape(self, shapes: Iterable[Shape]) -> None:
        added = {name: nested for shape in shapes for name, nested in _nested(shape)}
        if added:
            self._shapes = self._shapes | added
            self._roots |= _roots(added)

    def _register(self, types: Iterable[Type]) -> None:
        if added := {of.name: _type_identifier(of.name, of) for of in types}:
            self._types = added | self._types
            self._roots |= _roots(added)

    def _expand(self, macros: Iterable[Macro]) -> None:
        if added := tuple(macros):
            self._macros += added
            self.macros = Macros(self._macros)

    def _validate(self, validators: Iterable[Validator]) -> None:
        for validator in validators:
            if all(validator.name != known.name for known in self.validators):
                self.validators = (*self.validators, validator)
                self.exempt |= validator.exempt


def _roots(names: Iterable[str]) -> frozenset[str]:
    """Return the first parts of qualified names."""
    return frozenset(name.partition(".")[0] for name in names if "." in name)


def _type_identifier(name: str, of: Type) -> Identifier:
    return Identifier(type_of(of), Reference(name, of))


def _nested(shape: Shape) -> Iterable[tuple[str, Shape]]:
    """Yield an object and all nested objects by their type names, lists and maps by their paths (FieldTypeMap)."""
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
    """Return a function with the overloads of both. A known id is replaced if its signature is the same."""
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
    """Return whether a call could match either."""
    return (
        one.member == other.member
        and len(one.arguments) == len(other.arguments)
        and all(
            assignable(left, right) or assignable(right, left)
            for left, right in zip(one.arguments, other.arguments, strict=True)
        )
    )
