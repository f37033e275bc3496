"""Field sets: immutable tries of path elements.

A node may be a member, have children, or both. Sets share their parts, because no set changes after its construction.
Upstream: kubernetes-sigs/structured-merge-diff `fieldpath/set.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kubetext.sorting import in_order
from structuredmerge.paths import FIELD, KEY, Element, Path, text
from structuredmerge.types import Type

__all__ = ["EMPTY", "Builder", "Set", "of"]


class Set:
    """One node of the trie: its members, and the sets below its elements. No such set is empty."""

    __slots__ = ("children", "members", "reconciled")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, members: frozenset[Element], children: Mapping[Element, Set]) -> None:
        self.members = members
        self.children = children
        self.reconciled: Type | None = None
        """The type to which this set is known to conform. It saves the walk on the next write (`reconciliation`)."""

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Set):
            return NotImplemented
        return self.members == other.members and self.children == other.children

    def __repr__(self) -> str:
        return f"Set({', '.join(map(text, self.paths()))})"

    def has(self, path: Path) -> bool:
        """Return whether a path is a member. The root never is."""
        node = self
        for element in path[:-1]:
            if element not in node.children:
                return False
            node = node.children[element]
        return bool(path) and path[-1] in node.members

    def paths(self) -> Iterator[Path]:
        """Yield all members: those of a node in order, then those below its elements in order."""
        return self._paths(())

    def _paths(self, prefix: Path) -> Iterator[Path]:
        for element in in_order(self.members):
            yield (*prefix, element)
        for element in in_order(self.children):
            yield from self.children[element]._paths((*prefix, element))

    def __or__(self, other: Set) -> Set:
        """Return the union. Law: `(a | b).has(p)` is `a.has(p) or b.has(p)`. Adding nothing returns the same object."""
        if other is self or not other:
            return self
        if not self:
            return other
        members = self.members if other.members <= self.members else other.members | self.members
        grown = {}
        for element, theirs in other.children.items():
            mine = self.children.get(element)
            both = theirs if mine is None else mine | theirs
            if both is not mine:
                grown[element] = both
        if grown:
            return Set(members, {**self.children, **grown})
        return self if members is self.members else Set(members, self.children)

    def __and__(self, other: Set) -> Set:
        """Return the intersection. Law: `(a & b).has(p)` is `a.has(p) and b.has(p)`. The elements are those of `a`."""
        if other is self or not self:
            return self
        if not other:
            return EMPTY
        members = frozenset(filter(other.members.__contains__, self.members))
        children = {}
        for element, mine in self.children.items():
            theirs = other.children.get(element)
            if theirs is not None and (both := mine & theirs):
                children[element] = both
        return _made(self, members, children)

    def __sub__(self, other: Set) -> Set:
        """Return the difference. Law: `(a - b).has(p)` is `a.has(p) and not b.has(p)`.

        Paths below a member of `b` stay.
        """
        if other is self:
            return EMPTY
        if not self or not other:
            return self
        children = {}
        for element, mine in self.children.items():
            theirs = other.children.get(element)
            rest = mine if theirs is None else mine - theirs
            if rest:
                children[element] = rest
        return _made(self, self.members - other.members, children)

    def without(self, other: Set) -> Set:
        """Return the recursive difference. Law: a path of `a` stays unless `b` has it or a prefix of it."""
        if other is self:
            return EMPTY
        if not self or not other:
            return self
        children = {}
        for element, mine in self.children.items():
            if element in other.members:
                continue
            theirs = other.children.get(element)
            rest = mine if theirs is None else mine.without(theirs)
            if rest:
                children[element] = rest
        return _made(self, self.members - other.members, children)

    def named(self, type_: Type | None) -> Set:
        """Return the set with each declared field that has children as a member.

        Law: `a <= a.named(t) == a.named(t).named(t)`.
        """
        if not self.children:
            return self
        map_, list_ = (None, None) if type_ is None else (type_.map, type_.list)
        named, children = set(), {}
        for element, child in self.children.items():
            rank, what = element
            below = None
            if rank == FIELD and map_ is not None:
                declared = map_.members.get(what)
                below = map_.element
                if declared is not None:
                    named.add(element)
                    below = declared.type
            elif rank == KEY and list_ is not None:
                below = list_.item
            children[element] = child.named(below)
        return _made(self, self.members if named <= self.members else self.members | named, children)


EMPTY: Final = Set(frozenset(), {})


def _made(before: Set, members: frozenset[Element], children: Mapping[Element, Set]) -> Set:
    """Return a set of parts of another one, or that other one when nothing changed."""
    if not members and not children:
        return EMPTY
    if len(members) == len(before.members) and len(children) == len(before.children):
        old = before.children
        if all(child is old.get(element) for element, child in children.items()):
            return before
    return Set(members, children)


class Builder:
    """Builds one node of a set. Walkers add to it while they descend."""

    __slots__ = ("_children", "_members")

    def __init__(self) -> None:
        self._members: set[Element] = set()
        self._children: dict[Element, Builder] = {}

    def add(self, element: Element) -> None:
        """Make an element of this node a member."""
        self._members.add(element)

    def child(self, element: Element) -> Builder:
        """Return the node below an element. It has no effect unless something is added to it."""
        below = self._children.get(element)
        if below is None:
            below = self._children[element] = Builder()
        return below

    def built(self) -> Set:
        """Return the set of everything that was added, from this node down."""
        children = {}
        for element, builder in self._children.items():
            if below := builder.built():
                children[element] = below
        return Set(frozenset(self._members), children) if self._members or children else EMPTY


def of(paths: Iterable[Path]) -> Set:
    """Return the set of some paths. The empty path is dropped, because the root cannot be owned."""
    root = Builder()
    for path in paths:
        if path:
            node = root
            for element in path[:-1]:
                node = node.child(element)
            node.add(path[-1])
    return root.built()
