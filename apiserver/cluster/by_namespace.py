"""A collection of namespaced objects with quick access by namespace. Knows no kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

Object = Mapping[str, Any]

NONE: Mapping[str, Object] = {}


def _as_it_is(found: Object) -> Object:
    return found


class ByNamespace(MutableMapping[str, Object]):
    """Objects by "namespace/name", or by "name" if they are cluster-scoped. `shown` selects what is kept of each."""

    def __init__(self, shown: Callable[[Object], Object] = _as_it_is) -> None:
        self._shown = shown
        self._namespaces: dict[str, dict[str, Object]] = {}
        self._count = 0

    def of(self, namespace: str) -> Mapping[str, Object]:
        """Return the objects of a namespace by name."""
        return self._namespaces.get(namespace, NONE)

    def __getitem__(self, key: str) -> Object:
        namespace, _, name = key.rpartition("/")
        return self._namespaces[namespace][name]

    def __setitem__(self, key: str, found: Object) -> None:
        namespace, _, name = key.rpartition("/")
        objects = self._namespaces.setdefault(namespace, {})
        self._count += name not in objects
        objects[name] = self._shown(found)

    def __delitem__(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        objects = self._namespaces[namespace]
        del objects[name]
        self._count -= 1
        if not objects:
            del self._namespaces[namespace]

    def __iter__(self) -> Iterator[str]:
        for namespace, objects in self._namespaces.items():
            for name in objects:
                yield f"{namespace}/{name}" if namespace else name

    def __len__(self) -> int:
        return self._count
