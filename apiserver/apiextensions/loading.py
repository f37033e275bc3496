"""Read definitions from files: read, decode, complete, check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver.apiextensions import checks, decoding, defaults, documents, making
from apiserver.apiextensions.definition import Definition
from apiserver.apiextensions.documents import Document
from apiserver.apiextensions.sharing import Sharing
from apiserver.apimachinery import meta
from apiserver.apimachinery.releases import NEWEST, Release

GROUP, KIND = "apiextensions.k8s.io", "CustomResourceDefinition"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one document: a definition, or errors. `place` names file and document, `name` is the definition's."""

    place: str
    name: str = ""
    definition: Definition | None = None
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def about(self) -> str:
        """The place and the name."""
        return f"{self.place}: {self.name}" if self.name else self.place


def inspect(paths: Iterable[Path], release: Release = NEWEST) -> list[Found]:
    """Return what the documents of files and folders have. Reads the disk, and may take seconds."""
    return list(_inspected(paths, release, Sharing()))


def _inspected(paths: Iterable[Path], release: Release, shared: Sharing) -> Iterator[Found]:
    return (_found(document, release, shared) for document in documents.read(paths, shared.blocks))


def read(
    paths: Iterable[Path], release: Release = NEWEST, shared: Sharing | None = None
) -> tuple[list[Definition], list[str]]:
    """Return the definitions of files and folders, and every error with its place. Reads the disk, and may take seconds.

    `shared` has parts of definitions that were read before, and gets those that are read now.
    """
    found = list(_inspected(paths, release, shared or Sharing()))
    definitions = [each.definition for each in found if each.definition is not None]
    return definitions, [f"{each.about}: {error}" for each in found for error in each.errors]


def _found(document: Document, release: Release, shared: Sharing) -> Found:
    value = document.value
    if document.error:
        return Found(document.place, errors=[document.error])
    if not isinstance(value, dict):
        return Found(document.place, errors=["the document is no object"])
    api_version, kind = value.get("apiVersion"), value.get("kind")
    for member, text in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(text, str | None):  # it may nest too deeply for a message
            return Found(document.place, errors=[f"{member} must be a string"])
    group, _, version = (api_version or "").rpartition("/")
    if group != GROUP or kind != KIND:
        return Found(document.place, warnings=[f"{api_version} {kind} is ignored"])
    if version != "v1":
        return Found(document.place, _name(value), errors=[f'no matches for kind "{KIND}" in version "{api_version}"'])
    return _definition(document, value, release, shared)


def _definition(document: Document, value: dict[str, Any], release: Release, shared: Sharing) -> Found:
    place = document.place
    try:
        source, unknown, empties = decoding.decode(value, shared)
    except decoding.DecodeError as e:
        text = f'{KIND} in version "v1" cannot be handled as a {KIND}: {e}'
        return Found(place, _name(value), errors=[text])
    defaults.fill(source)
    name = meta.name(source)
    warnings = [" ".join(document.repeats.split())] if document.repeats else []
    warnings += [f'unknown field "{path}"' for path in unknown]
    if errors := checks.problems(source, release, shared):
        return Found(place, name, errors=[str(error) for error in errors], warnings=warnings)
    warnings += checks.warnings(source, release, shared)
    made = making.definition(decoding.compact(source, shared) if empties else source, shared)
    return Found(place, name, made, warnings=warnings)


def _name(value: dict[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
