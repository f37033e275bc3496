"""Correlate the values of an update with the stored ones, node by node.

Errors at unchanged nodes are forgiven (ratcheting). Members of objects correlate by name, items of list maps by their keys. Items of other
lists correlate with nothing.
Upstream: kubernetes/apiserver `pkg/cel/common/{equality,maplist}.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from apiserver.schema.structural import Structural
from kubetext.deepequal import deep_equal


class Correlated:
    """A new value, and the old value at the same place, both described by `schema`.

    Nodes are cheap and made when asked for. One belongs to one check, in one thread.
    """

    __slots__ = ("_items", "_members", "_old_items", "_unchanged", "new", "old", "schema")

    def __init__(self, schema: Structural, new: Any, old: Any) -> None:
        self.schema = schema
        self.new = new
        self.old = old
        self._members: dict[str, Correlated] | None = None
        self._items: dict[int, Correlated] | None = None
        self._old_items: KeyedItems | None = None
        self._unchanged: bool | None = None

    def member(self, name: str) -> Correlated | None:
        """Return the node of a member. None if it is not in both objects, or if no schema describes it."""
        new, old = self.new, self.old
        if type(new) is not dict or type(old) is not dict or name not in new or name not in old:
            return None
        schema = self.schema.properties.get(name) or self.schema.additional
        if schema is None:
            return None
        if self._members is None:
            self._members = {}
        node = self._members.get(name)
        if node is None:
            node = self._members[name] = Correlated(schema, new[name], old[name])
        return node

    def item(self, index: int) -> Correlated | None:
        """Return the node of an item. None if the list is no list map, or if no old item has its keys."""
        new, old, schema = self.new, self.old, self.schema.items
        if schema is None or self.schema.list_type != "map" or type(new) is not list or type(old) is not list:
            return None
        if self._items is None:
            self._items, self._old_items = {}, KeyedItems(self.schema, old)
        node = self._items.get(index)
        if node is None and self._old_items is not None and index < len(new):
            found = self._old_items.get(new[index])
            if found is not None:
                node = self._items[index] = Correlated(schema, new[index], found)
        return node

    @property
    def unchanged(self) -> bool:
        """Whether the new value equals the old one. The order of list maps does not count. An object with a member that no schema describes
        counts as changed."""
        if self._unchanged is None:
            self._unchanged = self._equal()
        return self._unchanged

    def _equal(self) -> bool:
        new, old = self.new, self.old
        if type(new) is not type(old):
            return False
        if type(new) is dict:
            return len(new) == len(old) and all(
                (node := self.member(name)) is not None and node.unchanged for name in new
            )
        if type(new) is not list:
            return bool(new == old)
        if len(new) != len(old):
            return False
        if self.schema.list_type != "map" or self.schema.items is None:
            return deep_equal(new, old)
        return all((node := self.item(index)) is not None and node.unchanged for index in range(len(new)))


class KeyedItems:
    """The items of a list map by their keys. If several have the same keys, the first counts."""

    __slots__ = ("_found", "_keys")

    def __init__(self, schema: Structural, items: Sequence[Any]) -> None:
        self._keys = schema.list_keys if schema.type == "array" and schema.list_type == "map" else ()
        self._found: dict[Hashable, Any] = {}
        for item in reversed(items) if self._keys else ():
            if (key := self._key(item)) is not None:
                self._found[key] = item

    def get(self, item: Any) -> Any:
        """Return the item with the same keys, None without one. Keys must be present, and scalars."""
        key = self._key(item)
        return None if key is None else self._found.get(key)

    def _key(self, item: Any) -> Hashable:
        if type(item) is not dict or not self._keys:
            return None
        parts = []
        for name in self._keys:
            value = item.get(name)
            if type(value) not in (bool, float, int, str):
                return None
            # Upstream writes several keys as one text, floats with six digits behind the point.
            parts.append((type(value), f"{value:f}" if type(value) is float and len(self._keys) > 1 else value))
        return tuple(parts)
