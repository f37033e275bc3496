"""Drop the members of an object that its schema does not know, and name their paths.

Works without recursion, so the depth of objects and schemas does not matter. A node of the schema is prepared when the first
value comes to it: most definitions have many nodes that no object uses.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/pruning/algorithm.go`, `pkg/apiserver/schema/options.go`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

from apiserver.schema.resource import Object
from apiserver.schema.structural import Structural
from apiserver.structural.lazy import LazyPlan

Prune = Callable[[Object, list[str] | None], None]

TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")
"""The members that every resource has, whatever its schema says."""
MOST_PATHS = 10_000
"""Paths that are reported. Upstream has no limit, but it sends only 4,096 characters of warnings."""
PATHS_LIMIT = 1 << 20
"""Characters of all paths that are reported: an object may have a long key with many unknown members below."""

_HOLDERS = frozenset((dict, list))

Way = tuple[Any, str | int] | None
"""The way to a value: the way to its holder, and its name or index there. None is the root."""


def pruner(schema: Structural) -> Prune:
    """Return a function that prunes an object in place, and appends the paths of what it drops to a list, if it gets one, in order.

    apiVersion, kind and metadata of the object stay as they are.
    """
    root = _Plan(schema, keeps=schema.preserves, resource=True)

    def prune(obj: Object, unknown: list[str] | None) -> None:
        paths = _prune(obj, root)
        if unknown is not None:
            unknown += sorted(paths)

    return prune


def has_unknown(schema: Structural, value: Any) -> bool:
    """Return whether a value has members that its schema does not know. A value of an embedded resource has those of every resource."""
    if not isinstance(value, dict | list):
        return False
    return bool(_prune(copy.deepcopy(value), _Plan(schema, keeps=schema.preserves, resource=schema.embedded)))


class _Plan(LazyPlan):
    """The members that a node allows. They are worked out when an attribute is read.

    * `names` are the allowed members; None if all are.
    * `members` are the plans of members, `rest` is that of all others. None stands for values that stay as they are.
    * `items` is the plan of the items of a list, or None.
    """

    __slots__ = ("_keeps", "_node", "_resource", "items", "members", "names", "rest")
    names: Collection[str] | None
    members: Mapping[str, _Plan | None]
    rest: _Plan | None
    items: _Plan | None

    def __init__(self, node: Structural | None, *, keeps: bool = False, resource: bool = False) -> None:
        """`keeps`: unknown members stay. `resource`: the members of every resource stay. Nothing is known without a node."""
        self._node = node
        self._keeps = keeps
        self._resource = resource

    def _work_out(self) -> None:
        node = self._node
        if node is None:
            self.names, self.members, self.rest, self.items = frozenset(), {}, None, self
            return
        members: dict[str, _Plan | None] = {name: _of(below) for name, below in node.properties.items()}
        if self._resource:
            members |= dict.fromkeys(TYPE_AND_METADATA)
        further = node.additional is not None or node.any_additional
        self.names = None if further or self._keeps else members.keys()
        self.members = members
        self.rest = _of(node.additional) if further else None
        if node.items is None:
            self.items = None if self._keeps else _NOTHING
        else:
            self.items = _of(node.items, keeps=self._keeps)


_NOTHING = _Plan(None)


def _of(node: Structural | None, *, keeps: bool = False) -> _Plan | None:
    """Return the plan of a node; None if values of this node stay as they are. `keeps`: it is the items of a list that preserves."""
    if node is None:
        return _NOTHING
    keeps = keeps or node.preserves
    if keeps and not (node.properties or node.additional or node.any_additional or node.items):
        return None
    return _Plan(node, keeps=keeps, resource=node.embedded)


def _prune(obj: Any, root: _Plan) -> list[str]:
    """Prune, and return the paths of what was dropped, up to the limits."""
    found: list[str] = []
    room = PATHS_LIMIT
    left: list[tuple[Any, _Plan, Way]] = [(obj, root, None)]
    while left:
        value, plan, way = left.pop()
        if value.__class__ is dict:
            names, members, rest = plan.names, plan.members, plan.rest
            if names is not None and not value.keys() <= names:  # type: ignore[operator]
                for name in [name for name in value if name not in names]:
                    del value[name]
                    if room > 0 and len(found) < MOST_PATHS:
                        found.append(path(way, name))
                        room -= len(found[-1])
            if _HOLDERS.isdisjoint(map(type, value.values())):
                continue
            for name, x in value.items():
                if x.__class__ is dict or x.__class__ is list:
                    below = members.get(name, rest)
                    if below is not None:
                        left.append((x, below, (way, name)))
        elif (below := plan.items) is not None:
            for i, x in enumerate(value):
                if x.__class__ is dict or x.__class__ is list:
                    left.append((x, below, (way, i)))
    return found


def path(way: Way, name: str) -> str:
    """Return the path of a member as upstream joins it: the keys of maps have dots as well, even empty ones."""
    steps: list[str | int] = [name]
    while way is not None:
        way, step = way
        steps.append(step)
    parts: list[str] = []
    for step in reversed(steps):
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if parts else step)
    return "".join(parts)
