"""Find the collection that holds the objects of a kind, by the discovery of kube-apiserver. So kinds of other servers are found too.

Upstream: kubernetes/client-go `restmapper/discovery.go`, kubernetes/apimachinery `pkg/api/meta/restmapper.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.cluster.client import Client
from apiserver.cluster.errors import NoSuchKind, Refused
from kubetext import names
from kubetext.quoting import go_quote

FRESH_SECONDS = 1.0
"""The age from which the kinds of a group and version are read again when one is missing. Upstream forgets all after 30 s, and looks
for missing kinds once a second.
"""
VERSIONS = 256
"""The number of groups and versions whose kinds are remembered."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Where the objects of a kind are. `path` has no namespace, so it is that of all namespaces."""

    path: str
    namespaced: bool


@dataclass(slots=True)
class _Known:
    """The kinds of one group and version, as they were at a time."""

    asked: float
    kinds: Mapping[str, Collection]


class Mapper:
    """Asks once for each group and version, and again when a kind is missing there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, _Known] = {}
        self._turn = asyncio.Lock()

    async def collection(self, api_version: str, kind: str) -> Collection:
        """Return the collection of a kind. Raises NoSuchKind, ClusterError."""
        found = self._find(api_version, kind)
        if found is None and self._is_stale(api_version):
            async with self._turn:
                if self._is_stale(api_version):
                    await self._ask(api_version)
            found = self._find(api_version, kind)
        if found is None:
            raise NoSuchKind(f"no matches for kind {go_quote(kind)} in version {go_quote(api_version)}")
        return found

    def _find(self, api_version: str, kind: str) -> Collection | None:
        known = self._known.get(api_version)
        return known.kinds.get(kind) if known is not None else None

    def _is_stale(self, api_version: str) -> bool:
        known = self._known.get(api_version)
        return known is None or self._client.clock() - known.asked >= FRESH_SECONDS

    async def _ask(self, api_version: str) -> None:
        prefix = _prefix(api_version)
        kinds: Mapping[str, Collection] = {}
        if prefix:
            try:
                kinds = _kinds(prefix, await self._client.ask("GET", prefix))
            except Refused as error:
                if error.code != 404:
                    raise
        if len(self._known) >= VERSIONS:
            self._known.clear()
        self._known[api_version] = _Known(self._client.clock(), kinds)


def _prefix(api_version: str) -> str:
    """Return the path of a group and version. Empty for an invalid one, which must not become another path."""
    group, _, version = api_version.rpartition("/")
    if names.dns_label(version) or (group and names.dns_subdomain(group)):
        return ""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _kinds(prefix: str, answer: Mapping[str, Any]) -> Mapping[str, Collection]:
    """Index by kind and by the kind in lower case, which upstream finds as well. The first of two resources of one kind counts."""
    kinds: dict[str, Collection] = {}
    resources = answer.get("resources")
    for resource in resources if isinstance(resources, list) else ():
        name, kind = resource.get("name"), resource.get("kind")
        if not isinstance(name, str) or not isinstance(kind, str) or "/" in name:
            continue
        collection = Collection(f"{prefix}/{name}", namespaced=resource.get("namespaced") is True)
        kinds.setdefault(kind, collection)
        kinds.setdefault(kind.lower(), collection)
    return kinds
