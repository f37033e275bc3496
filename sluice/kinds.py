"""Declare kinds that `sluice dev --kinds` and `sluice serve --kinds` serve (docs/kinds.md).

Compatibility: every name in `__all__` stays, and keeps its meaning, until the next major version. New arguments have defaults. Import
from here; other modules may move in any version.
"""

from __future__ import annotations

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Stage
from apiserver.schema.resource import (
    Column,
    Consumption,
    Conversion,
    Deprecation,
    Grant,
    Object,
    Permission,
    Refused,
    Resource,
    Subresource,
    Version,
)
from apiserver.schema.types import (
    IMMUTABLE,
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
)
from apiserver.schema.variants import Variant, with_fields

__all__ = [
    "IMMUTABLE",
    "Boolean",
    "Column",
    "Consumption",
    "Context",
    "Conversion",
    "Deprecation",
    "Field",
    "FieldError",
    "Gate",
    "Grant",
    "Integer",
    "ListOf",
    "ListType",
    "MapOf",
    "Object",
    "Path",
    "Permission",
    "Presence",
    "Quantity",
    "RawJSON",
    "Refused",
    "Resource",
    "Stage",
    "String",
    "Struct",
    "Subresource",
    "Time",
    "Variant",
    "Version",
    "columns",
    "fieldpath",
    "shapes",
    "with_fields",
]
