"""Hypothesis strategies: types of any form, values of them, and what several writers did to one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from structuredmerge import values
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import UNSET, List, Map, Member, Scalar, Type
from structuredmerge.updater import UNCHANGED, Managers, apply, update

NAMES = st.sampled_from(["a", "b", "c"])
KEY_NAMES = ("name", "id")
OF_SCALARS = {
    Scalar.STRING: st.sampled_from(["", "x", "y"]),
    Scalar.NUMERIC: st.sampled_from([0, 1, 1.5]),
    Scalar.BOOLEAN: st.booleans(),
    Scalar.UNTYPED: st.sampled_from(["x", 1, True]),
}
SCALARS = st.sampled_from(Scalar).map(lambda scalar: Type(scalar=scalar))


def _structs(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    members = st.dictionaries(NAMES, inner.map(Member), min_size=1, max_size=3)
    return st.builds(
        lambda members, atomic: Type(map=Map(members, atomic=atomic)), members, st.just(False) | st.booleans()
    )


@st.composite
def _list_maps(draw: st.DrawFn, inner: st.SearchStrategy[Type]) -> Type:
    keys = draw(st.sampled_from([KEY_NAMES[:1], KEY_NAMES]))
    default = draw(st.sampled_from([UNSET, "x"]))
    key = Member(Type(scalar=Scalar.STRING), default)
    members = {**dict.fromkeys(keys, key), "a": Member(draw(inner))}
    return Type(
        list=List(Type(map=Map(members, atomic=draw(st.sampled_from([False, False, True])))), atomic=False, keys=keys)
    )


TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        _structs(inner),
        _list_maps(inner),
        inner.map(lambda element: Type(map=Map({}, element=element))),
        inner.map(lambda item: Type(list=List(item))),
        SCALARS.map(lambda item: Type(list=List(item, atomic=False))),
    ),
    max_leaves=5,
)
ROOTS = st.dictionaries(NAMES, TYPES.map(Member), min_size=1, max_size=3).map(lambda members: Type(map=Map(members)))


@st.composite
def of_type(draw: st.DrawFn, type_: Type, *, empty: bool = False) -> Any:
    """A value of a type. `empty`: it may say null, hold containers without anything, and items that leave keys to their defaults."""
    if empty and draw(st.integers(0, 19)) == 0:
        return None
    if type_.map is not None:
        return _map_of(draw, type_.map, empty=empty)
    if type_.list is not None:
        return _list_of(draw, type_.list, empty=empty)
    assert type_.scalar is not None
    return draw(OF_SCALARS[type_.scalar])


def _map_of(draw: st.DrawFn, map_: Map, *, empty: bool) -> dict[str, Any]:
    types = {name: member.type for name, member in map_.members.items()}
    if map_.element is not None:
        types |= dict.fromkeys(draw(st.sets(NAMES, max_size=2)), map_.element)
    chosen = draw(st.sets(st.sampled_from(sorted(types)), max_size=len(types))) if types else set()
    found = {name: draw(of_type(types[name], empty=empty)) for name in sorted(chosen)}
    return found if empty else {name: value for name, value in found.items() if value not in ({}, [])}


def _list_of(draw: st.DrawFn, list_: List, *, empty: bool) -> list[Any]:
    items = draw(st.lists(of_type(list_.item, empty=empty and list_.atomic), max_size=3))
    if list_.atomic:
        return items
    item = list_.item.map
    if item is None:
        return list({values.key(value): value for value in items}.values())
    for value in items:
        for name in list_.keys:
            if name not in value and (item.members[name].default is UNSET or not empty):
                value[name] = draw(OF_SCALARS[Scalar.STRING])
    return list(
        {tuple(value.get(name, item.members[name].default) for name in list_.keys): value for value in items}.values()
    )


@st.composite
def pairs(draw: st.DrawFn, *, empty: bool = False) -> tuple[Type, Any, Any]:
    """Two values of a type: at times one holds the other's members."""
    type_ = draw(ROOTS)
    one, other = draw(of_type(type_, empty=empty)), draw(of_type(type_, empty=empty))
    return type_, one, {**one, **other} if one and other and draw(st.booleans()) else other


@st.composite
def hardened(draw: st.DrawFn, type_: Type) -> Type:
    """A type of the same values of which some lists and maps are atomic."""
    atomic = draw(st.integers(0, 3)) == 0
    if type_.map is not None:
        members = {name: Member(draw(hardened(member.type))) for name, member in type_.map.members.items()}
        element = None if type_.map.element is None else draw(hardened(type_.map.element))
        return Type(map=Map(members, element, type_.map.atomic or atomic))
    if type_.list is not None:
        return Type(list=List(draw(hardened(type_.list.item)), type_.list.atomic or atomic, type_.list.keys))
    return type_


VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Shared:
    """A value of a type that several write, and what each of them owns of it."""

    type: Type
    value: Any = None
    managers: Managers = field(default_factory=dict)

    def type_at(self, version: str) -> Type | None:
        return self.type

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        return value

    def ignored(self, version: str) -> Set:
        return EMPTY

    def applied(self, patch: Any, *, manager: str = "ada", force: bool = True) -> Shared:
        """The state after an apply. Raises Conflicts unless forced."""
        new, managers = apply(
            self.value, patch, version=VERSION, managers=self.managers, manager=manager, versions=self, force=force
        )
        return Shared(self.type, self.value if new is UNCHANGED else new, managers)

    def updated(self, new: Any, *, manager: str) -> Shared:
        """The state after an update with another value."""
        managers = update(self.value, new, version=VERSION, managers=self.managers, manager=manager, versions=self)
        return Shared(self.type, new, managers)

    def owned(self, *, but: str = "") -> Set:
        """Fields that any manager owns; `but`: any other manager."""
        owned = EMPTY
        for name, owner in self.managers.items():
            if name != but:
                owned |= owner.set
        return owned


APPLIERS = st.sampled_from(["ada", "bob"])


@st.composite
def histories(draw: st.DrawFn, *, empty: bool = False) -> Shared:
    """Results of a few applies, all forced, and updates, from an empty object."""
    shared = Shared(draw(ROOTS))
    for _ in range(draw(st.integers(0, 4))):
        value = draw(of_type(shared.type, empty=empty))
        if draw(st.booleans()):
            shared = shared.applied(value, manager=draw(APPLIERS))
        else:
            shared = shared.updated(value, manager="updater")
    return shared


@st.composite
def applies(draw: st.DrawFn, *, empty: bool = False) -> tuple[Shared, Any]:
    """A state that several managers wrote, and a non-empty configuration that is applied to it next: at times one that differs little."""
    shared = draw(histories(empty=empty))
    patch = draw(of_type(shared.type, empty=empty).filter(bool))
    if shared.value and draw(st.booleans()):
        patch = {**shared.value, **patch}
    return shared, patch
