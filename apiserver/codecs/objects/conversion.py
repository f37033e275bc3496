"""Convert objects between the requested version and the stored one. Does nothing where both look the same.

Upstream converts through an internal version. Here the stored form takes its place: rules and admission see that form.
Upstream: kubernetes/apimachinery `pkg/runtime/serializer/versioning/versioning.go`.
"""

from __future__ import annotations

from typing import Any

from apiserver.apimachinery import errors, meta
from apiserver.codecs.objects import canonical
from apiserver.schema.resource import Object, Refused, Resource


def stored(resource: Resource, obj: Object) -> Object:
    """Convert an object of this version to the stored form. `obj` becomes part of the result.

    Raises 422 if the conversion refuses the object.
    """
    if resource.conversion is None:
        return obj
    name = meta.name(obj)
    try:
        return resource.conversion.to_storage(obj)
    except Refused as e:
        raise errors.invalid(resource.group_kind, name, e.errors) from None


def served(resource: Resource, obj: Object) -> Object:
    """Convert a stored object to this version. `obj` becomes part of the result."""
    return obj if resource.conversion is None else resource.conversion.from_storage(obj)


def from_hub(resource: Resource, obj: Object) -> Object:
    """Convert an object in the version in which writes are judged to this version. `obj` becomes part of the result."""
    return obj if resource.hub is resource else served(resource, obj)


def hub_of_stored(resource: Resource, obj: Object) -> Object:
    """Convert a stored object to the version in which writes are judged. `obj` becomes part of the result."""
    return served(resource, obj) if resource.hub is resource else obj


def stored_of_hub(resource: Resource, obj: Object) -> Object:
    """Convert an object in the version in which writes are judged to the stored form. `obj` is not changed."""
    if resource.hub is not resource or resource.conversion is None:
        return obj
    return stored(resource, copied(obj))


def value(resource: Resource, value: bytes) -> bytes:
    """Convert the bytes of a stored object to those that clients of this version get. The texts of raw JSON follow (`canonical.encode`) if
    `value` has them."""
    if resource.conversion is None:
        return value
    return canonical.encode_served(
        resource.shape, resource.conversion.from_storage(canonical.decode(resource.stored.shape, value))
    )


def copied(value: Any) -> Any:
    """Return a copy of an object that shares no container with it, so a conversion may change it."""
    if isinstance(value, dict):
        return {name: copied(x) for name, x in value.items()}
    return [copied(x) for x in value] if isinstance(value, list) else value
