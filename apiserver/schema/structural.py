"""Structural schemas: how a CustomResourceDefinition describes the objects of one version.

A schema is a tree of frozen nodes. `apiserver.structural` derives everything from it: pruning, defaults, validation, rules, types for
structured merge. A node also keeps its JSON, which is published, and from which value validations are read.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/{structural,convert}.go`,
`pkg/apis/apiextensions/v1/types_jsonschema.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast

from apiserver.schema.types import UNSET

Source = Mapping[str, Any]
"""A JSONSchemaProps as JSON, without members that are not part of it."""

ListType = Literal["", "atomic", "set", "map"]
MapType = Literal["", "atomic", "granular"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """One of `x-kubernetes-validations`. Absent texts are empty; `reason` is FieldValueInvalid unless it says otherwise."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool | None = None


NO_PROPERTIES: Mapping[str, Structural] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Structural:
    """A node of a structural schema.

    * `type` is "" for int-or-string, and where only `preserves` says something.
    * `properties` are the declared members. `additional` is the schema of further members, `any_additional` stands for
      `additionalProperties: true`.
    * `items` is the schema of the items of a list.
    * `default` is UNSET without one; null is None.
    * `preserves`, `embedded`, `int_or_string`, `list_type`, `list_keys`, `map_type` and `rules` are the `x-kubernetes-` extensions.
    * `source` is the node's JSON, with everything below. Junctors and value validations are read from it.
    """

    source: Source
    type: str = ""
    nullable: bool = False
    properties: Mapping[str, Structural] = field(default_factory=dict)
    additional: Structural | None = None
    any_additional: bool = False
    items: Structural | None = None
    default: Any = UNSET
    preserves: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: ListType = ""
    list_keys: tuple[str, ...] = ()
    map_type: MapType = ""
    rules: tuple[Rule, ...] = ()


def of(source: Source, nodes: dict[int, Structural] | None = None) -> Structural:
    """Return the schema that JSON describes. The JSON was found to be a structural schema.

    JSON that is one value at several places becomes one node. `nodes` are those made before, by the identity of their JSON.
    """
    return _of(source, {} if nodes is None else nodes)


def _of(source: Source, nodes: dict[int, Structural]) -> Structural:
    known = nodes.get(id(source))
    if known is not None:
        return known
    made = nodes[id(source)] = _made(source, nodes)
    return made


def _made(source: Source, nodes: dict[int, Structural]) -> Structural:
    properties = source.get("properties") or {}
    additional, items = source.get("additionalProperties"), source.get("items")
    return Structural(
        source=source,
        type=source.get("type") or "",
        nullable=bool(source.get("nullable")),
        properties=MappingProxyType({name: _of(below, nodes) for name, below in properties.items()})
        if properties
        else NO_PROPERTIES,
        additional=_of(additional, nodes) if isinstance(additional, Mapping) else None,
        any_additional=additional is True,
        items=_of(items, nodes) if isinstance(items, Mapping) else None,
        default=source.get("default", UNSET),
        preserves=bool(source.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(source.get("x-kubernetes-embedded-resource")),
        int_or_string=bool(source.get("x-kubernetes-int-or-string")),
        list_type=cast(ListType, source.get("x-kubernetes-list-type") or ""),
        list_keys=tuple(source.get("x-kubernetes-list-map-keys") or ()),
        map_type=cast(MapType, source.get("x-kubernetes-map-type") or ""),
        rules=tuple(map(_rule, source.get("x-kubernetes-validations") or ())),
    )


def _rule(source: Mapping[str, Any]) -> Rule:
    return Rule(
        rule=source.get("rule") or "",
        message=source.get("message") or "",
        message_expression=source.get("messageExpression") or "",
        reason=source.get("reason") or "",
        field_path=source.get("fieldPath") or "",
        optional_old_self=source.get("optionalOldSelf"),
    )


def below(schema: Structural) -> Iterator[Structural]:
    """Yield a node and every node below it, each once, outer ones first. Junctors have no nodes."""
    left, seen = [schema], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        left += node.properties.values()
        left += [inner for inner in (node.additional, node.items) if inner is not None]
