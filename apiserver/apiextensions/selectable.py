"""Read the selectable fields of custom resources.

Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/strategy.go` (selectableFields).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from apiserver.schema.resource import Object
from kubetext import printing
from kubetext.jsonpath import EvaluationError, Template


def fields_of(templates: Sequence[Template]) -> Callable[[Object], tuple[str, ...]]:
    """Return a function from an object to the values at these JSON paths, as a field selector spells them: "" for absent ones."""
    return lambda obj: tuple([_text(template, obj) for template in templates])


def _text(template: Template, obj: Object) -> str:
    try:
        value: Any = template.first(obj, None)
    except EvaluationError:
        return ""
    if isinstance(value, str):
        return value
    return "" if value is None else printing.plain(value)
