"""Make a `Definition` from a CustomResourceDefinition that was found to be servable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apiextensions.definition import DefinedVersion, Definition, PrinterColumn, ScalePaths
from apiserver.apiextensions.sharing import Sharing
from apiserver.schema import structural
from apiserver.schema.structural import Structural

Object = Mapping[str, Any]


def definition(source: Object, shared: Sharing | None = None) -> Definition:
    """Return the definition of a document with defaults, in the form that `decoding` leaves."""
    nodes = (shared or Sharing()).nodes
    spec = source["spec"]
    names = spec["names"]
    conversion = spec.get("conversion") or {}
    return Definition(
        name=source["metadata"]["name"],
        group=spec["group"],
        kind=names["kind"],
        list_kind=names["listKind"],
        plural=names["plural"],
        singular=names["singular"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        versions=tuple(_version(version, nodes) for version in spec["versions"]),
        webhook=conversion.get("webhook") if conversion.get("strategy") == "Webhook" else None,
        stored_versions=tuple((source.get("status") or {}).get("storedVersions") or ()),
        source=source,
    )


def _version(source: Object, nodes: dict[int, Structural]) -> DefinedVersion:
    subresources = source.get("subresources") or {}
    scale = subresources.get("scale")
    return DefinedVersion(
        name=source["name"],
        served=bool(source.get("served")),
        storage=bool(source.get("storage")),
        schema=structural.of(source["schema"]["openAPIV3Schema"], nodes),
        deprecated=bool(source.get("deprecated")),
        deprecation=source.get("deprecationWarning"),
        columns=tuple(map(_column, source.get("additionalPrinterColumns") or ())),
        selectable=tuple(field["jsonPath"] for field in source.get("selectableFields") or ()),
        status=subresources.get("status") is not None,
        scale=None if scale is None else _scale(scale),
    )


def _column(source: Object) -> PrinterColumn:
    return PrinterColumn(
        name=source["name"],
        type=source["type"],
        json_path=source["jsonPath"],
        format=source.get("format") or "",
        description=source.get("description") or "",
        priority=source.get("priority") or 0,
    )


def _scale(source: Object) -> ScalePaths:
    return ScalePaths(
        spec_replicas=source["specReplicasPath"],
        status_replicas=source["statusReplicasPath"],
        selector=source.get("labelSelectorPath") or "",
    )
