"""MutatingAdmissionWebhook: webhooks that change an object before it is validated, one after the other.

A webhook's answer is read in the version in which the webhook got the object, and defaulted. After a change, earlier webhooks with
reinvocationPolicy IfNeeded are asked once more.
Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/mutating/{plugin,dispatcher,reinvocationcontext}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Derived, Sources, are_synced, synced
from apiserver.admission.webhooks import configuration, failures, patches, review
from apiserver.admission.webhooks.asking import Asking, left, note
from apiserver.admission.webhooks.calls import Caller
from apiserver.admission.webhooks.configuration import Concern
from apiserver.admission.webhooks.failures import CallFailure, Denial
from apiserver.admission.webhooks.preparation import Preparation
from apiserver.admission.webhooks.review import Response, UndecodablePatch
from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Level
from apiserver.codecs.objects import canonical
from apiserver.schema.resource import Object
from kubetext.quoting import go_quote

MUTATION = "mutation.webhook.admission.k8s.io/"
PATCH = "patch.webhook.admission.k8s.io/"
FAILED_OPEN = "failed-open." + MUTATION


@dataclass(slots=True)
class _Memory:
    """The state of a change between the two rounds.

    It holds the object after the first round, and webhooks by uid. One set was asked since the last change and wants to see the next.
    The other has such a change to see.
    """

    output: Object | None = None
    asked: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)

    def changed(self) -> None:
        self.again |= self.asked
        self.asked.clear()


class MutatingAdmissionWebhook:
    """Asks the webhooks that a change concerns, in the order of their configurations."""

    def __init__(self, sources: Sources, matcher: Matcher, caller: Caller, expressions: Expressions) -> None:
        source = sources.mutating_webhooks
        self._followed = (source, matcher.namespaces)
        self._webhooks = Derived(lambda items: configuration.read(items, expressions, "admit"), source)
        self._matcher = matcher
        self._asking = Asking(caller, "admit")
        self._preparation = Preparation(caller)
        self._prepared: object = None

    async def prepare(self) -> None:
        """Tells what is wrong with new webhooks."""
        webhooks = self._webhooks.current()
        if webhooks is not self._prepared:
            await self._preparation.prepare(webhooks.all)
            self._prepared = webhooks

    async def admit(self, attributes: Attributes) -> Object | None:
        """The object as the webhooks left it. Raises StatusError."""
        if not are_synced(*self._followed):
            await synced(attributes, *self._followed)
        webhooks = self._webhooks.current()
        if not webhooks.all:
            return None
        selected = webhooks.concerns(attributes, self._matcher)
        return await self._ask_all(selected, attributes) if selected else None

    async def _ask_all(self, concerns: Sequence[Concern], attributes: Attributes) -> Object | None:
        before, reinvocation = attributes.object, attributes.reinvocation
        memory: _Memory = reinvocation.values.setdefault(type(self).__name__, _Memory())
        if reinvocation.again and not await _same(attributes, memory.output):
            memory.changed()
        for concern in concerns:
            webhook, match = concern
            if not await webhook.concerned(match, attributes, self._matcher):
                continue
            if reinvocation.again and webhook.uid not in memory.again:
                continue
            if await self._ask(concern, attributes):
                memory.changed()
                reinvocation.wanted = True
            if webhook.reinvoked:
                memory.asked.add(webhook.uid)
        memory.output = attributes.object
        return None if attributes.object is before else attributes.object

    async def _ask(self, concern: Concern, attributes: Attributes) -> bool:
        """Whether the webhook changed the object, which `attributes` have then."""
        webhook, match = concern
        place = f"round_{1 if attributes.reinvocation.again else 0}_index_{webhook.index}"
        changed = False
        try:
            with self._asking.counted(webhook, attributes):
                response = await self._asking.ask(webhook, match, attributes)
                changed = await self._take(response, concern, attributes, place)
        except Denial as e:
            raise e.error from e
        except CallFailure as e:
            if not webhook.ignores:
                raise self._asking.refused(e, webhook, attributes) from e
            self._asking.passed_over(e, webhook, attributes, FAILED_OPEN + place)
            if left(attributes) <= 0:
                raise failures.too_late() from e
        finally:
            note(attributes, MUTATION + place, patches.note_of_mutation(webhook, changed=changed))
        return changed

    async def _take(self, response: Response, concern: Concern, attributes: Attributes, place: str) -> bool:
        """Lets the patch of an answer take effect; whether that changed anything. Raises StatusError, CallFailure."""
        webhook = concern.webhook
        if not response.patch:
            return False
        try:
            patch = await patches.read(response)
        except UndecodablePatch as e:
            raise CallFailure(webhook.name, f"{e.prefix}: {e}") from e
        if not patch.operations:
            return False
        if attributes.object is None:
            why = "attempted to modify the object, which is not supported for this operation"
            raise errors.internal(f"admission webhook {go_quote(webhook.name)} {why}")
        if response.patch_type != review.JSON_PATCH:
            raise CallFailure(webhook.name, f"unsupported patch type {go_quote(response.patch_type)}", code=400)
        made = await patches.applied(patch, response, concern, attributes, kinds=self._matcher.kinds)
        attributes.become(made.object)
        note(attributes, PATCH + place, made.note, Level.REQUEST)
        return made.changed


async def _same(attributes: Attributes, before: Object | None) -> bool:
    """Whether the object is still what it was."""
    now = attributes.object
    if now is None or before is None or now is before:
        return now is before
    return await attributes.views.run(canonical.equal, attributes.resource.stored.shape, now, before)
