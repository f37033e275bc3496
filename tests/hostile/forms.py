"""Names and values that all families of hostile requests share: the forms of bodies and answers, the limits, and a request as bytes."""

from __future__ import annotations

from dataclasses import dataclass

HEADERS, BODY = 1 << 20, 3 << 20
"""The limits of a request: its line and headers, and its body."""
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
ACCEPTS = (
    JSON,
    YAML,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    PROTOBUF,
    f"{PROTOBUF};as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "*/*",
)
INITIAL = "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
STANDING = "standing"
"""The name of an object of each kind that is there all the time."""


def named(number: int) -> str:
    """The object of the request of that number."""
    return f"h-{number:x}"


@dataclass(frozen=True, slots=True)
class Hostile:
    """One request as bytes, the family it is of, and whether it is sent by an administrator or by nobody."""

    family: str
    head: bytes
    body: bytes = b""
    anonymous: bool = False
    number: int = 0
    """Its place among the requests of its seed."""
    follows: int | None = None
    """The number of the one whose object it is about."""
    answers: int = 1
    """How many it is, one behind the other."""
    leaves: bool = False
    """The client goes away soon: what it sent may lack its end."""
    slowly: bool = False
    """The client reads in small pieces, and not to the end."""

    @property
    def streams(self) -> bool:
        """Its answer may go on until the client leaves."""
        return b"watch" in self.head.split(b"\r\n", 1)[0]

    @property
    def lasts(self) -> bool:
        """It takes a while, most of which its client waits."""
        return self.streams or self.slowly or self.leaves or self.answers > 1

    @property
    def writes(self) -> bool:
        """It may leave something in the store."""
        return not self.head.startswith((b"GET ", b"HEAD ")) and not self.anonymous
