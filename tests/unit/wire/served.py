"""The kinds as a server of the group resource.k8s.io would serve them."""

from __future__ import annotations

from apiserver import resources
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Resource

GROUP = "resource.k8s.io"
KINDS = Kinds(resources.RESOURCES, group=GROUP)


def _served(plural: str) -> Resource:
    found = KINDS.at(GROUP, "v1", plural)
    assert found is not None
    return found


CLASSES, SLICES, CLAIMS = map(_served, ("deviceclasses", "resourceslices", "resourceclaims"))
