"""The Redis keys of one resource."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The five keys of one resource; the hash tag keeps them in one slot."""

    objects: str
    revisions: str
    log: str
    meta: str
    epochs: str

    @classmethod
    def of(cls, resource: str) -> RedisKeys:
        """Return the keys of a resource `<group>/<plural>`."""
        tag = f"{{sl:{resource}}}"
        return cls(f"{tag}:o", f"{tag}:r", f"{tag}:l", f"{tag}:m", f"{tag}:e")

    @property
    def all(self) -> tuple[str, str, str, str, str]:
        return self.objects, self.revisions, self.log, self.meta, self.epochs
