"""Word a conflict: the managers of the fields that an apply would change.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/conflict.go`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.fieldmanager.entries import UPDATE, Identity
from kubetext.quoting import go_quote
from structuredmerge import paths
from structuredmerge.updater import Conflict


def refusal(conflicts: Sequence[Conflict], identities: Mapping[str, Identity]) -> StatusError:
    """Return 409 with a cause for each path of each manager. `conflicts` are sorted by manager."""
    shown = [(_shown(identities[conflict.manager]), paths.text(conflict.path)) for conflict in conflicts]
    causes = [(f"conflict with {manager}", path) for manager, path in shown]
    if len(shown) == 1:
        return errors.apply_conflict(f"Apply failed with 1 conflict: {': '.join(causes[0])}", causes)
    lines = []
    for manager, of_manager in itertools.groupby(shown, key=lambda pair: pair[0]):
        lines.append(f"conflicts with {manager}:")
        lines += (f"- {path}" for _, path in of_manager)
    return errors.apply_conflict(f"Apply failed with {len(shown)} conflicts: " + "\n".join(lines), causes)


def _shown(identity: Identity) -> str:
    shown = go_quote(identity.manager)
    if identity.subresource:
        shown += f" with subresource {go_quote(identity.subresource)}"
    return f"{shown} using {identity.api_version}" if identity.operation == UPDATE else shown
