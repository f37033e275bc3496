"""The result of negotiation: media type, indentation, and the target of objects."""

from __future__ import annotations

from dataclasses import dataclass

TABLE, PARTIAL, PARTIAL_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Target:
    """The type to which an object is converted: a kind of meta.k8s.io in one of its versions."""

    kind: str
    version: str

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


@dataclass(frozen=True, slots=True, eq=False)
class Representation:
    """A form in which answers can be written. Each exists once, so that identity compares them."""

    media: str
    pretty: bool = False
    target: Target | None = None
