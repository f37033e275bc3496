"""Between the version in which an object is asked for and the one in which it is stored. Nothing happens where the two look the same.

Upstream converts through an internal version; here the stored form takes its place: rules and admission see that one.
Upstream: kubernetes/apimachinery `pkg/runtime/serializer/versioning/versioning.go`.
"""

from __future__ import annotations

from typing import Any

from apiserver.apimachinery import errors, meta
from apiserver.codecs.objects import canonical
from apiserver.schema.resource import Object, Refused, Resource


def stored(resource: Resource, obj: Object) -> Object:
    """An object of this version in the stored form. `obj` belongs to the result.

    Raises 422 for what the conversion refuses.
    """
    if resource.conversion is None:
        return obj
    name = meta.name(obj)
    try:
        return resource.conversion.to_storage(obj)
    except Refused as e:
        raise errors.invalid(resource.group_kind, name, e.errors) from None


def served(resource: Resource, obj: Object) -> Object:
    """A stored object in this version. `obj` belongs to the result."""
    return obj if resource.conversion is None else resource.conversion.from_storage(obj)


def value(resource: Resource, value: bytes) -> bytes:
    """The same in bytes, those of a stored object and of the object that clients of this version get; with the texts of raw JSON behind
    it (`canonical.encode`) where what is given has them."""
    if resource.conversion is None:
        return value
    return canonical.encode_served(
        resource.shape, resource.conversion.from_storage(canonical.decode(resource.stored.shape, value))
    )


def copied(value: Any) -> Any:
    """A copy of an object that shares no container with it: one that a conversion may change."""
    if isinstance(value, dict):
        return {name: copied(x) for name, x in value.items()}
    return [copied(x) for x in value] if isinstance(value, list) else value
