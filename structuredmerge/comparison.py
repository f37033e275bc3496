"""Compare two values: the paths that a new value removes, modifies and adds.

Upstream: kubernetes-sigs/structured-merge-diff `typed/compare.go`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structuredmerge.items import Namer, namer
from structuredmerge.paths import FIELD, Element
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import List, Map, Scalar, Type, choose
from structuredmerge.values import ABSENT, equal

__all__ = ["Comparison", "compare"]


class Comparison(NamedTuple):
    """Three sets of paths. None contains the root."""

    removed: Set
    modified: Set
    added: Set

    def without(self, paths: Set) -> Comparison:
        """Return the comparison without these paths and all paths below them."""
        return Comparison(*(found.without(paths) for found in self)) if paths else self


def compare(old: Any, new: Any, type_: Type) -> Comparison:
    """Return the paths that differ in the new value.

    Laws: compare(a, a) is empty. compare(b, a) is compare(a, b) with removed and added exchanged. Where all three sets
    are empty, the values differ in the order of items at most.

    Leaves are scalars, atomic lists and maps, and values without members on both sides. They are compared as a whole:
    null, empty and absent differ. Any other value is added or removed with everything below it. But null in the place
    of a map or list that has members removes only the members. An item that occurs several times is one leaf.
    """
    return _compare(old, new, type_).below


class _Difference(NamedTuple):
    """The differences below a place, and whether the place itself is modified."""

    below: Comparison
    modified: bool = False


_NOTHING = Comparison(EMPTY, EMPTY, EMPTY)
_SAME = _Difference(_NOTHING)
_MODIFIED = _Difference(_NOTHING, modified=True)


def _compare(old: Any, new: Any, type_: Type) -> _Difference:
    if old is new:
        return _SAME
    alternative = choose(type_, old)
    found = _by(alternative, old, new)
    # When the new value has another form, compare by both types.
    if (other := choose(type_, new)) is not alternative:
        second = _by(other, old, new)
        below = Comparison(*(a | b for a, b in zip(found.below, second.below, strict=True)))
        found = _Difference(below, modified=found.modified or second.modified)
    return found


def _by(alternative: Scalar | List | Map, old: Any, new: Any) -> _Difference:
    if isinstance(alternative, Map):
        if not alternative.atomic:
            left, right = _members(old, dict), _members(new, dict)
            if left or right:
                return _Difference(_maps(left, right, alternative))
    elif isinstance(alternative, List) and not alternative.atomic:
        left, right = _members(old, list), _members(new, list)
        if left or right:
            return _Difference(_lists(left, right, alternative))
    return _SAME if equal(old, new) else _MODIFIED


def _members(value: Any, kind: type) -> Any:
    """Return the value if it is of this kind, else an empty one."""
    return value if isinstance(value, kind) else kind()


class _Found:
    """Collects the differences between the members of one place."""

    __slots__ = ("_children", "_members")

    def __init__(self) -> None:
        self._members: tuple[list[Element], list[Element], list[Element]] = ([], [], [])
        self._children: tuple[dict[Element, Set], dict[Element, Set], dict[Element, Set]] = ({}, {}, {})

    def removed(self, element: Element, below: Set) -> None:
        self._whole(0, element, below)

    def added(self, element: Element, below: Set) -> None:
        self._whole(2, element, below)

    def _whole(self, which: int, element: Element, below: Set) -> None:
        self._members[which].append(element)
        if below:
            self._children[which][element] = below

    def modified(self, element: Element) -> None:
        self._members[1].append(element)

    def different(self, element: Element, difference: _Difference) -> None:
        if difference.modified:
            self._members[1].append(element)
        if difference.below is not _NOTHING:
            for children, below in zip(self._children, difference.below, strict=True):
                if below:
                    children[element] = below

    def comparison(self) -> Comparison:
        sets = zip(self._members, self._children, strict=True)
        made = (Set(frozenset(members), children) if members or children else EMPTY for members, children in sets)
        return Comparison(*made)


def _maps(old: dict[str, Any], new: dict[str, Any], map_: Map) -> Comparison:
    found: _Found | None = None
    for name, left in old.items():
        right = new.get(name, ABSENT)
        if right is left:
            continue
        type_ = _type_of(map_, name)
        if right is ABSENT:
            found = found or _Found()
            found.removed((FIELD, name), _all_below(left, type_))
        elif type_.scalar is not None and left.__class__ is str and right.__class__ is str:
            # The commonest case, without further calls.
            if left != right:
                found = found or _Found()
                found.modified((FIELD, name))
        elif (difference := _compare(left, right, type_)) is not _SAME:
            found = found or _Found()
            found.different((FIELD, name), difference)
    for name, right in new.items():
        if name not in old:
            found = found or _Found()
            found.added((FIELD, name), _all_below(right, _type_of(map_, name)))
    return found.comparison() if found else _NOTHING


def _type_of(map_: Map, name: str) -> Type:
    member = map_.members.get(name)
    type_ = member.type if member is not None else map_.element
    if type_ is None:
        raise ValueError(f".{name}: field not declared in schema")
    return type_


def _lists(old: list[Any], new: list[Any], list_: List) -> Comparison:
    name = namer(list_)
    lefts, rights = _Items(old, name), _Items(new, name)
    found = _Found()
    for element, left in lefts.once.items():
        right = rights.once.get(element, ABSENT)
        if left is right:
            continue
        if right is not ABSENT:
            found.different(element, _compare(left, right, list_.item))
        else:
            found.removed(element, _all_below(left, list_.item))
    for element, right in rights.once.items():
        if element not in lefts.once:
            found.added(element, _all_below(right, list_.item))
    for element, several in lefts.several.items():
        if element not in rights.several:
            found.removed(element, EMPTY)
        elif not equal(several, rights.several[element]):
            found.modified(element)
    for element in rights.several:
        if element not in lefts.several:
            found.added(element, EMPTY)
    return found.comparison()


class _Items:
    """The items of a list by their elements: single items, and all items of each repeated element."""

    __slots__ = ("once", "several")

    def __init__(self, items: list[Any], name: Namer) -> None:
        elements = list(map(name, items))
        self.once: dict[Element, Any] = dict(zip(elements, items, strict=True))
        self.several: dict[Element, list[Any]] = {}
        if len(self.once) == len(items):
            return
        for element, item in zip(elements, items, strict=True):
            self.several.setdefault(element, []).append(item)
        self.several = {element: same for element, same in self.several.items() if len(same) > 1}
        for element in self.several:
            del self.once[element]


def _all_below(value: Any, type_: Type) -> Set:
    """Return every path below a value that is added or removed as a whole, including structs and lists."""
    if not value or not isinstance(value, dict | list):
        return EMPTY
    alternative = choose(type_, value)
    children: dict[Element, Set] = {}
    if isinstance(alternative, Map) and not alternative.atomic and isinstance(value, dict):
        for member, part in value.items():
            if below := _all_below(part, _type_of(alternative, member)):
                children[FIELD, member] = below
        return Set(frozenset([(FIELD, member) for member in value]), children)
    if isinstance(alternative, List) and not alternative.atomic and isinstance(value, list):
        items = _Items(value, namer(alternative))
        for element, item in items.once.items():
            if below := _all_below(item, alternative.item):
                children[element] = below
        return Set(frozenset([*items.once, *items.several]), children)
    return EMPTY
