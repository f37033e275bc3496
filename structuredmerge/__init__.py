"""Merge JSON values and track which manager owns which field, as Kubernetes' server-side apply does.

The names below are the public ones; `README.md` has an example and the order in which to read the modules. The package has no dependency
on Kubernetes kinds, HTTP or a store, and imports nothing of `apiserver`.
Upstream: kubernetes-sigs/structured-merge-diff v6.
"""

from structuredmerge.comparison import Comparison, compare
from structuredmerge.fieldset import fields_of
from structuredmerge.fieldsv1 import FieldsError, decode, encode
from structuredmerge.merging import merge
from structuredmerge.openapi import type_of
from structuredmerge.paths import Element, Path, PathError, field, index, item, keyed, text
from structuredmerge.removal import remove
from structuredmerge.sets import EMPTY, Set
from structuredmerge.sets import of as set_of
from structuredmerge.types import DEDUCED, UNSET, UNTYPED_ATOMIC, List, Map, Member, Scalar, Type
from structuredmerge.updater import (
    UNCHANGED,
    Conflict,
    Conflicts,
    Managers,
    OneVersion,
    Owned,
    Versions,
    apply,
    update,
)
from structuredmerge.validation import validate

__all__ = [
    "DEDUCED",
    "EMPTY",
    "UNCHANGED",
    "UNSET",
    "UNTYPED_ATOMIC",
    "Comparison",
    "Conflict",
    "Conflicts",
    "Element",
    "FieldsError",
    "List",
    "Managers",
    "Map",
    "Member",
    "OneVersion",
    "Owned",
    "Path",
    "PathError",
    "Scalar",
    "Set",
    "Type",
    "Versions",
    "apply",
    "compare",
    "decode",
    "encode",
    "field",
    "fields_of",
    "index",
    "item",
    "keyed",
    "merge",
    "remove",
    "set_of",
    "text",
    "type_of",
    "update",
    "validate",
]
