"""What an environment is told: functions with their overloads, variables, shapes of typed objects, and libraries of them.

One overload is one declaration: its types are read by `checker`, its `estimate` by `cost`, `call` and `charge` by `program`.
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

# The cap of every size and cost: what is larger counts as this.
UNLIMITED = 2**64 - 1


class Range(NamedTuple):
    """The least and the most that a size or a cost can be; an `UNLIMITED` most is unknown. Sums and products end at `UNLIMITED`."""

    least: int
    most: int

    @classmethod
    def exactly(cls, size: int) -> Range:
        """What is known for certain."""
        return cls(size, size)

    def plus(self, other: Range) -> Range:
        """Both together."""
        return Range(min(self.least + other.least, UNLIMITED), min(self.most + other.most, UNLIMITED))

    def times(self, other: Range) -> Range:
        """The one for each of the other."""
        return Range(min(self.least * other.least, UNLIMITED), min(self.most * other.most, UNLIMITED))

    def scaled(self, factor: float) -> Range:
        """So much for each, rounded up as cel-go rounds: in double precision."""
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: Range) -> Range:
        """One or the other."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scaled(count: int, factor: float) -> int:
    """`count × factor` rounded up, at most `UNLIMITED` (cel-go multiplyByCostFactor)."""
    product = float(count) * factor
    return math.ceil(product) if product < UNLIMITED else UNLIMITED


class CallEstimate(NamedTuple):
    """What a call may cost, and the size of its result where that is a list, map, string or bytes and known."""

    cost: Range
    size: Range | None = None


class Node(Protocol):
    """A node as an estimate sees it: google/cel-go `checker.AstNode`."""

    @property
    def path(self) -> tuple[str, ...] | None:
        """The way from a variable through declared shapes: names of fields, `@items`, `@keys`, `@values`; None when there is none."""

    @property
    def type(self) -> Type:
        """The type that the checker found."""

    @property
    def expr(self) -> Expr | None:
        """The node itself, None for an element, which is no node of its own."""

    @property
    def computed_size(self) -> Range | None:
        """The size as far as the expression alone says it."""


class Estimator(Protocol):
    """What an estimate may ask of the walk that calls it."""

    def size(self, node: Node) -> Range:
        """The size of a node: computed, else declared, else 0 to UNLIMITED."""

    def element(self, node: Node) -> Node | None:
        """An element of a node whose type has parameters (of a list: what is in it), None for any other node."""


# (estimator, target or None, arguments) → the estimate, None for cel-go's default of a call.
Estimate = Callable[[Estimator, Node | None, Sequence[Node]], CallEstimate | None]
# (values of target and arguments, result) → the cost at run time, None for cel-go's default of a call.
Charge = Callable[[Sequence[Value], Value], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One signature of a function. Of a member function the receiver is the first of `arguments`, and of the values of `call`.

    With `guarded` off the values of `call` need not be of the declared types.

    `call` raises errors.EvaluationError; with `strict` off it receives errors as values. Without `call` the program has it built in.
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

    `charge` is for calls whose overload only the values decide; others are charged as their overload says.
    """

    name: str
    overloads: tuple[Overload, ...]
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A name with its type, and the shape that says more of it. With a `value` it is a constant."""

    name: str
    type: Type
    shape: Shape | None = None
    value: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A type with what its declaration limits: kubernetes/apiserver `pkg/cel/types.go` DeclType.

    `max_elements` bounds the size (code points, bytes, entries), 0 for what has none: numbers, objects. An object has `fields`, even
    if there are none (what has functions only, as a quantity, is no object), a list `items`, a map `keys` and `items`, its values.
    `others` is what a field has that `fields` do not name, for sizes only.
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
    """A look at an expression whose types are right. `name` is unique: an environment has each once.

    `check` gets the checked expression, its nodes as `ast.descendants` has them, and the functions in whose arguments literals may
    mix types: those that any validator of the environment names in `exempt`. It gives what it complains about, in cel-go's order.
    """

    name: str
    check: Callable[[Checked, Sequence[Expr], frozenset[str]], Iterable[Issue]]
    exempt: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Functions, types, constants, macros and validators that an environment takes in as a whole.

    `equality` estimates `==` between two values of one of its types; without it the most is UNLIMITED.
    """

    name: str
    functions: tuple[Function, ...] = ()
    variables: tuple[Variable, ...] = ()
    types: tuple[Type, ...] = ()
    macros: tuple[Macro, ...] = ()
    validators: tuple[Validator, ...] = ()
    optional_syntax: bool = False
    equality: Mapping[Type, Estimate] = field(default_factory=dict)
