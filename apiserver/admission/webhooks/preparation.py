"""Prepare webhooks before a request needs them: log those that would refuse every request, and connect to those that see every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable

from apiserver.admission.core.matching import Criteria
from apiserver.admission.webhooks.calls import Caller, CallFailed
from apiserver.admission.webhooks.configuration import Webhook

logger = logging.getLogger(__name__)

REACH_SECONDS = 5.0
SHOWN = 1000
"""Characters of an expression, and of what is wrong, in the log."""
IGNORED = "a webhook cannot be asked: its configuration says to ignore that"
REFUSING = "a webhook cannot be asked: everything that it is about is refused"
UNREACHABLE = "a webhook that is asked about everything cannot be reached: everything is refused while that is so"
UNEVALUATED = "a match condition of a webhook cannot be evaluated"
_EVERY = "*"


class Preparation:
    """Prepares the webhooks of one type."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._known: dict[str, Hashable] = {}
        """The state of each webhook that was prepared last, by uid."""

    async def prepare(self, webhooks: Iterable[Webhook]) -> None:
        """Tells what is wrong with those that are new or have changed."""
        seen = {webhook.uid: _seen(webhook) for webhook in webhooks}
        new = [webhook for webhook in webhooks if self._known.get(webhook.uid) != seen[webhook.uid]]
        self._known = seen
        await asyncio.gather(*map(self._look_at, new))

    async def _look_at(self, webhook: Webhook) -> None:
        target = webhook.target
        if isinstance(target, CallFailed):
            _tell(IGNORED if webhook.ignores else REFUSING, webhook, str(target))
        elif not webhook.ignores and _everything(webhook.criteria):
            try:
                await self._caller.reach(target, seconds=REACH_SECONDS)
            except CallFailed as error:
                _tell(UNREACHABLE, webhook, str(error))
        if webhook.conditions is not None:
            for expression, problem in await webhook.conditions.problems():
                _tell(UNEVALUATED, webhook, problem, expression=expression[:SHOWN])


def _seen(webhook: Webhook) -> Hashable:
    """Return everything that the log messages depend on."""
    target = str(webhook.target) if isinstance(webhook.target, CallFailed) else webhook.target
    texts = webhook.conditions.texts if webhook.conditions is not None else ()
    return target, webhook.ignores, _everything(webhook.criteria), texts


def _tell(message: str, webhook: Webhook, why: str, **more: str) -> None:
    about = {"webhook": webhook.name, "configuration": webhook.configuration, "why": why[:SHOWN], **more}
    logger.error(message, extra=about)


def _everything(criteria: Criteria) -> bool:
    """Whether a rule is about all kinds, in every namespace."""
    selectors = criteria.namespace_selector, criteria.object_selector
    if any(isinstance(selector, str) or not selector.empty for selector in selectors):
        return False
    return any(
        _EVERY in rule.groups and any(resource == _EVERY for resource, _ in rule.resources) for rule in criteria.rules
    )
