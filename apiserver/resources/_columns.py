"""The columns that every kind's table has. Knows no kind."""

from __future__ import annotations

from apiserver.apimachinery import meta
from apiserver.schema import shapes
from apiserver.schema.resource import Column
from apiserver.schema.types import Struct


def description(shape: Struct, name: str) -> str:
    """A member's own description, which a column that shows the member repeats."""
    return next(field.doc for field in shape.fields if field.name == name)


NAME = Column(
    name="Name",
    cell=lambda obj, now: meta.name(obj),
    format="name",
    description=description(shapes.OBJECT_META, "name"),
)
AGE = Column(name="Age", cell=meta.age, description=description(shapes.OBJECT_META, "creationTimestamp"))
