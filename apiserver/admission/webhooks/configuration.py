"""The webhooks of all configurations of one kind: in which order they are asked, and which of them a change concerns.

Upstream: kubernetes/apiserver `pkg/admission/configuration/{mutating,validating}_webhook_manager.go`,
`pkg/admission/plugin/webhook/{accessors.go,generic/webhook.go}`, kubernetes/kubernetes `pkg/apis/admissionregistration/v1/defaults.go`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from apiserver import metrics
from apiserver.admission.core import matching
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.conditions import ConditionErrors, MatchConditions
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Criteria, Match, Matcher
from apiserver.admission.webhooks import review
from apiserver.admission.webhooks.calls import CallFailed, Target
from apiserver.apimachinery import errors

logger = logging.getLogger(__name__)

Type = Literal["admit", "validate"]
"""The two types of webhooks in match conditions: one that changes objects, and one that does not."""
DEFAULT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook. Absent members have the defaults of the API.

    `uid` is its own among all of its kind, `index` its place among them. `target` is why it cannot be called, where it cannot.
    `ignores`: what is wrong with the call does not refuse the change. `reinvoked`: it is asked again when others changed the object after
    it. `seconds` is how long it has to answer.
    """

    configuration: str
    name: str
    uid: str
    index: int
    type: Type
    criteria: Criteria
    conditions: MatchConditions | None
    target: Target | CallFailed
    version: review.Version | None
    ignores: bool
    reinvoked: bool
    side_effects: str | None
    seconds: float

    async def concerned(self, match: Match, attributes: Attributes, matcher: Matcher) -> bool:
        """Whether it is asked about a change that its rules select. Raises StatusError."""
        if not await matcher.selected(self.criteria, attributes):
            return False
        return self.conditions is None or await self._meets(self.conditions, match, attributes)

    async def _meets(self, conditions: MatchConditions, match: Match, attributes: Attributes) -> bool:
        try:
            met = await conditions.matches(attributes, match)
        except ConditionErrors as e:
            if not self.ignores:
                logger.warning(
                    "failed evaluating match conditions, failing closed", extra={"webhook": self.name, "why": str(e)}
                )
                raise errors.forbidden(attributes.resource.group_resource, attributes.name, str(e)) from e
            met = False
        if not met:
            metrics.MATCH_CONDITION_EXCLUSIONS.labels(self.name, "webhook", self.type, attributes.operation).inc()
        return met


class Concern(NamedTuple):
    """A webhook whose rules select a change, and how they match."""

    webhook: Webhook
    match: Match


class Webhooks:
    """All webhooks of one kind, in the order in which they are asked."""

    def __init__(self, webhooks: Sequence[Webhook]) -> None:
        self.all = webhooks
        self._concerns: dict[matching.Outcome, Sequence[Concern]] = {}

    def concerns(self, attributes: Attributes, matcher: Matcher) -> Sequence[Concern]:
        """Return the webhooks whose rules select the change. The result is cached by endpoint and operation."""
        key = matching.outcome(attributes)
        found = self._concerns.get(key)
        if found is None:
            found = self._concerns[key] = list(self._selecting(attributes, matcher))
        return found

    def _selecting(self, attributes: Attributes, matcher: Matcher) -> Iterator[Concern]:
        if matching.exempt(attributes.resource):
            return
        for webhook in self.all:
            match = matcher.candidate(webhook.criteria, attributes)
            if match is not None:
                yield Concern(webhook, match)


def read(configurations: Mapping[str, Mapping[str, Any]], expressions: Expressions, type_: Type) -> Webhooks:
    """The webhooks of these configurations, which are ordered by their names."""
    found: list[Webhook] = []
    for name in sorted(configurations):
        seen: Counter[str] = Counter()
        for webhook in configurations[name].get("webhooks") or ():
            uid = f"{name}/{webhook['name']}/{seen[webhook['name']]}"
            seen[webhook["name"]] += 1
            found.append(_webhook(webhook, expressions, type_, configuration=name, uid=uid, index=len(found)))
    return Webhooks(found)


def _webhook(
    found: Mapping[str, Any], expressions: Expressions, type_: Type, *, configuration: str, uid: str, index: int
) -> Webhook:
    name = found["name"]
    return Webhook(
        configuration=configuration,
        name=name,
        uid=uid,
        index=index,
        type=type_,
        criteria=Criteria.of(
            rules=found.get("rules") or (),
            namespace_selector=found.get("namespaceSelector"),
            object_selector=found.get("objectSelector"),
            match_policy=found.get("matchPolicy"),
        ),
        conditions=MatchConditions.of(found.get("matchConditions"), expressions, name=name, kind="webhook", step=type_),
        target=_target(found.get("clientConfig") or {}),
        version=review.version_for(found.get("admissionReviewVersions") or ()),
        ignores=found.get("failurePolicy") == "Ignore",
        reinvoked=found.get("reinvocationPolicy") == "IfNeeded",
        side_effects=found.get("sideEffects"),
        seconds=found.get("timeoutSeconds") or DEFAULT_SECONDS,
    )


def _target(client_config: Mapping[str, Any]) -> Target | CallFailed:
    try:
        return Target.of(client_config)
    except CallFailed as e:
        return e
