"""The objects that a webhook has converted for the managers of fields.

Managers are pure and may run in threads, and a webhook is awaited. So managers that lack a conversion raise `Unconverted`. Their caller
awaits it, adds the result, and asks the managers again.
"""

from __future__ import annotations

from typing import Any

from apiserver.codecs.objects import canonical
from apiserver.schema.resource import Resource


class VersionError(ValueError):
    """The version is invalid, or cannot hold the object. The text is upstream's."""


class Unconverted(Exception):
    """A webhook must convert `value` from the version `source` to `target`."""

    def __init__(self, value: Any, source: Resource, target: Resource) -> None:
        super().__init__(f"{source.api_version} to {target.api_version}")
        self.value, self.source, self.target = value, source, target


class Converted:
    """The conversions of one write, by version and value. Results are objects, or errors."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], Any] = {}

    def get(self, value: Any, source: Resource, target: Resource) -> Any:
        """Return the value in the version `target`. Raises Unconverted if it is not known yet, and VersionError if it failed."""
        found = self._known.get(_key(value, source, target))
        if found is None:
            raise Unconverted(value, source, target)
        if isinstance(found, VersionError):
            raise VersionError(str(found))
        return found

    def add(self, asked: Unconverted, result: Any) -> None:
        """Keep the result of a conversion, which is an object or a VersionError."""
        self._known[_key(asked.value, asked.source, asked.target)] = result


def _key(value: Any, source: Resource, target: Resource) -> tuple[str, str, bytes]:
    return source.version, target.version, canonical.encode_value(value)
