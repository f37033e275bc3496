"""Read objects from a kube-apiserver that serves their groups itself, page by page, or from files with its lists.

Custom resources are read in their stored version only: reading them in another one drops what its schema does not know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from apiserver.cluster.client import Client
from apiserver.cluster.errors import Refused
from apiserver.codecs.json import surrogates
from apiserver.kinds.served import Kinds
from apiserver.migration.objects import Item, MigrationError
from apiserver.schema.resource import Resource

PAGE = 500
SECONDS = 60.0
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LIST = "List"
UNMANAGED = (
    "is without managedFields, as kubectl prints it unless it is asked for with --show-managed-fields: "
    "who manages its fields would be lost"
)


class Source(Protocol):
    """A source of objects. `refusals` lists the parts of it that cannot be moved at all."""

    refusals: Sequence[str]
    left: int | None
    """Objects of the kind after the latest page; None if unknown."""

    def version(self, kind: Resource) -> Resource | None:
        """Return the version in which the source has a kind; None if it has none."""

    def pages(self, kind: Resource) -> AsyncIterator[list[Item]]:
        """Yield every object of a kind, in pages. Can be called again."""


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_list = surrogates.kept(msgspec.json.Decoder(_List).decode)

# ---------------------------------------------------------------------------------------------------------------- a server


class Server:
    """A kube-apiserver that serves versions of the groups itself. Made by `of`."""

    def __init__(self, client: Client, versions: Mapping[str, Resource], refusals: Sequence[str]) -> None:
        self.client = client
        self.refusals = refusals
        self.left: int | None = None
        self._versions = versions
        """By the store's name of the kind."""

    @classmethod
    async def of(cls, client: Client, kinds: Kinds, moved: Sequence[Resource]) -> Server:
        """Return a source with each kind of `moved` in the best version that the server itself serves. `moved` are whole groups.
        Raises MigrationError, ClusterError."""
        versions: dict[str, Resource] = {}
        refusals: list[str] = []
        for group in dict.fromkeys(kind.group for kind in moved):
            mine = [kind for kind in moved if kind.group == group]
            found = await _Found.of(client, kinds, group, switched=_switched(kinds, mine))
            versions |= found.versions
            refusals += found.strange
            why = f": {'; '.join(found.elsewhere)}" if found.elsewhere else ""
            for kind in mine:
                if kind.custom is not None and kind.storage_name not in found.versions:
                    refusals.append(
                        f"{kind.storage_name}: {client.server} does not serve {kind.api_version} itself{why}"
                    )
            if not found.versions and not any(kind.custom for kind in mine):
                raise MigrationError(f"{client.server} serves no version of {group} itself that is known here{why}")
        return cls(client, versions, refusals)

    def version(self, kind: Resource) -> Resource | None:
        return self._versions.get(kind.storage_name)

    async def pages(self, kind: Resource) -> AsyncIterator[list[Item]]:
        resource = self._versions.get(kind.storage_name)
        if resource is None:
            return
        query = {"limit": str(PAGE)}
        while True:
            raw = await self.client.fetch("GET", collection(resource), query=query, seconds=SECONDS, within=SECONDS)
            try:
                page = _list(raw)
            except msgspec.DecodeError:
                raise MigrationError(f"{collection(resource)}: the answer is no list") from None
            self.left = page.metadata.remaining if page.metadata.continue_ else 0
            yield [Item(resource, bytes(item)) for item in page.items or ()]
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_


def collection(resource: Resource, namespace: str = "") -> str:
    """Return the path of all objects of a kind, or of those of a namespace."""
    within = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{resource.group}/{resource.version}/{within}{resource.plural}"


def _in_order(kinds: Kinds, group: str) -> list[str]:
    """Return the versions that any kind of the group has, the best first."""
    return list(dict.fromkeys(resource.version for resource in kinds.known if resource.group == group))


def _switched(kinds: Kinds, moved: Sequence[Resource]) -> set[str]:
    """Return the versions whose APIServices name Sluice after the move: of custom resources all served ones, otherwise the stored ones."""
    groups = {kind.group for kind in moved if kind.custom is not None}
    return {kind.version for kind in moved} | {kind.version for kind in kinds if kind.group in groups}


def _readable(resource: Resource) -> bool:
    """Return whether reading objects in this version loses nothing of them."""
    return resource.custom is None or resource.stored is resource


@dataclass(slots=True)
class _Found:
    """The kinds of a group that a server has."""

    versions: dict[str, Resource] = field(default_factory=dict)
    """By the store's name of the kind."""
    strange: list[str] = field(default_factory=list)
    """Kinds that are not known here, in words."""
    elsewhere: list[str] = field(default_factory=list)
    """Versions that a Service serves, in words."""

    @classmethod
    async def of(cls, client: Client, kinds: Kinds, group: str, *, switched: Collection[str]) -> _Found:
        """Raises ClusterError."""
        found = cls()
        for version in _in_order(kinds, group):
            service = await _service(client, f"{version}.{group}")
            if service is None:
                continue
            if service:
                found.elsewhere.append(f"{version} is served by the Service {service}")
                continue
            for name in await _listable(client, group, version):
                known = [r for r in kinds.known if (r.group, r.version, r.plural) == (group, version, name)]
                text = f"{name}.{group} is not known here: what of it is there would be out of sight"
                if not known and version in switched and text not in found.strange:
                    found.strange.append(text)
                for resource in filter(_readable, known):
                    found.versions.setdefault(resource.storage_name, resource)
        return found


async def _service(client: Client, name: str) -> str | None:
    """Return the Service behind a version: "" for the server itself, None if the version is not served."""
    try:
        found = await client.ask("GET", f"{APISERVICES}/{name}")
    except Refused as error:
        if error.code == 404:
            return None
        raise
    service = (found.get("spec") or {}).get("service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else ""


async def _listable(client: Client, group: str, version: str) -> Iterator[str]:
    found = await client.ask("GET", f"/apis/{group}/{version}")
    return (item["name"] for item in found.get("resources") or () if "list" in (item.get("verbs") or ()))


# ---------------------------------------------------------------------------------------------------------------- files


class _Meta(msgspec.Struct):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""


class _Document(_Meta):
    items: list[msgspec.Raw] | None = None


class _ObjectMeta(msgspec.Struct):
    name: str = ""
    managed_fields: Any = msgspec.field(default=None, name="managedFields")


class _Object(msgspec.Struct):
    metadata: _ObjectMeta


_document = surrogates.kept(msgspec.json.Decoder(_Document).decode)
_meta = surrogates.replaced(msgspec.json.Decoder(_Meta).decode)
_object = surrogates.replaced(msgspec.json.Decoder(_Object).decode)


class Files:
    """Lists as `kubectl get --raw` prints them, or single objects. They are held in memory unchanged.

    `kubectl get -o json` writes raw JSON anew (members sorted, numbers as its own floats), and omits managedFields unless asked for them.
    So an object that is not from a server's own list is refused without them.
    """

    def __init__(self, paths: Iterable[Path], kinds: Kinds, moved: Iterable[Resource]) -> None:
        """Read the files. `moved` are the kinds that they may have. Raises MigrationError, OSError."""
        names = {kind.storage_name for kind in moved}
        self.left: int | None = None
        self._kinds = kinds
        self._items: dict[str, list[Item]] = {}
        strange: dict[str, None] = {}
        for file in _files(paths):
            for raw, printed in _objects(file):
                said = _meta(raw)
                place, _, version = said.api_version.rpartition("/")
                known = kinds.named(place, version, said.kind)
                if known is None or known.storage_name not in names:
                    strange[
                        f"{file}: {said.api_version or 'an object without apiVersion'} {said.kind} is not known here"
                    ] = None
                    continue
                if not _readable(known):
                    text = f"{said.api_version} {said.kind} is not in {known.stored.version}, in which it is stored"
                    strange[f"{file}: {text}"] = None
                    continue
                if printed and (name := _unmanaged(raw)):
                    strange[f"{file}: {said.kind} {name} {UNMANAGED}"] = None
                self._items.setdefault(known.storage_name, []).append(Item(known, raw))
        self.refusals: Sequence[str] = list(strange)

    def version(self, kind: Resource) -> Resource | None:
        found = self._items.get(kind.storage_name)
        return found[0].resource if found else None

    async def pages(self, kind: Resource) -> AsyncIterator[list[Item]]:
        found = self._items.get(kind.storage_name, [])
        for first in range(0, len(found), PAGE):
            self.left = max(0, len(found) - first - PAGE)
            yield found[first : first + PAGE]


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
        elif found := sorted(path.glob("*.json")):
            yield from found
        else:
            raise MigrationError(f"{path}: no file of this folder ends with .json")


def _objects(file: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield the objects of a file, and whether a program printed them: a single object, or a `List`. Items of a server's list of one kind
    need no kind of their own."""
    raw = file.read_bytes()
    try:
        document = _document(raw)
        if document.items is None:
            yield surrogates.formatted(raw), True
            return
        printed = document.kind == LIST
        for item in document.items:
            whole = bytes(item) if printed or _meta(item).kind else _named(item, document)
            yield surrogates.formatted(whole), printed
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MigrationError(f"{file}: no object or list in JSON: {error}") from None


def _unmanaged(raw: bytes) -> str:
    """Return the name of an object without managedFields, otherwise "". Errors in the object are reported by its decoder."""
    try:
        metadata = _object(raw).metadata
    except msgspec.DecodeError:
        return ""
    return metadata.name if metadata.managed_fields is None else ""


def _named(item: msgspec.Raw, list_: _Document) -> bytes:
    said = _Meta(list_.api_version, list_.kind.removesuffix(LIST))
    rest = bytes(item).lstrip()[1:].lstrip()
    return msgspec.json.encode(said)[:-1] + (b"," if rest[:1] != b"}" else b"") + rest


def raw_json(document: Mapping[str, Any]) -> bytes:
    """Encode the body of a request."""
    return msgspec.json.encode(document)
