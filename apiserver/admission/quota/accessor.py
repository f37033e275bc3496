"""Read the quotas of a namespace as new as this process knows them without a request, and write their usage.

Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/resource_access.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from apiserver.admission.quota.check import Quota

LIVE_SECONDS = 30.0
"""How long the answer of a list is used while the informer has not listed yet."""
REMEMBERED = 100
"""The number of namespaces with such an answer, and of quotas that this process has written."""

_Value = TypeVar("_Value")


class Quotas(Protocol):
    """The ResourceQuotas of the cluster, as JSON objects. Methods that ask kube-apiserver raise ClusterError."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once all have been listed."""

    def within(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Return the quotas of a namespace, as they are known here."""

    async def list(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Return the quotas of a namespace from kube-apiserver."""

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one quota from kube-apiserver, or None."""

    async def update_status(self, quota: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the status if the quota still has this resourceVersion, and return the result."""


class Accessor:
    """Prefers this process's last write of a quota until the watch has caught up."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float]) -> None:
        self._quotas = quotas
        self._clock = clock
        self._live = _Recent[tuple[float, Sequence[Mapping[str, Any]]]]()
        self._written = _Recent[Quota]()

    async def quotas(self, namespace: str) -> list[Quota]:
        """Return the quotas of the namespace. Asks kube-apiserver only while they have not been listed. Raises ClusterError."""
        found = self._quotas.within(namespace)
        if not found and not self._quotas.ready.is_set():
            found = await self._looked_up(namespace)
        return [self._newest(namespace, raw) for raw in found]

    async def again(self, namespace: str, quotas: Sequence[Quota]) -> list[Quota]:
        """Read quotas again from kube-apiserver, without deleted ones. Raises ClusterError.

        Upstream reads its informer, which often has not seen the change yet that made the write fail.
        """
        found = []
        for quota in quotas:
            raw = await self._quotas.get(namespace, quota.name)
            if raw is not None:
                found.append(Quota.of(raw))
                self._written[f"{namespace}/{quota.name}"] = found[-1]
        return found

    async def write(self, namespace: str, quota: Quota) -> None:
        """Write a quota's usage. Raises ClusterError."""
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
    """Keeps the values that were set last."""

    def __setitem__(self, key: str, value: _Value) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > REMEMBERED:
            del self[next(iter(self))]
