"""Build the type of a kind for structured merge from its declared shape. It equals the type that upstream builds from the OpenAPI schema.

Upstream: kubernetes/kube-openapi `pkg/schemaconv/{openapi,smd}.go`, kubernetes/client-go `applyconfigurations/internal/internal.go`.
"""

from __future__ import annotations

import functools
from typing import Any

from apiserver.schema import shapes, types
from apiserver.schema.resource import Resource
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    Presence,
    RawJSON,
    String,
    Struct,
)
from structuredmerge.types import DEDUCED, UNSET, UNTYPED_ATOMIC, List, Map, Member, Scalar, Type


def type_of(resource: Resource) -> Type:
    """Return the type of a kind's objects in one of its versions, with kind and apiVersion."""
    if resource.custom is not None:
        return resource.custom.merge_type(_type(shapes.OBJECT_META))
    return _object_type(resource.shape)


@functools.cache
def _object_type(shape: Struct) -> Type:
    made = _struct(shape)
    return Type(map=Map(members={"apiVersion": _TEXT, "kind": _TEXT, **made.members}))


_TEXT = Member(Type(scalar=Scalar.STRING))
_FIELDS = Type(map=Map(members={}, element=DEDUCED))


@functools.cache
def _type(type_: types.Type) -> Type:
    match type_:
        case Struct():
            return Type(map=_struct(type_))
        case MapOf(value=inner):
            return Type(map=Map(members={}, element=_type(inner)))
        case ListOf(item=inner, list_type=list_type, keys=keys):
            return Type(list=List(item=_type(inner), atomic=list_type is ListType.ATOMIC, keys=keys))
        case RawJSON():
            return _FIELDS if type_ is shapes.FIELDS_V1 else UNTYPED_ATOMIC
        case String():
            return Type(scalar=Scalar.STRING)
        case Integer():
            return Type(scalar=Scalar.NUMERIC)
        case Boolean():
            return Type(scalar=Scalar.BOOLEAN)
    return Type(scalar=Scalar.UNTYPED)  # quantities and times


def _struct(struct: Struct) -> Map:
    members = {field.name: Member(_type(field.type), _default(field)) for field in types.members(struct)}
    return Map(members=members, atomic=struct.atomic)


def _default(field: Field) -> Any:
    """Return the default that OpenAPI has: the declared one, otherwise the zero value of a member that is always written."""
    if field.default is not types.UNSET and field.tells_default and not callable(field.default):
        return field.default
    if field.presence is not Presence.ALWAYS:
        return UNSET
    match field.type:
        case String():
            return ""
        case Integer():
            return 0
        case Boolean():
            return False
    return UNSET
