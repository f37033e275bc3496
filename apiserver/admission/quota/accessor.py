"""The quotas of a namespace, as new as this process can know them without asking, and the writing of what is used of them.

Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/resource_access.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from apiserver.admission.quota.check import Quota

LIVE_SECONDS = 30.0
"""How long the answer of a list stands while the informer has not listed yet."""
REMEMBERED = 100
"""Namespaces with such an answer, and quotas that this process has written."""

_Value = TypeVar("_Value")


class Quotas(Protocol):
    """The ResourceQuotas of the cluster, as JSON objects. What asks kube-apiserver raises ClusterError."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once all have been listed."""

    def within(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Those of a namespace, as they are known here."""

    async def list(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Those of a namespace, as kube-apiserver has them."""

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One of them, as kube-apiserver has it."""

    async def update_status(self, quota: Mapping[str, Any]) -> Mapping[str, Any]:
        """Writes the status if the quota is still of this resourceVersion, and returns what it is then."""


class Accessor:
    """What was written last is newer than what a watch has shown of it, until the watch has caught up."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float]) -> None:
        self._quotas = quotas
        self._clock = clock
        self._live = _Recent[tuple[float, Sequence[Mapping[str, Any]]]]()
        self._written = _Recent[Quota]()

    async def quotas(self, namespace: str) -> list[Quota]:
        """Those of the namespace; asked of kube-apiserver only while they have not been listed. Raises ClusterError."""
        found = self._quotas.within(namespace)
        if not found and not self._quotas.ready.is_set():
            found = await self._looked_up(namespace)
        return [self._newest(namespace, raw) for raw in found]

    async def again(self, namespace: str, quotas: Sequence[Quota]) -> list[Quota]:
        """The same as kube-apiserver has them now, without those that are gone. Raises ClusterError.

        Upstream looks into its informer, which often has not seen yet what made the write fail.
        """
        found = []
        for quota in quotas:
            raw = await self._quotas.get(namespace, quota.name)
            if raw is not None:
                found.append(Quota.of(raw))
                self._written[f"{namespace}/{quota.name}"] = found[-1]
        return found

    async def write(self, namespace: str, quota: Quota) -> None:
        """Raises ClusterError."""
        written = await self._quotas.update_status(quota.claimed())
        self._written[f"{namespace}/{quota.name}"] = Quota.of(written)

    async def _looked_up(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        now = self._clock()
        until, found = self._live.get(namespace) or (0.0, ())
        if until <= now:
            found = await self._quotas.list(namespace)
            self._live[namespace] = now + LIVE_SECONDS, found
        return found

    def _newest(self, namespace: str, raw: Mapping[str, Any]) -> Quota:
        quota, key = Quota.of(raw), f"{namespace}/{raw['metadata']['name']}"
        written = self._written.get(key)
        if written is None:
            return quota
        if quota.version >= written.version:
            del self._written[key]
            return quota
        return written


class _Recent(dict[str, _Value], Generic[_Value]):
    """Keeps what was set last."""

    def __setitem__(self, key: str, value: _Value) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > REMEMBERED:
            del self[next(iter(self))]
