"""Build the type for structured merge from a structural schema.

Upstream makes it from the OpenAPI document that it publishes without value validations, so that is what a node becomes here.
Upstream: kubernetes/apiextensions-apiserver `pkg/controller/openapi/builder/builder.go`, `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from typing import Any

from apiserver.schema.structural import Structural
from apiserver.schema.types import UNSET
from structuredmerge import openapi
from structuredmerge.types import Type

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OWN = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": f"#/definitions/{_META}"}}
_KEPT = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "format")


def type_of(schema: Structural, metadata: Type) -> Type:
    """Return the type of the objects that a schema describes, with kind and apiVersion. `metadata` is the type of ObjectMeta."""
    return openapi.type_of(_published(schema, {}, resource=True), {_META: metadata})


def _published(node: Structural, known: dict[tuple[int, bool], dict[str, Any]], *, resource: bool) -> dict[str, Any]:
    """Return the part of the published schema that decides how values merge. `known` has the nodes that were published before."""
    key = id(node), resource
    made = known.get(key)
    if made is None:
        made = known[key] = _made(node, known, resource=resource)
    return made


def _made(node: Structural, known: dict[tuple[int, bool], dict[str, Any]], *, resource: bool) -> dict[str, Any]:
    made: dict[str, Any] = {name: node.source[name] for name in _KEPT if name in node.source}
    if node.type:
        made["type"] = node.type
    if node.default is not UNSET:
        made["default"] = node.default
    if node.preserves:
        made["x-kubernetes-preserve-unknown-fields"] = True
    properties = {name: _published(below, known, resource=below.embedded) for name, below in node.properties.items()}
    if resource:
        properties |= _OWN
    if properties:
        made["properties"] = properties
    if node.additional is not None:
        made["additionalProperties"] = _published(node.additional, known, resource=node.additional.embedded)
    elif node.any_additional:
        made["additionalProperties"] = True
    if node.items is not None:
        made["items"] = _published(node.items, known, resource=node.items.embedded)
    return made
