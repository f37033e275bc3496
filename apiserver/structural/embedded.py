"""Make the metadata of embedded resources regular, and check their apiVersion and kind.

Also reads the metadata of a custom resource itself: both go through the JSON of upstream's ObjectMeta.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/objectmeta/{algorithm,coerce}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path, Shown
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, decoding
from apiserver.codecs.objects.decoding import DecodeError
from apiserver.schema import shapes
from apiserver.schema.resource import Object
from apiserver.schema.structural import Structural
from apiserver.structural.holders import Holders
from apiserver.structural.lazy import LazyPlan
from kubetext import printing
from kubetext.sorting import in_order
from kubetext.strconv import json_float

Coerce = Callable[[Object, list[str] | None], str]

_TYPE = ("apiVersion", "kind")
_META = "metadata"
_LEAST_EXPONENT_FORM = 1e21
"""Go writes smaller floats without an exponent, so a whole one reads as an integer."""


class Metadata(NamedTuple):
    """Decoded metadata, and the paths of its unknown members, in order."""

    object: Object
    unknown: list[str]


def read_metadata(value: Any) -> Metadata:
    """Return the metadata that upstream's ObjectMeta holds after it read this value. Raises DecodeError with Go's text."""
    try:
        found = decoding.decode(shapes.OBJECT_META, value)
    except DecodeError:
        found = None
    if found is None or found.unknown:
        found = decoding.decode(shapes.OBJECT_META, _as_written(value))
    return Metadata(found.object, found.unknown)


_LEVELS = 5
"""Levels that ObjectMeta has, besides raw JSON."""
_SHOWN_LEVELS = 100
"""Levels of a value that errors show as upstream writes them; chosen."""


def _as_written(value: Any, levels: int = _LEVELS) -> Any:
    """Return a value as it comes back from Go's JSON: members sorted, whole floats as integers. Deeper levels stay as they are."""
    if isinstance(value, float):
        return int(json_float(value)) if value.is_integer() and abs(value) < _LEAST_EXPONENT_FORM else value
    if levels and isinstance(value, dict):
        return {name: _as_written(value[name], levels - 1) for name in in_order(value)}
    if levels and isinstance(value, list):
        return [_as_written(x, levels - 1) for x in value]
    return value


def coercer(schema: Structural, holders: Holders | None = None, *, drops: bool = False) -> Coerce:
    """Return a function that coerces embedded resources in place. It returns the first error, "" without one.

    Metadata becomes what ObjectMeta holds. The paths of members that ObjectMeta does not have are appended to a list, if there is one, in
    order. `drops`: wrong values are dropped instead, as upstream does with what it reads from storage. `holders` is the `embedding` of the
    schema, which several functions can share.
    """
    holders = embedding(schema) if holders is None else holders
    root = _Plan(schema, holders)

    def coerce(obj: Object, unknown: list[str] | None) -> str:
        if schema not in holders:
            return ""
        paths: list[str] = []
        error = _coerce(obj, root, paths, drops=drops)
        if unknown is not None:
            unknown += sorted(paths)
        return "" if error is None else str(error)

    return coerce


def first_error(schema: Structural, value: Any, path: Path) -> FieldError | None:
    """Coerce the embedded resources in a value, which may be one itself. Return the first error; None without one."""
    if not isinstance(value, dict | list):
        return None
    return _coerce(value, _Plan(schema, Holders(schema, _is_embedded)), [], path=path, drops=False)


def embedding(schema: Structural) -> Holders:
    """Return the nodes that have embedded resources below."""
    return Holders(schema, _is_embedded)


def _is_embedded(node: Structural) -> bool:
    return node.embedded


class _Plan(LazyPlan):
    """Where embedded resources are, at a node and below. It is worked out when an attribute is asked for.

    `members` are the plans of the declared members, `rest` is that of all others, `items` that of the items of a list. None stands for
    values without embedded resources.
    """

    __slots__ = ("_holders", "_node", "declared", "embedded", "items", "members", "rest")
    embedded: bool
    declared: Collection[str]
    members: Mapping[str, _Plan | None]
    rest: _Plan | None
    items: _Plan | None

    def __init__(self, node: Structural, holders: Holders) -> None:
        self._node = node
        self._holders = holders

    def _work_out(self) -> None:
        node = self._node
        self.embedded = node.embedded
        self.declared = node.properties.keys()
        self.members = {name: self._of(below) for name, below in node.properties.items()}
        self.rest = self._of(node.additional)
        self.items = self._of(node.items)

    def _of(self, node: Structural | None) -> _Plan | None:
        return _Plan(node, self._holders) if node is not None and (node.embedded or node in self._holders) else None


def _coerce(
    obj: Any, root: _Plan, unknown: list[str], *, path: Path = fieldpath.ROOT, drops: bool
) -> FieldError | None:
    left: list[tuple[Any, _Plan, Path]] = [(obj, root, path)]
    while left:
        value, plan, path = left.pop()
        below: list[tuple[Any, _Plan, Path]] = []
        if isinstance(value, dict):
            for name, x in value.items():
                inner = plan.members.get(name, plan.rest)
                if inner is not None and isinstance(x, dict | list):
                    below.append((x, inner, path.child(name) if name in plan.declared else path.key(name)))
            if plan.embedded and (error := _resource(value, path, unknown, drops=drops)) is not None:
                return error
        elif plan.items is not None:
            below = [(x, plan.items, path.index(i)) for i, x in enumerate(value) if isinstance(x, dict | list)]
        left += reversed(below)
    return None


def _resource(value: Object, path: Path, unknown: list[str], *, drops: bool) -> FieldError | None:
    """Coerce one embedded resource. Return the first error."""
    for name in _TYPE:
        if name in value and not isinstance(value[name], str):
            if not drops:
                return _error(path.child(name), value[name], "must be a string")
            del value[name]
    if _META not in value:
        return None
    metadata = value[_META]
    try:
        found = read_metadata(metadata)
    except DecodeError as e:
        if not drops:
            return _error(path.child(_META), metadata, str(e))
        if not isinstance(metadata, dict):
            return None
        found = _readable(metadata)
    value[_META] = _written(found.object)
    if found.unknown:
        prefix = path.child(_META)
        unknown += [f"{prefix}.{name}" for name in found.unknown]
    return None


def _readable(metadata: Object) -> Metadata:
    """Return the metadata of the members that can be read."""
    found: Object = {}
    unknown: list[str] = []
    for name, x in metadata.items():
        with suppress(DecodeError):
            one = read_metadata({name: x})
            found |= one.object
            unknown += one.unknown
    return Metadata(found, unknown)


_write = canonical.writer(shapes.OBJECT_META)


def _written(metadata: Object) -> Object:
    """Return metadata as upstream writes it into an object without a type: empty members are left out."""
    made: Object = msgspec.json.decode(rawjson.dumps(_write(metadata)))
    return {name: x for name, x in made.items() if x is not None}


def _error(path: Path, value: Any, detail: str) -> FieldError:
    if isinstance(value, float):
        value = Shown(printing.plain(value))
    elif isinstance(value, dict | list):
        try:
            value = Shown(fieldpath.show(_as_written(value, _SHOWN_LEVELS)))
        except RecursionError:
            value = Shown("… more")
    return fieldpath.invalid(path, value, detail)
