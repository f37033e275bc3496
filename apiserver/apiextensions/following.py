"""Follow the files and folders that hold CustomResourceDefinitions, while the server runs.

Each file counts for itself. A file that cannot be served leaves the kinds of its last good state in place, and the others take effect.
A changed file is read once it has stood still for a while, so that no half-written file is served. Files of a mounted ConfigMap are
symbolic links that change together: their targets are looked at.

Knows no server: `changed` says that there are other kinds, whose user decides what becomes of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from apiserver.apiextensions import documents, loading
from apiserver.apiextensions.definition import Definition
from apiserver.apiextensions.sharing import Sharing
from apiserver.files import State, changes, state
from apiserver.schema.resource import Resource
from kubetext.quoting import go_quote

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""The time between two looks at the files. A changed file is read when two looks in a row find the same state."""

Make = Callable[[Definition], Sequence[Resource]]
"""Makes the kind of a definition, in every version."""
Judge = Callable[[Sequence[Resource]], Sequence[str]]
"""Returns why these kinds cannot be served together, and beside the others."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition with its kind in every version."""

    definition: Definition
    kinds: Sequence[Resource]


@dataclass(frozen=True, slots=True)
class _File:
    """One file: what it held when it could last be served, and why it cannot be now. `digest` is that of its present contents."""

    digest: bytes = b""
    defined: tuple[Defined, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """All files at one moment. `missing` are the errors of the operator's paths that do not exist."""

    files: Mapping[Path, _File] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def defined(self) -> tuple[Defined, ...]:
        return tuple(defined for file in self.files.values() for defined in file.defined)

    @property
    def kinds(self) -> tuple[Resource, ...]:
        return tuple(kind for defined in self.defined for kind in defined.kinds)

    @property
    def errors(self) -> list[str]:
        return [*self.missing, *(error for file in self.files.values() for error in file.errors)]


class Definitions:
    """The definitions of some files and folders. `load` reads them for the first time, `run` follows them."""

    def __init__(self, paths: Iterable[Path], *, make: Make, judge: Judge) -> None:
        self._paths = tuple(dict.fromkeys(paths))
        self._make = make
        self._judge = judge
        self._found = _Found()
        self._seen: Mapping[Path, State] = {}
        self._kinds: Sequence[Resource] = ()
        self._changed = asyncio.Event()

    @property
    def kinds(self) -> Sequence[Resource]:
        """The kinds in every version. A definition that did not change keeps its kinds."""
        return self._kinds

    @property
    def definitions(self) -> Sequence[Definition]:
        """The definitions of these kinds."""
        return [defined.definition for defined in self._found.defined]

    @property
    def errors(self) -> list[str]:
        """Why some files are not served as they are now."""
        return self._found.errors

    @property
    def served(self) -> int:
        """How many definitions are served."""
        return sum(len(file.defined) for file in self._found.files.values())

    @property
    def refused(self) -> int:
        """How many files and folders are not served as they are now."""
        found = self._found
        return len(found.missing) + sum(bool(file.errors) for file in found.files.values())

    def problem(self) -> str | None:
        """Return every reason why files are not served as they are now, in one line; None if all are."""
        return "; ".join(self.errors) or None

    def load(self) -> list[str]:
        """Read all files, and return every error. Takes long: about a second for a hundred definitions."""
        self._seen = self._look()
        self._found = self._newer()
        self._kinds = self._found.kinds
        return self.errors

    async def run(self) -> None:
        """Follow the files until cancelled. Logs what is wrong with definitions that are served, because nothing is logged before."""
        async for seen in changes(self._look, self._seen, POLL_SECONDS):
            await self._follow(seen)

    async def _follow(self, seen: Mapping[Path, State]) -> None:
        """Read what changed. Files that change meanwhile differ from `seen` at the next look, and are read again."""
        told, found = self.errors, await asyncio.to_thread(self._newer)
        self._found, self._seen = found, seen
        for error in found.errors:
            if error not in told:
                logger.error("changed definitions are not served: the former ones are", extra={"error": error})
        if not _same(self._kinds, found.kinds):
            about = {"definitions": self.served, "changed": sorted(differing(self._kinds, found.kinds))[:SHOWN]}
            logger.info("the definitions changed", extra=about)
            self._kinds = found.kinds
            self._changed.set()
            self._changed = asyncio.Event()

    async def other_than(self, kinds: Sequence[Resource]) -> Sequence[Resource]:
        """Wait until the kinds to serve differ from these. Return them."""
        while _same(self._kinds, kinds):
            await self._changed.wait()
        return self._kinds

    # Files

    def _look(self) -> Mapping[Path, State]:
        """Return the state of each file now. A path of the operator that does not exist has the state of no file."""
        return {file: state(file) for path in self._paths for file in _inside(path)}

    def _newer(self) -> _Found:
        """Return the files as they are now. Those whose contents are the same as before are not read again."""
        before = self._found.files
        known = {each.definition.name: each for file in before.values() for each in file.defined}
        lost = [path for path in self._paths if not path.exists()]
        present = dict.fromkeys(file for path in self._paths for file in _inside(path))
        # A path that is missing as a whole is probably being mounted: what it held stays.
        files = {
            file: held
            for file, held in before.items()
            if file in present or any(path in (file, *file.parents) for path in lost)
        }
        changed: dict[Path, _File] = {}
        shared = Sharing()
        for path in present:
            held = files.get(path, _File())
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # it is in `lost`, or the next look does not find it
            except OSError as error:
                files[path] = replace(held, digest=b"", errors=(f"{path}: {error.strerror}",))
                continue
            digest = hashlib.sha256(content).digest()
            if digest == held.digest:
                continue
            defined, errors = self._defined(path, known, shared)
            if errors:
                files[path] = replace(held, digest=digest, errors=tuple(errors))
            else:
                changed[path] = _File(digest, tuple(defined))
        missing = tuple(f"{path}: there is no such file or folder" for path in lost)
        return _Found(self._accepted(files, changed), missing)

    def _defined(self, path: Path, known: Mapping[str, Defined], shared: Sharing) -> tuple[list[Defined], list[str]]:
        """Read a file. Return its definitions with their kinds, or the errors."""
        definitions, errors = loading.read([path], shared=shared)
        if errors:
            return [], list(errors)
        wrong = [
            f"{path}: {definition.name}: {error}"
            for definition in definitions
            if definition.name in known
            for error in immutable(known[definition.name].definition, definition)
        ]
        return ([], wrong) if wrong else ([self._kept_or_made(each, known.get(each.name)) for each in definitions], [])

    def _kept_or_made(self, definition: Definition, known: Defined | None) -> Defined:
        if known is not None and known.definition.source == definition.source:
            return known
        return Defined(definition, self._make(definition))

    def _accepted(self, files: Mapping[Path, _File], changed: Mapping[Path, _File]) -> dict[Path, _File]:
        """Take changed files over, all together or else one after the other: kinds of different files may clash."""
        if not self._judge(_Found({**files, **changed}).kinds):
            return {**files, **changed}
        accepted = dict(files)
        for path, file in changed.items():
            errors = self._judge(_Found({**accepted, path: file}).kinds)
            held = accepted.get(path, _File())
            refused = replace(held, digest=file.digest, errors=tuple(f"{path}: {error}" for error in errors))
            accepted[path] = refused if errors else file
        return accepted


SHOWN = 20
"""The most names in a line of the log."""


def _same(some: Sequence[Resource], others: Sequence[Resource]) -> bool:
    return {id(kind) for kind in some} == {id(kind) for kind in others}


def differing(some: Sequence[Resource], others: Sequence[Resource]) -> set[str]:
    """Return the store's names of the kinds that only one of two sets has, or that changed."""
    both = {id(kind) for kind in some} & {id(kind) for kind in others}
    return {kind.storage_name for kind in (*some, *others) if id(kind) not in both}


def _inside(path: Path) -> Sequence[Path]:
    try:
        return documents.files(path)
    except OSError:
        return ()  # the folder was removed meanwhile, or may not be listed


def immutable(before: Definition, after: Definition) -> Iterator[str]:
    """Yield an error for each changed value on which stored objects depend. The name says group and plural.

    Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`
    validateCustomResourceDefinitionSpecUpdate.
    """
    scopes = {True: "Namespaced", False: "Cluster"}
    if before.namespaced != after.namespaced:
        yield f"spec.scope: Invalid value: {go_quote(scopes[after.namespaced])}: field is immutable"
    if before.kind != after.kind:
        yield f"spec.names.kind: Invalid value: {go_quote(after.kind)}: field is immutable"
