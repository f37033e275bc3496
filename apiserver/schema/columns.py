"""The columns that every kind's table has, and columns that show a member. Knows no kind.

Descriptions of columns are part of the answer, so they are upstream's, letter by letter, unlike the descriptions of members:
kubernetes/apimachinery `pkg/apis/meta/v1/types.go`, kubernetes/kubernetes `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from typing import Any, Literal

from apiserver.apimachinery import meta
from apiserver.schema.resource import Column, Object
from kubetext import printing, quoting

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


def member(
    name: str,
    path: str,
    shown_as: Literal["string", "integer", "number", "boolean", "date"] = "string",
    *,
    description: str = "",
    priority: int = 0,
) -> Column:
    """Make a column that shows the member at `path`, as a printer column of a CustomResourceDefinition does.

    A date is shown as the time since then, `<unknown>` without a value. A cell of another type is null if its value is missing or does not
    have that type; kubectl shows null as blank.
    Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`.
    """
    way = path.split(".")
    if shown_as == "date":
        return Column(
            name=name,
            cell=lambda obj, now: meta.age_at(_moment(obj, way), now),
            since=lambda obj: _moment(obj, way),
            reads=[path],
            type=shown_as,
            description=description,
            priority=priority,
        )
    return Column(
        name=name,
        cell=lambda obj, now: _shown(_value(obj, way), shown_as),
        reads=[path],
        type=shown_as,
        description=description,
        priority=priority,
    )


def _value(obj: Object, way: list[str]) -> Any:
    """Return the value at a path; None if any part is missing."""
    here: Any = obj
    for step in way:
        here = here.get(step) if isinstance(here, dict) else None
    return here


def _moment(obj: Object, way: list[str]) -> float | None:
    text = _value(obj, way)
    return meta.instant(text) if text else None


def _shown(value: Any, shown_as: str) -> Any:
    match shown_as:
        case "integer" | "number":
            number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
            return number if number is None or shown_as == "number" else int(number)
        case "boolean":
            return value if isinstance(value, bool) else None
    if value is None or isinstance(value, str):
        return value
    return quoting.go_json(value) if isinstance(value, dict | list) else printing.plain(value)
