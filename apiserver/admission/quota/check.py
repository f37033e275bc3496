"""Check whether the quotas of a namespace allow a change, and compute their new usage. Pure.

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
    """A ResourceQuota from the API server, and its present usage.

    Limits are those of its status: they take effect once the quota controller has copied them from the spec.
    """

    raw: Mapping[str, Any]
    used: Amounts

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Quota:
        """Parse a quota. Raises QuantityError."""
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
        """Return the object to write: only the usage has changed."""
        status = {**(self.raw.get("status") or {}), "used": resources.written(self.used)}
        return {**self.raw, "kind": "ResourceQuota", "apiVersion": "v1", "status": status}


def limits(raw: Mapping[str, Any]) -> Sequence[str]:
    """Return the names that a quota limits. Quotas with scopes are about other kinds, because Sluice's kinds have none."""
    spec = raw.get("spec") or {}
    if spec.get("scopes") or (spec.get("scopeSelector") or {}).get("matchExpressions"):
        return ()
    return tuple((raw.get("status") or {}).get("hard") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The usage of a change: `usage` of the new object, and of the `previous` one on an update.

    `measures` returns whether usage of a resource is measured for this kind at all.
    """

    attributes: Attributes
    measures: Callable[[str], bool]
    usage: Amounts
    previous: Amounts | None = None

    def measured(self, raw: Mapping[str, Any]) -> list[str]:
        """Return the names that a quota limits and the change uses."""
        measures = self.measures
        return [name for name in limits(raw) if measures(name)]


def check(quotas: Sequence[Quota], change: Change, limited: Sequence[Limited] = ()) -> Sequence[Quota]:
    """Return the quotas with the new usage; the very same ones if nothing changes. Raises 403."""
    attributes, concerned, covered = change.attributes, [], set[str]()
    for quota in quotas:
        measured = change.measured(quota.raw)
        if not measured:
            continue
        if any(name in quota.hard and name not in quota.used for name in measured):
            names = resources.format_names(measured)
            raise forbidden(attributes, f"status unknown for quota: {quota.name}, resources: {names}")
        concerned.append(quota)
        covered.update(measured)
    if below := resources.negative(change.usage):
        names = resources.format_names(below)
        raise forbidden(attributes, f"quota usage is negative for resource(s): {names}")
    more = change.usage if change.previous is None else resources.growth(change.usage, change.previous)
    more = resources.without_zeros(more)
    if not more:
        return quotas
    if uncovered := _restricted(change, limited) - covered:
        raise forbidden(attributes, f"insufficient quota to consume: {resources.format_names(uncovered)}")
    claimed = {id(quota): _claimed(quota, more, attributes) for quota in concerned}
    return [claimed.get(id(quota), quota) for quota in quotas] if claimed else quotas


def _restricted(change: Change, limited: Sequence[Limited]) -> set[str]:
    """Return the names that may only be used if a quota covers them."""
    resource = change.attributes.resource.group_resource
    texts = [text for item in limited if item.resource == resource for text in item.match_contains]
    return {n for n, amount in change.usage.items() if amount.sign() > 0 and any(text in n for text in texts)}


def _claimed(quota: Quota, more: Amounts, attributes: Attributes) -> Quota:
    """Claim usage. Everything that the quota limits counts, also what is measured for other kinds."""
    requested = resources.only(more, quota.hard)
    used = resources.added(quota.used, requested)
    exceeded = resources.exceeding(resources.only(used, requested), quota.hard)
    if exceeded:
        asked, before, most = (
            resources.format_amounts(resources.only(amounts, exceeded))
            for amounts in (requested, quota.used, quota.hard)
        )
        text = f"exceeded quota: {quota.name}, requested: {asked}, used: {before}, limited: {most}"
        raise forbidden(attributes, text)
    return replace(quota, used=used) if requested else quota
