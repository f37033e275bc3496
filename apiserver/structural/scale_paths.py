"""Check the members that the scale subresource shows. Every write of the object is checked, not only writes through the subresource.

Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/validator.go` (ValidateScaleSpec, ValidateScaleStatus),
kubernetes/apimachinery `pkg/apis/meta/v1/unstructured/helpers.go` (NestedInt64, NestedString).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.schema.custom import Scale
from apiserver.schema.resource import Object
from kubetext import printing

MAX_REPLICAS = (1 << 31) - 1


def errors(obj: Object, scale: Scale, *, status_only: bool = False) -> Iterator[FieldError]:
    """Yield the errors of the scale's members. A write of the status checks only the members that are its own."""
    if not status_only:
        yield from _replica_errors(obj, scale.spec_replicas)
    yield from _replica_errors(obj, scale.status_replicas)
    if scale.selector:
        _, problem = member(obj, scale.selector, str, "string")
        if problem:
            yield fieldpath.invalid(text(scale.selector), "", problem)


def _replica_errors(obj: Object, path: tuple[str, ...]) -> Iterator[FieldError]:
    replicas, problem = member(obj, path, int, "int64")
    if problem:
        yield fieldpath.invalid(text(path), 0, problem)
    elif replicas is not None and replicas < 0:
        yield fieldpath.invalid(text(path), replicas, "should be a non-negative integer")
    elif replicas is not None and replicas > MAX_REPLICAS:
        yield fieldpath.invalid(text(path), replicas, f"should be less than or equal to {MAX_REPLICAS}")


def member(obj: Object, path: tuple[str, ...], kind: type, wanted: str) -> tuple[Any, str]:
    """Return a member, None if it is absent, and what is wrong with its type or with an object on the way."""
    value: Any = obj
    for depth, name in enumerate(path):
        if value is None:
            return None, ""
        if not isinstance(value, dict):
            return (
                None,
                f"{text(path[: depth + 1])} accessor error: {_shown(value)}, expected map[string]interface{{}}",
            )
        if name not in value:
            return None, ""
        value = value[name]
    if type(value) is not kind:
        return None, f"{text(path)} accessor error: {_shown(value)}, expected {wanted}"
    return value, ""


def _shown(value: Any) -> str:
    """Return a value and its type as the accessors print them."""
    shown = fieldpath.shown_json(printing.plain(value)).text
    return f"{shown} is of the type {printing.go_type(value)}"


def text(path: tuple[str, ...]) -> str:
    """Return a way as errors name it."""
    return "".join(f".{name}" for name in path)
