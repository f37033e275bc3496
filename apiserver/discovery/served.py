"""Which verbs and subresources documents list, and in which order."""

from __future__ import annotations

from apiserver.schema.resource import Resource, Subresource

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")


def subresources(resource: Resource) -> list[Subresource]:
    return sorted(resource.subresources, key=lambda sub: sub.name)
