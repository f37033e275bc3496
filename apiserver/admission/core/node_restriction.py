"""NodeRestriction: a node creates, changes and deletes only what belongs to it.

kube-apiserver does not run its admission for requests that it passes on, so this stands here. What a node may read, and a first look at
what it changes, is `filters/node_authorizer.py`. Upstream: kubernetes/kubernetes `plugin/pkg/admission/noderestriction/admission.go`,
which leaves changes to its node authorizer alone; here an object may have been replaced since that looked.
"""

from __future__ import annotations

from typing import Any

from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.apimachinery.request import node_name
from apiserver.schema.resource import Object, Resource
from kubetext.quoting import go_quote


class NodeRestriction:
    """Judges what users of the group system:nodes write. Kinds whose objects belong to no node are everybody's."""

    async def admit(self, attributes: Attributes) -> Object | None:
        """Raises 403. The objects of a deletecollection are judged one by one."""
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
    """None where nothing is set."""
    for name in resource.selectable[resource.node_field].split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _go_name(label: str) -> str:
    name = label.rpartition(".")[2]
    return name[:1].upper() + name[1:]
