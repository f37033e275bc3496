"""Refuse a change of a whole struct, with the value shown as upstream shows it.

Upstream: kubernetes/apimachinery `pkg/api/validation/objectmeta.go` ValidateImmutableField.
"""

from __future__ import annotations

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.codecs.objects import canonical
from apiserver.resources._rules import _shown
from apiserver.schema.resource import Object
from apiserver.schema.types import Struct


def immutable(shape: Struct, new: Object, old: Object, path: Path) -> list[FieldError]:
    """Refuse any change of meaning. The spelling of quantities and empty against absent are no changes."""
    if canonical.equal(shape, new, old):
        return []
    return [fieldpath.invalid(path, _shown.as_go(shape, new), "field is immutable")]
