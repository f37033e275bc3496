"""Refusing a change of a whole struct, with the value shown as upstream shows it.

Upstream: kubernetes/apimachinery `pkg/api/validation/objectmeta.go` ValidateImmutableField.
"""

from __future__ import annotations

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.codecs.objects import canonical
from apiserver.resources import _shown
from apiserver.schema.resource import Object
from apiserver.schema.types import Struct


def immutable(shape: Struct, new: Object, old: Object, path: Path) -> list[FieldError]:
    """Refuses any change of meaning; the spelling of quantities and empty against absent are no change."""
    if canonical.equal(shape, new, old):
        return []
    return [fieldpath.invalid(path, _shown.as_go(shape, new), "field is immutable")]
