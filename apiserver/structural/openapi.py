"""Publish a structural schema in an OpenAPI document.

Version 2 has no junctors, defaults and nulls, and kubectl's reader of it expects any value where a schema says too little.
Upstream: kubernetes/apiextensions-apiserver `pkg/controller/openapi/builder/builder.go`, `pkg/controller/openapi/v2/conversion.go`,
`pkg/apiserver/schema/{kubeopenapi,unfold}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apiserver.schema.structural import Structural

Schema = dict[str, Any]

_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_BELOW = ("properties", "items", "additionalProperties")
_EXPONENT_FROM = 1e21
"""Go's JSON encoder writes larger floats with an exponent."""
_EITHER = ({"type": "integer"}, {"type": "string"})
_CONVENTIONS = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_EMBEDDED_DOCS = {
    "apiVersion": f"apiVersion defines the versioned schema of this representation of an object. {_CONVENTIONS}#resources",
    "kind": f"kind is a string value representing the type of this object. In CamelCase. {_CONVENTIONS}#types-kinds",
}
"""Descriptions of the members of embedded resources. They are part of the answer, so they are upstream's."""


def published(schema: Structural, own: Mapping[str, Schema], *, v2: bool) -> Schema:
    """Return the schema of the objects of a kind. `own` are the schemas of apiVersion, kind and metadata."""
    if v2 and schema.preserves:
        return {"type": "object"}
    described = {name: own[name] | {"description": text} for name, text in _EMBEDDED_DOCS.items()}
    made = _Publication({**own, **described}, v2=v2).node(schema)
    return {**made, "properties": {**made.get("properties", {}), **own}}


class _Publication:
    """Publishes the nodes of one schema. A node that stands at several places is published once."""

    def __init__(self, own: Mapping[str, Schema], *, v2: bool) -> None:
        self._own = own
        self._v2 = v2
        self._made: dict[int, Schema] = {}

    def node(self, node: Structural) -> Schema:
        made = self._made.get(id(node))
        if made is None:
            made = self._made[id(node)] = _node(node, self._own, self.node, v2=self._v2)
        return made


def _node(
    node: Structural, own: Mapping[str, Schema], published: Callable[[Structural], Schema], *, v2: bool
) -> Schema:
    """Return the published form of a node. `published` gives that of nodes below."""
    source = node.source
    made: Schema = {name: _spelled(x) for name, x in source.items() if name not in _BELOW and x is not None}
    if node.int_or_string and not v2 and not _is_unfolded(source):
        if source.get("anyOf"):
            made["allOf"] = [{"anyOf": [*_EITHER]}, *(source.get("allOf") or ())]
        else:
            made["anyOf"] = [*_EITHER]
    if node.properties:
        made["properties"] = {name: published(below) for name, below in node.properties.items()}
    if node.items is not None:
        made["items"] = published(node.items)
    if node.additional is not None:
        made["additionalProperties"] = published(node.additional)
    elif "additionalProperties" in source:
        made["additionalProperties"] = source["additionalProperties"]
    if v2:
        _simplify(node, made)
    if node.embedded and not (v2 and node.preserves):
        required = list(made.get("required", ()))
        made["required"] = required + [name for name in ("kind", "apiVersion") if name not in required]
        made["properties"] = {**made.get("properties", {}), **own}
    return made


def _spelled(value: Any) -> Any:
    """Return a value in which whole floats are integers, as Go writes them."""
    match value:
        case float() if value.is_integer() and abs(value) < _EXPONENT_FROM:
            return int(value)
        case dict():
            return {name: _spelled(x) for name, x in value.items()}
        case list():
            return [_spelled(x) for x in value]
    return value


def _is_unfolded(source: Mapping[str, Any]) -> bool:
    """Return whether the junctors of the schema allow integers and texts already."""
    either = [{"type": "integer"}, {"type": "string"}]
    for_all = source.get("allOf") or [{}]
    return source.get("anyOf") == either or (for_all[0] or {}).get("anyOf") == either


def _simplify(node: Structural, made: Schema) -> None:
    """Take out what version 2 cannot express, in place."""
    for name in (*_JUNCTORS, "default", "nullable"):
        made.pop(name, None)
    if node.nullable:
        made.pop("type", None)
    if node.nullable or node.preserves:
        made.pop("items", None)
        made.pop("properties", None)
    if made.get("type") == "array" and "items" not in made:
        del made["type"]
    if node.preserves and made.get("type") == "object":
        del made["type"]
    nullable = {name for name, below in node.properties.items() if below.nullable} if "properties" in made else set()
    required = [name for name in made.get("required", ()) if name not in nullable]
    if node.additional is not None and node.additional.nullable:
        required = []
    if required:
        made["required"] = required
    else:
        made.pop("required", None)
