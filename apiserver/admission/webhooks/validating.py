"""ValidatingAdmissionWebhook: webhooks that judge the final object, all at once.

Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/validating/{plugin,dispatcher}.go`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Derived, Sources, are_synced, synced
from apiserver.admission.webhooks import configuration, failures
from apiserver.admission.webhooks.asking import Asking, left
from apiserver.admission.webhooks.calls import Caller
from apiserver.admission.webhooks.configuration import Concern
from apiserver.admission.webhooks.failures import CallFailure, Denial
from apiserver.admission.webhooks.preparation import Preparation
from apiserver.apimachinery.errors import StatusError
from apiserver.runtime import tasks

FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io/round_0_index_{}"


class ValidatingAdmissionWebhook:
    """Asks every webhook that a change concerns, and waits for all of them; of several refusals the first one counts."""

    def __init__(self, sources: Sources, matcher: Matcher, caller: Caller, expressions: Expressions) -> None:
        source = sources.validating_webhooks
        self._followed = (source, matcher.namespaces)
        self._webhooks = Derived(lambda items: configuration.read(items, expressions, "validate"), source)
        self._matcher = matcher
        self._asking = Asking(caller, "validating")
        self._preparation = Preparation(caller)
        self._prepared: object = None

    async def prepare(self) -> None:
        """Tells what is wrong with new webhooks."""
        webhooks = self._webhooks.current()
        if webhooks is not self._prepared:
            await self._preparation.prepare(webhooks.all)
            self._prepared = webhooks

    async def validate(self, attributes: Attributes) -> None:
        """Raises StatusError."""
        if not are_synced(*self._followed):
            await synced(attributes, *self._followed)
        webhooks = self._webhooks.current()
        if not webhooks.all:
            return
        selected = webhooks.concerns(attributes, self._matcher)
        if not selected:
            return
        concerned = [c for c in selected if await c.webhook.concerned(c.match, attributes, self._matcher)]
        if concerned:
            await self._ask_all(concerned, attributes)

    async def _ask_all(self, concerns: Sequence[Concern], attributes: Attributes) -> None:
        if left(attributes) <= 0:
            raise failures.too_late()
        began = time.perf_counter()
        try:
            await (
                self._ask(concerns[0], attributes, 0) if len(concerns) == 1 else self._ask_at_once(concerns, attributes)
            )
        finally:
            attributes.waits.seconds += time.perf_counter() - began

    async def _ask_at_once(self, concerns: Sequence[Concern], attributes: Attributes) -> None:
        refusals: list[StatusError] = []

        async def ask(concern: Concern, index: int) -> None:
            try:
                await self._ask(concern, attributes, index)
            except StatusError as e:
                refusals.append(e)

        await tasks.together(ask(concern, index) for index, concern in enumerate(concerns))
        if refusals:
            raise refusals[0]

    async def _ask(self, concern: Concern, attributes: Attributes, index: int) -> None:
        """`index` is the place of the webhook among those that are asked."""
        webhook, match = concern
        try:
            with self._asking.counted(webhook, attributes):
                await self._asking.ask(webhook, match, attributes)
        except Denial as e:
            raise e.error from e
        except CallFailure as e:
            if not webhook.ignores:
                raise self._asking.refused(e, webhook, attributes) from e
            self._asking.passed_over(e, webhook, attributes, FAILED_OPEN.format(index))
