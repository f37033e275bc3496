"""Measure what an object uses: one object of its kind, and what the kind declares.

Upstream: kubernetes/apiserver `pkg/quota/v1/generic/evaluator.go`, kubernetes/kubernetes
`pkg/quota/v1/evaluator/core/{registry,resource_claims}.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.quota.check import Change
from apiserver.admission.quota.pods import Pods
from apiserver.admission.quota.resources import ONE, Amounts
from apiserver.admission.quota.surroundings import Surroundings
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Around, Consumption, Object, Resource

NO_AMOUNTS: Amounts = {}


def count_of(resource: Resource) -> str:
    """Return the name under which quotas limit the number of objects of a kind."""
    return f"count/{resource.group_resource}"


class Counting:
    """For a kind of which only the number counts: existing objects use nothing more."""

    def __init__(self, resource: Resource) -> None:
        self.name = count_of(resource)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.operation == "CREATE" and not attributes.subresource

    async def change(self, attributes: Attributes) -> Change:
        return Change(attributes=attributes, measures=self.name.__eq__, usage={self.name: ONE})


class Measuring:
    """For a kind that declares what its objects use."""

    def __init__(self, resource: Resource, consumption: Consumption, surroundings: Surroundings, pods: Pods) -> None:
        self.name = count_of(resource)
        self._consumption = consumption
        self._beside = f"{resource.group}/{consumption.beside}"
        self._surroundings = surroundings
        self._pods = pods

    def handles(self, attributes: Attributes) -> bool:
        return attributes.operation != "DELETE" and not attributes.subresource

    async def change(self, attributes: Attributes) -> Change:
        """Measure a change. Raises ClusterError if a pod is needed and cannot be read."""
        facts = await self._surroundings.facts(self._beside, self._consumption.reads)
        around = Around(self._surroundings.gates, facts, NO_AMOUNTS)
        old = attributes.old if attributes.operation == "UPDATE" else None
        return Change(
            attributes=attributes,
            measures=partial(self._measures, around),
            usage=await self._usage(attributes, attributes.object, around),
            previous=None if old is None else await self._usage(attributes, old, around),
        )

    def _measures(self, around: Around, name: str) -> bool:
        return name == self.name or self._consumption.measures(name, around)

    async def _usage(self, attributes: Attributes, obj: Object | None, around: Around) -> Amounts:
        if obj is None:
            return NO_AMOUNTS
        taken = await self._pods.taken(attributes, self._consumption, obj)
        return {self.name: ONE, **self._consumption.usage(obj, around._replace(taken=taken))}


Evaluator = Counting | Measuring


def evaluators(kinds: Kinds, surroundings: Surroundings, pods: Pods) -> Mapping[tuple[str, str], Evaluator]:
    """Make an evaluator for each namespaced kind, by group and plural."""
    made: dict[tuple[str, str], Evaluator] = {}
    for resource in kinds.stored:
        consumption = resource.consumption
        if not resource.namespaced:
            continue
        if consumption is not None and consumption.home == resource.group:
            made[resource.group, resource.plural] = Measuring(resource, consumption, surroundings, pods)
        else:
            made[resource.group, resource.plural] = Counting(resource)
    return made
