"""Build the ClusterRoles that grant the rights for the declared kinds: rights of a namespace through the default roles, and each kind's own
grants.
Upstream: kubernetes/kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` (viewRules, editRules).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Grant, Resource

READ, WRITE = ("get", "list", "watch"), ("create", "delete", "deletecollection", "patch", "update")
SCALE = ("patch", "update")
VIEW, EDIT, ADMIN = "view", "edit", "admin"
_AGGREGATED = {VIEW: (VIEW, EDIT, ADMIN), EDIT: (EDIT, ADMIN), ADMIN: (ADMIN,)}
"""The default roles to which each role is added. `admin` has no rights of its own: it may do with a kind what `edit` may."""
_PREFIX = "sluice-"

Object = dict[str, Any]


def cluster_roles(kinds: Kinds) -> Iterator[Object]:
    """Yield every ClusterRole with a grant: additions to the default roles first, then those that the kinds name."""
    grants = [(kind, grant) for kind in kinds.stored for grant in (*_of_a_namespace(kind), *kind.grants)]
    named = {grant.role for _, grant in grants}
    for role in (*(name for name in _AGGREGATED if name in named), *sorted(named - set(_AGGREGATED))):
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{to}": "true" for to in _AGGREGATED.get(role, ())}
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{_PREFIX}{role}", "labels": {"app.kubernetes.io/name": "sluice", **labels}},
            "rules": list(_rules((kind, grant) for kind, grant in grants if grant.role == role)),
        }


def _of_a_namespace(kind: Resource) -> Iterator[Grant]:
    """Yield the grants for a kind that lives in namespaces. Viewers read it, editors write it and scale it. Its other subresources belong
    to the system. No role of a namespace covers cluster-scoped objects."""
    if kind.namespaced:
        for part in ("", *(sub.name for sub in kind.subresources)):
            yield Grant(role=VIEW, verbs=READ, subresource=part)
        yield Grant(role=EDIT, verbs=WRITE)
        for sub in kind.subresources:
            if sub.shows is not None:
                yield Grant(role=EDIT, verbs=SCALE, subresource=sub.name)


def _rules(grants: Iterable[tuple[Resource, Grant]]) -> Iterator[Object]:
    """Yield one rule for each group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for kind, grant in grants:
        name = f"{kind.plural}/{grant.subresource}" if grant.subresource else kind.plural
        verbs.setdefault((kind.group, name), set()).update(grant.verbs)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, name), allowed in sorted(verbs.items()):
        resources.setdefault((group, tuple(sorted(allowed))), []).append(name)
    for (group, allowed_verbs), names in resources.items():
        yield {"apiGroups": [group], "resources": names, "verbs": list(allowed_verbs)}
