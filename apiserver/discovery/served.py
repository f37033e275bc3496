"""The resources of a version as discovery lists them, their order, and the path of a group."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from apiserver.schema.resource import Resource, Subresource

CORE = ""
"""The group whose paths begin with `/api` instead of `/apis/<group>`."""


def subresources(resource: Resource) -> list[Subresource]:
    return sorted(resource.subresources, key=lambda sub: sub.name)


def root(group: str) -> str:
    """Return the path below which the versions of a group are served."""
    return f"/apis/{group}" if group else "/api"


def entries(members: Sequence[Resource]) -> list[dict[str, Any]]:
    """List the resources of a version for its discovery document."""
    return [entry for resource in members for entry in _entries(resource)]


def _entries(resource: Resource) -> list[dict[str, Any]]:
    """List the resource and its subresources."""
    entry = _entry(resource, resource.plural, resource.singular, resource.verbs)
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if not resource.virtual:
        entry["storageVersionHash"] = storage_version_hash(resource)
    subs = [
        {**_entry(resource, f"{resource.plural}/{sub.name}", "", sub.verbs), **_shown(sub)}
        for sub in subresources(resource)
    ]
    return [entry, *subs]


def _shown(sub: Subresource) -> dict[str, str]:
    """Return group, version and kind of what a subresource shows, if that is not the object itself."""
    return {} if sub.shows is None else dict(zip(("group", "version", "kind"), sub.shows, strict=True))


def _entry(resource: Resource, name: str, singular: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(verbs),
    }


def storage_version_hash(resource: Resource) -> str:
    """Hash the stored version: equal on all servers that store the kind in it, whatever version they serve."""
    text = f"{resource.group}/{resource.stored.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()
