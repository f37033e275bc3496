"""Refusing a change of a whole struct, with the value shown as upstream shows it.

Upstream: kubernetes/apimachinery `pkg/api/validation/objectmeta.go` ValidateImmutableField.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema import canonical
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Integer, ListOf, MapOf, Quantity, String, Struct, Type, is_pointer

_ZERO: Mapping[type, Any] = MappingProxyType({String: "", Integer: 0, Boolean: False, Quantity: "0"})


def immutable(shape: Struct, new: Object, old: Object, path: Path) -> list[FieldError]:
    """Refuses any change of meaning; the spelling of quantities and empty against absent are no change."""
    if canonical.equal(shape, new, old):
        return []
    return [fieldpath.invalid(path, as_go(shape, new), "field is immutable")]


def as_go(kind: Type, value: Any) -> Any:
    """A value as the error texts of upstream show it: its internal Go type, with Go's names and nothing left out."""
    if isinstance(kind, Struct):
        return _struct_as_go(kind, value or {})
    if isinstance(kind, ListOf):
        return None if value is None else [as_go(kind.item, item) for item in value]
    if isinstance(kind, MapOf):
        return None if value is None else {key: as_go(kind.value, value[key]) for key in sorted(value)}
    if value is not None:
        return value
    return _ZERO.get(type(kind))


def _struct_as_go(kind: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in kind.fields:
        if field.inline:
            out |= as_go(field.type, value)
        elif field.name == "metadata":
            out |= value.get("metadata") or {}
        else:
            given = value.get(field.name)
            unset = given is None and is_pointer(field)
            name = "CEL" if field.name == "cel" else field.name[0].upper() + field.name[1:]
            out[name] = None if unset else as_go(field.type, given)
    return out
