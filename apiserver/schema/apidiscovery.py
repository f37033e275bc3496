"""Shapes of the aggregated discovery document. Upstream: kubernetes/api `apidiscovery/v2/types.go`."""

from __future__ import annotations

from apiserver.schema.shapes import LIST_META, OBJECT_META
from apiserver.schema.types import Field, ListOf, Presence, String, Struct

_TEXT = String()
_TEXTS = ListOf(_TEXT)

GROUP_VERSION_KIND = Struct(
    name="GroupVersionKind",
    fields=(
        Field(name="group", number=1, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="version", number=2, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="kind", number=3, type=_TEXT, presence=Presence.ALWAYS),
    ),
)

API_SUBRESOURCE_DISCOVERY = Struct(
    name="APISubresourceDiscovery",
    fields=(
        Field(name="subresource", number=1, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="responseKind", number=2, type=GROUP_VERSION_KIND, presence=Presence.POINTER),
        Field(name="acceptedTypes", number=3, type=ListOf(GROUP_VERSION_KIND)),
        Field(name="verbs", number=4, type=_TEXTS),
    ),
)

API_RESOURCE_DISCOVERY = Struct(
    name="APIResourceDiscovery",
    fields=(
        Field(name="resource", number=1, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="responseKind", number=2, type=GROUP_VERSION_KIND, presence=Presence.POINTER),
        Field(name="scope", number=3, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="singularResource", number=4, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="verbs", number=5, type=_TEXTS),
        Field(name="shortNames", number=6, type=_TEXTS),
        Field(name="categories", number=7, type=_TEXTS),
        Field(name="subresources", number=8, type=ListOf(API_SUBRESOURCE_DISCOVERY)),
    ),
)

API_VERSION_DISCOVERY = Struct(
    name="APIVersionDiscovery",
    fields=(
        Field(name="version", number=1, type=_TEXT, presence=Presence.ALWAYS),
        Field(name="resources", number=2, type=ListOf(API_RESOURCE_DISCOVERY)),
        Field(name="freshness", number=3, type=_TEXT),
    ),
)

API_GROUP_DISCOVERY = Struct(
    name="APIGroupDiscovery",
    fields=(
        Field(name="metadata", number=1, type=OBJECT_META),
        Field(name="versions", number=2, type=ListOf(API_VERSION_DISCOVERY)),
    ),
)

API_GROUP_DISCOVERY_LIST = Struct(
    name="APIGroupDiscoveryList",
    fields=(
        Field(name="metadata", number=1, type=LIST_META),
        Field(name="items", number=2, type=ListOf(API_GROUP_DISCOVERY), presence=Presence.ALWAYS),
    ),
)
