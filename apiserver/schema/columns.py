"""The columns that every kind's table has. Knows no kind.

What a column says about itself is a part of the answer, so the texts of all columns are upstream's, letter by letter, unlike the
descriptions of members: kubernetes/apimachinery `pkg/apis/meta/v1/types.go`, kubernetes/kubernetes
`pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from apiserver.apimachinery import meta
from apiserver.schema.resource import Column

_NAME = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request "
    "the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration "
    "definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_CREATED = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in "
    "happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC."
    "\n\nPopulated by the system. Read-only. Null for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)

NAME = Column(
    name="Name", cell=lambda obj, now: meta.name(obj), reads=["metadata.name"], format="name", description=_NAME
)
AGE = Column(name="Age", cell=meta.age, since=meta.created, reads=["metadata.creationTimestamp"], description=_CREATED)
