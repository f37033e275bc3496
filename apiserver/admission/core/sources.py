"""The sources of plugins' configurations, and values that are derived from these once.

Other modules follow them: a cluster (`delegation.py`) or files (`files.py`). Upstream: kubernetes/apiserver
`pkg/admission/{handler,initializer/interfaces}.go`, `pkg/admission/plugin/webhook/generic/interfaces.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.cluster.errors import NoSuchKind

__all__ = ["Derived", "Followed", "NoSuchKind", "Nothing", "Object", "ParamKind", "Params", "Source", "Sources"]
__all__ += ["are_synced", "param_kinds", "synced"]

READY_SECONDS = 10.0
"""How long a change waits for the first list of a source (upstream's timeToWaitForReady)."""

Object = Mapping[str, Any]


class Followed(Protocol):
    @property
    def ready(self) -> asyncio.Event:
        """Set once all of it has been listed."""


class Source(Followed, Protocol):
    """Objects of one kind of configuration, as they are known here."""

    @property
    def items(self) -> Mapping[str, Object]:
        """By name; of a namespaced kind by "namespace/name"."""

    @property
    def version(self) -> int:
        """A number that differs after each change of `items`."""


class ParamKind(Protocol):
    """All objects of one kind that policies may take as parameters."""

    namespaced: bool

    async def synced(self) -> None:
        """Wait briefly for the first list. Raises ClusterError."""

    def get(self, namespace: str, name: str) -> Object | None: ...

    async def read(self, namespace: str, name: str) -> Object | None:
        """Return an object that `get` does not find, if it is there after all: what is followed arrives a moment late."""

    def all(self, namespace: str) -> Iterable[Object]:
        """Return the objects of one namespace, or all of a cluster-scoped kind."""


class Params(Protocol):
    """The kinds that policies name in their paramKind."""

    async def kind(self, api_version: str, kind: str) -> ParamKind:
        """Return the objects of a kind. Raises NoSuchKind, ClusterError."""


class Nothing:
    """An empty source."""

    def __init__(self) -> None:
        self.items: Mapping[str, Object] = {}
        self.version = 0
        self.ready = asyncio.Event()
        self.ready.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that admission follows beside namespaces: the kinds of admissionregistration.k8s.io/v1, and ResourceQuotas."""

    mutating_webhooks: Source
    validating_webhooks: Source
    mutating_policies: Source
    mutating_bindings: Source
    validating_policies: Source
    validating_bindings: Source
    quotas: Source
    params: Params


Made = TypeVar("Made")


class Derived(Generic[Made]):
    """A value that is derived from the items of some sources, once for each of their versions.

    `make` gets the items of each source, in order. The first request after a change calls it, so costly parts must be done later, when
    they are needed.
    """

    __slots__ = ("_made", "_make", "_seen", "_sources")

    def __init__(self, make: Callable[..., Made], *sources: Source) -> None:
        self._make = make
        self._sources = sources
        self._seen: list[tuple[Source, int]] = []
        self._made: Made | None = None

    def current(self) -> Made:
        made = self._made
        if made is not None:
            for source, version in self._seen:
                if source.version != version:
                    break
            else:
                return made
        self._seen = [(source, source.version) for source in self._sources]
        made = self._made = self._make(*(source.items for source in self._sources))
        return made


def param_kinds(*policies_and_bindings: tuple[Source, Source]) -> Callable[[], Collection[tuple[str, str]]]:
    """Return a function that returns the parameter kinds of policies, as apiVersion and kind.

    Each pair is a kind of policy and its kind of binding; a policy without a binding judges nothing.
    """

    def named(*items: Mapping[str, Object]) -> Collection[tuple[str, str]]:
        found: dict[tuple[str, str], None] = {}
        for policies, bindings in zip(items[::2], items[1::2], strict=True):
            bound = {_spec(binding).get("policyName") for binding in bindings.values()}
            for name, policy in policies.items():
                kind = _spec(policy).get("paramKind")
                if name in bound and kind is not None:
                    found[kind.get("apiVersion", ""), kind.get("kind", "")] = None
        return found.keys()

    return Derived(named, *(source for pair in policies_and_bindings for source in pair)).current


def _spec(found: Object) -> Object:
    return found.get("spec") or {}


def are_synced(*sources: Followed) -> bool:
    """Return whether all of them are usable. Plugins check this before they wait."""
    for source in sources:  # noqa: SIM110 - asked by every plugin of every write: a generator takes three times as long
        if not source.ready.is_set():
            return False
    return True


async def synced(attributes: Attributes, *sources: Followed) -> None:
    """Wait until all have been listed. Raises 403 after a timeout: a change that was not judged must not be admitted."""
    if are_synced(*sources):
        return
    try:
        async with asyncio.timeout(READY_SECONDS):
            for source in sources:
                await source.ready.wait()
    except TimeoutError:
        raise forbidden(attributes, "not yet ready to handle request") from None
