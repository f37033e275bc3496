"""Build the shapes of one version of an API from those of another: the same structs under other names, except those that differ.

Knows no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from apiserver.apimachinery.releases import changed
from apiserver.schema.types import Field, ListOf, MapOf, String, Struct, Type

Change = Callable[[Struct], Struct]
"""Returns the other version's struct from one that already has its names and members."""


class Variant:
    """Builds shapes of the OpenAPI package `made` from those of the package `of`. Shapes of other packages stay as they are.

    Each struct is built once, so that shapes which share one still do. The last part of a package's name is its Go name. `foreign` are Go
    types of another package with that name. `changes` are by the name of the struct.
    """

    def __init__(
        self, *, of: str, made: str, foreign: Collection[str] = (), changes: Mapping[str, Change] | None = None
    ) -> None:
        self._of, self._made = of, made
        self._package, self._go = f"{_last(of)}.", _last(made)
        self._foreign = frozenset(foreign)
        self._changes = changes or {}
        self._done: dict[Struct, Struct] = {}

    def __call__(self, shape: Struct) -> Struct:
        if shape.model != self._of:
            return shape
        made = self._done.get(shape)
        if made is None:
            change = self._changes.get(shape.name, _unchanged)
            fields = tuple(changed(field, self._field) for field in shape.fields)
            made = self._done[shape] = change(replace(shape, model=self._made, go=self._go, fields=fields))
        return made

    def _field(self, field: Field) -> Field:
        return replace(field, type=self._type(field.type))

    def _type(self, type_: Type) -> Type:
        match type_:
            case Struct():
                return self(type_)
            case ListOf():
                return replace(type_, item=self._type(type_.item), go=self._named(type_.go))
            case MapOf():
                return replace(type_, value=self._type(type_.value), go_key=self._named(type_.go_key))
            case String():
                return replace(type_, go=self._named(type_.go))
            case _:
                return type_

    def _named(self, go: str) -> str:
        if go in self._foreign or not go.startswith(self._package):
            return go
        return f"{self._go}.{go.removeprefix(self._package)}"


def with_fields(struct: Struct, **properties: Mapping[str, object]) -> Struct:
    """Return the struct with other properties of some members, by their JSON name."""

    def one(field: Field) -> Field:
        return replace(field, **properties.get(field.name, {}))  # type: ignore[arg-type]

    return replace(struct, fields=tuple(changed(field, one) for field in struct.fields))


def _last(package: str) -> str:
    return package.rpartition(".")[2]


def _unchanged(struct: Struct) -> Struct:
    return struct
