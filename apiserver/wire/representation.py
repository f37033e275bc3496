"""What was negotiated about an answer: its media type, whether it is indented, what objects are turned into."""

from __future__ import annotations

from dataclasses import dataclass

TABLE, PARTIAL, PARTIAL_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Target:
    """What an object is turned into: a kind of meta.k8s.io in one of its versions."""

    kind: str
    version: str

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


@dataclass(frozen=True, slots=True, eq=False)
class Representation:
    """One of the answers that can be written. Each exists once, so that it can be compared by identity."""

    media: str
    pretty: bool = False
    target: Target | None = None
