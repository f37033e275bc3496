"""One conversion: the call of the webhook, and what its answer brings, counted and timed.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/{converter,webhook_converter,metrics}.go`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from apiserver import metrics
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.conversion import review
from apiserver.conversion.review import Failed, Failure
from apiserver.runtime import spans
from apiserver.runtime.offload import CONVERT, run_sized
from apiserver.schema.custom import ConversionWebhook
from apiserver.schema.resource import Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ask = Callable[[Mapping[str, Any], bytes], Awaitable[bytes]]
"""Sends a review to the webhook of a clientConfig, and returns its answer. Raises CallFailed."""
Take = Callable[[int, bytes], T]
"""Makes the result of the JSON of a converted object, by its place among those that were sent. Raises Failed, and ValueError for an object
that the version cannot hold."""
SECONDS = 30.0
"""How long a webhook has to answer: kube-apiserver's own limit, which no definition changes."""
_LATE = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)"
"""One of three texts of Go's client, whose timers race: kube-apiserver 1.37.2 said this in 12 of 24 calls."""


class Version(Protocol):
    """A version of a kind, which may have no endpoints."""

    @property
    def version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def api_version(self) -> str: ...


def asking(caller: Caller) -> Ask:
    """Return the function that sends reviews."""

    async def ask(client_config: Mapping[str, Any], body: bytes) -> bytes:
        return await caller.call(Target.of(client_config), body, seconds=SECONDS, late=_LATE)

    return ask


async def nobody(client_config: Mapping[str, Any], body: bytes) -> bytes:
    """Refuse to call: a server without callers of webhooks."""
    raise CallFailed("this server calls no webhooks")


class Calls:
    """Calls webhooks for conversions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def convert(self, source: Version, target: Resource, objects: Sequence[bytes], take: Take[T]) -> list[T]:
        """Convert objects from one version of a kind to another by one call. `objects` are JSON. Raises Failed."""
        assert target.custom is not None
        webhook = target.custom.webhook
        assert webhook is not None
        began = time.perf_counter()
        succeeded = False
        try:
            found = await self._converted(webhook, source, target, objects=objects, take=take)
            succeeded = True
        except Failed as e:
            _count(began, e.failure)
            about = {
                "definition": webhook.definition,
                "from": source.version,
                "to": target.version,
                "error": str(e)[:1024],
            }
            logger.warning("a conversion webhook failed", extra=about)
            raise
        finally:
            seconds = time.perf_counter() - began
            labels = webhook.definition, source.version, target.version, "true" if succeeded else "false"
            metrics.CRD_CONVERSION_SECONDS.labels(*labels).observe(seconds)
        _count(began, None)
        return found

    async def _converted(
        self,
        webhook: ConversionWebhook,
        source: Version,
        target: Resource,
        *,
        objects: Sequence[bytes],
        take: Take[T],
    ) -> list[T]:
        subject = f"{source.api_version}, Kind={source.kind}"
        version, uid = review.version_for(webhook.review_versions), str(uuid.uuid4())
        if version is None:
            raise Failed(Failure.CALL, "no supported conversion review versions")
        described: spans.Attributes = {
            "custom-resource-definition": webhook.definition,
            "desired-api-version": target.api_version,
            "object-count": len(objects),
            "UID": uid,
        }
        try:
            with spans.span("Call conversion webhook", lambda: described):
                data = await self._ask(webhook.client_config, review.request(version, uid, target.api_version, objects))
        except CallFailed as e:
            raise review.failed(subject, Failure.CALL, str(e)) from e

        def read() -> list[T]:
            found = review.objects(data, version=version, uid=uid, subject=subject, count=len(objects))
            return [take(place, raw) for place, raw in enumerate(found)]

        return await run_sized(CONVERT, max(len(data), sum(map(len, objects))), read)


def _count(began: float, failure: Failure | None) -> None:
    labels = ("success", "") if failure is None else ("failure", failure.value)
    metrics.CONVERSIONS.labels(*labels).inc()
    metrics.CONVERSION_SECONDS.labels(*labels).observe(time.perf_counter() - began)
