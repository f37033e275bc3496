"""Show bad values as upstream's messages do: as its internal Go types, with Go's names and nothing left out.

Upstream: kubernetes/kubernetes `pkg/apis/resource/types.go`, `pkg/apis/core/types.go`; kubernetes/apimachinery
`pkg/util/validation/field/errors.go` (ErrorBody).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from apiserver.apimachinery.fieldpath import Shown
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, times
from apiserver.schema import shapes
from apiserver.schema.types import (
    Boolean,
    Integer,
    ListOf,
    MapOf,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
    is_pointer,
)

_ZERO: Mapping[type, Any] = MappingProxyType({String: "", Integer: 0, Boolean: False, Quantity: "0"})


def as_go(kind: Type, value: Any) -> Any:
    """Return a value of the declared type, None for an absent one. Raw JSON is shown as it was sent, without blanks."""
    if isinstance(kind, Struct):
        return _struct_as_go(kind, value or {})
    if isinstance(kind, ListOf):
        return None if value is None else [as_go(kind.item, item) for item in value]
    if isinstance(kind, MapOf):
        return None if value is None else {key: as_go(kind.value, value[key]) for key in sorted(value)}
    if isinstance(kind, RawJSON):
        return None if value is None else Shown(rawjson.text(rawjson.compact(value)).decode())
    if value is not None:
        return None if isinstance(kind, Time) and value == times.ZERO else value
    return _ZERO.get(type(kind))


def _struct_as_go(kind: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in kind.fields:
        if field.inline:
            out |= as_go(field.type, value)
        elif field.type is shapes.OBJECT_META:
            # Go's type has tags for JSON, because it is the same in all versions.
            out |= orjson.loads(canonical.encode_served(shapes.OBJECT_META, value.get(field.name) or {}))
        else:
            given = value.get(field.name)
            unset = given is None and is_pointer(field)
            name = field.go or field.name[0].upper() + field.name[1:]
            out[name] = None if unset else as_go(field.type, given)
    return out
