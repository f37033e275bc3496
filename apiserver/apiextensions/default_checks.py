"""Check the defaults of a schema: each must be valid by itself, before defaults below it are filled in.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/defaulting/{validation,surroundingobject}.go`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from apiserver.apiextensions.structural_checks import INT_OR_STRING
from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import Release
from apiserver.schema.structural import Source, Structural
from apiserver.schema.types import UNSET
from apiserver.structural import embedded, embedded_validation, pruning, rules, validation
from apiserver.structural.holders import Holders

_TYPE = {"kind": "Validation", "apiVersion": "validation/v1"}
"""The type of the object around a default of its metadata."""
_META = ("metadata", "apiVersion", "kind")


class _Scope(NamedTuple):
    """The surroundings of a node. `resource` is the innermost resource, `way` the way from there: names, and None for the item of a list.
    `inside_meta`: the node belongs to the resource's metadata or type."""

    path: Path
    resource: Structural
    way: tuple[str | None, ...] = ()
    inside_meta: bool = False


def problems(schema: Structural, path: Path, release: Release) -> Iterator[FieldError]:
    """Yield the errors of the defaults of a structural schema. `path` is the schema's."""
    root = dataclasses.replace(schema, embedded=True)
    yield from _Check(release, Holders(root, lambda node: node.default is not UNSET)).node(root, _Scope(path, root))


def _validated(source: Source) -> Source:
    """Return the schema by which upstream validates a default. There, int-or-string says nothing about the type."""
    made = {name: value for name, value in source.items() if name != INT_OR_STRING}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), Mapping):
            made[name] = _validated(made[name])
    if "properties" in made:
        made["properties"] = {name: _validated(member) for name, member in made["properties"].items()}
    return made


class _OutOfBudget(Exception):
    """The rules have used up the cost of one object. Upstream then looks at no further default."""


class _Check:
    """One check of one schema. `_budget` is the cost that rules have left."""

    def __init__(self, release: Release, defaults: Holders) -> None:
        self._release = release
        self._defaults = defaults
        self._budget = rules.BUDGET

    def node(self, schema: Structural, scope: _Scope) -> Iterator[FieldError]:
        try:
            yield from self._node(schema, scope)
        except _OutOfBudget:
            return

    def _node(self, schema: Structural, scope: _Scope) -> Iterator[FieldError]:
        if schema.embedded:
            scope = _Scope(scope.path, schema)
        if schema.default is not UNSET and schema.default is not None:
            yield from self._default(schema, scope)
        if schema not in self._defaults:
            return
        # A default below additionalProperties is not looked at: it is checked when it is used.
        if schema.items is not None:
            below = scope._replace(path=scope.path.child("items"), way=(*scope.way, None))
            yield from self._node(schema.items, below)
        for name, member in schema.properties.items():
            if member.default is UNSET and not member.properties and member.items is None:
                continue
            inside = scope.inside_meta or (schema.embedded and name in _META)
            at = scope.path.child("properties").key(name)
            yield from self._node(member, scope._replace(path=at, way=(*scope.way, name), inside_meta=inside))

    def _default(self, schema: Structural, scope: _Scope) -> Iterator[FieldError]:
        at, value = scope.path.child("default"), copy.deepcopy(schema.default)
        if scope.inside_meta:
            errors = self._metadata(value, scope)
            if errors:
                shown = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
                yield fieldpath.invalid(at, schema.default, f"must result in valid metadata: {shown}")
                return
        else:
            if pruning.has_unknown(schema, value):
                yield fieldpath.invalid(at, value, "must not have unknown fields")
            if (wrong := embedded.first_error(schema, value, at)) is not None:
                yield wrong
                return
            found = list(embedded_validation.value_errors(schema, value, at, self._release))
            if found:
                yield from found
                return
        found = list(validation.Validator(_validated(schema.source)).errors(value, path=str(at)))
        if found:
            yield from found
            return
        yield from self._rules(schema, value, at, resource=schema is scope.resource)

    def _metadata(self, value: Any, scope: _Scope) -> list[str]:
        """Return the errors of a resource whose metadata has this default, and nothing else."""
        for step in reversed(scope.way):
            value = [value] if step is None else {step: value}
        whole = {**_TYPE, **value}
        if (wrong := embedded.first_error(scope.resource, whole, fieldpath.ROOT)) is not None:
            return [str(wrong)]
        found = embedded_validation.value_errors(scope.resource, whole, fieldpath.ROOT, self._release)
        return list(dict.fromkeys(map(str, found)))

    def _rules(self, schema: Structural, value: Any, at: Path, *, resource: bool) -> Iterator[FieldError]:
        errors, self._budget = rules.value_errors(
            schema, value, path=at, resource=resource, release=self._release, budget=self._budget
        )
        yield from errors
        if self._budget < 0:
            raise _OutOfBudget
