"""The kinds as a server of the group resource.k8s.io would serve them."""

from __future__ import annotations

import dataclasses

from apiserver import resources
from apiserver.schema.resource import Resource

KINDS: dict[str, Resource] = {
    resource.plural: dataclasses.replace(resource, group="resource.k8s.io") for resource in resources.RESOURCES
}
CLASSES = KINDS["deviceclasses"]
SLICES = KINDS["resourceslices"]
CLAIMS = KINDS["resourceclaims"]
