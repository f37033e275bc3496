"""Which groups, versions, resources and verbs there are, in the order in which documents list them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from apiserver.schema.resource import Resource, Subresource

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_MATURITY = {None: 0, "beta": 1, "alpha": 2}


def groups(resources: Sequence[Resource]) -> dict[str, dict[str, list[Resource]]]:
    """Group name -> version, the preferred one first -> its resources by name."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in sorted(resources, key=lambda r: (r.group, _rank(r.version), r.plural)):
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return found


def _rank(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: stable ones, then beta, then alpha, higher numbers first, then all others by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_MATURITY), 0, 0, version
    major, maturity, minor = match.groups()
    return _MATURITY[maturity], -int(major), -int(minor or 0), version


def subresources(resource: Resource) -> list[Subresource]:
    return sorted(resource.subresources, key=lambda sub: sub.name)
