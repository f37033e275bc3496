"""ResourceQuota: refuse writes that would exceed the quotas of their namespace, and claim usage before a write.

kube-apiserver does not run its admission for requests that it passes on, so Sluice does. The quota controller counts Sluice's objects
through the API like all others. Rights: list and watch `resourcequotas`, get one of them, update `resourcequotas/status`, and get
`pods` in the group of kube-apiserver's own device claims, each in every namespace. Upstream: kubernetes/apiserver
`pkg/admission/plugin/resourcequota/admission.go`.
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
    """The requests to the cluster."""


class ResourceQuota:
    """`memories` hold the stored objects of each kind; `limited` are the resources that need a quota."""

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
        """Check a change. Raises 403 if a quota forbids it, and kube-apiserver's error if it cannot be asked."""
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
            raise controller.status_error(error) from error
        if known is None or any(change.measured(raw) for raw in known):
            await self._controller.evaluate(change)
