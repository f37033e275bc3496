"""Declare functions with their overloads, variables, shapes of typed objects, and libraries of them.

One overload is one declaration. `checker` reads its types, `cost` its `estimate`, `program` its `call` and `charge`.
Upstream: google/cel-go `common/decls/decls.go`, kubernetes/apiserver `pkg/cel/types.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubecel.parse.ast import Expr
from kubecel.parse.macros import Macro
from kubecel.parse.source import Issue
from kubecel.values.types import Type
from kubecel.values.values import Value

if TYPE_CHECKING:
    from kubecel.check.checker import Checked

# The cap of every size and cost.
UNLIMITED = 2**64 - 1


class Range(NamedTuple):
    """The least and the greatest size or cost. `UNLIMITED` is unknown.

    Sums and products are capped at `UNLIMITED`.
    """

    least: int
    most: int

    @classmethod
    def exactly(cls, size: int) -> Range:
        """Return the range of a known size."""
        return cls(size, size)

    def plus(self, other: Range) -> Range:
        """Return the sum of both."""
        return Range(min(self.least + other.least, UNLIMITED), min(self.most + other.most, UNLIMITED))

    def times(self, other: Range) -> Range:
        """Return the product of both."""
        return Range(min(self.least * other.least, UNLIMITED), min(self.most * other.most, UNLIMITED))

    def scaled(self, factor: float) -> Range:
        """Return the range times a factor, rounded up in double precision as in cel-go."""
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: Range) -> Range:
        """Return the range that contains both."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scaled(count: int, factor: float) -> int:
    """Return `count × factor` rounded up, at most `UNLIMITED` (cel-go multiplyByCostFactor)."""
    product = float(count) * factor
    return math.ceil(product) if product < UNLIMITED else UNLIMITED


class CallEstimate(NamedTuple):
    """The possible cost of a call, and the size of its result.

    The size is None if it is unknown, or if the result is no list, map, string or bytes.
    """

    cost: Range
    size: Range | None = None


class Node(Protocol):
    """A node as an estimate sees it: google/cel-go `checker.AstNode`."""

    @property
    def path(self) -> tuple[str, ...] | None:
        """Return the path from a variable through declared shapes; None without one.

        It consists of names of fields, `@items`, `@keys` and `@values`.
        """

    @property
    def type(self) -> Type:
        """Return the type that the checker found."""

    @property
    def expr(self) -> Expr | None:
        """Return the node itself; None for an element, which has no node of its own."""

    @property
    def computed_size(self) -> Range | None:
        """Return the size, as far as it follows from the expression alone."""


class Estimator(Protocol):
    """The services of the estimating walk."""

    def size(self, node: Node) -> Range:
        """Return the size of a node: computed, else declared, else 0 to UNLIMITED."""

    def element(self, node: Node) -> Node | None:
        """Return an element of a node whose type has parameters (an item of a list); None for any other node."""


# (estimator, target or None, arguments) → the estimate, None for cel-go's default of a call.
Estimate = Callable[[Estimator, Node | None, Sequence[Node]], CallEstimate | None]
# (values of target and arguments, result) → the cost at run time, None for cel-go's default of a call.
Charge = Callable[[Sequence[Value], Value], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One signature of a function.

    The receiver of a member function is the first of `arguments`, and of the values of `call`. With `guarded` off the
    values of `call` need not be of the declared types.

    `call` raises errors.EvaluationError. With `strict` off it receives errors as values. Functions without `call` are
    built into the program.
    """

    id: str
    arguments: tuple[Type, ...]
    result: Type
    member: bool = False
    call: Callable[..., Value] | None = None
    strict: bool = True
    guarded: bool = True
    estimate: Estimate | None = None
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A name with its overloads, in the order in which they are tried and printed.

    `charge` applies when only the values decide the overload; other calls use the charge of their overload.
    """

    name: str
    overloads: tuple[Overload, ...]
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A name with its type, and a shape that limits its value. With a `value` it is a constant."""

    name: str
    type: Type
    shape: Shape | None = None
    value: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A type with the limits of its declaration: kubernetes/apiserver `pkg/cel/types.go` DeclType.

    `max_elements` limits the size (code points, bytes, entries); it is 0 for numbers and objects. An object has
    `fields`, which may be empty. A type with functions only, such as a quantity, is no object. A list has `items`;
    a map has `keys`, and its values are `items`. `others` is the shape of fields that `fields` does not name, for sizes
    only.
    """

    type: Type
    max_elements: int = 0
    fields: Mapping[str, Shape] | None = None
    keys: Shape | None = None
    items: Shape | None = None
    others: Shape | None = None
    required: bool = True


@dataclass(frozen=True, slots=True)
class Validator:
    """A check of an expression that has no type errors. An environment has each `name` once.

    `check` gets the checked expression, its nodes in the order of `ast.descendants`, and the exempt functions: literals
    in their arguments may mix types. These are the functions that any validator of the environment names in `exempt`.
    It returns its errors in cel-go's order.
    """

    name: str
    check: Callable[[Checked, Sequence[Expr], frozenset[str]], Iterable[Issue]]
    exempt: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Functions, types, constants, macros and validators that an environment adopts as a whole.

    `equality` estimates `==` between two values of one of its types. Without it the greatest cost is UNLIMITED.
    """

    name: str
    functions: tuple[Function, ...] = ()
    variables: tuple[Variable, ...] = ()
    types: tuple[Type, ...] = ()
    macros: tuple[Macro, ...] = ()
    validators: tuple[Validator, ...] = ()
    optional_syntax: bool = False
    equality: Mapping[Type, Estimate] = field(default_factory=dict)
