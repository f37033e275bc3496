"""NodeRestriction: let a node create, change and delete only its own objects.

kube-apiserver does not run its admission for requests that it passes on, so Sluice does. `filters/node_authorizer.py` restricts reads
and makes a first check of changes. Upstream: kubernetes/kubernetes `plugin/pkg/admission/noderestriction/admission.go`, which leaves
changes to its node authorizer. Here an object may have been replaced since that check.
"""

from __future__ import annotations

from typing import Any

from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.apimachinery.request import node_name
from apiserver.schema.resource import Object, Resource
from kubetext.quoting import go_quote


class NodeRestriction:
    """Judges writes of the group system:nodes. Kinds whose objects belong to no node are not restricted."""

    async def admit(self, attributes: Attributes) -> Object | None:
        """Check one object. Raises 403. The objects of a deletecollection are judged one by one."""
        node = node_name(attributes.user)
        if node is None:
            return None
        if not node:
            raise forbidden(attributes, f"could not determine node from user {go_quote(attributes.user.name)}")
        resource = attributes.resource
        if not resource.node_field:
            return None
        obj = attributes.object if attributes.operation == "CREATE" else attributes.old
        if _value(resource, obj) != node:
            verb = attributes.operation.lower()
            what = f"{resource.kind} with the same {_go_name(resource.node_field)} as the requesting node"
            raise forbidden(attributes, f"can only {verb} {what}")
        return None


def _value(resource: Resource, obj: Any) -> Any:
    """Return the node of an object, None if it has none."""
    for name in resource.selectable[resource.node_field].split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _go_name(label: str) -> str:
    name = label.rpartition(".")[2]
    return name[:1].upper() + name[1:]
