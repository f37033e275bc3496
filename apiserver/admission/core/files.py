"""Configure admission by files, for one machine without a cluster. The files hold what a cluster would hold as objects.

Files are read again when they change; a change with errors is ignored as a whole. Objects of other kinds may be parameters of policies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from apiserver.admission.core import compilation, registration
from apiserver.admission.core.sources import NoSuchKind, Nothing, Object, Sources
from apiserver.apimachinery.releases import NEWEST, Release
from apiserver.codecs.objects import decoding, defaults
from apiserver.schema.context import Context
from apiserver.schema.types import Struct
from apiserver.validation import report
from kubetext import names

logger = logging.getLogger(__name__)

SUFFIXES = (".yaml", ".yml", ".json")
"""The files of a folder that are read."""
POLL_SECONDS = 1.0
NAMESPACE = "default"
"""The namespace of objects that name none although others of their kind do."""
_NAMESPACED = {("v1", "ConfigMap"), ("v1", "Secret")}
_KINDS = {shape.name: name for name, shape in registration.SHAPES.items()}
_UNUSABLE = {
    ("v1", "ResourceQuota"): "quotas are for clusters: nothing counts here what is used",
    ("v1", "Namespace"): "every namespace exists here, with the label kubernetes.io/metadata.name alone",
}

NamedKind = tuple[str, str]
"""apiVersion and kind."""


@dataclass(slots=True)
class Found:
    """The contents of files: configurations by their names in `Sources`, other objects by kind, and all errors."""

    configurations: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {name: {} for name in registration.SHAPES}
    )
    params: dict[NamedKind, list[Object]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def read(paths: Iterable[Path], *, now: str, release: Release = NEWEST) -> Found:
    """Read files, and the files in folders. Reads the disk and compiles expressions of the release, so it may take long. `now` is the
    time for defaults.
    """
    found = Found()
    for file in _files(paths, found.errors):
        try:
            documents = list(yaml.load_all(file.read_bytes(), _Loader))
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as e:
            found.errors.append(f"{file}: {' '.join(str(e).split())}")
            continue
        for where, document in _objects(str(file), documents):
            found.errors += [f"{where}: {error}" for error in _take(document, found, now, release)]
    return found


def _files(paths: Iterable[Path], errors: list[str]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
        if not inside:
            errors.append(f"{path}: no file of this folder ends with {', '.join(SUFFIXES)}")
        yield from inside


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a text that looks like a time stays a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _objects(file: str, documents: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each object with its place; the items of a list one by one."""
    for number, document in enumerate(documents, start=1):
        where = file if len(documents) == 1 else f"{file}, document {number}"
        if document is None:
            continue
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from ((f"{where}, item {n}", item) for n, item in enumerate(document["items"], start=1))
        else:
            yield where, document


def _take(document: Any, found: Found, now: str, release: Release) -> Iterator[str]:
    """Take an object, or yield its errors."""
    if not isinstance(document, dict):
        yield "is no object"
        return
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not api_version or not kind:
        yield "has no apiVersion or no kind"
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or names.dns_subdomain(name):
        yield f"{kind} has no metadata.name, or one that is no name"
        return
    about = f"{kind} {name!r}"
    group = api_version.rpartition("/")[0]
    if (api_version, kind) in _UNUSABLE:
        yield f"{about}: {_UNUSABLE[api_version, kind]}"
    elif group != registration.GROUP_VERSION.rpartition("/")[0]:
        found.params.setdefault((api_version, kind), []).append(document)
    elif api_version != registration.GROUP_VERSION or kind not in _KINDS:
        yield f"{about} of {api_version} is unknown: {', '.join(_KINDS)} of {registration.GROUP_VERSION} are known"
    else:
        sort = _KINDS[kind]
        known, shape = found.configurations[sort], registration.SHAPES[sort]
        if name in known:
            yield f"{about} stands there twice"
        known[name] = {}
        content = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
        for error in _complete(shape, content, into=known[name], now=now):
            yield f"{about}: {error}"
        if known[name]:
            yield from (f"{about}: {error}" for error in compilation.errors(sort, known[name], release))


def _complete(shape: Struct, content: Object, *, into: dict[str, Any], now: str) -> Iterator[str]:
    try:
        decoded = decoding.decode(shape, content)
    except decoding.DecodeError as e:
        yield str(e)
        return
    yield from (f"unknown field {path}" for path in decoded.unknown)
    defaults.apply(shape, decoded.object, now=now)
    yield from map(str, report.validate(Context(), shape, decoded.object, None))
    into.update(decoded.object)


# ---------------------------------------------------------------------------------------------------------------- sources


class Kept(Nothing):
    """The objects of one kind, as they were when the files were last read."""

    def take(self, items: Mapping[str, Object]) -> None:
        """Replace the objects."""
        if items != self.items:
            self.items = items
            self.version += 1


class ParamKind:
    """The objects of one kind. The kind is namespaced if one of them names a namespace."""

    def __init__(self, kind: NamedKind, objects: Sequence[Object]) -> None:
        placed = [(obj["metadata"].get("namespace", ""), obj) for obj in objects]
        self.namespaced = kind in _NAMESPACED or any(namespace for namespace, _ in placed)
        self._objects: dict[str, dict[str, Object]] = {}
        for namespace, obj in placed:
            within = (namespace or NAMESPACE) if self.namespaced else ""
            self._objects.setdefault(within, {})[obj["metadata"]["name"]] = obj

    async def synced(self) -> None:
        return None

    def get(self, namespace: str, name: str) -> Object | None:
        return self._of(namespace).get(name)

    async def read(self, namespace: str, name: str) -> Object | None:
        return self.get(namespace, name)

    def all(self, namespace: str) -> Iterable[Object]:
        return self._of(namespace).values()

    def _of(self, namespace: str) -> Mapping[str, Object]:
        return self._objects.get(namespace if self.namespaced else "", {})


class Params:
    """The parameter kinds in files. A kind without objects does not exist, except those that every cluster has."""

    def __init__(self) -> None:
        self.objects: Mapping[NamedKind, Sequence[Object]] = {}

    async def kind(self, api_version: str, kind: str) -> ParamKind:
        """Return the objects of a kind. Raises NoSuchKind."""
        named = (api_version, kind)
        if named not in self.objects and named not in _NAMESPACED:
            group, _, version = api_version.rpartition("/")
            raise NoSuchKind(f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
        return ParamKind(named, self.objects.get(named, ()))


class Files:
    """Follows files and folders. The caller runs `run` as a task, so that changes take effect."""

    def __init__(self, paths: Sequence[Path], *, now: Callable[[], str], release: Release = NEWEST) -> None:
        self._paths = paths
        self._release = release
        self._now = now
        self._seen: object = None
        self._kept = {name: Kept() for name in registration.SHAPES}
        self._params = Params()
        self.sources = Sources(**self._kept, quotas=Nothing(), params=self._params)

    def load(self) -> list[str]:
        """Read everything, and return all errors. With an error, nothing changes."""
        self._seen = self._signature()
        return self._take(read(self._paths, now=self._now(), release=self._release))

    async def run(self) -> None:
        """Read changed files again until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            signature = self._signature()
            if signature == self._seen:
                continue
            self._seen = signature
            found = await asyncio.to_thread(read, self._paths, now=self._now(), release=self._release)
            errors = self._take(found)
            for error in errors:
                logger.error("the changed admission files are not used", extra={"error": error})
            if not errors:
                logger.info("the changed admission files are used", extra={"objects": self.count})

    def _take(self, found: Found) -> list[str]:
        if not found.errors:
            for name, kept in self._kept.items():
                kept.take(found.configurations[name])
            self._params.objects = found.params
        return found.errors

    @property
    def count(self) -> int:
        """The number of objects."""
        return sum(len(kept.items) for kept in self._kept.values()) + sum(map(len, self._params.objects.values()))

    def _signature(self) -> object:
        """Return a value that changes when a file does."""
        signature = []
        for file in _files(self._paths, []):
            try:
                status = file.stat()
            except OSError:
                signature.append((file, 0, 0))
            else:
                signature.append((file, status.st_mtime_ns, status.st_size))
        return signature
