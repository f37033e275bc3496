"""The objects that policies take as parameters: an up-to-date copy of each kind that a policy names.

Rights: the server must be able to `get`, `list` and `watch` every kind that a policy's paramKind names, in all
namespaces. Only the cluster's administrators know these kinds. So the manifests bind an aggregated ClusterRole, and a ClusterRole with
its label adds a kind to it. Without the right, requests that such a policy judges are answered that its params are not synced yet.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/generic/policy_{source,dispatcher}.go`. Difference: upstream's copies of a
kind end with the last policy that names it, and may not begin again with the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from apiserver.cluster.by_namespace import ByNamespace
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError, NoSuchKind
from apiserver.cluster.mapper import Mapper
from apiserver.cluster.reflector import Reflector
from apiserver.runtime import tasks

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
"""How long a request waits for an object that the copy lacks."""
SYNC_SECONDS = 1.0
"""How long a request waits for the first list of a kind."""
LOOK_SECONDS = 1.0
"""Time between two checks which kinds are named (upstream's policyRefreshInterval)."""
KINDS = 200
"""The most kinds that are followed at once."""

_TYPED = frozenset(
    (
        "",
        "admissionregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "extensions",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    )
)
"""Groups that client-go has types for. Their objects have neither kind nor apiVersion in upstream's copies, all others have both."""

Object = Mapping[str, Any]
NamedKind = tuple[str, str]
"""apiVersion and kind."""


class ParamKind:
    """All objects of one kind, for as long as a policy names it."""

    def __init__(self, client: Client, named: NamedKind, path: str, *, namespaced: bool) -> None:
        self.namespaced = namespaced
        self._named, self._client, self._path = named, client, path
        typed = named[0].rpartition("/")[0] in _TYPED
        self._shown = partial(_shown, named=None if typed else named)
        self._reflector = Reflector(client, path, collection=partial(ByNamespace, self._shown))
        self._task = asyncio.create_task(tasks.supervised(self._reflector.run, name="params"))

    @property
    def ready(self) -> bool:
        return self._reflector.ready.is_set()

    async def synced(self) -> None:
        """Wait for the first list. Raises ClusterError with upstream's text."""
        if self.ready:
            return
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self._reflector.ready.wait()
        except TimeoutError:
            api_version, kind = self._named
            shown = f"&ParamKind{{APIVersion:{api_version},Kind:{kind},}}"
            raise ClusterError(f"paramKind kind `{shown}` not yet synced to use for admission") from None

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object or None. `namespace` is empty for a cluster-scoped kind."""
        return self._of(namespace).get(name)

    async def read(self, namespace: str, name: str) -> Object | None:
        """Return an object that the copy lacks, asked for at kube-apiserver. Without an answer it is missing, as the copy says.

        Upstream: getParamDirectly, whose other errors are errors of the policy.
        """
        version, _, plural = self._path.rpartition("/")
        within = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced else ""
        try:
            found = await self._client.ask(
                "GET",
                f"{version}{within}/{plural}/{quote(name, safe='')}",
                seconds=READ_SECONDS,
                within=READ_SECONDS,
            )
        except ClusterError as error:
            if getattr(error, "code", 0) != HTTPStatus.NOT_FOUND:
                logger.warning("a param cannot be read", extra={"error": str(error)[:300]})
            return None
        return self._shown(found)

    def all(self, namespace: str) -> Iterable[Object]:
        """Return the objects of one namespace, or all of a cluster-scoped kind."""
        return self._of(namespace).values()

    def _of(self, namespace: str) -> Mapping[str, Object]:
        items = self._reflector.items
        assert isinstance(items, ByNamespace)
        return items.of(namespace if self.namespaced else "")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Params:
    """Copies of the named kinds. A copy begins when its kind is first named or asked for, and ends when no policy names it any more."""

    def __init__(self, client: Client, named: Callable[[], Collection[NamedKind]]) -> None:
        """`named` returns the kinds of all policies that have bindings."""
        self._client = client
        self._named = named
        self._mapper = Mapper(client)
        self._kinds: dict[NamedKind, ParamKind] = {}

    async def kind(self, api_version: str, kind: str) -> ParamKind:
        """Return the copy of a kind. Raises NoSuchKind with upstream's text, also when the cluster cannot be asked."""
        wanted = (api_version, kind)
        found = self._kinds.get(wanted)
        if found is not None:
            return found
        if len(self._kinds) >= KINDS:
            raise ClusterError(f"more than {KINDS} kinds of params")
        try:
            collection = await self._mapper.collection(api_version, kind)
        except (NoSuchKind, ClusterError) as error:
            if isinstance(error, ClusterError):
                logger.warning(
                    "a paramKind is not found", extra={"kind": f"{api_version} {kind}"[:300], "error": str(error)}
                )
            raise NoSuchKind(f"failed to find resource referenced by paramKind: '{_go_kind(wanted)}'") from error
        if wanted not in self._kinds:
            made = ParamKind(self._client, wanted, collection.path, namespaced=collection.namespaced)
            self._kinds[wanted] = made
        return self._kinds[wanted]

    async def run(self) -> None:
        """Follow the named kinds until cancelled, then end all copies."""
        try:
            while True:
                await self._look()
                await self._client.sleep(LOOK_SECONDS)
        finally:
            await self._release(list(self._kinds))

    async def _look(self) -> None:
        named = self._named()
        await self._release([kind for kind in self._kinds if kind not in named])
        for api_version, kind in named:
            if (api_version, kind) not in self._kinds:
                try:
                    await self.kind(api_version, kind)
                except (NoSuchKind, ClusterError) as error:
                    logger.warning("params are not followed", extra={"reason": str(error)[:300]})

    async def _release(self, kinds: Iterable[NamedKind]) -> None:
        for kind in kinds:
            await self._kinds.pop(kind).close()


def _go_kind(named: NamedKind) -> str:
    group, _, version = named[0].rpartition("/")
    return f"{group}/{version}, Kind={named[1]}"


def _shown(found: Object, named: NamedKind | None) -> Object:
    """Return the object with the apiVersion and kind of its kind, or without both."""
    rest = {name: value for name, value in found.items() if name not in ("kind", "apiVersion")}
    if named is None:
        return rest
    api_version, kind = named
    return {"apiVersion": api_version, "kind": kind, **rest}
