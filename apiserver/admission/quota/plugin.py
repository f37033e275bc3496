"""ResourceQuota: nothing is written that would use more than the quotas of its namespace allow, and what is used is claimed before.

kube-apiserver does not run its admission for requests that it passes on, so this stands here; the quota controller counts objects of ours
through the API as it counts all others. Rights that this needs: list and watch `resourcequotas`, get one of them, update
`resourcequotas/status`, and get `pods` in the group of kube-apiserver's own device claims, each in every namespace.
Upstream: kubernetes/apiserver `pkg/admission/plugin/resourcequota/admission.go`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.quota import controller
from apiserver.admission.quota.accessor import Accessor, Quotas
from apiserver.admission.quota.controller import Controller
from apiserver.admission.quota.evaluators import evaluators
from apiserver.admission.quota.limited import Limited
from apiserver.admission.quota.pods import Cluster, Pods
from apiserver.admission.quota.surroundings import Memory, Surroundings
from apiserver.cluster.errors import ClusterError
from apiserver.kinds.served import Kinds
from apiserver.schema.featuregate import Gates


class Asked(Quotas, Cluster, Protocol):
    """What is asked of the cluster."""


class ResourceQuota:
    """`memories` hold the stored objects of each kind; `limited` is what may only be used where a quota covers it."""

    operations: Collection[Operation] = ("CREATE", "UPDATE")

    def __init__(
        self,
        quotas: Asked,
        kinds: Kinds,
        memories: Mapping[str, Memory],
        *,
        gates: Gates,
        limited: Sequence[Limited] = (),
    ) -> None:
        surroundings = Surroundings(memories, gates)
        self._quotas = quotas
        self._evaluators = evaluators(kinds, surroundings, Pods(quotas, surroundings, time.time))
        self._controller = Controller(Accessor(quotas, time.monotonic), limited=limited)
        self._limited = bool(limited)

    async def validate(self, attributes: Attributes) -> None:
        """Raises 403 for what a quota does not allow, and what kube-apiserver says where it cannot be asked."""
        info = attributes.info
        evaluator = self._evaluators.get((info.group, info.resource))
        if evaluator is None or not evaluator.handles(attributes):
            return
        quotas = self._quotas
        known = quotas.within(info.namespace) if quotas.ready.is_set() and not self._limited else None
        if known is not None and not known:
            return
        try:
            change = await evaluator.change(attributes)
        except ClusterError as error:
            raise controller.told(error) from error
        if known is None or any(change.measured(raw) for raw in known):
            await self._controller.evaluate(change)
