"""The types of an expression, and what its names and calls refer to; or what is wrong with them, in cel-go's words and order.

Upstream: google/cel-go `checker/{checker,env,types,mapping,scopes,errors,format}.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from apiserver.cel.ast import Ast
from apiserver.cel.declarations import Function, Overload
from apiserver.cel.types import Kind, Type
from apiserver.cel.values import Value


class Reference(NamedTuple):
    """What a node refers to: a variable (`name`), a constant (with its `value`; of the name of a type the type), or the overloads
    of a function, of which the types of the values choose one at run time."""

    name: str = ""
    value: Value | None = None
    overloads: tuple[str, ...] = ()


class Identifier(NamedTuple):
    """What a name means."""

    type: Type
    reference: Reference


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression whose types are right.

    `types` maps the ids of nodes to their types, `references` those of names, calls and structures. In the tree every name is the
    full one: `a.b` is one Ident where that is a variable, and the call of a function with a namespace has no target.
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
    """What a call is: its overloads and its type; None of both when nothing matches."""

    reference: Reference
    type: Type
    variables: int


class Candidates:
    """The overloads of one function, and which of them have been found for which types. What is remembered is bounded."""

    REMEMBERED = 512

    __slots__ = ("globals", "members", "name", "remembered", "unhidden")

    def __init__(self, function: Function, hidden: frozenset[str]) -> None:
        self.name = function.name
        visible = [overload for overload in function.overloads if overload.id not in hidden]
        self.globals = tuple(_signature(overload) for overload in visible if not overload.member)
        self.members = tuple(_signature(overload) for overload in visible if overload.member)
        self.unhidden = Candidates(function, frozenset()) if len(visible) < len(function.overloads) else self
        self.remembered: dict[tuple[object, ...], Resolution] = {}


def _signature(overload: Overload) -> Signature:
    names: set[str] = set()
    todo = [overload.result, *overload.arguments]
    while todo:
        at = todo.pop()
        if at.kind is Kind.PARAMETER:
            names.add(at.name)
        todo.extend(at.parameters)
    return Signature(overload.id, overload.arguments, overload.result, tuple(sorted(names)))
