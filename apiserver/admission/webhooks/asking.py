"""One call of one webhook: from the change to what the webhook said of it, with what is noted and counted on the way.

Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go` (callAttrMutatingHook, callHook),
`pkg/admission/metrics/metrics.go`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.matching import Match
from apiserver.admission.webhooks import failures, review
from apiserver.admission.webhooks.calls import Caller, CallFailed
from apiserver.admission.webhooks.configuration import Webhook
from apiserver.admission.webhooks.failures import CallFailure, Denial
from apiserver.admission.webhooks.review import BadAnswer, Response
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Level
from apiserver.runtime import spans

logger = logging.getLogger(__name__)

Step = Literal["admit", "validating"]
"""The names of the two steps in metrics of webhooks."""
_SPANS: Mapping[Step, str] = {"admit": "Call mutating webhook", "validating": "Call validating webhook"}
WITHOUT_EFFECTS = ("None", "NoneOnDryRun")
NOTED_TOGETHER = 200
"""How many annotations of an answer are noted in one step of the event loop: some milliseconds."""
_MOST_CODE = 600
_NO_VERSION = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"


class Asking:
    """How webhooks of one kind are asked. `step` is which kind."""

    def __init__(self, caller: Caller, step: Step) -> None:
        self._caller = caller
        self._step: Step = step

    async def ask(self, webhook: Webhook, match: Match, attributes: Attributes) -> Response:
        """Return the webhook's response to a change that it allows.

        Raises CallFailure, Denial, and StatusError for a dry run that it does not support.
        """
        if attributes.dry_run:
            _check_side_effects(webhook)
        response = await self._answer(webhook, match, attributes)
        for number, (key, value) in enumerate(response.audit_annotations.items(), start=1):
            note(attributes, f"{webhook.name}/{key}", value)
            if number % NOTED_TOGETHER == 0:
                await asyncio.sleep(0)
        for text in response.warnings:
            attributes.warnings.add(text)
        if not response.allowed:
            raise await failures.denied(webhook.name, response.status)
        return response

    async def _answer(self, webhook: Webhook, match: Match, attributes: Attributes) -> Response:
        version, target, uid = webhook.version, webhook.target, str(uuid.uuid4())
        if version is None:
            raise CallFailure(webhook.name, _NO_VERSION, code=400)
        if isinstance(target, CallFailed):
            raise CallFailure(webhook.name, f"{target.prefix}: {target}", code=500)
        body = await review.request(attributes, match, version=version, uid=uid, views=attributes.views)
        seconds = min(webhook.seconds, left(attributes))
        mutating, began = self._step == "admit", time.perf_counter()
        try:
            with spans.span(_SPANS[self._step], lambda: _described(webhook, attributes, uid)):
                data = await self._caller.call(target, body, seconds=seconds)
                spans.event("Request completed")
                return await review.received(data, version=version, uid=uid, mutating=mutating)
        except (CallFailed, BadAnswer) as e:
            raise CallFailure(webhook.name, f"{e.prefix}: {e}") from e
        finally:
            if mutating:  # validating webhooks are asked all at once: their common time counts
                attributes.waits.seconds += time.perf_counter() - began

    @contextmanager
    def counted(self, webhook: Webhook, attributes: Attributes) -> Iterator[None]:
        """Counts and times a call, and what becomes of it."""
        began, labels = time.perf_counter(), (webhook.name, self._step, attributes.operation)
        try:
            yield
        except CallFailure as e:
            _count(labels, e.code, began, refused="" if webhook.ignores else "calling_webhook_error")
            raise
        except Denial as e:
            _count(labels, e.error.code, began, refused="no_error")
            raise
        except StatusError:
            _count(labels, 0, began, refused="apiserver_internal_error")
            raise
        _count(labels, 200, began)

    def passed_over(self, failure: CallFailure, webhook: Webhook, attributes: Attributes, key: str) -> None:
        """A failure that does not refuse the change. `key` is that of the note about it."""
        logger.warning("failed calling webhook, failing open", extra={"webhook": webhook.name, "why": str(failure)})
        metrics.WEBHOOK_FAIL_OPEN.labels(webhook.name, self._step).inc()
        note(attributes, key, webhook.name)

    def refused(self, failure: CallFailure, webhook: Webhook, attributes: Attributes) -> StatusError:
        """Return the error for a failure that refuses the change. An expired deadline comes first."""
        logger.warning("failed calling webhook, failing closed", extra={"webhook": webhook.name, "why": str(failure)})
        return failures.too_late("context deadline exceeded") if left(attributes) <= 0 else failure.error()


def _count(labels: tuple[str, str, str], code: int, began: float, *, refused: str = "") -> None:
    """`refused` is whose fault it is that the change is refused, if it is."""
    shown, rejected = str(min(code, _MOST_CODE)), "true" if refused else "false"
    if refused:
        metrics.WEBHOOK_REJECTIONS.labels(*labels, refused, shown).inc()
    metrics.WEBHOOK_REQUESTS.labels(*labels, shown, rejected).inc()
    metrics.WEBHOOK_SECONDS.labels(*labels, rejected).observe(time.perf_counter() - began)


def left(attributes: Attributes) -> float:
    """How many seconds the request has left."""
    return attributes.until - asyncio.get_running_loop().time()


def note(attributes: Attributes, key: str, value: str, level: Level = Level.METADATA) -> None:
    """Add an annotation to the audit record. An invalid key is left out."""
    try:
        attributes.annotate(key, value, level)
    except ValueError as e:
        logger.warning("failed to set admission audit annotation", extra={"key": key, "why": str(e)})


def _described(webhook: Webhook, attributes: Attributes, uid: str) -> spans.Attributes:
    """Return the attributes of the span of a call."""
    resource = attributes.resource
    return {
        "configuration": webhook.configuration,
        "webhook": webhook.name,
        "resource": f"{resource.api_version}, Resource={resource.plural}",
        "subresource": attributes.subresource,
        "operation": attributes.operation,
        "UID": uid,
    }


def _check_side_effects(webhook: Webhook) -> None:
    if webhook.side_effects is None:
        raise CallFailure(webhook.name, "Webhook SideEffects is nil", code=400)
    if webhook.side_effects not in WITHOUT_EFFECTS:
        raise failures.no_dry_run(webhook.name)
