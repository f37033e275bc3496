"""Say what becomes of definitions whose objects a webhook converts. Sluice does not call it, and never converts such objects by itself.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/{converter,webhook_converter}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.apiextensions.definition import Definition


def error(definition: Definition) -> str:
    """Return the error of every conversion between two versions; "" for the strategy None. It begins as upstream's."""
    if definition.webhook is None:
        return ""
    stored = f"{definition.group}/{definition.storage.name}"
    return (
        f"conversion webhook for {stored}, Kind={definition.kind} failed: Sluice does not call conversion webhooks: "
        f"use {stored}, the stored version"
    )


def warnings(definition: Definition) -> Iterator[str]:
    """Yield a warning if some served versions answer every request with that error."""
    stored = definition.storage
    names = [version.name for version in definition.versions if version.served and version is not stored]
    if definition.webhook is not None and names:
        yield (
            f"spec.conversion: Sluice does not call conversion webhooks: requests in {', '.join(names)} get 500, "
            f"only the stored version {stored.name} can be used"
        )


def changes(before: Definition, after: Definition) -> Iterator[str]:
    """Yield an error if only a webhook could convert the objects that are stored."""
    converts = before.webhook is not None or after.webhook is not None
    if converts and before.storage.name != after.storage.name:
        yield (
            f"spec.versions: Forbidden: the stored version may not change from {before.storage.name} to {after.storage.name}: "
            "Sluice does not call conversion webhooks"
        )
