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
        found: set[int] = set()
        order: list[tuple[Structural, Structural | None]] = []
        left: list[tuple[Structural, Structural | None]] = [(self._schema, None)]
        while left:
            node, above = left.pop()
            order.append((node, above))
            left += [(below, node) for below in node.properties.values()]
            left += [(below, node) for below in (node.additional, node.items) if below is not None]
        for node, above in reversed(order):
            if above is not None and (id(node) in found or self._wanted(node)):
                found.add(id(above))
        return frozenset(found)
