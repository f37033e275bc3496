"""Find the nodes of a schema that have nodes of some kind below, so that a walk along the schema can leave out the others."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.schema.structural import Structural


class Holders:
    """The nodes with a wanted node below. They are looked for when the first one is asked about: many schemas see no object."""

    __slots__ = ("_found", "_schema", "_wanted")

    def __init__(self, schema: Structural, wanted: Callable[[Structural], bool]) -> None:
        self._schema = schema
        self._wanted = wanted
        self._found: frozenset[int] | None = None

    def __contains__(self, node: Structural) -> bool:
        if self._found is None:
            self._found = self._search()
        return id(node) in self._found

    def _search(self) -> frozenset[int]:
        above: dict[int, list[Structural]] = {}
        seen: set[int] = set()
        left, wanted = [self._schema], list[Structural]()
        while left:
            node = left.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if self._wanted(node):
                wanted.append(node)
            inner = [*node.properties.values(), *(each for each in (node.additional, node.items) if each is not None)]
            for below in inner:
                above.setdefault(id(below), []).append(node)
            left += inner
        found: set[int] = set()
        while wanted:
            for holder in above.get(id(wanted.pop()), ()):
                if id(holder) not in found:
                    found.add(id(holder))
                    wanted.append(holder)
        return frozenset(found)
