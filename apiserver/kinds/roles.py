"""The ClusterRoles that grant what the declared kinds need: rights of a namespace, by the default roles, and what each kind says itself.

Upstream: kubernetes/kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` (viewRules, editRules).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Grant, Resource

READ, WRITE = ("get", "list", "watch"), ("create", "delete", "deletecollection", "patch", "update")
VIEW, EDIT, ADMIN = "view", "edit", "admin"
_AGGREGATED = {VIEW: (VIEW, EDIT, ADMIN), EDIT: (EDIT, ADMIN), ADMIN: (ADMIN,)}
"""To which default roles each is added. Nothing is `admin`'s by itself: with a kind it may do what `edit` may."""
_PREFIX = "sluice-"

Object = dict[str, Any]


def cluster_roles(kinds: Kinds) -> Iterator[Object]:
    """Every ClusterRole with something to grant: of the default roles first, then those that the kinds name."""
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
    """Who may look at everything in a namespace looks at the kind too, who may edit it writes it, but for its subresources: they are the
    system's. Objects of the whole cluster belong to no namespace, so no role of one covers them."""
    if kind.namespaced:
        for part in ("", *(sub.name for sub in kind.subresources)):
            yield Grant(role=VIEW, verbs=READ, subresource=part)
        yield Grant(role=EDIT, verbs=WRITE)


def _rules(grants: Iterable[tuple[Resource, Grant]]) -> Iterator[Object]:
    """One for each group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for kind, grant in grants:
        name = f"{kind.plural}/{grant.subresource}" if grant.subresource else kind.plural
        verbs.setdefault((kind.group, name), set()).update(grant.verbs)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, name), allowed in sorted(verbs.items()):
        resources.setdefault((group, tuple(sorted(allowed))), []).append(name)
    for (group, allowed_verbs), names in resources.items():
        yield {"apiGroups": [group], "resources": names, "verbs": list(allowed_verbs)}
