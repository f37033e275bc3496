"""Drop nulls that a schema does not allow, and fill in its defaults.

Works without recursion and works out each node when the first value comes to it, as `pruning` does.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/defaulting/{algorithm,prunenulls}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apiserver.codecs.objects.conversion import copied
from apiserver.schema.resource import Object
from apiserver.schema.structural import Structural
from apiserver.schema.types import UNSET
from apiserver.structural.holders import Holders
from apiserver.structural.lazy import LazyPlan
from apiserver.structural.pruning import TYPE_AND_METADATA

Fill = Callable[[Object], bool]


def defaults_of(schema: Structural) -> Holders:
    """Return the nodes with defaults below. They are looked for when the first one is asked about."""
    return Holders(schema, _has_default)


def filler(schema: Structural, defaults: Holders | None = None) -> Fill:
    """Return a function that drops nulls that are not allowed, and fills in defaults.

    It changes an object in place, and returns whether it changed anything. A null that has a default gets it. Nulls in lists stay, unless
    the items have a default. apiVersion, kind and metadata of the object stay as they are. `defaults` are those of the schema, if they are
    known.
    """
    return _filler(_Plan(schema, defaults or defaults_of(schema), drops=True, root=True))


def dropper(schema: Structural) -> Fill:
    """Return a function that only drops the nulls that are not allowed and have no default."""
    return _filler(_Plan(schema, None, drops=True, root=True))


def defaulter(schema: Structural, defaults: Holders | None = None) -> Fill:
    """Return a function that only fills in defaults, as upstream does with the result of an apply. It does the same as `filler` for an
    object without nulls, in less time."""
    known = defaults or defaults_of(schema)
    plan = _Plan(schema, known, drops=False, root=True)

    def fill(obj: Object) -> bool:
        return schema in known and _fill(obj, plan)

    return fill


def _filler(plan: _Plan) -> Fill:
    def fill(obj: Object) -> bool:
        return _fill(obj, plan)

    return fill


def _has_default(node: Structural) -> bool:
    """Return whether the node has a default. A default of null counts as none."""
    return node.default is not UNSET and node.default is not None


class _Plan(LazyPlan):
    """The rules of a node about nulls and defaults below. They are worked out when an attribute is read.

    * `members` are the plans of members, `rest` is that of all others, `items` that of the items of a list. None stands for values in which
      nothing is done.
    * `filled` are the defaults of absent members, each with the plan for what it holds.
    """

    __slots__ = ("_defaults", "_drops", "_node", "_root", "filled", "items", "members", "rest")
    members: Mapping[str, _Plan | None]
    rest: _Plan | None
    items: _Plan | None
    filled: Mapping[str, tuple[Any, _Plan | None]]

    def __init__(self, node: Structural, defaults: Holders | None, *, drops: bool, root: bool = False) -> None:
        """`defaults` is None if none are filled in. `drops`: nulls that are not allowed are dropped."""
        self._node = node
        self._defaults = defaults
        self._drops = drops
        self._root = root

    def _work_out(self) -> None:
        properties = {
            name: below
            for name, below in self._node.properties.items()
            if not (self._root and name in TYPE_AND_METADATA)
        }
        self.members = {name: self._of(below) for name, below in properties.items()}
        if self._root:
            self.members |= dict.fromkeys(TYPE_AND_METADATA)
        self.rest = self._of(self._node.additional)
        self.items = self._of(self._node.items)
        self.filled = {
            name: (below.default, self._inside(below))
            for name, below in properties.items()
            if self._defaults is not None and _has_default(below)
        }

    def _of(self, node: Structural | None) -> _Plan | None:
        if node is None:
            return None
        if self._drops:
            holds = node.properties or node.additional or node.items
            return _Plan(node, self._defaults, drops=True) if holds else None
        return self._inside(node)

    def _inside(self, node: Structural) -> _Plan | None:
        """Return the plan for the inside of a default. Nulls in it stay."""
        defaults = self._defaults
        return _Plan(node, defaults, drops=False) if defaults is not None and node in defaults else None

    def absent_members(self, value: Object) -> Iterator[tuple[Any, _Plan]]:
        """Fill in the defaults of absent members. Yield those that have defaults inside."""
        for name, (default, inside) in self.filled.items():
            if name not in value:
                value[name] = x = copied(default)
                if inside is not None and isinstance(x, dict | list):
                    yield x, inside

    def null_member(self, value: Object, name: str) -> bool:
        """Do what the node says about a null member. Return whether that changed anything."""
        node = self._node.properties.get(name, self._node.additional)
        if node is None or node.nullable or (self._root and name in TYPE_AND_METADATA):
            return False
        if _has_default(node):
            if self._defaults is None:
                return False
            value[name] = self._made(node)
            return True
        if self._drops:
            del value[name]
        return self._drops

    def null_item(self, value: list[Any], i: int) -> bool:
        node = self._node.items
        if node is None or node.nullable or self._defaults is None or not _has_default(node):
            return False
        value[i] = self._made(node)
        return True

    def _made(self, node: Structural) -> Any:
        """Return a complete default."""
        holder = {"": copied(node.default)}
        plan = self._inside(node)
        if plan is not None and isinstance(holder[""], dict | list):
            _fill(holder[""], plan)
        return holder[""]


def _fill(obj: Any, root: _Plan) -> bool:
    changed = False
    left: list[tuple[Any, _Plan]] = [(obj, root)]
    while left:
        value, plan = left.pop()
        if value.__class__ is dict:
            members, rest = plan.members, plan.rest
            nulls: list[str] = []
            for name, x in value.items():
                if x.__class__ is dict or x.__class__ is list:
                    below = members.get(name, rest)
                    if below is not None:
                        left.append((x, below))
                elif x is None:
                    nulls.append(name)
            for name in nulls:
                changed = plan.null_member(value, name) or changed
            if not plan.filled.keys() <= value.keys():
                changed = True
                left += plan.absent_members(value)
        else:
            below = plan.items
            for i, x in enumerate(value):
                if x.__class__ is dict or x.__class__ is list:
                    if below is not None:
                        left.append((x, below))
                elif x is None:
                    changed = plan.null_item(value, i) or changed
    return changed
