"""Check apiVersion, kind and metadata of embedded resources. Updates are checked like creates.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/objectmeta/validation.go`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import Release
from apiserver.schema.structural import Structural
from apiserver.structural.embedded import embedding
from apiserver.structural.holders import Holders
from apiserver.structural.values import shown
from kubetext import names

EmbeddedErrors = Callable[[Any, Release], Iterator[FieldError]]
"""Yields the errors of all embedded resources of an object. Their metadata is regular: it was decoded as such."""

_Check = Callable[[Any, Path, Release], Iterator[FieldError]]


def embedded_resources(schema: Structural) -> EmbeddedErrors | None:
    """Return what checks the embedded resources of an object; None if the schema has none."""
    check = _check_of(schema, embedding(schema))
    return None if check is None else lambda value, release: check(value, ROOT, release)


def value_errors(schema: Structural, value: Any, path: Path, release: Release) -> Iterator[FieldError]:
    """Yield the errors of all embedded resources in a value, which may be one itself. `path` is the value's."""
    check = _check_of(schema, embedding(schema))
    if check is not None:
        yield from check(value, path, release)


def _check_of(schema: Structural | None, holders: Holders) -> _Check | None:
    if schema is None or not (schema.embedded or schema in holders):
        return None
    members = {name: _check_of(below, holders) for name, below in schema.properties.items()}
    other, items = _check_of(schema.additional, holders), _check_of(schema.items, holders)

    def check(value: Any, path: Path, release: Release) -> Iterator[FieldError]:
        if isinstance(value, dict):
            if schema.embedded:
                yield from _errors(value, path, release)
            for name, member in value.items():
                below = members.get(name, other)
                if below is not None:
                    yield from below(member, path.child(name) if name in members else path.key(name), release)
        elif isinstance(value, list) and items is not None:
            for index, item in enumerate(value):
                yield from items(item, path.index(index), release)

    return check


def _errors(value: dict[str, Any], path: Path, release: Release) -> Iterator[FieldError]:
    for name, problem_of in (("apiVersion", _version_problem), ("kind", _kind_problem)):
        if name not in value:
            yield fieldpath.required(path.child(name))
        elif problem := problem_of(value[name]) if isinstance(value[name], str) else "must be a string":
            yield fieldpath.invalid(path.child(name), shown(value[name]), problem)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        yield from _metadata_errors(metadata, path, release)


def _version_problem(api_version: str) -> str:
    if not api_version:
        return "must not be empty"
    return f"unexpected GroupVersion string: {api_version}" if api_version.count("/") > 1 else ""


def _kind_problem(kind: str) -> str:
    if not kind:
        return "must not be empty"
    problems = names.old_dns_label(names.lower(kind))
    return f"may have mixed case, but should otherwise match: {','.join(problems)}" if problems else ""


def _metadata_errors(metadata: dict[str, Any], path: Path, release: Release) -> Iterator[FieldError]:
    # A name is not required, and must only fit into a path.
    named = {**metadata, "name": metadata.get("name") or "fakename"}
    found = meta.validate_object_meta(
        {"metadata": named},
        release,
        namespaced=bool(metadata.get("namespace")),
        name_check=names.path_segment_name,
        qualified_finalizers=False,
    )
    for error in found:
        yield dataclasses.replace(error, field=f"{path}.{error.field}" if path is not ROOT else error.field)
