"""Policies, bindings and parameters as a cluster would have them, for the tests of policies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Object, ParamKind, Sources
from apiserver.admission.policies.validating import ValidatingAdmissionPolicy
from apiserver.apimachinery.releases import NEWEST, Release
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError, NoSuchKind
from tests.unit.admission.changes import GROUP, KINDS, Namespaces, labelled

RULE = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*", "*/*"]}


class Items:
    """A source that tests change."""

    def __init__(self, items: Iterable[Object] = ()) -> None:
        self.items: dict[str, Object] = {item["metadata"]["name"]: item for item in items}
        self.version = 0
        self.ready = asyncio.Event()
        self.ready.set()

    def put(self, *items: Object) -> None:
        self.items = self.items | {item["metadata"]["name"]: item for item in items}
        self.version += 1


class Kind:
    """The objects of a paramKind."""

    def __init__(self, *objects: Object, namespaced: bool = True, error: str = "", late: Sequence[Object] = ()) -> None:
        """`late` are objects that have not arrived yet."""
        self.namespaced = namespaced
        self._late = late
        self._objects = objects
        self._error = error

    async def synced(self) -> None:
        if self._error:
            raise ClusterError(self._error)

    def get(self, namespace: str, name: str) -> Object | None:
        return next((found for found in self.all(namespace) if found["metadata"]["name"] == name), None)

    async def read(self, namespace: str, name: str) -> Object | None:
        return next((found for found in self._late if found["metadata"]["name"] == name), None)

    def all(self, namespace: str) -> Iterable[Object]:
        return [found for found in self._objects if found["metadata"].get("namespace", "") == namespace]


class Kinds:
    def __init__(self, kinds: Mapping[tuple[str, str], ParamKind]) -> None:
        self._kinds = kinds

    async def kind(self, api_version: str, kind: str) -> ParamKind:
        found = self._kinds.get((api_version, kind))
        if found is None:
            raise NoSuchKind(f"failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'")
        return found


def policy(name: str = "p", *validations: str | Mapping[str, Any], **spec: Any) -> Object:
    """One that judges every change of our group."""
    given = [{"expression": each} if isinstance(each, str) else each for each in validations]
    match = {"matchConstraints": {"resourceRules": [RULE]}}
    return {"metadata": {"name": name}, "spec": {**match, "validations": given, **spec}}


def binding(name: str = "b", of: str = "p", *actions: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"policyName": of, "validationActions": actions or ["Deny"], **spec}}


class Cluster:
    """The plugin over what it follows. Everybody may `get`."""

    def __init__(
        self,
        policies: Iterable[Object],
        bindings: Iterable[Object] | None = None,
        *,
        release: Release = NEWEST,
        kinds: Mapping[tuple[str, str], ParamKind] | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        found = list(policies)
        self.policies = Items(found)
        names = [each["metadata"]["name"] for each in found]
        self.bindings = Items(bindings if bindings is not None else [binding(of=name) for name in names])
        nothing = Items()
        sources = Sources(
            mutating_webhooks=nothing,
            validating_webhooks=nothing,
            mutating_policies=nothing,
            mutating_bindings=nothing,
            validating_policies=self.policies,
            validating_bindings=self.bindings,
            quotas=nothing,
            params=Kinds(kinds or {}),
        )
        matcher = Matcher(KINDS, namespaces or Namespaces({"ns": labelled(team="a")}))
        self.plugin = ValidatingAdmissionPolicy(sources, matcher, Expressions(_decide, release))


async def _decide(user: User, info: RequestInfo) -> Decision:
    return Decision(allowed=info.verb == "get")
