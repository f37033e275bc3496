"""A definition for tests, and changes to it."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

GROUP = "definitions.test"
CASES = yaml.safe_load((pathlib.Path(__file__).parents[2] / "cases" / "definitions.yaml").read_text())


def definition(
    properties: Mapping[str, Any] | None = None,
    *,
    root: Mapping[str, Any] | None = None,
    version: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    group: str = GROUP,
) -> dict[str, Any]:
    """Return a definition of one version as JSON."""
    schema = {"type": "object", "properties": properties or {}, **(root or {})}
    only = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **(version or {})}
    names = {"plural": "as", "kind": "A"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"as.{group}", **(metadata or {})},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [only], **(spec or {})},
    }
