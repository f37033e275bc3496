"""Judge changes of a definition whose objects a webhook converts.

Stored objects do not say their version: it is that of the definition. Upstream keeps it with each object.
"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.apiextensions.definition import Definition


def changes(before: Definition, after: Definition) -> Iterator[str]:
    """Yield an error if only a webhook could convert the objects that are stored."""
    converts = before.webhook is not None or after.webhook is not None
    if converts and before.storage.name != after.storage.name:
        yield (
            f"spec.versions: Forbidden: the stored version may not change from {before.storage.name} to {after.storage.name} "
            "while a webhook converts the objects: stored objects are not converted"
        )
