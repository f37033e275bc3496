"""Whether what a change would use is left in the quotas of its namespace, and what is used then. Pure.

Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/controller.go` (CheckRequest), `pkg/quota/v1/generic/evaluator.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.admission.quota import resources
from apiserver.admission.quota.limited import Limited
from apiserver.admission.quota.resources import Amounts
from apiserver.schema.resource import Object


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota as the API server gave it, and what is used of it by now.

    Limits are those of its status: they are in force once the quota controller has taken them over from the spec.
    """

    raw: Mapping[str, Any]
    used: Amounts

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Quota:
        """Raises QuantityError."""
        return cls(raw, resources.read((raw.get("status") or {}).get("used")))

    @property
    def name(self) -> str:
        name: str = self.raw["metadata"]["name"]
        return name

    @property
    def version(self) -> int:
        return int(self.raw["metadata"]["resourceVersion"])

    @cached_property
    def hard(self) -> Amounts:
        return resources.read((self.raw.get("status") or {}).get("hard"))

    def claimed(self) -> Object:
        """The object to write: nothing but what is used has changed."""
        status = {**(self.raw.get("status") or {}), "used": resources.written(self.used)}
        return {**self.raw, "kind": "ResourceQuota", "apiVersion": "v1", "status": status}


def limits(raw: Mapping[str, Any]) -> Sequence[str]:
    """What a quota limits for kinds that know no scopes, as all of ours: one with scopes is about other objects."""
    spec = raw.get("spec") or {}
    if spec.get("scopes") or (spec.get("scopeSelector") or {}).get("matchExpressions"):
        return ()
    return tuple((raw.get("status") or {}).get("hard") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a change would use: `usage` of the new object, and of the `previous` one on an update. `measures` says whether usage of a
    resource is measured for its kind at all."""

    attributes: Attributes
    measures: Callable[[str], bool]
    usage: Amounts
    previous: Amounts | None = None

    def measured(self, raw: Mapping[str, Any]) -> list[str]:
        """What a quota limits of it."""
        measures = self.measures
        return [name for name in limits(raw) if measures(name)]


def check(quotas: Sequence[Quota], change: Change, limited: Sequence[Limited] = ()) -> Sequence[Quota]:
    """The quotas as they would be; the very same ones where nothing changes. Raises 403."""
    attributes, concerned, covered = change.attributes, [], set[str]()
    for quota in quotas:
        measured = change.measured(quota.raw)
        if not measured:
            continue
        if any(name in quota.hard and name not in quota.used for name in measured):
            names = resources.names_told(measured)
            raise forbidden(attributes, f"status unknown for quota: {quota.name}, resources: {names}")
        concerned.append(quota)
        covered.update(measured)
    if below := resources.negative(change.usage):
        names = resources.names_told(below)
        raise forbidden(attributes, f"quota usage is negative for resource(s): {names}")
    more = change.usage if change.previous is None else resources.growth(change.usage, change.previous)
    more = resources.without_zeros(more)
    if not more:
        return quotas
    if uncovered := _restricted(change, limited) - covered:
        raise forbidden(attributes, f"insufficient quota to consume: {resources.names_told(uncovered)}")
    claimed = {id(quota): _claimed(quota, more, attributes) for quota in concerned}
    return [claimed.get(id(quota), quota) for quota in quotas] if claimed else quotas


def _restricted(change: Change, limited: Sequence[Limited]) -> set[str]:
    """What may only be used where a quota covers it."""
    resource = change.attributes.resource.group_resource
    texts = [text for item in limited if item.resource == resource for text in item.match_contains]
    return {n for n, amount in change.usage.items() if amount.sign() > 0 and any(text in n for text in texts)}


def _claimed(quota: Quota, more: Amounts, attributes: Attributes) -> Quota:
    """All that the quota limits counts, also what is measured for other kinds."""
    requested = resources.only(more, quota.hard)
    used = resources.added(quota.used, requested)
    exceeded = resources.exceeding(resources.only(used, requested), quota.hard)
    if exceeded:
        asked, before, most = (
            resources.told(resources.only(amounts, exceeded)) for amounts in (requested, quota.used, quota.hard)
        )
        text = f"exceeded quota: {quota.name}, requested: {asked}, used: {before}, limited: {most}"
        raise forbidden(attributes, text)
    return replace(quota, used=used) if requested else quota
