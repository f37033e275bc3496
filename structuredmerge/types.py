"""Declare how the parts of a value merge.

A type offers up to three alternatives, and the value chooses one. Types may be recursive (a tree of maps): they are
compared by identity and completed after construction.
Upstream: kubernetes-sigs/structured-merge-diff `schema/elements.go`, `typed/helpers.go` (deduceAtom, handleAtom).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["DEDUCED", "SCALARS", "UNSET", "UNTYPED_ATOMIC", "List", "Map", "Member", "Scalar", "Type", "choose"]

UNSET: Final = object()  # a member without default, because None would be null


class Scalar(Enum):
    """The Python classes of a scalar. Null belongs to every type, and UNTYPED accepts all others."""

    NUMERIC = (int, float)
    STRING = (str,)
    BOOLEAN = (bool,)
    UNTYPED = (str, int, float, bool)

    def __init__(self, *classes: type) -> None:
        self.classes = frozenset(classes)


@dataclass(slots=True, eq=False)
class List:
    """A list: atomic (one leaf), a list map (with `keys`), or a set of scalars."""

    item: Type
    atomic: bool = True
    keys: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Member:
    """A declared member of a map. The default is used only for keys of a list map."""

    type: Type
    default: Any = UNSET


@dataclass(slots=True, eq=False)
class Map:
    """A map or a struct: its declared members, and the type of all others. None forbids others."""

    members: dict[str, Member]
    element: Type | None = None
    atomic: bool = False


@dataclass(slots=True, eq=False)
class Type:
    """The alternatives of a value; at least one."""

    scalar: Scalar | None = None
    list: List | None = None
    map: Map | None = None


def _untyped_atomic() -> Type:
    made = Type(scalar=Scalar.UNTYPED)
    made.list = List(item=made)
    made.map = Map(members={}, element=made, atomic=True)
    return made


def _deduced() -> Type:
    made = Type(scalar=Scalar.UNTYPED, list=List(item=UNTYPED_ATOMIC))
    made.map = Map(members={}, element=made)
    return made


UNTYPED_ATOMIC: Final = _untyped_atomic()  # any value, always one leaf
DEDUCED: Final = _deduced()  # any value; maps are merged by their members


def choose(type_: Type, value: Any) -> Scalar | List | Map:
    """Return the alternative by which a value merges.

    It is the value's own if the type offers it, else the first of map, scalar, list.
    """
    kind = value.__class__
    if kind is dict:
        if type_.map is not None:
            return type_.map
    elif kind is list:
        if type_.list is not None:
            return type_.list
    elif kind in SCALARS and type_.scalar is not None:
        return type_.scalar
    chosen = type_.map or type_.scalar or type_.list
    assert chosen is not None, "a type offers at least one alternative"
    return chosen


SCALARS: Final = Scalar.UNTYPED.classes
